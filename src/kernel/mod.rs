//! SIMD kernels: distances between a query and rows, with the same bits at every level.
//!
//! A [`Kernels`] is a table of functions for one [`Level`]. It is handed out only where its level was found to run,
//! so its methods are safe; finding out happens once ([`Kernels::best`]), never per call.
//!
//! | level | where | registers for the 16 lanes of a row |
//! |---|---|---|
//! | [`Scalar`](Level::Scalar) | everywhere; the oracle of the others ([`scalar`]) | what the compiler makes of `[f32; 16]` |
//! | [`Avx2`](Level::Avx2) | x86-64 with AVX2 and F16C, detected when first asked | 2 × 256 bits |
//! | [`Avx512`](Level::Avx512) | x86-64 from Ice Lake and Zen 4 on, detected and tried when first asked | 1 × 512 bits |
//! | [`Neon`](Level::Neon) | little-endian aarch64, detected when first asked | 4 × 128 bits |
//! | [`Simd128`](Level::Simd128) | wasm32, where the module was compiled with `simd128` | 4 × 128 bits |
//! | [`RelaxedSimd`](Level::RelaxedSimd) | wasm32, where it was compiled with `relaxed-simd` as well | 4 × 128 bits |
//!
//! Rows are bytes at any alignment, so that a mapped file, a `Vec` and a scratch buffer look alike: little-endian `f32`
//! or f16, or integer codes of 8, 4 or 1 bit. This module knows nothing of storage or metrics.
//!
//! # The numeric contract
//!
//! Floating-point addition is not associative, so the order of every addition is fixed, and every level keeps to it.
//! There are [`LANES`] = 16 virtual lanes, all starting at +0.0; element `i` goes to lane `i % 16`:
//!
//! ```text
//!    elements   0   1   2  ···  15 │ 16  17  18  ···  31 │ 32  33  34 (the tail, here 3 long)
//!               │   │   │       │     │   │   │        │     │   │   │
//!               ▼   ▼   ▼       ▼     ▼   ▼   ▼        ▼     ▼   ▼   ▼
//!    lanes      0   1   2  ···  15    0   1   2  ···  15     0   1   2
//!
//!    dot        lane ← lane + q·x                     the product is rounded, then the sum: never fused
//!    L2         d ← q − x;   lane ← lane + d·d        likewise
//!
//!    the tree   lanes 0 ··················· 15
//!               8 sums:   lane[i] + lane[i + 8]       i < 8
//!               4 sums:   lane[i] + lane[i + 4]       i < 4
//!               2 sums:   lane[i] + lane[i + 2]       i < 2
//!               the sum:  lane[0] + lane[1]
//! ```
//!
//! A tail may be padded with zeros in query and row alike: it adds +0.0 to a lane, and a lane never is −0.0 (it starts
//! at +0.0, and rounding to nearest, only −0.0 + −0.0 gives −0.0). Subnormals are kept, not flushed. The one-to-four
//! kernels give for each row exactly what the one-to-one kernels give. Only the payload of a NaN is left open; finite
//! inputs within the limits of [`Metric`](crate::Metric) never make one.
//!
//! An f16 is widened exactly, in registers, and goes the same way: rows of f16 have the bits of the `f32` rows they
//! stand for. Integer kernels are exact: [`Int8Query`], [`Int4Query`] and [`Bits1Query`] are limited so that no sum
//! overflows up to [`MAX_DIMENSION`]. An integer query is arranged once, as its level likes to read it; rows are read
//! as they lie.
//!
//! Against exact arithmetic, with u = 2⁻²⁴ and γₙ = n·u / (1 − n·u), and where no product underflows:
//! |dot − Σ qᵢxᵢ| ≤ γₙ · Σ |qᵢxᵢ| and |l2 − Σ (qᵢ − xᵢ)²| ≤ γₙ₊₂ · Σ (qᵢ − xᵢ)².
//!
//! # Adding a level, adding an encoding
//!
//! A level: add the variant to [`Level`] and [`Level::ALL`] (which goes from the least to the best), write its module
//! with one `static` table, and its arm in [`Kernels::for_level`], the only place that detects features. The parity
//! suite runs it from then on. AVX-512 holds the 16 lanes of a row in one register, and masks serve its tail.
//!
//! An encoding: add its functions as fields of [`Kernels`], first in [`scalar`], and a safe method that checks lengths.
//! A level without its own version of a function takes the one of the level below it, or of [`scalar`].

mod query;
pub mod scalar;
pub mod sieve;

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon_dot;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm;
#[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
mod wasm_relaxed;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
mod x86_512;

use crate::error::{Error, Result};
use crate::metric::MAX_DIMENSION;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

pub use query::{Bits1Query, INT8_QUERY_MAX, Int4Query, Int8Query};

/// Virtual lanes of the numeric contract: element `i` is summed in lane `i % LANES`, at every level.
pub const LANES: usize = 16;

/// Bytes of an `f32` in a row.
const F32: usize = size_of::<f32>();

/// Bytes of an f16 in a row.
const F16: usize = size_of::<u16>();

/// Bytes of one element for each lane.
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little"),
    all(target_arch = "wasm32", target_feature = "simd128")
))]
const BLOCK: usize = LANES * F32;

/// A kind of SIMD that kernels are written for.
///
/// ```
/// use twindex::Level;
///
/// assert!(Level::Scalar.is_available());
/// assert_eq!("avx2".parse::<Level>()?, Level::Avx2);
/// # Ok::<(), twindex::Error>(())
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// No explicit SIMD. Runs everywhere.
    Scalar,
    /// x86-64 with AVX2 and F16C.
    Avx2,
    /// x86-64 with AVX-512 as processors have it from Ice Lake and Zen 4 on.
    Avx512,
    /// aarch64 with NEON.
    Neon,
    /// WebAssembly's fixed-width SIMD.
    Simd128,
    /// WebAssembly's fixed-width SIMD and its relaxed instructions, of which only those with integers are used.
    RelaxedSimd,
}

impl Level {
    /// All levels, those of one architecture from the least to the best.
    pub const ALL: &'static [Level] =
        &[Level::Scalar, Level::Avx2, Level::Avx512, Level::Neon, Level::Simd128, Level::RelaxedSimd];

    /// The name used by the command line, JavaScript and in reports: `scalar`, `avx2`, `avx512`, `neon`, `simd128` or
    /// `relaxed-simd`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Neon => "neon",
            Level::Simd128 => "simd128",
            Level::RelaxedSimd => "relaxed-simd",
        }
    }

    /// The levels this process can run, the best last. Never empty: [`Level::Scalar`] always is among them.
    pub fn available() -> Vec<Level> {
        Level::ALL.iter().copied().filter(|level| level.is_available()).collect()
    }

    /// Whether this process can run this level.
    pub fn is_available(self) -> bool {
        Kernels::for_level(self).is_some()
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Level::ALL.iter().copied().find(|level| level.name() == s).ok_or_else(|| Error::InvalidParameter {
            name: "level",
            expected: "scalar, avx2, avx512, neon, simd128 or relaxed-simd",
            got: format!("{s:?}"),
        })
    }
}

// Every function in a table checks the lengths of its rows itself (`check`), so that what it needs beyond that is its
// level's instructions alone, and its inner loop is known to stay within the rows.
type One<Query, Raw> = unsafe fn(&Query, &[u8]) -> Raw;
type Four<Query, Raw> = unsafe fn(&Query, [&[u8]; 4]) -> [Raw; 4];
type Arrange<Query, Value> = unsafe fn(&[Value], &mut Query);

/// The kernels of one [`Level`]. See the [module documentation](self) for what they promise.
///
/// All take rows at any alignment. Time is linear in the dimension; nothing is allocated but by the first `arrange_…`
/// of a query.
///
/// ```
/// use twindex::Kernels;
///
/// let query = [1.0f32, 2.0, 3.0];
/// let row: Vec<u8> = [4.0f32, 5.0, 6.0].iter().flat_map(|x| x.to_le_bytes()).collect();
/// let kernels = Kernels::best();
/// assert_eq!(kernels.dot_f32(&query, &row), 32.0);
/// assert_eq!(kernels.l2_f32(&query, &row), 27.0);
/// ```
pub struct Kernels {
    level: Level,
    dot_f32: One<[f32], f32>,
    dot_f32_x4: Four<[f32], f32>,
    l2_f32: One<[f32], f32>,
    l2_f32_x4: Four<[f32], f32>,
    dot_f16: One<[f32], f32>,
    dot_f16_x4: Four<[f32], f32>,
    l2_f16: One<[f32], f32>,
    l2_f16_x4: Four<[f32], f32>,
    arrange_int8: Arrange<Int8Query, i16>,
    dot_int8: One<Int8Query, i64>,
    dot_int8_x4: Four<Int8Query, i64>,
    arrange_int4: Arrange<Int4Query, i8>,
    dot_int4: One<Int4Query, i32>,
    dot_int4_x4: Four<Int4Query, i32>,
    arrange_bits1: Arrange<Bits1Query, i8>,
    dot_bits1: One<Bits1Query, i32>,
    dot_bits1_x4: Four<Bits1Query, i32>,
}

#[expect(unsafe_code, reason = "calls of functions that need their level's instructions")]
impl Kernels {
    /// The kernels of the best level this process can run, detected once.
    pub fn best() -> &'static Kernels {
        static BEST: OnceLock<&'static Kernels> = OnceLock::new();
        BEST.get_or_init(Kernels::detect)
    }

    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    fn detect() -> &'static Kernels {
        Level::ALL.iter().rev().find_map(|&level| Kernels::for_level(level)).unwrap_or(&scalar::KERNELS)
    }

    /// Without a way to the scalar kernels, so that a module has them only if it asks for levels by name.
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    fn detect() -> &'static Kernels {
        #[cfg(target_feature = "relaxed-simd")]
        if relaxed_simd() {
            return &wasm_relaxed::KERNELS;
        }
        &wasm::KERNELS
    }

    /// The kernels of this level, or `None` where this process cannot run them.
    pub fn for_level(level: Level) -> Option<&'static Kernels> {
        match level {
            Level::Scalar => Some(&scalar::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 if avx2() => Some(&x86::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 if avx512() => Some(&x86_512::KERNELS),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Level::Neon if std::arch::is_aarch64_feature_detected!("neon") => {
                let dot_product = std::arch::is_aarch64_feature_detected!("dotprod");
                Some(if dot_product { &neon_dot::KERNELS } else { &neon::KERNELS })
            }
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => Some(&wasm::KERNELS),
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Level::RelaxedSimd if relaxed_simd() => Some(&wasm_relaxed::KERNELS),
            _ => None,
        }
    }

    /// Which level these are.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Inner product Σ qᵢxᵢ.
    ///
    /// # Panics
    /// If `row` is not `4 * query.len()` bytes long.
    #[inline]
    pub fn dot_f32(&self, query: &[f32], row: &[u8]) -> f32 {
        // SAFETY: the only way to a table is `for_level`, which found that this process runs its level.
        unsafe { (self.dot_f32)(query, row) }
    }

    /// Inner product Σ qᵢxᵢ with each of four rows; the same bits as four calls of [`dot_f32`](Self::dot_f32).
    ///
    /// # Panics
    /// If a row is not `4 * query.len()` bytes long.
    #[inline]
    pub fn dot_f32_x4(&self, query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
        // SAFETY: as in `dot_f32`.
        unsafe { (self.dot_f32_x4)(query, rows) }
    }

    /// Squared Euclidean distance Σ (qᵢ − xᵢ)².
    ///
    /// # Panics
    /// If `row` is not `4 * query.len()` bytes long.
    #[inline]
    pub fn l2_f32(&self, query: &[f32], row: &[u8]) -> f32 {
        // SAFETY: as in `dot_f32`.
        unsafe { (self.l2_f32)(query, row) }
    }

    /// Squared Euclidean distance to each of four rows; the same bits as four calls of [`l2_f32`](Self::l2_f32).
    ///
    /// # Panics
    /// If a row is not `4 * query.len()` bytes long.
    #[inline]
    pub fn l2_f32_x4(&self, query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
        // SAFETY: as in `dot_f32`.
        unsafe { (self.l2_f32_x4)(query, rows) }
    }

    /// Inner product Σ qᵢxᵢ with a row of f16: the bits of [`dot_f32`](Self::dot_f32) for the same values.
    ///
    /// # Panics
    /// If `row` is not `2 * query.len()` bytes long.
    #[inline]
    pub fn dot_f16(&self, query: &[f32], row: &[u8]) -> f32 {
        // SAFETY: as in `dot_f32`.
        unsafe { (self.dot_f16)(query, row) }
    }

    /// Inner product Σ qᵢxᵢ with each of four rows of f16; the same bits as four calls of [`dot_f16`](Self::dot_f16).
    ///
    /// # Panics
    /// If a row is not `2 * query.len()` bytes long.
    #[inline]
    pub fn dot_f16_x4(&self, query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
        // SAFETY: as in `dot_f32`.
        unsafe { (self.dot_f16_x4)(query, rows) }
    }

    /// Squared Euclidean distance Σ (qᵢ − xᵢ)² to a row of f16: the bits of [`l2_f32`](Self::l2_f32) for the same
    /// values.
    ///
    /// # Panics
    /// If `row` is not `2 * query.len()` bytes long.
    #[inline]
    pub fn l2_f16(&self, query: &[f32], row: &[u8]) -> f32 {
        // SAFETY: as in `dot_f32`.
        unsafe { (self.l2_f16)(query, row) }
    }

    /// Squared Euclidean distance to each of four rows of f16; the same bits as four calls of [`l2_f16`](Self::l2_f16).
    ///
    /// # Panics
    /// If a row is not `2 * query.len()` bytes long.
    #[inline]
    pub fn l2_f16_x4(&self, query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
        // SAFETY: as in `dot_f32`.
        unsafe { (self.l2_f16_x4)(query, rows) }
    }

    /// Arranges `values` as a query for rows of int8 codes, for these kernels alone. Reuses the memory `query` has.
    ///
    /// # Panics
    /// If a magnitude is beyond [`INT8_QUERY_MAX`], or there are more than [`MAX_DIMENSION`] values.
    pub fn arrange_int8(&self, values: &[i16], query: &mut Int8Query) {
        assert!(values.len() <= MAX_DIMENSION, "{} values are more than {MAX_DIMENSION}", values.len());
        let (least, most) = values.iter().fold((0, 0), |(least, most), &x| (x.min(least), x.max(most)));
        let within = -INT8_QUERY_MAX <= least && most <= INT8_QUERY_MAX;
        assert!(within, "components from {least} to {most} are beyond ±{INT8_QUERY_MAX}");
        // SAFETY: as in `dot_f32`.
        unsafe { (self.arrange_int8)(values, query) };
        query.level = Some(self.level);
    }

    /// Σ qᵢcᵢ with a row of int8 codes c, each a signed byte: exact.
    ///
    /// # Panics
    /// If these kernels did not arrange `query`, or `row` is not `query.dimension()` bytes long.
    #[inline]
    pub fn dot_int8(&self, query: &Int8Query, row: &[u8]) -> i64 {
        self.check_level(query.level);
        // SAFETY: as in `dot_f32`.
        unsafe { (self.dot_int8)(query, row) }
    }

    /// [`dot_int8`](Self::dot_int8) with each of four rows.
    ///
    /// # Panics
    /// As [`dot_int8`](Self::dot_int8).
    #[inline]
    pub fn dot_int8_x4(&self, query: &Int8Query, rows: [&[u8]; 4]) -> [i64; 4] {
        self.check_level(query.level);
        // SAFETY: as in `dot_f32`.
        unsafe { (self.dot_int8_x4)(query, rows) }
    }

    /// Arranges `values` as a query for rows of int4 codes, for these kernels alone. Reuses the memory `query` has.
    ///
    /// # Panics
    /// If there are more than [`MAX_DIMENSION`] values.
    pub fn arrange_int4(&self, values: &[i8], query: &mut Int4Query) {
        assert!(values.len() <= MAX_DIMENSION, "{} values are more than {MAX_DIMENSION}", values.len());
        // SAFETY: as in `dot_f32`.
        unsafe { (self.arrange_int4)(values, query) };
        query.level = Some(self.level);
    }

    /// Σ qᵢcᵢ with a row of int4 codes c, 0 to 15: exact. [`Int4Query`] says how nibbles lie in a row.
    ///
    /// # Panics
    /// If these kernels did not arrange `query`, or `row` is not `query.dimension().div_ceil(2)` bytes long.
    #[inline]
    pub fn dot_int4(&self, query: &Int4Query, row: &[u8]) -> i32 {
        self.check_level(query.level);
        // SAFETY: as in `dot_f32`.
        unsafe { (self.dot_int4)(query, row) }
    }

    /// [`dot_int4`](Self::dot_int4) with each of four rows.
    ///
    /// # Panics
    /// As [`dot_int4`](Self::dot_int4).
    #[inline]
    pub fn dot_int4_x4(&self, query: &Int4Query, rows: [&[u8]; 4]) -> [i32; 4] {
        self.check_level(query.level);
        // SAFETY: as in `dot_f32`.
        unsafe { (self.dot_int4_x4)(query, rows) }
    }

    /// Arranges `values` as a query for rows of 1-bit codes, for these kernels alone. Reuses the memory `query` has.
    ///
    /// # Panics
    /// If there are more than [`MAX_DIMENSION`] values.
    pub fn arrange_bits1(&self, values: &[i8], query: &mut Bits1Query) {
        assert!(values.len() <= MAX_DIMENSION, "{} values are more than {MAX_DIMENSION}", values.len());
        // SAFETY: as in `dot_f32`.
        unsafe { (self.arrange_bits1)(values, query) };
        query.level = Some(self.level);
    }

    /// Σ qᵢcᵢ with a row of 1-bit codes c, 0 or 1: exact. [`Bits1Query`] says how bits lie in a row. Bits behind the
    /// last component do not count.
    ///
    /// # Panics
    /// If these kernels did not arrange `query`, or `row` is not `query.dimension().div_ceil(8)` bytes long.
    #[inline]
    pub fn dot_bits1(&self, query: &Bits1Query, row: &[u8]) -> i32 {
        self.check_level(query.level);
        // SAFETY: as in `dot_f32`.
        unsafe { (self.dot_bits1)(query, row) }
    }

    /// [`dot_bits1`](Self::dot_bits1) with each of four rows.
    ///
    /// # Panics
    /// As [`dot_bits1`](Self::dot_bits1).
    #[inline]
    pub fn dot_bits1_x4(&self, query: &Bits1Query, rows: [&[u8]; 4]) -> [i32; 4] {
        self.check_level(query.level);
        // SAFETY: as in `dot_f32`.
        unsafe { (self.dot_bits1_x4)(query, rows) }
    }

    #[inline]
    fn check_level(&self, arranged: Option<Level>) {
        if arranged != Some(self.level) {
            refuse_level(arranged, self.level);
        }
    }

    /// Hints that the first `lines` cache lines (of 64 bytes) that `items` touch will be read soon. A hint only: it
    /// changes no result, and on a target without such an instruction it is nothing. One instruction a line.
    #[inline]
    pub fn prefetch<T>(&self, items: &[T], lines: usize) {
        #[cfg(target_arch = "x86_64")]
        x86::prefetch(items, lines);
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        neon::prefetch(items, lines);
        #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
        let _ = (items, lines);
    }
}

/// Whether the processor has AVX2 and F16C, as all since Haswell and Zen do.
#[cfg(target_arch = "x86_64")]
fn avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("f16c")
}

/// Whether the processor has AVX-512, and it gives the scalar bits. Few machines that test this code have it, so it is
/// tried once wherever it is met.
#[cfg(target_arch = "x86_64")]
fn avx512() -> bool {
    static AGREES: OnceLock<bool> = OnceLock::new();
    has_avx512() && *AGREES.get_or_init(|| agrees(&x86_512::KERNELS, &scalar::KERNELS))
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512vnni")
}

/// Whether the engine's relaxed instructions give the bits of those that are not. Node.js 20, which has them behind a
/// flag, gets them wrong on a processor without AVX.
#[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
fn relaxed_simd() -> bool {
    static AGREES: OnceLock<bool> = OnceLock::new();
    *AGREES.get_or_init(|| agrees(&wasm_relaxed::KERNELS, &wasm::KERNELS))
}

/// Whether two tables give the same bits, for rows around the edges of a block.
#[cfg(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "relaxed-simd")))]
fn agrees(kernels: &Kernels, proven: &Kernels) -> bool {
    [0, 1, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 300]
        .into_iter()
        .all(|n| sample(kernels, n) == sample(proven, n))
}

/// What the kernels give for queries and rows of `n` components with all their bits in use, floats as their bits.
#[cfg(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "relaxed-simd")))]
fn sample(kernels: &Kernels, n: usize) -> Vec<i64> {
    let number = |i: usize| (i as f32 * 0.618_034 + 0.1).fract() * 3.0 - 1.5;
    let byte = |i: usize| (number(i) * 1e4) as i32 as u8;
    // Without the lowest bit of its exponent no f16 is infinite.
    let half = |i: usize| [byte(i), byte(i + 1) & 0b1111_1011];
    let rows = |put: &dyn Fn(usize, &mut Vec<u8>)| {
        [3, 4, 5, 6].map(|first| {
            let mut row = Vec::new();
            (0..n).for_each(|i| put(7 * i + first, &mut row));
            row
        })
    };
    let floats = rows(&|i, row| row.extend(number(i).to_le_bytes()));
    let halves = rows(&|i, row| row.extend(half(i)));
    let codes = rows(&|i, row| row.push(byte(i)));
    let first = |rows: &[Vec<u8>; 4], len: usize| rows.each_ref().map(|row| row[..len].to_vec());
    let (nibbles, bits) = (first(&codes, n.div_ceil(2)), first(&codes, n.div_ceil(8)));

    let query: Vec<f32> = (0..n).map(number).collect();
    let small: Vec<i8> = (0..n).map(|i| byte(i) as i8).collect();
    let (mut int8, mut int4, mut bits1) = <(Int8Query, Int4Query, Bits1Query)>::default();
    kernels.arrange_int8(&query.iter().map(|x| (x * 2730.0) as i16).collect::<Vec<_>>(), &mut int8);
    kernels.arrange_int4(&small, &mut int4);
    kernels.arrange_bits1(&small, &mut bits1);
    let float = |x: f32| i64::from(x.to_bits());
    let mut out = Vec::new();
    for i in 0..4 {
        let (floats, halves, codes) = (&floats[i], &halves[i], &codes[i]);
        out.extend([kernels.dot_f32(&query, floats), kernels.l2_f32(&query, floats)].map(float));
        out.extend([kernels.dot_f16(&query, halves), kernels.l2_f16(&query, halves)].map(float));
        out.push(kernels.dot_int8(&int8, codes));
        out.push(kernels.dot_int4(&int4, &nibbles[i]).into());
        out.push(kernels.dot_bits1(&bits1, &bits[i]).into());
    }
    let [floats, halves, codes, nibbles, bits] =
        [&floats, &halves, &codes, &nibbles, &bits].map(|rows| rows.each_ref().map(|row| &row[..]));
    out.extend(kernels.dot_f32_x4(&query, floats).into_iter().chain(kernels.l2_f32_x4(&query, floats)).map(float));
    out.extend(kernels.dot_f16_x4(&query, halves).into_iter().chain(kernels.l2_f16_x4(&query, halves)).map(float));
    out.extend(kernels.dot_int8_x4(&int8, codes));
    out.extend(kernels.dot_int4_x4(&int4, nibbles).map(i64::from));
    out.extend(kernels.dot_bits1_x4(&bits1, bits).map(i64::from));
    out
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels").field("level", &self.level).finish_non_exhaustive()
    }
}

#[inline]
fn check(query: &[f32], row: &[u8]) {
    if row.len() != size_of_val(query) {
        refuse(query.len(), size_of_val(query), row.len());
    }
}

/// As [`check`], for rows of f16.
#[inline]
fn check_f16(query: &[f32], row: &[u8]) {
    if row.len() != query.len() * F16 {
        refuse(query.len(), query.len() * F16, row.len());
    }
}

#[cold]
#[inline(never)]
fn refuse(components: usize, expected: usize, got: usize) -> ! {
    panic!("a query of {components} components needs rows of {expected} bytes, this one has {got}");
}

#[cold]
#[inline(never)]
fn refuse_level(arranged: Option<Level>, level: Level) -> ! {
    match arranged {
        Some(other) => panic!("a query arranged for {other} was given to the kernels of {level}"),
        None => panic!("a query that is not arranged yet was given to the kernels of {level}"),
    }
}

/// Addresses of the first `lines` cache lines that `items` touch.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
#[inline]
fn cache_lines<T>(items: &[T], lines: usize) -> impl Iterator<Item = *const u8> {
    const LINE: usize = 64;
    let start = items.as_ptr().cast::<u8>();
    let within_line = start.addr() % LINE;
    let first = start.wrapping_sub(within_line);
    let touched = (within_line + size_of_val(items)).div_ceil(LINE);
    (0..lines.min(touched)).map(move |line| first.wrapping_add(line * LINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused() {
        for &level in Level::ALL {
            assert_eq!(level.to_string().parse::<Level>().unwrap(), level);
        }
        for bad in ["", "AVX2", "avx1024", "scalar "] {
            let error = bad.parse::<Level>().unwrap_err();
            assert_eq!(error.code(), "INVALID_PARAMETER");
            assert!(error.to_string().contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn tables_are_of_the_level_asked_for() {
        let available = Level::available();
        assert_eq!(available.first(), Some(&Level::Scalar));
        for &level in Level::ALL {
            let table = Kernels::for_level(level);
            assert_eq!(table.is_some(), available.contains(&level), "{level}");
            assert!(table.is_none_or(|kernels| kernels.level() == level), "{level}");
        }
        assert_eq!(Some(&Kernels::best().level()), available.last());
    }

    /// Without this, kernels that are wrong would merely be absent from all other tests.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn avx512_is_there_where_the_processor_has_it() {
        assert_eq!(Level::Avx512.is_available(), has_avx512());
    }

    #[test]
    #[should_panic(expected = "a query of 3 components needs rows of 12 bytes, this one has 11")]
    fn a_short_row_is_refused() {
        Kernels::best().dot_f32(&[1.0; 3], &[0; 11]);
    }

    #[test]
    #[should_panic(expected = "a query of 3 components needs rows of 12 bytes, this one has 16")]
    fn a_long_row_among_four_is_refused() {
        Kernels::best().l2_f32_x4(&[1.0; 3], [&[0; 12], &[0; 12], &[0; 12], &[0; 16]]);
    }

    #[test]
    #[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
    fn prefetch_covers_the_lines_a_row_touches_and_no_more() {
        let buffer = vec![0u8; 512];
        let start = buffer.as_ptr().align_offset(64);
        // (offset within a line, length, lines asked for, lines hinted)
        for (offset, len, lines, hinted) in [
            (0, 64, 9, 1),
            (0, 65, 9, 2),
            (1, 64, 9, 2),
            (63, 2, 9, 2),
            (0, 256, 2, 2),
            (32, 256, 9, 5),
            (0, 256, 0, 0),
        ] {
            let row = &buffer[start + offset..][..len];
            let addresses: Vec<usize> = cache_lines(row, lines).map(|p| p.addr()).collect();
            let first = row.as_ptr().addr() - offset;
            assert_eq!(addresses, (0..hinted).map(|i| first + 64 * i).collect::<Vec<_>>(), "{offset} {len} {lines}");
            Kernels::best().prefetch(row, lines);
        }
    }
}
