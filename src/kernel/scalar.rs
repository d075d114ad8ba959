//! The oracle: the [numeric contract](super) written plainly. Every other level gives these bits.
//!
//! It also is the level of machines and WebAssembly engines without SIMD of their own here; the inner loop goes over
//! whole blocks of [`LANES`] elements so that a compiler can use whatever vectors the target has as a baseline.

use super::query::digits;
use super::{Bits1Query, Int4Query, Int8Query, Kernels, LANES, Level, check, check_f16};

pub(super) static KERNELS: Kernels = Kernels {
    level: Level::Scalar,
    dot_f32,
    dot_f32_x4,
    l2_f32,
    l2_f32_x4,
    dot_f16,
    dot_f16_x4,
    l2_f16,
    l2_f16_x4,
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

/// Inner product Σ qᵢxᵢ.
///
/// # Panics
/// If `row` is not `4 * query.len()` bytes long.
pub fn dot_f32(query: &[f32], row: &[u8]) -> f32 {
    sum(query, row, |q, x| q * x)
}

/// Inner product Σ qᵢxᵢ with each of four rows.
///
/// # Panics
/// If a row is not `4 * query.len()` bytes long.
pub fn dot_f32_x4(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    rows.map(|row| dot_f32(query, row))
}

/// Squared Euclidean distance Σ (qᵢ − xᵢ)².
///
/// # Panics
/// If `row` is not `4 * query.len()` bytes long.
pub fn l2_f32(query: &[f32], row: &[u8]) -> f32 {
    sum(query, row, |q, x| {
        let d = q - x;
        d * d
    })
}

/// Squared Euclidean distance to each of four rows.
///
/// # Panics
/// If a row is not `4 * query.len()` bytes long.
pub fn l2_f32_x4(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    rows.map(|row| l2_f32(query, row))
}

/// Inner product Σ qᵢxᵢ with a row of f16.
///
/// # Panics
/// If `row` is not `2 * query.len()` bytes long.
pub fn dot_f16(query: &[f32], row: &[u8]) -> f32 {
    sum_f16(query, row, |q, x| q * x)
}

/// Inner product Σ qᵢxᵢ with each of four rows of f16.
///
/// # Panics
/// If a row is not `2 * query.len()` bytes long.
pub fn dot_f16_x4(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    rows.map(|row| dot_f16(query, row))
}

/// Squared Euclidean distance Σ (qᵢ − xᵢ)² to a row of f16.
///
/// # Panics
/// If `row` is not `2 * query.len()` bytes long.
pub fn l2_f16(query: &[f32], row: &[u8]) -> f32 {
    sum_f16(query, row, |q, x| {
        let d = q - x;
        d * d
    })
}

/// Squared Euclidean distance to each of four rows of f16.
///
/// # Panics
/// If a row is not `2 * query.len()` bytes long.
pub fn l2_f16_x4(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    rows.map(|row| l2_f16(query, row))
}

/// The `f32` that an f16 stands for. What infinity and NaN stand for is left open: no row holds them.
#[inline]
pub(crate) fn widen(bytes: [u8; 2]) -> f32 {
    let bits = i32::from(i16::from_le_bytes(bytes));
    // Sign in place, exponent and mantissa in place but for the bias: the value times 2⁻¹¹², exactly.
    f32::from_bits((bits << 13) as u32 & 0x8FFF_E000) * f32::from_bits((127 + 112) << 23)
}

#[inline]
fn sum(query: &[f32], row: &[u8], term: impl Fn(f32, f32) -> f32) -> f32 {
    check(query, row);
    sum_of(query, row.as_chunks().0, |q, x| term(q, f32::from_le_bytes(x)))
}

#[inline]
fn sum_f16(query: &[f32], row: &[u8], term: impl Fn(f32, f32) -> f32) -> f32 {
    check_f16(query, row);
    sum_of(query, row.as_chunks().0, |q, x| term(q, widen(x)))
}

#[inline]
fn sum_of<const N: usize>(query: &[f32], row: &[[u8; N]], term: impl Fn(f32, [u8; N]) -> f32) -> f32 {
    let (query_blocks, query_tail) = query.as_chunks::<LANES>();
    let (row_blocks, row_tail) = row.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for (q, x) in query_blocks.iter().zip(row_blocks) {
        add(&mut lanes, q, x, &term);
    }
    add(&mut lanes, query_tail, row_tail, &term);
    reduce(lanes)
}

#[inline]
fn add<const N: usize>(lanes: &mut [f32; LANES], query: &[f32], row: &[[u8; N]], term: impl Fn(f32, [u8; N]) -> f32) {
    for ((lane, &q), &x) in lanes.iter_mut().zip(query).zip(row) {
        *lane += term(q, x);
    }
}

#[inline]
fn reduce(mut lanes: [f32; LANES]) -> f32 {
    for width in [8, 4, 2, 1] {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

pub(super) fn arrange_int8(values: &[i16], query: &mut Int8Query) {
    query.dimension = values.len();
    query.words.clear();
    query.words.extend_from_slice(values);
}

/// The components as digits, for levels whose kernels multiply bytes.
#[cfg_attr(not(target_arch = "aarch64"), expect(dead_code, reason = "the levels here multiply words"))]
pub(super) fn arrange_digits(values: &[i16], query: &mut Int8Query) {
    arrange_int8(values, query);
    query.low.clear();
    query.low.extend(values.iter().map(|&value| digits(value).0));
    query.high.clear();
    query.high.extend(values.iter().map(|&value| digits(value).1));
}

/// Σ qᵢcᵢ with a row of signed bytes.
///
/// # Panics
/// If `row` is not `query.dimension()` bytes long.
pub fn dot_int8(query: &Int8Query, row: &[u8]) -> i64 {
    query.check(row);
    query.words.iter().zip(row).map(|(&q, &c)| i64::from(i32::from(q) * i32::from(c as i8))).sum()
}

/// [`dot_int8`] with each of four rows.
///
/// # Panics
/// As [`dot_int8`].
pub fn dot_int8_x4(query: &Int8Query, rows: [&[u8]; 4]) -> [i64; 4] {
    rows.map(|row| dot_int8(query, row))
}

pub(super) fn arrange_int4(values: &[i8], query: &mut Int4Query) {
    query.split(values);
}

/// Σ qᵢcᵢ with a row of nibbles.
///
/// # Panics
/// If `row` is not `query.dimension().div_ceil(2)` bytes long.
pub fn dot_int4(query: &Int4Query, row: &[u8]) -> i32 {
    query.check(row);
    let halves = query.low.iter().zip(&query.high);
    halves
        .zip(row)
        .map(|((&low, &high), &c)| i32::from(low) * i32::from(c & 15) + i32::from(high) * i32::from(c >> 4))
        .sum()
}

/// [`dot_int4`] with each of four rows.
///
/// # Panics
/// As [`dot_int4`].
pub fn dot_int4_x4(query: &Int4Query, rows: [&[u8]; 4]) -> [i32; 4] {
    rows.map(|row| dot_int4(query, row))
}

pub(super) fn arrange_bits1(values: &[i8], query: &mut Bits1Query) {
    query.transpose(values, 8);
}

/// Σ qᵢcᵢ with a row of bits: the bits that a row and a plane share, counted plane by plane.
///
/// # Panics
/// If `row` is not `query.dimension().div_ceil(8)` bytes long.
pub fn dot_bits1(query: &Bits1Query, row: &[u8]) -> i32 {
    query.check(row);
    let planes = query.planes();
    let mut sum = 0;
    for plane in 0..planes {
        let bytes = &query.planes[plane * query.stride..][..row.len()];
        let (plane_words, plane_tail) = bytes.as_chunks();
        let (row_words, row_tail) = row.as_chunks();
        let words = plane_words.iter().zip(row_words);
        let words: u32 = words.map(|(p, c)| (u64::from_le_bytes(*p) & u64::from_le_bytes(*c)).count_ones()).sum();
        let tail: u32 = plane_tail.iter().zip(row_tail).map(|(p, c)| (p & c).count_ones()).sum();
        let weight = if plane + 1 == planes { -(1 << plane) } else { 1 << plane };
        sum += weight * (words + tail) as i32;
    }
    sum
}

/// [`dot_bits1`] with each of four rows.
///
/// # Panics
/// As [`dot_bits1`].
pub fn dot_bits1_x4(query: &Bits1Query, rows: [&[u8]; 4]) -> [i32; 4] {
    rows.map(|row| dot_bits1(query, row))
}
