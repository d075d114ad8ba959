//! WebAssembly SIMD: the 16 lanes of a row are four 128-bit values.
//!
//! Engines on x86-64 have sixteen vector registers. Four rows at once would need sixteen for the lanes alone and be
//! spilled in the inner loop, so four rows are two pairs, each with eight for its lanes and one vector of the query
//! and of a row in flight.

#![expect(unsafe_code, reason = "intrinsics that read or write through pointers")]

use super::{BLOCK, Kernels, Level, check};
use std::arch::wasm32::*;

pub(super) static KERNELS: Kernels = Kernels {
    level: Level::Simd128,
    dot_f32: one::<false>,
    dot_f32_x4: four::<false>,
    l2_f32: one::<true>,
    l2_f32_x4: four::<true>,
};

const VECTOR: usize = size_of::<v128>();
const VECTORS: usize = BLOCK / VECTOR;

fn one<const L2: bool>(query: &[f32], row: &[u8]) -> f32 {
    let [sums] = accumulate::<L2, 1>(query, [row]);
    let pairs = f32x4_add(sums, i32x4_shuffle::<2, 3, 2, 3>(sums, sums));
    f32x4_extract_lane::<0>(pairs) + f32x4_extract_lane::<1>(pairs)
}

fn four<const L2: bool>(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    let ab = two::<L2>(query, [rows[0], rows[1]]);
    let cd = two::<L2>(query, [rows[2], rows[3]]);
    let sums = f32x4_add(i32x4_shuffle::<0, 2, 4, 6>(ab, cd), i32x4_shuffle::<1, 3, 5, 7>(ab, cd));
    [
        f32x4_extract_lane::<0>(sums),
        f32x4_extract_lane::<1>(sums),
        f32x4_extract_lane::<2>(sums),
        f32x4_extract_lane::<3>(sums),
    ]
}

/// The lanes of two rows, reduced from 16 to 2 each: `[a0, a1, b0, b1]`.
#[inline]
fn two<const L2: bool>(query: &[f32], rows: [&[u8]; 2]) -> v128 {
    let [a, b] = accumulate::<L2, 2>(query, rows);
    f32x4_add(i32x4_shuffle::<0, 1, 4, 5>(a, b), i32x4_shuffle::<2, 3, 6, 7>(a, b))
}

/// The lanes of `N` rows, reduced from 16 to 4.
#[inline]
fn accumulate<const L2: bool, const N: usize>(query: &[f32], rows: [&[u8]; N]) -> [v128; N] {
    let row_blocks = rows.map(|row| {
        check(query, row);
        row.as_chunks::<BLOCK>().0
    });
    let query: &[u8] = bytemuck::cast_slice(query);
    let (query_blocks, query_tail) = query.as_chunks::<BLOCK>();
    let mut lanes = [[f32x4_splat(0.0); VECTORS]; N];
    for (i, block) in query_blocks.iter().enumerate() {
        let (q, _) = block.as_chunks::<VECTOR>();
        for vector in 0..VECTORS {
            let q = load(&q[vector]);
            for (lanes, blocks) in lanes.iter_mut().zip(&row_blocks) {
                let (x, _) = blocks[i].as_chunks::<VECTOR>();
                lanes[vector] = add_term::<L2>(lanes[vector], q, load(&x[vector]));
            }
        }
    }
    for vector in 0..VECTORS {
        let missing = query_tail.len().saturating_sub(vector * VECTOR);
        if missing > 0 {
            let q = load_end(query, missing);
            for (lanes, row) in lanes.iter_mut().zip(rows) {
                lanes[vector] = add_term::<L2>(lanes[vector], q, load_end(row, missing));
            }
        }
    }
    lanes.map(|[a, b, c, d]| f32x4_add(f32x4_add(a, c), f32x4_add(b, d)))
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
        let mut padded = [0; VECTOR];
        padded[..from_end].copy_from_slice(rest);
        load(&padded)
    }
}
