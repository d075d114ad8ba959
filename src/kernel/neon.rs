//! NEON: the 16 lanes of a row are four 128-bit registers, so four rows are sixteen of the thirty-two, and the query is
//! loaded once for the four. The multiply and the add are separate instructions, as the contract asks.

#![expect(unsafe_code, reason = "intrinsics that read or write through pointers")]

use super::{BLOCK, Kernels, Level, check, scalar};
use std::arch::aarch64::*;
use std::arch::asm;

pub(super) static KERNELS: Kernels = Kernels {
    level: Level::Neon,
    dot_f32: one::<false>,
    dot_f32_x4: four::<false>,
    l2_f32: one::<true>,
    l2_f32_x4: four::<true>,
    dot_f16: scalar::dot_f16,
    dot_f16_x4: scalar::dot_f16_x4,
    l2_f16: scalar::l2_f16,
    l2_f16_x4: scalar::l2_f16_x4,
    arrange_int8: scalar::arrange_int8,
    dot_int8: scalar::dot_int8,
    dot_int8_x4: scalar::dot_int8_x4,
    arrange_int4: scalar::arrange_int4,
    dot_int4: scalar::dot_int4,
    dot_int4_x4: scalar::dot_int4_x4,
    arrange_bits1: scalar::arrange_bits1,
    dot_bits1: scalar::dot_bits1,
    dot_bits1_x4: scalar::dot_bits1_x4,
};

const VECTOR: usize = size_of::<float32x4_t>();
const VECTORS: usize = BLOCK / VECTOR;

#[inline]
pub(super) fn prefetch(row: &[u8], lines: usize) {
    for line in super::cache_lines(row, lines) {
        // SAFETY: a prefetch of any address whatsoever neither faults nor changes memory, registers or flags.
        unsafe { asm!("prfm pldl1keep, [{line}]", line = in(reg) line, options(nostack, preserves_flags, readonly)) };
    }
}

#[target_feature(enable = "neon")]
fn one<const L2: bool>(query: &[f32], row: &[u8]) -> f32 {
    let [sums] = accumulate::<L2, 1>(query, [row]);
    reduce(sums)
}

#[target_feature(enable = "neon")]
fn four<const L2: bool>(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    accumulate::<L2, 4>(query, rows).map(|sums| reduce(sums))
}

#[inline]
#[target_feature(enable = "neon")]
fn reduce(sums: float32x4_t) -> f32 {
    let pairs = vadd_f32(vget_low_f32(sums), vget_high_f32(sums));
    vget_lane_f32::<0>(pairs) + vget_lane_f32::<1>(pairs)
}

/// The lanes of `N` rows, reduced from 16 to 4.
#[inline]
#[target_feature(enable = "neon")]
fn accumulate<const L2: bool, const N: usize>(query: &[f32], rows: [&[u8]; N]) -> [float32x4_t; N] {
    rows.iter().for_each(|row| check(query, row));
    let query: &[u8] = bytemuck::cast_slice(query);
    let (query_blocks, query_tail) = query.as_chunks::<BLOCK>();
    let row_blocks = rows.map(|row| &row.as_chunks::<BLOCK>().0[..query_blocks.len()]);
    let mut lanes = [[vdupq_n_f32(0.0); VECTORS]; N];
    for i in 0..query_blocks.len() {
        let q = load_block(&query_blocks[i]);
        for (lanes, blocks) in lanes.iter_mut().zip(&row_blocks) {
            let x = load_block(&blocks[i]);
            for ((lanes, q), x) in lanes.iter_mut().zip(q).zip(x) {
                *lanes = add_term::<L2>(*lanes, q, x);
            }
        }
    }
    // Four calls and not a loop: an index known to the compiler keeps the lanes out of memory.
    let tail = query_tail.len();
    add_end::<L2, N, 0>(&mut lanes, query, rows, tail);
    add_end::<L2, N, 1>(&mut lanes, query, rows, tail);
    add_end::<L2, N, 2>(&mut lanes, query, rows, tail);
    add_end::<L2, N, 3>(&mut lanes, query, rows, tail);
    lanes.map(|[a, b, c, d]| vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d)))
}

/// Adds vector `V` of a tail of `tail` bytes, if it reaches that far.
#[inline]
#[target_feature(enable = "neon")]
fn add_end<const L2: bool, const N: usize, const V: usize>(
    lanes: &mut [[float32x4_t; VECTORS]; N],
    query: &[u8],
    rows: [&[u8]; N],
    tail: usize,
) {
    if tail > V * VECTOR {
        let from_end = tail - V * VECTOR;
        let q = load_end(query, from_end);
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            lanes[V] = add_term::<L2>(lanes[V], q, load_end(row, from_end));
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn add_term<const L2: bool>(lanes: float32x4_t, q: float32x4_t, x: float32x4_t) -> float32x4_t {
    let term = if L2 {
        let d = vsubq_f32(q, x);
        vmulq_f32(d, d)
    } else {
        vmulq_f32(q, x)
    };
    vaddq_f32(lanes, term)
}

#[inline]
#[target_feature(enable = "neon")]
fn load_block(block: &[u8; BLOCK]) -> [float32x4_t; VECTORS] {
    let (vectors, _) = block.as_chunks::<VECTOR>();
    [load(&vectors[0]), load(&vectors[1]), load(&vectors[2]), load(&vectors[3])].map(|v| vreinterpretq_f32_u8(v))
}

#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[u8; VECTOR]) -> uint8x16_t {
    // SAFETY: the load reads the 16 bytes of `bytes`, and needs no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// Up to four elements from `from_end` bytes before the end of `row` on; zeros where it has fewer.
#[inline]
#[target_feature(enable = "neon")]
fn load_end(row: &[u8], from_end: usize) -> float32x4_t {
    let rest = &row[row.len() - from_end..];
    let bytes = if let Some(whole) = rest.first_chunk() {
        load(whole)
    } else if let Some(last) = row.last_chunk() {
        // The last 16 bytes moved down until the wanted ones stand first; a table look-up gives 0 for indices over 15.
        const IOTA: [u8; VECTOR] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        vqtbl1q_u8(load(last), vaddq_u8(load(&IOTA), vdupq_n_u8((VECTOR - from_end) as u8)))
    } else {
        load(&padded(rest))
    };
    vreinterpretq_f32_u8(bytes)
}

/// For rows of less than 16 bytes, of dimension 1 to 3.
#[cold]
fn padded(rest: &[u8]) -> [u8; VECTOR] {
    let mut padded = [0; VECTOR];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}
