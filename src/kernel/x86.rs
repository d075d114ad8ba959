//! AVX2: the 16 lanes of a row are two 256-bit registers, so four rows are eight, and the query is loaded once for
//! the four. A tail is read by masked loads, which touch no byte outside the row.
//!
//! | rows of | a step |
//! |---|---|
//! | f16 | 16 components, widened by F16C; from there on as f32 |
//! | int8 | 32 codes, widened to words; pairs of products go to 32-bit sums, 16 of them a row |
//! | int4 | 32 bytes; low and high nibbles multiply bytes of the query |
//! | bits1 | 32 bytes; each of the 8 bits, masked out where it stands, multiplies bytes of the query |

#![expect(unsafe_code, reason = "intrinsics that read or write through pointers")]

use super::{BLOCK, Bits1Query, F16, Int4Query, Int8Query, Kernels, LANES, Level, check, check_f16, scalar};
use std::arch::x86_64::*;

pub(super) static KERNELS: Kernels = Kernels {
    level: Level::Avx2,
    dot_f32: one::<false, BLOCK>,
    dot_f32_x4: four::<false, BLOCK>,
    l2_f32: one::<true, BLOCK>,
    l2_f32_x4: four::<true, BLOCK>,
    dot_f16: one::<false, HALF_BLOCK>,
    dot_f16_x4: four::<false, HALF_BLOCK>,
    l2_f16: one::<true, HALF_BLOCK>,
    l2_f16_x4: four::<true, HALF_BLOCK>,
    arrange_int8,
    dot_int8,
    dot_int8_x4,
    arrange_int4,
    dot_int4,
    dot_int4_x4,
    arrange_bits1,
    dot_bits1,
    dot_bits1_x4,
};

/// Bytes of one f16 for each lane.
pub(super) const HALF_BLOCK: usize = LANES * F16;

const VECTOR: usize = size_of::<__m256>();

#[inline]
pub(super) fn prefetch<T>(items: &[T], lines: usize) {
    for line in super::cache_lines(items, lines) {
        // SAFETY: SSE is part of x86-64, and a prefetch of any address whatsoever neither faults nor changes memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
}

#[target_feature(enable = "avx2,f16c")]
fn one<const L2: bool, const ROW: usize>(query: &[f32], row: &[u8]) -> f32 {
    let [sums] = accumulate::<L2, ROW, 1>(query, [row]);
    reduce_one(sums)
}

/// The last two steps of the reduction: 4 lanes to 1.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn reduce_one(sums: __m128) -> f32 {
    let pairs = _mm_add_ps(sums, _mm_movehl_ps(sums, sums));
    _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)))
}

#[target_feature(enable = "avx2,f16c")]
fn four<const L2: bool, const ROW: usize>(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    reduce_four(accumulate::<L2, ROW, 4>(query, rows))
}

/// The last two steps of the reduction, for four rows at once.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn reduce_four([a, b, c, d]: [__m128; 4]) -> [f32; 4] {
    let ab = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
    let cd = _mm_add_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
    let sums = _mm_add_ps(_mm_shuffle_ps::<0b10_00_10_00>(ab, cd), _mm_shuffle_ps::<0b11_01_11_01>(ab, cd));
    let mut out = [0.0; 4];
    // SAFETY: `out` is 16 writable bytes, and the store needs no alignment.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), sums) };
    out
}

/// The lanes of `N` rows with blocks of `ROW` bytes, reduced from 16 to 4.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn accumulate<const L2: bool, const ROW: usize, const N: usize>(query: &[f32], rows: [&[u8]; N]) -> [__m128; N] {
    rows.iter().for_each(|row| check_row::<ROW>(query, row));
    let (query_blocks, query_tail) = bytemuck::cast_slice(query).as_chunks::<BLOCK>();
    let rows = rows.map(|row| {
        let (blocks, tail) = row.as_chunks::<ROW>();
        (&blocks[..query_blocks.len()], tail)
    });
    let mut lanes = [[_mm256_setzero_ps(); 2]; N];
    for i in 0..query_blocks.len() {
        let q = load(&query_blocks[i]);
        for (lanes, (blocks, _)) in lanes.iter_mut().zip(&rows) {
            let x = load(&blocks[i]);
            lanes[0] = add_term::<L2>(lanes[0], q[0], x[0]);
            lanes[1] = add_term::<L2>(lanes[1], q[1], x[1]);
        }
    }
    for half in 0..2 {
        if query_tail.len() > half * BLOCK / 2 {
            let q = load_half::<BLOCK>(query_tail, half);
            for (lanes, (_, tail)) in lanes.iter_mut().zip(&rows) {
                lanes[half] = add_term::<L2>(lanes[half], q, load_half::<ROW>(tail, half));
            }
        }
    }
    lanes.map(|[low, high]| {
        let eight = _mm256_add_ps(low, high);
        _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight))
    })
}

/// Checks a row of f32 or of f16, whichever has blocks of `ROW` bytes.
#[inline]
pub(super) fn check_row<const ROW: usize>(query: &[f32], row: &[u8]) {
    const { assert!(ROW == BLOCK || ROW == HALF_BLOCK) }
    if ROW == BLOCK { check(query, row) } else { check_f16(query, row) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn add_term<const L2: bool>(lanes: __m256, q: __m256, x: __m256) -> __m256 {
    let term = if L2 {
        let d = _mm256_sub_ps(q, x);
        _mm256_mul_ps(d, d)
    } else {
        _mm256_mul_ps(q, x)
    };
    _mm256_add_ps(lanes, term)
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load<const ROW: usize>(block: &[u8; ROW]) -> [__m256; 2] {
    if ROW == BLOCK {
        let (halves, _) = block.as_chunks();
        [_mm256_castsi256_ps(load_32(&halves[0])), _mm256_castsi256_ps(load_32(&halves[1]))]
    } else {
        let (halves, _) = block.as_chunks();
        [_mm256_cvtph_ps(load_16(&halves[0])), _mm256_cvtph_ps(load_16(&halves[1]))]
    }
}

/// Eight elements, of the first or the second half of a block that is cut short; zeros where it has fewer.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_half<const ROW: usize>(tail: &[u8], half: usize) -> __m256 {
    let bytes = load_tail(&tail[half * ROW / 2..]);
    if ROW == BLOCK { _mm256_castsi256_ps(bytes) } else { _mm256_cvtph_ps(_mm256_castsi256_si128(bytes)) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_16(bytes: &[u8; VECTOR / 2]) -> __m128i {
    // SAFETY: the load reads the 16 bytes of `bytes`, and needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_32(bytes: &[u8; VECTOR]) -> __m256i {
    // SAFETY: the load reads the 32 bytes of `bytes`, and needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// The first 32 bytes of `bytes`; zeros where it has fewer.
#[inline]
#[target_feature(enable = "avx2")]
fn load_tail(bytes: &[u8]) -> __m256i {
    let (words, rest) = bytes.as_chunks::<4>();
    let rest = rest.iter().rev().fold(0, |word, &byte| word << 8 | i32::from(byte));
    let place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let end = _mm256_set1_epi32(words.len().min(VECTOR / 4) as i32);
    // SAFETY: word i of 4 bytes is read only where i < words.len(), which lies within `bytes`; the load needs no
    // alignment and never faults for the words it does not read.
    let words = unsafe { _mm256_maskload_epi32(bytes.as_ptr().cast(), _mm256_cmpgt_epi32(end, place)) };
    _mm256_or_si256(words, _mm256_and_si256(_mm256_cmpeq_epi32(end, place), _mm256_set1_epi32(rest)))
}

/// The words, and zeros up to a whole block.
fn arrange_int8(values: &[i16], query: &mut Int8Query) {
    scalar::arrange_int8(values, query);
    query.words.resize(values.len().next_multiple_of(VECTOR), 0);
}

#[target_feature(enable = "avx2")]
fn dot_int8(query: &Int8Query, row: &[u8]) -> i64 {
    let [[low, high]] = int8(query, [row]);
    total(sum_of_eight(low), sum_of_eight(high))
}

#[target_feature(enable = "avx2")]
fn dot_int8_x4(query: &Int8Query, rows: [&[u8]; 4]) -> [i64; 4] {
    let [a, b, c, d] = int8(query, rows);
    let (low, high) = (sums_of_eight([a[0], b[0], c[0], d[0]]), sums_of_eight([a[1], b[1], c[1], d[1]]));
    std::array::from_fn(|i| total(low[i], high[i]))
}

fn total(low: i32, high: i32) -> i64 {
    i64::from(low) + (i64::from(high) << 16)
}

/// Eight sums of the lower halves of a row's sixteen sums, eight of the upper ones: these can be added up.
#[inline]
#[target_feature(enable = "avx2")]
fn int8<const N: usize>(query: &Int8Query, rows: [&[u8]; N]) -> [[__m256i; 2]; N] {
    rows.iter().for_each(|row| query.check(row));
    let (query, _) = bytemuck::cast_slice(&query.words).as_chunks::<BLOCK>();
    let rows = rows.map(|row| row.as_chunks::<VECTOR>());
    let whole = rows[0].0.len();
    let mut sums = [[_mm256_setzero_si256(); 2]; N];
    let add = |sums: &mut [__m256i; 2], q: &[u8; BLOCK], low, high| {
        let (q, _) = q.as_chunks();
        let low = _mm256_madd_epi16(_mm256_cvtepi8_epi16(low), load_32(&q[0]));
        let high = _mm256_madd_epi16(_mm256_cvtepi8_epi16(high), load_32(&q[1]));
        *sums = [_mm256_add_epi32(sums[0], low), _mm256_add_epi32(sums[1], high)];
    };
    for i in 0..whole {
        for (sums, (blocks, _)) in sums.iter_mut().zip(&rows) {
            let (x, _) = blocks[i].as_chunks();
            add(sums, &query[i], load_16(&x[0]), load_16(&x[1]));
        }
    }
    if let Some(q) = query.get(whole) {
        for (sums, (_, tail)) in sums.iter_mut().zip(&rows) {
            let x = load_tail(tail);
            add(sums, q, _mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
        }
    }
    for sums in &mut sums {
        let [a, b] = *sums;
        let lower = _mm256_set1_epi32(0xFFFF);
        let low = _mm256_add_epi32(_mm256_and_si256(a, lower), _mm256_and_si256(b, lower));
        *sums = [low, _mm256_add_epi32(_mm256_srai_epi32::<16>(a), _mm256_srai_epi32::<16>(b))];
    }
    sums
}

/// The two halves, interleaved by 32: what meets the low nibbles of a block, then what meets the high ones.
fn arrange_int4(values: &[i8], query: &mut Int4Query) {
    let (low, high) = values.split_at(values.len().div_ceil(2));
    query.dimension = values.len();
    query.low.clear();
    query.low.resize(low.len().next_multiple_of(VECTOR) * 2, 0);
    let (vectors, _) = query.low.as_chunks_mut::<VECTOR>();
    for (half, first) in [(low, 0), (high, 1)] {
        let (whole, rest) = half.as_chunks::<VECTOR>();
        let mut to = vectors.iter_mut().skip(first).step_by(2);
        to.by_ref().zip(whole).for_each(|(to, from)| *to = *from);
        to.take(1).for_each(|to| to[..rest.len()].copy_from_slice(rest));
    }
}

#[target_feature(enable = "avx2")]
fn dot_int4(query: &Int4Query, row: &[u8]) -> i32 {
    let [sum] = int4(query, [row]);
    sum_of_eight(sum)
}

#[target_feature(enable = "avx2")]
fn dot_int4_x4(query: &Int4Query, rows: [&[u8]; 4]) -> [i32; 4] {
    sums_of_eight(int4(query, rows))
}

#[inline]
#[target_feature(enable = "avx2")]
fn int4<const N: usize>(query: &Int4Query, rows: [&[u8]; N]) -> [__m256i; N] {
    rows.iter().for_each(|row| query.check(row));
    // Four products meet in a word: 4 · 15 · 128 < 2¹⁵.
    sum_words(&query.low, rows, |[low, high], x| {
        let nibble = _mm256_set1_epi8(15);
        let low = _mm256_maddubs_epi16(_mm256_and_si256(x, nibble), load_32(low));
        let high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16::<4>(x), nibble), load_32(high));
        _mm256_add_epi16(low, high)
    })
}

/// The 32-bit sums of the words that `products` makes of each 32 bytes of a row and the `Q` vectors of the query that
/// belong to them.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_words<const N: usize, const Q: usize>(
    query: &[i8],
    rows: [&[u8]; N],
    products: impl Fn(&[[u8; VECTOR]; Q], __m256i) -> __m256i,
) -> [__m256i; N] {
    let (query, _) = bytemuck::cast_slice(query).as_chunks::<VECTOR>().0.as_chunks::<Q>();
    let rows = rows.map(|row| row.as_chunks::<VECTOR>());
    let whole = rows[0].0.len();
    let mut sums = [_mm256_setzero_si256(); N];
    let add = |sums: &mut __m256i, q, x| {
        *sums = _mm256_add_epi32(*sums, _mm256_madd_epi16(products(q, x), _mm256_set1_epi16(1)));
    };
    for i in 0..whole {
        for (sums, (blocks, _)) in sums.iter_mut().zip(&rows) {
            add(sums, &query[i], load_32(&blocks[i]));
        }
    }
    if let Some(q) = query.get(whole) {
        for (sums, (_, tail)) in sums.iter_mut().zip(&rows) {
            add(sums, q, load_tail(tail));
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sum_of_eight(sums: __m256i) -> i32 {
    let four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b11_10_11_10>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b01_01_01_01>(two)))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sums_of_eight([a, b, c, d]: [__m256i; 4]) -> [i32; 4] {
    let four = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    bytemuck::cast(_mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four)))
}

/// Components that meet one vector of a row of bits.
const BITS: usize = 8 * VECTOR;

/// For each 32 bytes of a row eight vectors: the components that meet bit 0 of each byte, then bit 4, 1, 5, 2, 6, 3 and
/// 7; times 8, 4, 2 and 1, as bits 0 to 3 of a byte mask out 1, 2, 4 and 8. That leaves 5 bits a component: where more
/// are needed, the query is two digits of base 16, one behind the other.
#[target_feature(enable = "avx2")]
fn arrange_bits1(values: &[i8], query: &mut Bits1Query) {
    query.set_bits(values);
    query.components.clear();
    let len = values.len().next_multiple_of(BITS);
    if query.bits <= 5 {
        query.components.resize(len, 0);
        arrange_digit(values, &mut query.components, |value| value);
    } else {
        query.components.resize(2 * len, 0);
        let (low, high) = query.components.split_at_mut(len);
        let digit = |value: i8| (value << 4) >> 4;
        arrange_digit(values, low, digit);
        arrange_digit(values, high, |value| ((i16::from(value) - i16::from(digit(value))) >> 4) as i8);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn arrange_digit(values: &[i8], components: &mut [i8], digit: impl Fn(i8) -> i8) {
    let (vectors, _) = components.as_chunks_mut::<VECTOR>();
    for (values, vectors) in values.chunks(BITS).zip(vectors.as_chunks_mut::<8>().0) {
        let mut digits = [0; BITS];
        digits.iter_mut().zip(values).for_each(|(to, &value)| *to = digit(value));
        // Register m holds bytes 16 · m to 16 · m + 15 of either half. Interleaving registers m and m + 4 takes byte i
        // of a half to 2 · i mod 127: four times, and the upper four bits of i, which tell the byte of a row, are the
        // lower.
        let (sixteens, _) = bytemuck::cast_slice(&digits).as_chunks();
        let mut registers = [_mm256_setzero_si256(); 8];
        for (m, register) in registers.iter_mut().enumerate() {
            *register = _mm256_set_m128i(load_16(&sixteens[m + 8]), load_16(&sixteens[m]));
        }
        for _ in 0..4 {
            let [a, b, c, d, e, f, g, h] = registers;
            for (m, (low, high)) in [(a, e), (b, f), (c, g), (d, h)].into_iter().enumerate() {
                registers[2 * m] = _mm256_unpacklo_epi8(low, high);
                registers[2 * m + 1] = _mm256_unpackhi_epi8(low, high);
            }
        }
        for (vector, bit) in vectors.iter_mut().zip([0, 4, 1, 5, 2, 6, 3, 7]) {
            let scaled = (bit % 4..3).fold(registers[bit], |x, _| _mm256_add_epi8(x, x));
            *vector = bytemuck::cast(scaled);
        }
    }
}

#[target_feature(enable = "avx2")]
fn dot_bits1(query: &Bits1Query, row: &[u8]) -> i32 {
    let [sum] = bits1(query, [row]);
    sum_of_eight(sum)
}

#[target_feature(enable = "avx2")]
fn dot_bits1_x4(query: &Bits1Query, rows: [&[u8]; 4]) -> [i32; 4] {
    sums_of_eight(bits1(query, rows))
}

#[inline]
#[target_feature(enable = "avx2")]
fn bits1<const N: usize>(query: &Bits1Query, rows: [&[u8]; N]) -> [__m256i; N] {
    rows.iter().for_each(|row| query.check(row));
    let (low, high) = query.components.split_at(query.dimension.next_multiple_of(BITS));
    let mut sums = bits1_digit(low, rows);
    for sums in &mut sums {
        *sums = _mm256_srai_epi32::<3>(*sums);
    }
    if !high.is_empty() {
        for (sums, high) in sums.iter_mut().zip(bits1_digit(high, rows)) {
            *sums = _mm256_add_epi32(*sums, _mm256_slli_epi32::<1>(high));
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "avx2")]
fn bits1_digit<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [__m256i; N] {
    // Sixteen products meet in a word: 16 · 8 · 16 < 2¹⁵.
    sum_words(query, rows, |q: &[[u8; VECTOR]; 8], x| {
        let nibbles = [x, _mm256_srli_epi16::<4>(x)];
        let mut words = _mm256_setzero_si256();
        for (i, q) in q.iter().enumerate() {
            let bits = _mm256_and_si256(nibbles[i % 2], _mm256_set1_epi8(1 << (i / 2)));
            words = _mm256_add_epi16(words, _mm256_maddubs_epi16(bits, load_32(q)));
        }
        words
    })
}
