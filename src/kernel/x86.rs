//! AVX2: the 16 lanes of a row are two 256-bit registers, so four rows are eight, and the query is loaded once for
//! the four. A tail is read by masked loads, which touch no byte outside the row.

#![expect(unsafe_code, reason = "intrinsics that read or write through pointers")]

use super::{BLOCK, F32, Kernels, Level, check, scalar};
use std::arch::x86_64::*;

pub(super) static KERNELS: Kernels = Kernels {
    level: Level::Avx2,
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

const VECTOR: usize = size_of::<__m256>();

#[inline]
pub(super) fn prefetch(row: &[u8], lines: usize) {
    for line in super::cache_lines(row, lines) {
        // SAFETY: SSE is part of x86-64, and a prefetch of any address whatsoever neither faults nor changes memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
}

#[target_feature(enable = "avx2")]
fn one<const L2: bool>(query: &[f32], row: &[u8]) -> f32 {
    let [sums] = accumulate::<L2, 1>(query, [row]);
    reduce_one(sums)
}

/// The last two steps of the reduction: 4 lanes to 1.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn reduce_one(sums: __m128) -> f32 {
    let pairs = _mm_add_ps(sums, _mm_movehl_ps(sums, sums));
    _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)))
}

#[target_feature(enable = "avx2")]
fn four<const L2: bool>(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    reduce_four(accumulate::<L2, 4>(query, rows))
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

/// The lanes of `N` rows, reduced from 16 to 4.
#[inline]
#[target_feature(enable = "avx2")]
fn accumulate<const L2: bool, const N: usize>(query: &[f32], rows: [&[u8]; N]) -> [__m128; N] {
    rows.iter().for_each(|row| check(query, row));
    let (query_blocks, query_tail) = bytemuck::cast_slice(query).as_chunks::<BLOCK>();
    let rows = rows.map(|row| {
        let (blocks, tail) = row.as_chunks::<BLOCK>();
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
        let from = half * VECTOR;
        if query_tail.len() > from {
            let q = load_tail(&query_tail[from..]);
            for (lanes, (_, tail)) in lanes.iter_mut().zip(&rows) {
                lanes[half] = add_term::<L2>(lanes[half], q, load_tail(&tail[from..]));
            }
        }
    }
    lanes.map(|[low, high]| {
        let eight = _mm256_add_ps(low, high);
        _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight))
    })
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
#[target_feature(enable = "avx2")]
fn load(block: &[u8; BLOCK]) -> [__m256; 2] {
    let from: *const f32 = block.as_ptr().cast();
    // SAFETY: the two loads read the 2 × 32 bytes of `block`, and need no alignment.
    unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(BLOCK / F32 / 2))] }
}

/// The first eight elements of `bytes`; zeros where it has fewer.
#[inline]
#[target_feature(enable = "avx2")]
fn load_tail(bytes: &[u8]) -> __m256 {
    let elements = _mm256_set1_epi32((bytes.len().min(VECTOR) / F32) as i32);
    let mask = _mm256_cmpgt_epi32(elements, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    // SAFETY: element i is read only where i < bytes.len() / 4, which lies within `bytes`; the load needs no alignment
    // and never faults for the elements it does not read.
    unsafe { _mm256_maskload_ps(bytes.as_ptr().cast(), mask) }
}
