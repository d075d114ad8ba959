//! Relaxed WebAssembly SIMD: products of bytes, two to a 16-bit lane, by one instruction. That is what int4 codes need;
//! for all else, what [`wasm`] has is as fast or faster.
//!
//! What the instruction gives is left to the engine where a byte of its second operand has its top bit set, and where
//! the sum of two products leaves 16 bits. Neither happens here: the second operand is a nibble, and two products of
//! nibbles and bytes stay within ±2 · 15 · 128. So the results are those of every level. Relaxed multiply-add is not
//! used, since it may round once or twice; nor is the instruction that adds four products to a 32-bit lane, which
//! engines without a matching one of the processor's make slower than this (and of which the baseline compiler of V8
//! 11.3 loses the sum so far).

use super::wasm::{self, VECTOR, load, load_end, sum_i32};
use super::{Int4Query, Kernels, Level, scalar};
use std::arch::wasm32::*;

pub(super) static KERNELS: Kernels =
    Kernels { level: Level::RelaxedSimd, arrange_int4: scalar::arrange_int4, dot_int4, dot_int4_x4, ..wasm::KERNELS };

fn dot_int4(query: &Int4Query, row: &[u8]) -> i32 {
    let [sum] = sum_int4(query, [row]);
    sum
}

fn dot_int4_x4(query: &Int4Query, rows: [&[u8]; 4]) -> [i32; 4] {
    sum_int4(query, rows)
}

#[inline]
fn sum_int4<const N: usize>(query: &Int4Query, rows: [&[u8]; N]) -> [i32; N] {
    rows.iter().for_each(|row| query.check(row));
    let halves = [&query.low, &query.high].map(|half| bytemuck::cast_slice::<i8, u8>(half));
    let half_vectors = halves.map(|half| half.as_chunks::<VECTOR>().0);
    let whole = half_vectors[0].len();
    let row_vectors = rows.map(|row| &row.as_chunks::<VECTOR>().0[..whole]);
    let mut lanes = [i32x4_splat(0); N];
    for from in (0..whole).step_by(INT4_VECTORS) {
        let mut words = [i16x8_splat(0); N];
        for i in from..whole.min(from + INT4_VECTORS) {
            let q = half_vectors.map(|half| load(&half[i]));
            for (words, vectors) in words.iter_mut().zip(row_vectors) {
                *words = i16x8_add(*words, products(q, load(&vectors[i])));
            }
        }
        for (lanes, words) in lanes.iter_mut().zip(words) {
            *lanes = i32x4_add(*lanes, i32x4_extadd_pairwise_i16x8(words));
        }
    }
    let tail = halves[0].len() % VECTOR;
    if tail > 0 {
        let q = halves.map(|half| load_end(half, tail));
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            *lanes = i32x4_add(*lanes, i32x4_extadd_pairwise_i16x8(products(q, load_end(row, tail))));
        }
    }
    lanes.map(sum_i32)
}

/// Vectors of codes whose products are sure to fit in 16-bit lanes: each adds four to a lane, and 4 · 4 · 128 · 15 <
/// 2¹⁵.
const INT4_VECTORS: usize = 4;

/// The products of 32 nibbles, four to a lane.
#[inline]
fn products(q: [v128; 2], codes: v128) -> v128 {
    let nibble = u8x16_splat(15);
    let low = i16x8_relaxed_dot_i8x16_i7x16(q[0], v128_and(codes, nibble));
    let high = i16x8_relaxed_dot_i8x16_i7x16(q[1], v128_and(u16x8_shr(codes, 4), nibble));
    i16x8_add(low, high)
}
