//! WebAssembly SIMD: the 16 lanes of a row are four 128-bit values.
//!
//! Engines on x86-64 have sixteen vector registers, as many as the lanes of four rows alone would fill. So four rows
//! are passed over twice, each time for one half of every block: eight registers of lanes, and the query is loaded once
//! for the four. A single row needs all its lanes at once, to hide the latency of the additions. An integer sum has no
//! order to keep, so one register of lanes a row does.
//!
//! Nothing converts an f16 here, but the bits of one, moved to where an `f32` has its own, are an `f32` 2¹¹² times too
//! small.

#![expect(unsafe_code, reason = "intrinsics that read or write through pointers")]

use super::{BLOCK, Bits1Query, F16, F32, Int4Query, Int8Query, Kernels, LANES, Level, check, check_f16, scalar};
use std::arch::wasm32::*;

pub(super) static KERNELS: Kernels = Kernels {
    level: Level::Simd128,
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
    arrange_int4,
    dot_int4,
    dot_int4_x4,
    arrange_bits1,
    dot_bits1,
    dot_bits1_x4,
};

pub(super) const VECTOR: usize = size_of::<v128>();
const VECTORS: usize = BLOCK / VECTOR;

/// Bytes of one f16 for each lane. Which of the two a block is tells what rows hold.
const BLOCK_F16: usize = LANES * F16;

/// Elements of a vector of lanes.
const ELEMENTS: usize = VECTOR / F32;

fn one<const L2: bool, const B: usize>(query: &[f32], row: &[u8]) -> f32 {
    let [sums] = accumulate::<L2, B, 1>(query, [row]);
    let pairs = f32x4_add(sums, i32x4_shuffle::<2, 3, 2, 3>(sums, sums));
    f32x4_extract_lane::<0>(pairs) + f32x4_extract_lane::<1>(pairs)
}

fn four<const L2: bool, const B: usize>(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    let sums = accumulate::<L2, B, 4>(query, rows);
    let [ab, cd] = [[sums[0], sums[1]], [sums[2], sums[3]]]
        .map(|[a, b]| f32x4_add(i32x4_shuffle::<0, 1, 4, 5>(a, b), i32x4_shuffle::<2, 3, 6, 7>(a, b)));
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
fn accumulate<const L2: bool, const B: usize, const N: usize>(query: &[f32], rows: [&[u8]; N]) -> [v128; N] {
    rows.iter().for_each(|row| if B == BLOCK { check(query, row) } else { check_f16(query, row) });
    let (query_blocks, query_tail) = query.as_chunks::<LANES>();
    let row_blocks = rows.map(|row| &row.as_chunks::<B>().0[..query_blocks.len()]);
    let mut lanes = [[f32x4_splat(0.0); VECTORS]; N];
    if N == 1 {
        add_blocks::<L2, B, N, 0, 4>(&mut lanes, query_blocks, row_blocks);
    } else {
        add_blocks::<L2, B, N, 0, 2>(&mut lanes, query_blocks, row_blocks);
        add_blocks::<L2, B, N, 2, 4>(&mut lanes, query_blocks, row_blocks);
    }
    // Four calls and not a loop: an index known to the compiler keeps the lanes out of memory.
    let query = bytemuck::cast_slice(query);
    let tail = query_tail.len();
    add_end::<L2, B, N, 0>(&mut lanes, query, rows, tail);
    add_end::<L2, B, N, 1>(&mut lanes, query, rows, tail);
    add_end::<L2, B, N, 2>(&mut lanes, query, rows, tail);
    add_end::<L2, B, N, 3>(&mut lanes, query, rows, tail);
    lanes.map(|[a, b, c, d]| f32x4_add(f32x4_add(a, c), f32x4_add(b, d)))
}

/// Adds the vectors `FROM..TO` of every block.
#[inline(always)]
fn add_blocks<const L2: bool, const B: usize, const N: usize, const FROM: usize, const TO: usize>(
    lanes: &mut [[v128; VECTORS]; N],
    query: &[[f32; LANES]],
    rows: [&[[u8; B]]; N],
) {
    for i in 0..query.len() {
        let q = load_block(bytemuck::cast_slice(&query[i]));
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            let x = load_block(&row[i]);
            for v in FROM..TO {
                lanes[v] = add_term::<L2>(lanes[v], q[v], x[v]);
            }
        }
    }
}

/// Adds vector `V` of a tail of `tail` elements, if it reaches that far.
#[inline(always)]
fn add_end<const L2: bool, const B: usize, const N: usize, const V: usize>(
    lanes: &mut [[v128; VECTORS]; N],
    query: &[u8],
    rows: [&[u8]; N],
    tail: usize,
) {
    if tail > V * ELEMENTS {
        let left = tail - V * ELEMENTS;
        let q = load_end(query, left * F32);
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            let x = if B == BLOCK { load_end(row, left * F32) } else { load_end_f16(row, left * F16) };
            lanes[V] = add_term::<L2>(lanes[V], q, x);
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

/// A block of `f32` where it has the size of one, else of f16.
#[inline]
fn load_block(block: &[u8]) -> [v128; VECTORS] {
    let (vectors, _) = block.as_chunks();
    if block.len() == BLOCK {
        [load(&vectors[0]), load(&vectors[1]), load(&vectors[2]), load(&vectors[3])]
    } else {
        let (fours, _) = block.as_chunks();
        [&fours[0], &fours[1], &fours[2], &fours[3]].map(|four| widen(load_i16(four)))
    }
}

/// Four signed integers of 16 bits as ones of 32: a load that extends does with one instruction what takes two
/// or three after a load of 16 bytes.
#[inline]
fn load_i16(bytes: &[u8; 8]) -> v128 {
    // SAFETY: the load reads the 8 bytes of `bytes`, and needs no alignment.
    unsafe { i32x4_load_extend_i16x4(bytes.as_ptr().cast()) }
}

/// Eight signed bytes as integers of 16 bits.
#[inline]
fn load_i8(bytes: &[u8; 8]) -> v128 {
    // SAFETY: as in `load_i16`.
    unsafe { i16x8_load_extend_i8x8(bytes.as_ptr().cast()) }
}

/// The values of four f16, given as signed integers: sign, exponent and mantissa go to where an `f32` has them, and the
/// factor makes up for the bias of the exponent, exactly.
#[inline]
fn widen(integers: v128) -> v128 {
    let bits = v128_and(i32x4_shl(integers, 13), u32x4_splat(0x8FFF_E000));
    f32x4_mul(bits, u32x4_splat((127 + 112) << 23))
}

#[inline]
pub(super) fn load(bytes: &[u8; VECTOR]) -> v128 {
    // SAFETY: the load reads the 16 bytes of `bytes`, and needs no alignment.
    unsafe { v128_load(bytes.as_ptr().cast()) }
}

/// Up to 16 bytes from `from_end` before the end of `row` on; zeros where it has fewer.
#[inline]
pub(super) fn load_end(row: &[u8], from_end: usize) -> v128 {
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

/// Up to four f16 from `from_end` bytes before the end of `row` on; zeros where it has fewer.
#[inline]
fn load_end_f16(row: &[u8], from_end: usize) -> v128 {
    widen(i32x4_extend_low_i16x8(load_end(row, from_end)))
}

/// For rows of less than 16 bytes.
#[cold]
fn padded(rest: &[u8]) -> [u8; VECTOR] {
    let mut padded = [0; VECTOR];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

#[inline]
pub(super) fn sum_i32(lanes: v128) -> i32 {
    i32x4_extract_lane::<0>(lanes)
        + i32x4_extract_lane::<1>(lanes)
        + i32x4_extract_lane::<2>(lanes)
        + i32x4_extract_lane::<3>(lanes)
}

/// Bytes that words of a query take for each vector of codes.
const WORDS: usize = 2 * VECTOR;

/// Vectors of 16 int8 codes whose sums are sure to fit in the four lanes: each vector adds four products to a lane, and
/// 1,024 · 4 · 4,095 · 128 < 2³¹.
const INT8_VECTORS: usize = 1024;

fn dot_int8(query: &Int8Query, row: &[u8]) -> i64 {
    let [sum] = sum_int8(query, [row]);
    sum
}

fn dot_int8_x4(query: &Int8Query, rows: [&[u8]; 4]) -> [i64; 4] {
    sum_int8(query, rows)
}

#[inline]
fn sum_int8<const N: usize>(query: &Int8Query, rows: [&[u8]; N]) -> [i64; N] {
    rows.iter().for_each(|row| query.check(row));
    let words: &[u8] = bytemuck::cast_slice(&query.words);
    let (word_vectors, words_tail) = words.as_chunks::<WORDS>();
    let row_vectors = rows.map(|row| &row.as_chunks::<VECTOR>().0[..word_vectors.len()]);
    let mut sums = [0; N];
    for from in (0..word_vectors.len()).step_by(INT8_VECTORS) {
        let to = word_vectors.len().min(from + INT8_VECTORS);
        let mut lanes = [i32x4_splat(0); N];
        for i in from..to {
            let (q, _) = word_vectors[i].as_chunks();
            let q = [load(&q[0]), load(&q[1])];
            for (lanes, vectors) in lanes.iter_mut().zip(row_vectors) {
                let (halves, _) = vectors[i].as_chunks();
                *lanes = add_int8(*lanes, q, [load_i8(&halves[0]), load_i8(&halves[1])]);
            }
        }
        for (sum, lanes) in sums.iter_mut().zip(lanes) {
            *sum += sum_i64(lanes);
        }
    }
    let tail = words_tail.len();
    if tail > 0 {
        let q = [load_end(words, tail), load_end(words, tail.saturating_sub(VECTOR))];
        for (sum, row) in sums.iter_mut().zip(rows) {
            let codes = load_end(row, tail / 2);
            let codes = [i16x8_extend_low_i8x16(codes), i16x8_extend_high_i8x16(codes)];
            *sum += i64::from(sum_i32(add_int8(i32x4_splat(0), q, codes)));
        }
    }
    sums
}

#[inline]
fn add_int8(lanes: v128, q: [v128; 2], codes: [v128; 2]) -> v128 {
    i32x4_add(lanes, i32x4_add(i32x4_dot_i16x8(q[0], codes[0]), i32x4_dot_i16x8(q[1], codes[1])))
}

#[inline]
fn sum_i64(lanes: v128) -> i64 {
    let pairs = i64x2_add(i64x2_extend_low_i32x4(lanes), i64x2_extend_high_i32x4(lanes));
    i64x2_extract_lane::<0>(pairs) + i64x2_extract_lane::<1>(pairs)
}

/// Words of a query that 16 bytes of int4 codes meet.
const INT4_WORDS: usize = 2 * VECTOR;

/// A vector of codes is read as eight 16-bit lanes of four nibbles each, and the words of the query are in the order of
/// that: four vectors for each 16 bytes, one for the lowest nibbles of all lanes, one for the next, and so on. Where
/// the bytes of a row are no multiple of 16, the last group has zeros where there are none.
fn arrange_int4(values: &[i8], query: &mut Int4Query) {
    let half = values.len().div_ceil(2);
    query.dimension = values.len();
    query.words.clear();
    for start in (0..half).step_by(VECTOR) {
        query.words.extend((0..INT4_WORDS).map(|i| {
            let (nibble, lane) = (i / 8, i % 8);
            let byte = start + 2 * lane + nibble / 2;
            let component = if nibble % 2 == 0 { byte } else { byte + half };
            values.get(component).filter(|_| byte < half).map_or(0, |&value| i16::from(value))
        }));
    }
}

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
    let (groups, _) = bytemuck::cast_slice(&query.words).as_chunks::<BLOCK>();
    let bytes = query.dimension.div_ceil(2);
    let (whole, tail) = (bytes / VECTOR, bytes % VECTOR);
    let (whole_groups, last_group) = groups.split_at(whole);
    let row_vectors = rows.map(|row| &row.as_chunks::<VECTOR>().0[..whole]);
    let mut lanes = [i32x4_splat(0); N];
    for i in 0..whole {
        let q = load_block(&whole_groups[i]);
        for (lanes, vectors) in lanes.iter_mut().zip(row_vectors) {
            *lanes = add_int4(*lanes, q, load(&vectors[i]));
        }
    }
    if let [group] = last_group {
        let q = load_block(group);
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            *lanes = add_int4(*lanes, q, load_end(row, tail));
        }
    }
    lanes.map(sum_i32)
}

#[inline]
fn add_int4(lanes: v128, [a, b, c, d]: [v128; VECTORS], codes: v128) -> v128 {
    let nibble = i16x8_splat(15);
    let a = i32x4_dot_i16x8(v128_and(codes, nibble), a);
    let b = i32x4_dot_i16x8(v128_and(u16x8_shr(codes, 4), nibble), b);
    let c = i32x4_dot_i16x8(v128_and(u16x8_shr(codes, 8), nibble), c);
    let d = i32x4_dot_i16x8(u16x8_shr(codes, 12), d);
    i32x4_add(lanes, i32x4_add(i32x4_add(a, b), i32x4_add(c, d)))
}

fn arrange_bits1(values: &[i8], query: &mut Bits1Query) {
    query.transpose(values, VECTOR);
}

/// Vectors of bits whose counts are sure to fit in bytes: each adds at most 8.
const BITS1_VECTORS: usize = 31;

fn dot_bits1(query: &Bits1Query, row: &[u8]) -> i32 {
    let [sum] = sum_bits1(query, [row]);
    sum
}

fn dot_bits1_x4(query: &Bits1Query, rows: [&[u8]; 4]) -> [i32; 4] {
    sum_bits1(query, rows)
}

#[inline]
fn sum_bits1<const N: usize>(query: &Bits1Query, rows: [&[u8]; N]) -> [i32; N] {
    rows.iter().for_each(|row| query.check(row));
    let bytes = query.dimension.div_ceil(8);
    let (whole, tail) = (bytes / VECTOR, bytes % VECTOR);
    let row_vectors = rows.map(|row| &row.as_chunks::<VECTOR>().0[..whole]);
    let row_ends = rows.map(|row| load_end(row, tail));
    let planes = query.planes();
    let mut sums = [0; N];
    for (plane, vectors) in query.planes.chunks_exact(query.stride.max(1)).enumerate() {
        let (vectors, _) = vectors.as_chunks::<VECTOR>();
        let (whole_vectors, last_vector) = vectors.split_at(whole);
        let mut counts = [i32x4_splat(0); N];
        for from in (0..whole).step_by(BITS1_VECTORS) {
            let mut bytes = [u8x16_splat(0); N];
            for i in from..whole.min(from + BITS1_VECTORS) {
                let q = load(&whole_vectors[i]);
                for (bytes, vectors) in bytes.iter_mut().zip(row_vectors) {
                    *bytes = u8x16_add(*bytes, u8x16_popcnt(v128_and(q, load(&vectors[i]))));
                }
            }
            for (counts, bytes) in counts.iter_mut().zip(bytes) {
                *counts = i32x4_add(*counts, widened_counts(bytes));
            }
        }
        if let [vector] = last_vector {
            let q = load(vector);
            for (counts, end) in counts.iter_mut().zip(row_ends) {
                *counts = i32x4_add(*counts, widened_counts(u8x16_popcnt(v128_and(q, end))));
            }
        }
        let weight = if plane + 1 == planes { -(1 << plane) } else { 1 << plane };
        for (sum, counts) in sums.iter_mut().zip(counts) {
            *sum += weight * sum_i32(counts);
        }
    }
    sums
}

#[inline]
fn widened_counts(bytes: v128) -> v128 {
    u32x4_extadd_pairwise_u16x8(u16x8_extadd_pairwise_u8x16(bytes))
}
