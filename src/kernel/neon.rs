//! NEON: the 16 lanes of a row are four 128-bit registers, so four rows are sixteen of the thirty-two, and the query is
//! loaded once for the four. The multiply and the add are separate instructions, as the contract asks. One instruction
//! converts four f16.

#![expect(unsafe_code, reason = "intrinsics that read or write through pointers, one instruction without an intrinsic")]

use super::{BLOCK, Bits1Query, F16, F32, Int4Query, Int8Query, Kernels, LANES, Level, check, check_f16, scalar};
use std::arch::aarch64::*;
use std::arch::asm;

pub(super) static KERNELS: Kernels = Kernels {
    level: Level::Neon,
    dot_f32: one::<false, BLOCK>,
    dot_f32_x4: four::<false, BLOCK>,
    l2_f32: one::<true, BLOCK>,
    l2_f32_x4: four::<true, BLOCK>,
    dot_f16: one::<false, BLOCK_F16>,
    dot_f16_x4: four::<false, BLOCK_F16>,
    l2_f16: one::<true, BLOCK_F16>,
    l2_f16_x4: four::<true, BLOCK_F16>,
    arrange_int8: scalar::arrange_int8,
    dot_int8,
    dot_int8_x4,
    arrange_int4: scalar::arrange_int4,
    dot_int4,
    dot_int4_x4,
    arrange_bits1,
    dot_bits1,
    dot_bits1_x4,
};

pub(super) const VECTOR: usize = size_of::<float32x4_t>();
const VECTORS: usize = BLOCK / VECTOR;

/// Bytes of one f16 for each lane. Which of the two a block is tells what rows hold.
const BLOCK_F16: usize = LANES * F16;

/// Elements of a vector of lanes.
const ELEMENTS: usize = VECTOR / F32;

#[inline]
pub(super) fn prefetch<T>(items: &[T], lines: usize) {
    for line in super::cache_lines(items, lines) {
        // SAFETY: a prefetch of any address whatsoever neither faults nor changes memory, registers or flags.
        unsafe { asm!("prfm pldl1keep, [{line}]", line = in(reg) line, options(nostack, preserves_flags, readonly)) };
    }
}

#[target_feature(enable = "neon")]
fn one<const L2: bool, const B: usize>(query: &[f32], row: &[u8]) -> f32 {
    let [sums] = accumulate::<L2, B, 1>(query, [row]);
    reduce(sums)
}

#[target_feature(enable = "neon")]
fn four<const L2: bool, const B: usize>(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    accumulate::<L2, B, 4>(query, rows).map(|sums| reduce(sums))
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
fn accumulate<const L2: bool, const B: usize, const N: usize>(query: &[f32], rows: [&[u8]; N]) -> [float32x4_t; N] {
    rows.iter().for_each(|row| if B == BLOCK { check(query, row) } else { check_f16(query, row) });
    let (query_blocks, query_tail) = query.as_chunks::<LANES>();
    let row_blocks = rows.map(|row| &row.as_chunks::<B>().0[..query_blocks.len()]);
    let mut lanes = [[vdupq_n_f32(0.0); VECTORS]; N];
    for i in 0..query_blocks.len() {
        let q = load_block(bytemuck::cast_slice(&query_blocks[i]));
        for (lanes, blocks) in lanes.iter_mut().zip(&row_blocks) {
            let x = load_block(&blocks[i]);
            for ((lanes, q), x) in lanes.iter_mut().zip(q).zip(x) {
                *lanes = add_term::<L2>(*lanes, q, x);
            }
        }
    }
    // Four calls and not a loop: an index known to the compiler keeps the lanes out of memory.
    let query = bytemuck::cast_slice(query);
    let tail = query_tail.len();
    add_end::<L2, B, N, 0>(&mut lanes, query, rows, tail);
    add_end::<L2, B, N, 1>(&mut lanes, query, rows, tail);
    add_end::<L2, B, N, 2>(&mut lanes, query, rows, tail);
    add_end::<L2, B, N, 3>(&mut lanes, query, rows, tail);
    lanes.map(|[a, b, c, d]| vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d)))
}

/// Adds vector `V` of a tail of `tail` elements, if it reaches that far.
#[inline]
#[target_feature(enable = "neon")]
fn add_end<const L2: bool, const B: usize, const N: usize, const V: usize>(
    lanes: &mut [[float32x4_t; VECTORS]; N],
    query: &[u8],
    rows: [&[u8]; N],
    tail: usize,
) {
    if tail > V * ELEMENTS {
        let left = tail - V * ELEMENTS;
        let q = vreinterpretq_f32_u8(load_end(query, left * F32));
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            let x = if B == BLOCK {
                vreinterpretq_f32_u8(load_end(row, left * F32))
            } else {
                widen(vget_low_u8(load_end(row, left * F16)))
            };
            lanes[V] = add_term::<L2>(lanes[V], q, x);
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

/// A block of `f32` where it has the size of one, else of f16.
#[inline]
#[target_feature(enable = "neon")]
fn load_block(block: &[u8]) -> [float32x4_t; VECTORS] {
    let (vectors, _) = block.as_chunks();
    if block.len() == BLOCK {
        [load(&vectors[0]), load(&vectors[1]), load(&vectors[2]), load(&vectors[3])].map(|v| vreinterpretq_f32_u8(v))
    } else {
        let [a, b] = [load(&vectors[0]), load(&vectors[1])];
        [vget_low_u8(a), vget_high_u8(a), vget_low_u8(b), vget_high_u8(b)].map(|four| widen(four))
    }
}

/// The values of four f16.
#[inline]
#[target_feature(enable = "neon")]
fn widen(four: uint8x8_t) -> float32x4_t {
    vcvt_f32_f16(vreinterpret_f16_u8(four))
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load(bytes: &[u8; VECTOR]) -> uint8x16_t {
    // SAFETY: the load reads the 16 bytes of `bytes`, and needs no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// Up to 16 bytes from `from_end` before the end of `row` on; zeros where it has fewer.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load_end(row: &[u8], from_end: usize) -> uint8x16_t {
    let rest = &row[row.len() - from_end..];
    if let Some(whole) = rest.first_chunk() {
        load(whole)
    } else if let Some(last) = row.last_chunk() {
        // The last 16 bytes moved down until the wanted ones stand first; a table look-up gives 0 for indices over 15.
        const IOTA: [u8; VECTOR] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        vqtbl1q_u8(load(last), vaddq_u8(load(&IOTA), vdupq_n_u8((VECTOR - from_end) as u8)))
    } else {
        load(&padded(rest))
    }
}

/// For rows of less than 16 bytes.
#[cold]
fn padded(rest: &[u8]) -> [u8; VECTOR] {
    let mut padded = [0; VECTOR];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

/// Bytes that words of a query take for each vector of codes.
const WORDS: usize = 2 * VECTOR;

#[target_feature(enable = "neon")]
fn dot_int8(query: &Int8Query, row: &[u8]) -> i64 {
    let [sum] = sum_int8(query, [row]);
    sum
}

#[target_feature(enable = "neon")]
fn dot_int8_x4(query: &Int8Query, rows: [&[u8]; 4]) -> [i64; 4] {
    sum_int8(query, rows)
}

/// Each row has sixteen lanes, of which [`INT8_QUERY_MAX`](super::INT8_QUERY_MAX) sees to it that none overflows.
#[inline]
#[target_feature(enable = "neon")]
fn sum_int8<const N: usize>(query: &Int8Query, rows: [&[u8]; N]) -> [i64; N] {
    rows.iter().for_each(|row| query.check(row));
    let words: &[u8] = bytemuck::cast_slice(&query.words);
    let (word_vectors, words_tail) = words.as_chunks::<WORDS>();
    let row_vectors = rows.map(|row| &row.as_chunks::<VECTOR>().0[..word_vectors.len()]);
    let mut lanes = [[vdupq_n_s32(0); VECTORS]; N];
    for i in 0..word_vectors.len() {
        let (q, _) = word_vectors[i].as_chunks();
        let q = [load(&q[0]), load(&q[1])];
        for (lanes, vectors) in lanes.iter_mut().zip(row_vectors) {
            add_int8(lanes, q, load(&vectors[i]));
        }
    }
    let tail = words_tail.len();
    if tail > 0 {
        let q = [load_end(words, tail), load_end(words, tail.saturating_sub(VECTOR))];
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            add_int8(lanes, q, load_end(row, tail / 2));
        }
    }
    lanes.map(|lanes| lanes.map(|lanes| vaddlvq_s32(lanes)).iter().sum())
}

#[inline]
#[target_feature(enable = "neon")]
fn add_int8([a, b, c, d]: &mut [int32x4_t; VECTORS], q: [uint8x16_t; 2], codes: uint8x16_t) {
    let [q0, q1] = q.map(|words| vreinterpretq_s16_u8(words));
    let codes = vreinterpretq_s8_u8(codes);
    let (low, high) = (vmovl_s8(vget_low_s8(codes)), vmovl_high_s8(codes));
    *a = vmlal_s16(*a, vget_low_s16(low), vget_low_s16(q0));
    *b = vmlal_high_s16(*b, low, q0);
    *c = vmlal_s16(*c, vget_low_s16(high), vget_low_s16(q1));
    *d = vmlal_high_s16(*d, high, q1);
}

/// Nibbles of 16 bytes, the low ones and the high ones.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn nibbles(codes: uint8x16_t) -> [int8x16_t; 2] {
    [vandq_u8(codes, vdupq_n_u8(15)), vshrq_n_u8::<4>(codes)].map(|nibbles| vreinterpretq_s8_u8(nibbles))
}

#[target_feature(enable = "neon")]
fn dot_int4(query: &Int4Query, row: &[u8]) -> i32 {
    let [sum] = sum_int4(query, [row]);
    sum
}

#[target_feature(enable = "neon")]
fn dot_int4_x4(query: &Int4Query, rows: [&[u8]; 4]) -> [i32; 4] {
    sum_int4(query, rows)
}

#[inline]
#[target_feature(enable = "neon")]
fn sum_int4<const N: usize>(query: &Int4Query, rows: [&[u8]; N]) -> [i32; N] {
    rows.iter().for_each(|row| query.check(row));
    let halves = [&query.low, &query.high].map(|half| bytemuck::cast_slice::<i8, u8>(half));
    let half_vectors = halves.map(|half| half.as_chunks::<VECTOR>().0);
    let whole = half_vectors[0].len();
    let row_vectors = rows.map(|row| &row.as_chunks::<VECTOR>().0[..whole]);
    let mut lanes = [vdupq_n_s32(0); N];
    for i in 0..whole {
        let q = half_vectors.map(|half| load(&half[i]));
        for (lanes, vectors) in lanes.iter_mut().zip(row_vectors) {
            *lanes = add_int4(*lanes, q, load(&vectors[i]));
        }
    }
    let tail = halves[0].len() % VECTOR;
    if tail > 0 {
        let q = halves.map(|half| load_end(half, tail));
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            *lanes = add_int4(*lanes, q, load_end(row, tail));
        }
    }
    lanes.map(|lanes| vaddvq_s32(lanes))
}

/// Four products to a 16-bit lane: 4 · 128 · 15 < 2¹⁵.
#[inline]
#[target_feature(enable = "neon")]
fn add_int4(lanes: int32x4_t, q: [uint8x16_t; 2], codes: uint8x16_t) -> int32x4_t {
    let [low, high] = nibbles(codes);
    let [q_low, q_high] = q.map(|half| vreinterpretq_s8_u8(half));
    let words = vmull_s8(vget_low_s8(low), vget_low_s8(q_low));
    let words = vmlal_high_s8(words, low, q_low);
    let words = vmlal_s8(words, vget_low_s8(high), vget_low_s8(q_high));
    let words = vmlal_high_s8(words, high, q_high);
    vpadalq_s16(lanes, words)
}

fn arrange_bits1(values: &[i8], query: &mut Bits1Query) {
    query.transpose(values, VECTOR);
}

#[target_feature(enable = "neon")]
fn dot_bits1(query: &Bits1Query, row: &[u8]) -> i32 {
    let [sum] = sum_bits1(query, [row]);
    sum
}

#[target_feature(enable = "neon")]
fn dot_bits1_x4(query: &Bits1Query, rows: [&[u8]; 4]) -> [i32; 4] {
    sum_bits1(query, rows)
}

/// Bits are counted in 16-bit lanes, to which each vector adds 16 at most, and 16 · 512 < 2¹⁶.
#[inline]
#[target_feature(enable = "neon")]
fn sum_bits1<const N: usize>(query: &Bits1Query, rows: [&[u8]; N]) -> [i32; N] {
    rows.iter().for_each(|row| query.check(row));
    let bytes = query.dimension.div_ceil(8);
    let (whole, tail) = (bytes / VECTOR, bytes % VECTOR);
    let row_vectors = rows.map(|row| &row.as_chunks::<VECTOR>().0[..whole]);
    let row_ends = rows.map(|row| load_end(row, tail));
    let planes = query.planes();
    let mut sums = [0; N];
    for (plane, vectors) in query.planes.chunks_exact(query.stride.max(1)).enumerate() {
        let (whole_vectors, last_vector) = vectors.as_chunks::<VECTOR>().0.split_at(whole);
        let mut counts = [vdupq_n_u16(0); N];
        for i in 0..whole {
            let q = load(&whole_vectors[i]);
            for (counts, vectors) in counts.iter_mut().zip(row_vectors) {
                *counts = add_bits(*counts, q, load(&vectors[i]));
            }
        }
        if let [vector] = last_vector {
            let q = load(vector);
            for (counts, end) in counts.iter_mut().zip(row_ends) {
                *counts = add_bits(*counts, q, end);
            }
        }
        let weight = if plane + 1 == planes { -(1 << plane) } else { 1 << plane };
        for (sum, counts) in sums.iter_mut().zip(counts) {
            *sum += weight * vaddlvq_u16(counts) as i32;
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "neon")]
fn add_bits(counts: uint16x8_t, plane: uint8x16_t, row: uint8x16_t) -> uint16x8_t {
    vpadalq_u8(counts, vcntq_u8(vandq_u8(plane, row)))
}
