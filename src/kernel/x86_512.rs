//! AVX-512: the 16 lanes of a row are one 512-bit register, so four rows are four independent chains of additions. A tail
//! is read by masked loads, which touch no byte outside the row.
//!
//! The level asks for what processors have from Ice Lake and Zen 4 on: on earlier ones 512-bit arithmetic slowed the clock.

#![expect(unsafe_code, reason = "intrinsics that read through pointers")]

use super::{BLOCK, F32, Kernels, Level, check, scalar, x86};
use std::arch::x86_64::*;

pub(super) static KERNELS: Kernels = Kernels {
    level: Level::Avx512,
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

#[target_feature(enable = "avx512f")]
fn one<const L2: bool>(query: &[f32], row: &[u8]) -> f32 {
    let [sums] = accumulate::<L2, 1>(query, [row]);
    x86::reduce_one(sums)
}

#[target_feature(enable = "avx512f")]
fn four<const L2: bool>(query: &[f32], rows: [&[u8]; 4]) -> [f32; 4] {
    x86::reduce_four(accumulate::<L2, 4>(query, rows))
}

/// The lanes of `N` rows, reduced from 16 to 4.
#[inline]
#[target_feature(enable = "avx512f")]
fn accumulate<const L2: bool, const N: usize>(query: &[f32], rows: [&[u8]; N]) -> [__m128; N] {
    let rows = rows.map(|row| {
        check(query, row);
        row.as_chunks::<BLOCK>()
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
        let q = load_tail(query_tail);
        for (lanes, (_, tail)) in lanes.iter_mut().zip(&rows) {
            *lanes = add_term::<L2>(*lanes, q, load_tail(tail));
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
fn load(block: &[u8; BLOCK]) -> __m512 {
    // SAFETY: the load reads the 64 bytes of `block`, and needs no alignment.
    unsafe { _mm512_loadu_ps(block.as_ptr().cast()) }
}

/// The elements of `bytes`, fewer than 16; zeros for the rest.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_tail(bytes: &[u8]) -> __m512 {
    let mask = ((1u32 << (bytes.len() / F32).min(BLOCK / F32)) - 1) as __mmask16;
    // SAFETY: element i is read only where i < bytes.len() / 4, which lies within `bytes`; the load needs no alignment
    // and never faults for the elements it does not read.
    unsafe { _mm512_maskz_loadu_ps(mask, bytes.as_ptr().cast()) }
}
