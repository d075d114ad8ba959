//! WebAssembly SIMD: the 16 lanes of a row are four 128-bit values.
//!
//! Engines on x86-64 have sixteen vector registers, as many as the lanes of four rows alone would fill. So four rows
//! are passed over twice, each time for one half of every block: eight registers of lanes, and the query is loaded once
//! for the four. A single row needs all its lanes at once, to hide the latency of the additions.

#![expect(unsafe_code, reason = "intrinsics that read or write through pointers")]

use super::{BLOCK, Kernels, Level, check, scalar};
use std::arch::wasm32::*;

pub(super) static KERNELS: Kernels = Kernels {
    level: Level::Simd128,
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

const VECTOR: usize = size_of::<v128>();
const VECTORS: usize = BLOCK / VECTOR;

fn one<const L2: bool>(query: &[f32], row: &[u8]) -> f32 {
    let [sums] = accumulate::<L2, 1>(query, [row]);
    let pairs = f32x4_add(sums, i32x4_shuffle::<2, 3, 2, 3>(sums, sums));
    f32x4_extract_lane::<0>(pairs) + f32x4_extract_lane::<1>(pairs)
}

fn four<const L2: bool>(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    let [a, b, c, d] = accumulate::<L2, 4>(query, rows);
    let ab = f32x4_add(i32x4_shuffle::<0, 1, 4, 5>(a, b), i32x4_shuffle::<2, 3, 6, 7>(a, b));
    let cd = f32x4_add(i32x4_shuffle::<0, 1, 4, 5>(c, d), i32x4_shuffle::<2, 3, 6, 7>(c, d));
    let sums = f32x4_add(i32x4_shuffle::<0, 2, 4, 6>(ab, cd), i32x4_shuffle::<1, 3, 5, 7>(ab, cd));
    [
        f32x4_extract_lane::<0>(sums),
        f32x4_extract_lane::<1>(sums),
        f32x4_extract_lane::<2>(sums),
        f32x4_extract_lane::<3>(sums),
    ]
}

/// The lanes of `N` rows, reduced from 16 to 4.
#[inline]
fn accumulate<const L2: bool, const N: usize>(query: &[f32], rows: [&[u8]; N]) -> [v128; N] {
    rows.iter().for_each(|row| check(query, row));
    let query: &[u8] = bytemuck::cast_slice(query);
    let (query_blocks, query_tail) = query.as_chunks::<BLOCK>();
    let row_blocks = rows.map(|row| &row.as_chunks::<BLOCK>().0[..query_blocks.len()]);
    let mut lanes = [[f32x4_splat(0.0); VECTORS]; N];
    if N == 1 {
        add_blocks::<L2, N, 0, 4>(&mut lanes, query_blocks, row_blocks);
    } else {
        add_blocks::<L2, N, 0, 2>(&mut lanes, query_blocks, row_blocks);
        add_blocks::<L2, N, 2, 4>(&mut lanes, query_blocks, row_blocks);
    }
    // Four calls and not a loop: an index known to the compiler keeps the lanes out of memory.
    let tail = query_tail.len();
    add_end::<L2, N, 0>(&mut lanes, query, rows, tail);
    add_end::<L2, N, 1>(&mut lanes, query, rows, tail);
    add_end::<L2, N, 2>(&mut lanes, query, rows, tail);
    add_end::<L2, N, 3>(&mut lanes, query, rows, tail);
    lanes.map(|[a, b, c, d]| f32x4_add(f32x4_add(a, c), f32x4_add(b, d)))
}

/// Adds the vectors `FROM..TO` of every block.
#[inline(always)]
fn add_blocks<const L2: bool, const N: usize, const FROM: usize, const TO: usize>(
    lanes: &mut [[v128; VECTORS]; N],
    query: &[[u8; BLOCK]],
    rows: [&[[u8; BLOCK]]; N],
) {
    for i in 0..query.len() {
        let q = load_block(&query[i]);
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            let x = load_block(&row[i]);
            for v in FROM..TO {
                lanes[v] = add_term::<L2>(lanes[v], q[v], x[v]);
            }
        }
    }
}

/// Adds vector `V` of a tail of `tail` bytes, if it reaches that far.
#[inline(always)]
fn add_end<const L2: bool, const N: usize, const V: usize>(
    lanes: &mut [[v128; VECTORS]; N],
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
fn add_term<const L2: bool>(lanes: v128, q: v128, x: v128) -> v128 {
    let term = if L2 {
        let d = f32x4_sub(q, x);
        f32x4_mul(d, d)
    } else {
        f32x4_mul(q, x)
    };
    f32x4_add(lanes, term)
}

#[inline]
fn load_block(block: &[u8; BLOCK]) -> [v128; VECTORS] {
    let from: *const v128 = block.as_ptr().cast();
    // SAFETY: the four loads read the 4 × 16 bytes of `block`, and need no alignment.
    unsafe { [v128_load(from), v128_load(from.add(1)), v128_load(from.add(2)), v128_load(from.add(3))] }
}

#[inline]
fn load(bytes: &[u8; VECTOR]) -> v128 {
    // SAFETY: the load reads the 16 bytes of `bytes`, and needs no alignment.
    unsafe { v128_load(bytes.as_ptr().cast()) }
}

/// Up to four elements from `from_end` bytes before the end of `row` on; zeros where it has fewer.
#[inline]
fn load_end(row: &[u8], from_end: usize) -> v128 {
    let rest = &row[row.len() - from_end..];
    if let Some(whole) = rest.first_chunk() {
        load(whole)
    } else if let Some(last) = row.last_chunk() {
        // The last 16 bytes moved down until the wanted ones stand first; a swizzle gives 0 for indices over 15.
        let iota = u8x16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        u8x16_swizzle(load(last), u8x16_add(iota, u8x16_splat((VECTOR - from_end) as u8)))
    } else {
        load(&padded(rest))
    }
}

/// For rows of less than 16 bytes, of dimension 1 to 3.
#[cold]
fn padded(rest: &[u8]) -> [u8; VECTOR] {
    let mut padded = [0; VECTOR];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}
