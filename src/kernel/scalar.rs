//! The oracle: the [numeric contract](super) written plainly. Every other level gives these bits.
//!
//! It also is the level of machines and WebAssembly engines without SIMD of their own here; the inner loop goes over
//! whole blocks of [`LANES`] elements so that a compiler can use whatever vectors the target has as a baseline.

use super::{Kernels, LANES, Level, check};

pub(super) static KERNELS: Kernels = Kernels { level: Level::Scalar, dot_f32, dot_f32_x4, l2_f32, l2_f32_x4 };

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

#[inline]
fn sum(query: &[f32], row: &[u8], term: impl Fn(f32, f32) -> f32) -> f32 {
    check(query, row);
    let (components, _) = row.as_chunks();
    let (query_blocks, query_tail) = query.as_chunks::<LANES>();
    let (row_blocks, row_tail) = components.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for (q, x) in query_blocks.iter().zip(row_blocks) {
        add(&mut lanes, q, x, &term);
    }
    add(&mut lanes, query_tail, row_tail, &term);
    reduce(lanes)
}

#[inline]
fn add(lanes: &mut [f32; LANES], query: &[f32], row: &[[u8; 4]], term: impl Fn(f32, f32) -> f32) {
    for ((lane, &q), &x) in lanes.iter_mut().zip(query).zip(row) {
        *lane += term(q, f32::from_le_bytes(x));
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
