//! Kernel parity, written once as plain functions over `Level::available()`: a harness stamps them as tests, the native
//! one with `#[test]`, the one for WebAssembly with `#[wasm_bindgen_test]`.
//!
//! `B133` and the like in comments name the reports of users of other libraries that a test comes from.

use twindex::kernel::{Bits1Query, INT8_QUERY_MAX, Int4Query, Int8Query, scalar};
use twindex::{Kernels, Level, MAX_DIMENSION};

/// Stamps every test of the suite with a harness's attribute.
macro_rules! stamp {
    ($attribute:meta) => {
        $crate::kernel_parity::stamp! {
            $attribute:
            levels_are_reported,
            scalar_keeps_to_the_definition,
            levels_give_the_same_bits,
            levels_give_the_same_bits_for_extreme_values,
            four_rows_give_the_bits_of_one,
            bytes_around_a_row_do_not_matter,
            error_is_within_the_bound,
            every_component_counts,
            f16_values_widen_exactly,
            f16_rows_give_the_bits_of_f32_rows,
            bytes_around_an_f16_row_do_not_matter,
            every_f16_component_counts,
            integer_dots_are_exact,
            integer_dots_are_exact_at_the_largest_dimension,
            bytes_around_a_row_of_codes_do_not_matter,
            every_code_counts,
        }
    };
    ($attribute:meta: $($test:ident,)*) => {
        $(#[$attribute] fn $test() { $crate::kernel_parity::$test(); })*
    };
}
pub(crate) use stamp;

/// 0 (an empty sum), all up to 130 (each tail of the 16 lanes, eight times over), and one to each side of the sizes
/// that embeddings have.
fn dimensions() -> impl Iterator<Item = usize> {
    (0..=130).chain([255, 256, 257, 383, 384, 385, 767, 768, 769, 1535, 1536, 1537])
}

fn available() -> impl Iterator<Item = &'static Kernels> {
    Level::available().into_iter().map(|level| Kernels::for_level(level).expect("an available level has kernels"))
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [−1, 1), all 24 bits of the mantissa in use.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn vector(&mut self, dimension: usize) -> Vec<f32> {
        (0..dimension).map(|_| self.unit()).collect()
    }

    /// Zeros of both signs, subnormals, and magnitudes whose products underflow, cancel and dwarf each other.
    fn extreme_vector(&mut self, dimension: usize) -> Vec<f32> {
        (0..dimension)
            .map(|_| match self.next() % 8 {
                0 => 0.0,
                1 => -0.0,
                2 => f32::from_bits(1 + (self.next() % 0x7F_FFFF) as u32),
                3 => -f32::from_bits(1 + (self.next() % 0x7F_FFFF) as u32),
                4 => self.unit() * 1e-20,
                5 => self.unit() * 1e17,
                6 => 1e17f32.copysign(self.unit()),
                _ => self.unit(),
            })
            .collect()
    }
}

fn bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The contract of `twindex::kernel`, element by element.
fn by_definition(query: &[f32], row: &[f32], term: fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; 16];
    for i in 0..query.len() {
        lanes[i % 16] += term(query[i], row[i]);
    }
    let eight: [f32; 8] = std::array::from_fn(|i| lanes[i] + lanes[i + 8]);
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

fn product(q: f32, x: f32) -> f32 {
    q * x
}

fn squared_difference(q: f32, x: f32) -> f32 {
    (q - x) * (q - x)
}

#[track_caller]
fn assert_same_bits(got: f32, expected: f32, context: std::fmt::Arguments<'_>) {
    assert_eq!(got.to_bits(), expected.to_bits(), "{context}: {got:e} instead of {expected:e}");
}

#[track_caller]
fn assert_parity(kernels: &Kernels, query: &[f32], row: &[u8]) {
    let (level, n) = (kernels.level(), query.len());
    assert_same_bits(kernels.dot_f32(query, row), scalar::dot_f32(query, row), format_args!("dot {level} {n}"));
    assert_same_bits(kernels.l2_f32(query, row), scalar::l2_f32(query, row), format_args!("l2 {level} {n}"));
}

/// Prints what the other tests cover here.
pub fn levels_are_reported() {
    let ran = Level::available();
    let names = |levels: &[Level]| levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(" ");
    let skipped: Vec<Level> = Level::ALL.iter().copied().filter(|level| !ran.contains(level)).collect();
    println!("kernel levels run: {}; skipped: {}", names(&ran), names(&skipped));
    assert!(ran.contains(&Level::Scalar));
    assert_eq!(ran.len() + skipped.len(), Level::ALL.len());
    assert_eq!(Kernels::best().level(), *ran.last().expect("never empty"));
}

/// The oracle against the definition, on ordinary and extreme values.
pub fn scalar_keeps_to_the_definition() {
    let mut random = Random(1);
    for n in dimensions() {
        for (query, row) in [(random.vector(n), random.vector(n)), (random.extreme_vector(n), random.extreme_vector(n))]
        {
            let dot = scalar::dot_f32(&query, &bytes(&row));
            assert_same_bits(dot, by_definition(&query, &row, product), format_args!("dot {n}"));
            let l2 = scalar::l2_f32(&query, &bytes(&row));
            assert_same_bits(l2, by_definition(&query, &row, squared_difference), format_args!("l2 {n}"));
        }
    }
    // A sum that tells the order: the lanes 0 and 8 meet first, and cancel; any other order loses the 1.
    let mut query = vec![0.0; 16];
    (query[0], query[4], query[8]) = (1e9, 1.0, -1e9);
    assert_eq!(scalar::dot_f32(&query, &bytes(&[1.0; 16])), 1.0);
    // Products that tell a fused multiply-add: (1 + 2⁻¹²)² = 1 + 2⁻¹¹ + 2⁻²⁴ rounds to 1 + 2⁻¹¹. Both land in lane 0.
    let x = 1.0 + 2f32.powi(-12);
    let (mut query, mut row) = (vec![0.0; 17], vec![0.0; 17]);
    (query[0], row[0]) = (-1.0 - 2f32.powi(-11), 1.0);
    (query[16], row[16]) = (x, x);
    assert_eq!(x.mul_add(x, query[0]), 2f32.powi(-24));
    assert_eq!(scalar::dot_f32(&query, &bytes(&row)), 0.0);
}

/// Every level against the oracle.
// B136
pub fn levels_give_the_same_bits() {
    let mut random = Random(2);
    for kernels in available() {
        for n in dimensions() {
            for _ in 0..4 {
                assert_parity(kernels, &random.vector(n), &bytes(&random.vector(n)));
            }
        }
    }
}

/// Likewise with signed zeros, subnormals and large magnitudes; short of overflow, as the index refuses what could.
pub fn levels_give_the_same_bits_for_extreme_values() {
    let mut random = Random(3);
    let mut subnormal = 0;
    for kernels in available() {
        for n in dimensions() {
            for _ in 0..8 {
                let (query, row) = (random.extreme_vector(n), random.extreme_vector(n));
                assert!(scalar::l2_f32(&query, &bytes(&row)).is_finite());
                assert_parity(kernels, &query, &bytes(&row));
            }
            let tiny = vec![f32::MIN_POSITIVE; n];
            let half = bytes(&vec![0.25; n]);
            assert_parity(kernels, &tiny, &half);
            subnormal += usize::from(kernels.dot_f32(&tiny, &half).is_subnormal());
            for (q, x) in [(0.0, -0.0), (-0.0, 0.0), (-0.0, 1.0), (1e-30, -1e-30)] {
                let (query, row) = (vec![q; n], bytes(&vec![x; n]));
                assert_parity(kernels, &query, &row);
                assert_same_bits(kernels.dot_f32(&query, &row), 0.0, format_args!("{q:e} · {x:e}"));
            }
        }
    }
    assert!(subnormal >= available().count(), "subnormal results must not be flushed to zero");
}

/// The one-to-four form gives each row the bits of the one-to-one form, wherever it stands among the four.
pub fn four_rows_give_the_bits_of_one() {
    let mut random = Random(4);
    for kernels in available() {
        for n in dimensions() {
            for extreme in [false, true] {
                let mut draw = || if extreme { random.extreme_vector(n) } else { random.vector(n) };
                let query = draw();
                let rows: [Vec<u8>; 4] = std::array::from_fn(|_| bytes(&draw()));
                let rows = [0, 1, 2, 3].map(|i| rows[i].as_slice());
                let dots = kernels.dot_f32_x4(&query, rows);
                let l2s = kernels.l2_f32_x4(&query, rows);
                for i in 0..4 {
                    let context = format_args!("{} {n}, row {i}", kernels.level()).to_string();
                    assert_same_bits(dots[i], kernels.dot_f32(&query, rows[i]), format_args!("dot {context}"));
                    assert_same_bits(l2s[i], kernels.l2_f32(&query, rows[i]), format_args!("l2 {context}"));
                }
            }
        }
    }
}

// B134
/// Rows at every alignment, between bytes that would spoil any sum they entered (all ones is a NaN).
pub fn bytes_around_a_row_do_not_matter() {
    let mut random = Random(5);
    for kernels in available() {
        for n in dimensions() {
            let query = random.vector(n);
            let row = bytes(&random.vector(n));
            let (dot, l2) = (scalar::dot_f32(&query, &row), scalar::l2_f32(&query, &row));
            let mut buffer = vec![0xFF; row.len() + 192];
            let mut query_buffer = vec![f32::NAN; n + 32];
            for offset in offsets(n) {
                buffer.fill(0xFF);
                buffer[offset..][..row.len()].copy_from_slice(&row);
                let row = &buffer[offset..][..row.len()];
                query_buffer.fill(f32::NAN);
                query_buffer[offset % 16..][..n].copy_from_slice(&query);
                let query = &query_buffer[offset % 16..][..n];
                let context = format_args!("{} {n}, offset {offset}", kernels.level()).to_string();
                assert_same_bits(kernels.dot_f32(query, row), dot, format_args!("dot {context}"));
                assert_same_bits(kernels.l2_f32(query, row), l2, format_args!("l2 {context}"));
                for got in kernels.dot_f32_x4(query, [row; 4]) {
                    assert_same_bits(got, dot, format_args!("dot of four {context}"));
                }
                for got in kernels.l2_f32_x4(query, [row; 4]) {
                    assert_same_bits(got, l2, format_args!("l2 of four {context}"));
                }
            }
        }
    }
}

// B133, B136: for up to 130 components γₙ is less than 1e-5.
/// |got − reference| ≤ γₙ·Σ|qᵢxᵢ| for dot, γₙ₊₂·Σ(qᵢ−xᵢ)² for L2, with γₙ = n·u/(1−n·u) and u = 2⁻²⁴.
pub fn error_is_within_the_bound() {
    let gamma = |n: usize| {
        let nu = n as f64 * 2f64.powi(-24);
        nu / (1.0 - nu)
    };
    let mut random = Random(6);
    for kernels in available() {
        for n in dimensions() {
            for _ in 0..8 {
                let (query, row) = (random.vector(n), random.vector(n));
                let pairs = || query.iter().zip(&row).map(|(&q, &x)| (f64::from(q), f64::from(x)));
                let dot: f64 = pairs().map(|(q, x)| q * x).sum();
                let magnitude: f64 = pairs().map(|(q, x)| (q * x).abs()).sum();
                let l2: f64 = pairs().map(|(q, x)| (q - x) * (q - x)).sum();
                let row = bytes(&row);
                let error = (f64::from(kernels.dot_f32(&query, &row)) - dot).abs();
                assert!(error <= gamma(n) * magnitude, "dot {} {n}: {error:e}", kernels.level());
                let error = (f64::from(kernels.l2_f32(&query, &row)) - l2).abs();
                assert!(error <= gamma(n + 2) * l2, "l2 {} {n}: {error:e}", kernels.level());
            }
        }
    }
}

/// Two rows that differ in one component alone do not tie: a marker in the last, and in each one in turn.
pub fn every_component_counts() {
    for kernels in available() {
        for n in dimensions().filter(|&n| n > 0) {
            let query = vec![1.0; n];
            let plain = bytes(&vec![0.0; n]);
            let components = if n <= 130 { 0..n } else { n - 1..n };
            for marked in components {
                let mut row = vec![0.0; n];
                row[marked] = 0.5;
                let row = bytes(&row);
                let context = format_args!("{} {n}, component {marked}", kernels.level()).to_string();
                assert_eq!(kernels.dot_f32(&query, &row), 0.5, "dot {context}");
                assert_eq!(kernels.l2_f32(&query, &row), n as f32 - 0.75, "l2 {context}");
                let rows = [&plain[..], &row, &plain, &row];
                assert_eq!(kernels.dot_f32_x4(&query, rows), [0.0, 0.5, 0.0, 0.5], "dot of four {context}");
                let (far, near) = (n as f32, n as f32 - 0.75);
                assert_eq!(kernels.l2_f32_x4(&query, rows), [far, near, far, near], "l2 of four {context}");
            }
        }
    }
}

/// The value of a finite f16, by the definition of the format.
fn widened(half: u16) -> f32 {
    let (exponent, fraction) = (i32::from(half >> 10 & 31), f64::from(half & 1023) / 1024.0);
    let magnitude = if exponent == 0 { fraction * 2f64.powi(-14) } else { (1.0 + fraction) * 2f64.powi(exponent - 15) };
    (if half >> 15 == 1 { -magnitude } else { magnitude }) as f32
}

fn half_bytes(row: &[u16]) -> Vec<u8> {
    row.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The dot products and the distances of f16 rows, each in the form for one and for four.
fn f16_results(kernels: &Kernels, query: &[f32], rows: [&[u8]; 4]) -> [[f32; 4]; 4] {
    [
        rows.map(|row| kernels.dot_f16(query, row)),
        kernels.dot_f16_x4(query, rows),
        rows.map(|row| kernels.l2_f16(query, row)),
        kernels.l2_f16_x4(query, rows),
    ]
}

/// Each finite f16, subnormal ones too, at one place of a row or another.
pub fn f16_values_widen_exactly() {
    const N: usize = 37;
    let finite: Vec<u16> = (0..=u16::MAX).filter(|half| half >> 10 & 31 != 31).collect();
    assert_eq!(finite.len(), 2 * 31 * 1024);
    for kernels in available() {
        for (i, values) in finite.as_chunks::<4>().0.iter().enumerate() {
            let place = i % N;
            let (mut query, mut rows) = ([0.0; N], [[0; 2 * N]; 4]);
            query[place] = 1.0;
            for (row, value) in rows.iter_mut().zip(values) {
                row[2 * place..][..2].copy_from_slice(&value.to_le_bytes());
            }
            let rows = rows.each_ref().map(|row| &row[..]);
            let (fours, one) = (kernels.dot_f16_x4(&query, rows), kernels.dot_f16(&query, rows[0]));
            for (&got, &value) in fours.iter().chain([&one]).zip(values.iter().chain([&values[0]])) {
                // A sum never is −0.0.
                assert_same_bits(got, 0.0 + widened(value), format_args!("{} {value:#06x}", kernels.level()));
            }
        }
    }
}

/// The f16 kernels of every level give the bits that the f32 oracle gives for the widened row.
pub fn f16_rows_give_the_bits_of_f32_rows() {
    let mut random = Random(7);
    for kernels in available() {
        for n in dimensions() {
            for extreme in [false, true] {
                let query = if extreme { random.extreme_vector(n) } else { random.vector(n) };
                let rows: [Vec<u16>; 4] =
                    std::array::from_fn(|_| (0..n).map(|_| random.next() as u16).map(finite_half).collect());
                let halves = rows.each_ref().map(|row| half_bytes(row));
                let [dots, dots_x4, l2s, l2s_x4] = f16_results(kernels, &query, halves.each_ref().map(|row| &row[..]));
                for i in 0..4 {
                    let wide = bytes(&rows[i].iter().map(|&half| widened(half)).collect::<Vec<_>>());
                    let context = format_args!("{} {n}, row {i}", kernels.level()).to_string();
                    let (dot, l2) = (scalar::dot_f32(&query, &wide), scalar::l2_f32(&query, &wide));
                    assert_same_bits(dots[i], dot, format_args!("dot {context}"));
                    assert_same_bits(dots_x4[i], dot, format_args!("dot of four {context}"));
                    assert_same_bits(l2s[i], l2, format_args!("l2 {context}"));
                    assert_same_bits(l2s_x4[i], l2, format_args!("l2 of four {context}"));
                }
            }
        }
    }
}

/// Any bits, of infinity and NaN those of the finite value with the next smaller exponent.
fn finite_half(bits: u16) -> u16 {
    if bits >> 10 & 31 == 31 { bits ^ 1 << 10 } else { bits }
}

// B134
/// As for f32; all ones is a NaN of f16 too.
pub fn bytes_around_an_f16_row_do_not_matter() {
    let mut random = Random(8);
    for kernels in available() {
        for n in dimensions() {
            let query = random.vector(n);
            let row = half_bytes(&(0..n).map(|_| finite_half(random.next() as u16)).collect::<Vec<_>>());
            let expected = f16_results(scalar_kernels(), &query, [&row; 4]).map(|four| four.map(f32::to_bits));
            let mut query_buffer = vec![f32::NAN; n + 32];
            for offset in offsets(n) {
                let buffer = surrounded(&row, offset, 0xFF);
                query_buffer.fill(f32::NAN);
                query_buffer[offset % 16..][..n].copy_from_slice(&query);
                let got = f16_results(kernels, &query_buffer[offset % 16..][..n], [&buffer[offset..][..row.len()]; 4]);
                let got = got.map(|four| four.map(f32::to_bits));
                assert_eq!(got, expected, "{} {n}, offset {offset}", kernels.level());
            }
        }
    }
}

fn scalar_kernels() -> &'static Kernels {
    Kernels::for_level(Level::Scalar).expect("runs everywhere")
}

/// Within a cache line: its start, odd places and even ones, and places where a vector crosses into the next; all 64
/// for rows of an odd number of components, shorter and longer than the widest register and than four of them.
fn offsets(n: usize) -> impl Iterator<Item = usize> {
    (64..128).filter(move |at| [15, 33, 129].contains(&n) || [64, 65, 66, 67, 71, 79, 95, 127].contains(at))
}

/// A row at an offset between bytes of one value.
fn surrounded(row: &[u8], offset: usize, around: u8) -> Vec<u8> {
    let mut buffer = vec![around; row.len() + 192];
    buffer[offset..][..row.len()].copy_from_slice(row);
    buffer
}

/// As for f32.
pub fn every_f16_component_counts() {
    const HALF: [u8; 2] = 0x3800u16.to_le_bytes();
    for kernels in available() {
        for n in dimensions().filter(|&n| n > 0) {
            let query = vec![1.0; n];
            let plain = vec![0; 2 * n];
            for marked in if n <= 130 { 0..n } else { n - 1..n } {
                let mut row = plain.clone();
                row[2 * marked..][..2].copy_from_slice(&HALF);
                let (far, near) = (n as f32, n as f32 - 0.75);
                let expected = [[0.0, 0.5, 0.0, 0.5], [far, near, far, near]];
                let [dots, dots_x4, l2s, l2s_x4] = f16_results(kernels, &query, [&plain, &row, &plain, &row]);
                let context = format_args!("{} {n}, component {marked}", kernels.level()).to_string();
                assert_eq!([dots, l2s], expected, "{context}");
                assert_eq!([dots_x4, l2s_x4], expected, "four {context}");
            }
        }
    }
}

/// What kernels of integer codes have in common. Any bytes are a row of codes.
trait Codes {
    type Query: Default;
    const NAME: &str;
    /// Ranges of a query's components, all that they may be and narrower ones that are handled in another way.
    const RANGES: &[(i64, i64)];

    fn row_len(n: usize) -> usize;
    /// Code `i` of a row of `n`.
    fn code(row: &[u8], n: usize, i: usize) -> i64;
    fn arrange(kernels: &Kernels, values: &[i64], query: &mut Self::Query);
    fn dot(kernels: &Kernels, query: &Self::Query, row: &[u8]) -> i64;
    fn dot_x4(kernels: &Kernels, query: &Self::Query, rows: [&[u8]; 4]) -> [i64; 4];
}

struct Int8;

impl Codes for Int8 {
    type Query = Int8Query;
    const NAME: &str = "int8";
    const RANGES: &[(i64, i64)] = &[(-(INT8_QUERY_MAX as i64), INT8_QUERY_MAX as i64), (-40, 40)];

    fn row_len(n: usize) -> usize {
        n
    }

    fn code(row: &[u8], _: usize, i: usize) -> i64 {
        i64::from(row[i] as i8)
    }

    fn arrange(kernels: &Kernels, values: &[i64], query: &mut Int8Query) {
        kernels.arrange_int8(&values.iter().map(|&x| x as i16).collect::<Vec<_>>(), query);
        assert_eq!(query.dimension(), values.len());
    }

    fn dot(kernels: &Kernels, query: &Int8Query, row: &[u8]) -> i64 {
        kernels.dot_int8(query, row)
    }

    fn dot_x4(kernels: &Kernels, query: &Int8Query, rows: [&[u8]; 4]) -> [i64; 4] {
        kernels.dot_int8_x4(query, rows)
    }
}

struct Int4;

impl Codes for Int4 {
    type Query = Int4Query;
    const NAME: &str = "int4";
    const RANGES: &[(i64, i64)] = &[(-128, 127), (-127, 127)];

    fn row_len(n: usize) -> usize {
        n.div_ceil(2)
    }

    fn code(row: &[u8], n: usize, i: usize) -> i64 {
        let half = n.div_ceil(2);
        i64::from(if i < half { row[i] & 15 } else { row[i - half] >> 4 })
    }

    fn arrange(kernels: &Kernels, values: &[i64], query: &mut Int4Query) {
        kernels.arrange_int4(&values.iter().map(|&x| x as i8).collect::<Vec<_>>(), query);
        assert_eq!(query.dimension(), values.len());
    }

    fn dot(kernels: &Kernels, query: &Int4Query, row: &[u8]) -> i64 {
        kernels.dot_int4(query, row).into()
    }

    fn dot_x4(kernels: &Kernels, query: &Int4Query, rows: [&[u8]; 4]) -> [i64; 4] {
        kernels.dot_int4_x4(query, rows).map(i64::from)
    }
}

struct Bits1;

impl Codes for Bits1 {
    type Query = Bits1Query;
    const NAME: &str = "bits1";
    /// What 2 to 8 planes hold.
    const RANGES: &[(i64, i64)] = &[(-128, 127), (-64, 63), (-32, 31), (-16, 15), (-8, 7), (-4, 3), (-2, 1)];

    fn row_len(n: usize) -> usize {
        n.div_ceil(8)
    }

    fn code(row: &[u8], _: usize, i: usize) -> i64 {
        i64::from(row[i / 8] >> (i % 8) & 1)
    }

    fn arrange(kernels: &Kernels, values: &[i64], query: &mut Bits1Query) {
        kernels.arrange_bits1(&values.iter().map(|&x| x as i8).collect::<Vec<_>>(), query);
        assert_eq!(query.dimension(), values.len());
        let needed = (2..).find(|bits| values.iter().all(|x| (-1 << (bits - 1)..1 << (bits - 1)).contains(x)));
        assert!(values.is_empty() || Some(query.planes()) == needed, "{} planes", query.planes());
    }

    fn dot(kernels: &Kernels, query: &Bits1Query, row: &[u8]) -> i64 {
        kernels.dot_bits1(query, row).into()
    }

    fn dot_x4(kernels: &Kernels, query: &Bits1Query, rows: [&[u8]; 4]) -> [i64; 4] {
        kernels.dot_bits1_x4(query, rows).map(i64::from)
    }
}

/// One query against four rows, in both forms, against a sum in `i64`.
fn assert_exact<C: Codes>(kernels: &Kernels, values: &[i64], query: &mut C::Query, rows: [&[u8]; 4]) {
    C::arrange(kernels, values, query);
    let exact = rows.map(|row| (0..).zip(values).map(|(i, value)| value * C::code(row, values.len(), i)).sum::<i64>());
    let context = format_args!("{} {} {}", C::NAME, kernels.level(), values.len()).to_string();
    assert_eq!(rows.map(|row| C::dot(kernels, query, row)), exact, "{context}");
    assert_eq!(C::dot_x4(kernels, query, rows), exact, "four {context}");
}

/// The most that sums can get to in either direction, and signs that would cancel in a lane but not in its neighbour.
fn assert_extremes_exact<C: Codes>(kernels: &Kernels, n: usize, query: &mut C::Query) {
    for &(least, most) in C::RANGES {
        let rows = [0x80, 0x7F, 0xFF, 0x00].map(|byte| vec![byte; C::row_len(n)]);
        let rows = rows.each_ref().map(|row| &row[..]);
        assert_exact::<C>(kernels, &vec![least; n], query, rows);
        assert_exact::<C>(kernels, &vec![most; n], query, rows);
        let alternating: Vec<i64> = (0..n).map(|i| if i % 2 == 0 { least } else { most }).collect();
        let matching: Vec<u8> = (0..C::row_len(n)).map(|i| if i % 2 == 0 { 0x80 } else { 0x7F }).collect();
        assert_exact::<C>(kernels, &alternating, query, [&matching, rows[0], rows[1], rows[2]]);
    }
}

/// All levels, the scalar one too, against the definition. One query is arranged over and over: nothing of the one
/// before may stay.
pub fn integer_dots_are_exact() {
    fn check<C: Codes>() {
        let mut random = Random(9);
        for kernels in available() {
            let mut query = C::Query::default();
            for n in dimensions() {
                for &(least, most) in C::RANGES {
                    let mut values: Vec<i64> =
                        (0..n).map(|_| least + (random.next() % (most - least + 1) as u64) as i64).collect();
                    if let Some(last) = values.last_mut() {
                        *last = least;
                    }
                    let rows: [Vec<u8>; 4] =
                        std::array::from_fn(|_| (0..C::row_len(n)).map(|_| random.next() as u8).collect());
                    assert_exact::<C>(kernels, &values, &mut query, rows.each_ref().map(|row| &row[..]));
                }
                assert_extremes_exact::<C>(kernels, n, &mut query);
            }
        }
    }
    check::<Int8>();
    check::<Int4>();
    check::<Bits1>();
}

// B136: 127s and −128s among them, 65,536 of each.
/// Sums as large as they get, where an accumulator of too few bits wraps.
pub fn integer_dots_are_exact_at_the_largest_dimension() {
    fn check<C: Codes>() {
        for kernels in available() {
            for n in [MAX_DIMENSION - 1, MAX_DIMENSION] {
                assert_extremes_exact::<C>(kernels, n, &mut C::Query::default());
            }
        }
    }
    check::<Int8>();
    check::<Int4>();
    check::<Bits1>();
}

// B134
/// Rows of codes at every alignment, between zeros and between ones; and what a row's last byte holds beyond its last
/// component.
pub fn bytes_around_a_row_of_codes_do_not_matter() {
    fn check<C: Codes>() {
        let mut random = Random(10);
        let (least, most) = C::RANGES[0];
        for kernels in available() {
            let mut query = C::Query::default();
            for n in dimensions() {
                let values: Vec<i64> =
                    (0..n).map(|_| least + (random.next() % (most - least + 1) as u64) as i64).collect();
                let row: Vec<u8> = (0..C::row_len(n)).map(|_| random.next() as u8).collect();
                assert_exact::<C>(kernels, &values, &mut query, [&row; 4]);
                let expected = C::dot(kernels, &query, &row);
                for (offset, around) in offsets(n).flat_map(|offset| [(offset, 0), (offset, 0xFF)]) {
                    let buffer = surrounded(&row, offset, around);
                    let row = &buffer[offset..][..row.len()];
                    let context = format_args!("{} {} {n}, offset {offset}", C::NAME, kernels.level()).to_string();
                    assert_eq!(C::dot(kernels, &query, row), expected, "{context}");
                    assert_eq!(C::dot_x4(kernels, &query, [row; 4]), [expected; 4], "four {context}");
                }
            }
        }
    }
    check::<Int8>();
    check::<Int4>();
    check::<Bits1>();
}

/// A row with one code that is not 0 gives that code times its own component of the query, no other.
pub fn every_code_counts() {
    fn check<C: Codes>(mark: impl Fn(&mut [u8], usize, usize)) {
        let (least, most) = C::RANGES[0];
        for kernels in available() {
            let mut query = C::Query::default();
            for n in dimensions() {
                // No two that are near each other alike: 97 has no divisor in common with a power of two.
                let values: Vec<i64> = (0..n as i64).map(|i| least + 97 * i % (most - least + 1)).collect();
                C::arrange(kernels, &values, &mut query);
                let plain = vec![0; C::row_len(n)];
                for marked in if n <= 130 { 0..n } else { n - 1..n } {
                    let mut row = plain.clone();
                    mark(&mut row, n, marked);
                    let expected = values[marked] * C::code(&row, n, marked);
                    let context = format_args!("{} {} {n}, code {marked}", C::NAME, kernels.level()).to_string();
                    assert_eq!(C::dot(kernels, &query, &row), expected, "{context}");
                    let rows = [&plain[..], &row, &plain, &row];
                    assert_eq!(C::dot_x4(kernels, &query, rows), [0, expected, 0, expected], "four {context}");
                }
            }
        }
    }
    check::<Int8>(|row, _, i| row[i] = 0x80);
    check::<Int4>(|row, n, i| if i < n.div_ceil(2) { row[i] = 0x09 } else { row[i - n.div_ceil(2)] = 0x90 });
    check::<Bits1>(|row, _, i| row[i / 8] = 1 << (i % 8));
}
