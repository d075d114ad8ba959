//! NEON with the dot product of bytes (`sdot`): sixteen products in four lanes by one instruction, which most 64-bit
//! ARM processors since 2018 have. A level of its own it is not: what [`neon`](super::neon) has serves the rest.
//!
//! A query for int8 codes has more than 8 bits a component, so it comes as digits, and each digit has lanes of its own.

#![expect(unsafe_code, reason = "an instruction that has no stable intrinsic")]

use super::neon::{self, VECTOR, load, load_end, nibbles};
use super::{Int4Query, Int8Query, Kernels, scalar};
use std::arch::aarch64::*;
use std::arch::asm;

/// Of [`Level::Neon`](super::Level::Neon), where the processor has `dotprod`.
pub(super) static KERNELS: Kernels =
    Kernels { arrange_int8: scalar::arrange_digits, dot_int8, dot_int8_x4, dot_int4, dot_int4_x4, ..neon::KERNELS };

#[target_feature(enable = "neon,dotprod")]
fn dot_int8(query: &Int8Query, row: &[u8]) -> i64 {
    let [sum] = sum_int8(query, [row]);
    sum
}

#[target_feature(enable = "neon,dotprod")]
fn dot_int8_x4(query: &Int8Query, rows: [&[u8]; 4]) -> [i64; 4] {
    sum_int8(query, rows)
}

/// No lane overflows: a digit is 64 at most, and 64 · 128 · 65,536 / 4 < 2³¹.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sum_int8<const N: usize>(query: &Int8Query, rows: [&[u8]; N]) -> [i64; N] {
    rows.iter().for_each(|row| query.check(row));
    let lanes = accumulate([&query.low, &query.high], rows, |codes| [vreinterpretq_s8_u8(codes); 2]);
    lanes.map(|digits| {
        let [low, high] = digits.map(|lanes| vaddlvq_s32(lanes));
        64 * high + low
    })
}

#[target_feature(enable = "neon,dotprod")]
fn dot_int4(query: &Int4Query, row: &[u8]) -> i32 {
    let [sum] = sum_int4(query, [row]);
    sum
}

#[target_feature(enable = "neon,dotprod")]
fn dot_int4_x4(query: &Int4Query, rows: [&[u8]; 4]) -> [i32; 4] {
    sum_int4(query, rows)
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sum_int4<const N: usize>(query: &Int4Query, rows: [&[u8]; N]) -> [i32; N] {
    rows.iter().for_each(|row| query.check(row));
    let lanes = accumulate([&query.low, &query.high], rows, |codes| nibbles(codes));
    lanes.map(|[low, high]| vaddvq_s32(vaddq_s32(low, high)))
}

/// The products of two bytes of a query with the two factors that each byte of a row has, in lanes for each of the two.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn accumulate<const N: usize>(
    query: [&[i8]; 2],
    rows: [&[u8]; N],
    factors: impl Fn(uint8x16_t) -> [int8x16_t; 2],
) -> [[int32x4_t; 2]; N] {
    let query = query.map(bytemuck::cast_slice::<i8, u8>);
    let query_vectors = query.map(|bytes| bytes.as_chunks::<VECTOR>().0);
    let whole = query_vectors[0].len();
    let row_vectors = rows.map(|row| &row.as_chunks::<VECTOR>().0[..whole]);
    let mut lanes = [[vdupq_n_s32(0); 2]; N];
    for i in 0..whole {
        let q = query_vectors.map(|vectors| load(&vectors[i]));
        for (lanes, vectors) in lanes.iter_mut().zip(row_vectors) {
            add(lanes, q, factors(load(&vectors[i])));
        }
    }
    let tail = query[0].len() % VECTOR;
    if tail > 0 {
        let q = query.map(|bytes| load_end(bytes, tail));
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            add(lanes, q, factors(load_end(row, tail)));
        }
    }
    lanes
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add(lanes: &mut [int32x4_t; 2], query: [uint8x16_t; 2], factors: [int8x16_t; 2]) {
    for ((lanes, query), factors) in lanes.iter_mut().zip(query).zip(factors) {
        // SAFETY: the instruction is one of `dotprod`, and changes `lanes` alone.
        unsafe {
            asm!(
                "sdot {lanes:v}.4s, {query:v}.16b, {factors:v}.16b",
                lanes = inout(vreg) *lanes,
                query = in(vreg) query,
                factors = in(vreg) factors,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
    }
}
