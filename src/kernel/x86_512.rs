//! AVX-512: the 16 lanes of a row are one 512-bit register, so four rows are four independent chains of additions. A
//! tail is read by masked loads, which touch no byte outside the row.
//!
//! The level asks for what processors have from Ice Lake and Zen 4 on: on earlier ones 512-bit arithmetic slowed the
//! clock.
//!
//! | rows of | a step |
//! |---|---|
//! | f16 | 16 components, widened; from there on as f32 |
//! | int8 | 64 codes, made unsigned, times either digit of the query (VNNI) |
//! | int4 | 64 bytes; low nibbles times one half of the query, high ones times the other (VNNI) |
//! | bits1 | 8 bytes, as the mask of 64 components of the query that are added up (VNNI) |

#![expect(unsafe_code, reason = "intrinsics that read through pointers")]

use super::query::digits;
use super::x86::{self, HALF_BLOCK, check_row};
use super::{BLOCK, Bits1Query, Int4Query, Int8Query, Kernels, Level};
use std::arch::x86_64::*;

pub(super) static KERNELS: Kernels = Kernels {
    level: Level::Avx512,
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

/// Bytes of a register.
const VECTOR: usize = size_of::<__m512i>();

#[target_feature(enable = "avx512f,avx512bw")]
fn one<const L2: bool, const ROW: usize>(query: &[f32], row: &[u8]) -> f32 {
    let [sums] = accumulate::<L2, ROW, 1>(query, [row]);
    x86::reduce_one(sums)
}

#[target_feature(enable = "avx512f,avx512bw")]
fn four<const L2: bool, const ROW: usize>(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    x86::reduce_four(accumulate::<L2, ROW, 4>(query, rows))
}

/// The lanes of `N` rows with blocks of `ROW` bytes, reduced from 16 to 4.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn accumulate<const L2: bool, const ROW: usize, const N: usize>(query: &[f32], rows: [&[u8]; N]) -> [__m128; N] {
    let rows = rows.map(|row| {
        check_row::<ROW>(query, row);
        row.as_chunks::<ROW>()
    });
    let (query_blocks, query_tail) = bytemuck::cast_slice(query).as_chunks::<BLOCK>();
    let mut lanes = [_mm512_setzero_ps(); N];
    for (i, block) in query_blocks.iter().enumerate() {
        let q = load(block);
        for (lanes, (blocks, _)) in lanes.iter_mut().zip(&rows) {
            *lanes = add_term::<L2>(*lanes, q, load(&blocks[i]));
        }
    }
    if !query_tail.is_empty() {
        let q = widen::<BLOCK>(load_tail(query_tail));
        for (lanes, (_, tail)) in lanes.iter_mut().zip(&rows) {
            *lanes = add_term::<L2>(*lanes, q, widen::<ROW>(load_tail(tail)));
        }
    }
    lanes.map(|lanes| {
        let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(lanes)));
        let eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), high);
        _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight))
    })
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add_term<const L2: bool>(lanes: __m512, q: __m512, x: __m512) -> __m512 {
    let term = if L2 {
        let d = _mm512_sub_ps(q, x);
        _mm512_mul_ps(d, d)
    } else {
        _mm512_mul_ps(q, x)
    };
    _mm512_add_ps(lanes, term)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load<const ROW: usize>(block: &[u8; ROW]) -> __m512 {
    if ROW == BLOCK {
        // SAFETY: the load reads the 64 bytes of `block`, and needs no alignment.
        unsafe { _mm512_loadu_ps(block.as_ptr().cast()) }
    } else {
        // SAFETY: the load reads the 32 bytes of `block`, and needs no alignment.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(block.as_ptr().cast()) })
    }
}

/// The elements of a block as f32.
#[inline]
#[target_feature(enable = "avx512f")]
fn widen<const ROW: usize>(block: __m512i) -> __m512 {
    if ROW == BLOCK { _mm512_castsi512_ps(block) } else { _mm512_cvtph_ps(_mm512_castsi512_si256(block)) }
}

/// The first 64 bytes of `bytes`; zeros where it has fewer.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_tail(bytes: &[u8]) -> __m512i {
    let mask = if bytes.len() < VECTOR { (1 << bytes.len()) - 1 } else { u64::MAX };
    // SAFETY: byte i is read only where i < bytes.len(); the load needs no alignment and never faults for the bytes it
    // does not read.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_64(bytes: &[u8; VECTOR]) -> __m512i {
    // SAFETY: the load reads the 64 bytes of `bytes`, and needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Zeros for `len` components, up to a whole number of registers.
fn clear(components: &mut Vec<i8>, len: usize) {
    components.clear();
    components.resize(len.next_multiple_of(VECTOR), 0);
}

/// The digits, and 128 for each that a code is more when its sign is turned.
#[target_feature(enable = "avx512f,avx512bw")]
fn arrange_int8(values: &[i16], query: &mut Int8Query) {
    query.dimension = values.len();
    clear(&mut query.low, values.len());
    clear(&mut query.high, values.len());
    for (low, &value) in query.low.iter_mut().zip(values) {
        *low = digits(value).0;
    }
    for (high, &value) in query.high.iter_mut().zip(values) {
        *high = digits(value).1;
    }
    let sum: i32 = values.iter().map(|&value| i32::from(value)).sum();
    query.excess = 128 * i64::from(sum);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn dot_int8(query: &Int8Query, row: &[u8]) -> i64 {
    let [[low, high]] = int8(query, [row]);
    total(query, sum_of_sixteen(low), sum_of_sixteen(high))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn dot_int8_x4(query: &Int8Query, rows: [&[u8]; 4]) -> [i64; 4] {
    let sums = int8(query, rows);
    let (low, high) = (sums_of_sixteen(sums.map(|[low, _]| low)), sums_of_sixteen(sums.map(|[_, high]| high)));
    std::array::from_fn(|i| total(query, low[i], high[i]))
}

#[inline]
fn total(query: &Int8Query, low: i32, high: i32) -> i64 {
    i64::from(low) + 64 * i64::from(high) - query.excess
}

/// Sums for the low and the high digits. A whole row's do not overflow: 65,536 · 255 · 64 < 2³¹.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn int8<const N: usize>(query: &Int8Query, rows: [&[u8]; N]) -> [[__m512i; 2]; N] {
    rows.iter().for_each(|row| query.check(row));
    sum_products(&query.low, &query.high, rows, |x| {
        let x = _mm512_xor_si512(x, _mm512_set1_epi8(-128));
        [x, x]
    })
}

fn arrange_int4(values: &[i8], query: &mut Int4Query) {
    let (low, high) = values.split_at(values.len().div_ceil(2));
    query.dimension = values.len();
    clear(&mut query.low, low.len());
    clear(&mut query.high, low.len());
    query.low[..low.len()].copy_from_slice(low);
    query.high[..high.len()].copy_from_slice(high);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn dot_int4(query: &Int4Query, row: &[u8]) -> i32 {
    let [sums] = int4(query, [row]);
    sum_of_sixteen(sums)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn dot_int4_x4(query: &Int4Query, rows: [&[u8]; 4]) -> [i32; 4] {
    sums_of_sixteen(int4(query, rows))
}

/// High nibbles count sixteenfold until they are added to the low ones: 240 · 128 · 32,768 / 16 < 2³¹.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn int4<const N: usize>(query: &Int4Query, rows: [&[u8]; N]) -> [__m512i; N] {
    rows.iter().for_each(|row| query.check(row));
    let sums = sum_products(&query.low, &query.high, rows, |x| {
        [_mm512_and_si512(x, _mm512_set1_epi8(0x0F)), _mm512_and_si512(x, _mm512_set1_epi8(0xF0u8 as i8))]
    });
    sums.map(|[low, high]| _mm512_add_epi32(low, _mm512_srai_epi32::<4>(high)))
}

/// Products of the two unsigned vectors that `split` makes of each block of a row with one vector of `low` and of
/// `high`, summed apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn sum_products<const N: usize>(
    low: &[i8],
    high: &[i8],
    rows: [&[u8]; N],
    split: impl Fn(__m512i) -> [__m512i; 2],
) -> [[__m512i; 2]; N] {
    let (low, _) = bytemuck::cast_slice(low).as_chunks::<VECTOR>();
    let (high, _) = bytemuck::cast_slice(high).as_chunks::<VECTOR>();
    let rows = rows.map(|row| row.as_chunks::<VECTOR>());
    let whole = rows[0].0.len();
    let mut sums = [[_mm512_setzero_si512(); 2]; N];
    let add = |sums: &mut [__m512i; 2], i: usize, x| {
        let [low_x, high_x] = split(x);
        sums[0] = _mm512_dpbusd_epi32(sums[0], low_x, load_64(&low[i]));
        sums[1] = _mm512_dpbusd_epi32(sums[1], high_x, load_64(&high[i]));
    };
    for i in 0..whole {
        for (sums, (blocks, _)) in sums.iter_mut().zip(&rows) {
            add(sums, i, load_64(&blocks[i]));
        }
    }
    if whole < low.len() {
        for (sums, (_, tail)) in sums.iter_mut().zip(&rows) {
            add(sums, whole, load_tail(tail));
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "avx512f")]
fn halve(sums: __m512i) -> __m256i {
    _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64::<1>(sums))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn sum_of_sixteen(sums: __m512i) -> i32 {
    x86::sum_of_eight(halve(sums))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn sums_of_sixteen(sums: [__m512i; 4]) -> [i32; 4] {
    x86::sums_of_eight(sums.map(|sums| halve(sums)))
}

fn arrange_bits1(values: &[i8], query: &mut Bits1Query) {
    query.set_bits(values);
    clear(&mut query.components, values.len());
    query.components[..values.len()].copy_from_slice(values);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn dot_bits1(query: &Bits1Query, row: &[u8]) -> i32 {
    let [sums] = bits1(query, [row]);
    sum_of_sixteen(sums)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn dot_bits1_x4(query: &Bits1Query, rows: [&[u8]; 4]) -> [i32; 4] {
    sums_of_sixteen(bits1(query, rows))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn bits1<const N: usize>(query: &Bits1Query, rows: [&[u8]; N]) -> [__m512i; N] {
    rows.iter().for_each(|row| query.check(row));
    let (query, _) = bytemuck::cast_slice(&query.components).as_chunks::<VECTOR>();
    let rows = rows.map(|row| row.as_chunks::<8>());
    let whole = rows[0].0.len();
    let mut sums = [_mm512_setzero_si512(); N];
    let add = |sums: &mut __m512i, q, bits| {
        *sums = _mm512_dpbusd_epi32(*sums, _mm512_set1_epi8(1), _mm512_maskz_mov_epi8(bits, q));
    };
    for i in 0..whole {
        let q = load_64(&query[i]);
        for (sums, (words, _)) in sums.iter_mut().zip(&rows) {
            add(sums, q, u64::from_le_bytes(words[i]));
        }
    }
    if let Some(q) = query.get(whole) {
        for (sums, (_, tail)) in sums.iter_mut().zip(&rows) {
            add(sums, load_64(q), tail.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
        }
    }
    sums
}
