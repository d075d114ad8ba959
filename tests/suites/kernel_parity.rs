//! Kernel parity, written once as plain functions over `Level::available()`: a harness stamps them as tests, the native
//! one with `#[test]`, the one for WebAssembly with `#[wasm_bindgen_test]`.

use twindex::kernel::scalar;
use twindex::{Kernels, Level};

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
            for offset in [64, 65, 66, 67, 71, 79, 95, 127] {
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
