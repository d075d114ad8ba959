//! Kernels by level and dimension: rows in cache, and rows spread over 64 MiB, in order and scattered.
//!
//! `cargo bench --bench kernels -- avx2` picks a level, `-- '/384/'` a dimension. Times are for a pass over the rows;
//! the throughput is in rows a second (its inverse: time a row) and bytes of rows a second.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use twindex::{Kernels, Level};

/// A tail alone, and two sizes of sentence embeddings.
const DIMENSIONS: [usize; 3] = [4, 384, 768];
/// Rows that stay in a first-level cache.
const IN_CACHE: usize = 24 << 10;
/// Rows that no second-level cache holds.
const SPREAD: usize = 64 << 20;
/// Lines hinted ahead of a scattered row; the hardware follows by itself from there.
const HINTED_LINES: usize = 8;

struct Rows {
    bytes: Vec<u8>,
    stride: usize,
    order: Vec<u32>,
}

impl Rows {
    fn new(dimension: usize, bytes: usize, scattered: bool) -> Rows {
        let stride = 4 * dimension;
        let count = (bytes / stride).next_multiple_of(4);
        let bytes = (0..count * dimension).flat_map(|i| ((i % 251) as f32 / 251.0).to_le_bytes()).collect();
        let mut order: Vec<u32> = (0..count as u32).collect();
        if scattered {
            order.sort_by_key(|id| id.wrapping_mul(0x9E37_79B1).rotate_left(15));
        }
        Rows { bytes, stride, order }
    }

    fn row(&self, id: u32) -> &[u8] {
        &self.bytes[id as usize * self.stride..][..self.stride]
    }

    fn fours(&self) -> impl Iterator<Item = [&[u8]; 4]> {
        self.order.as_chunks::<4>().0.iter().map(|ids| ids.map(|id| self.row(id)))
    }
}

fn kernels(criterion: &mut Criterion) {
    for dimension in DIMENSIONS {
        let query: Vec<f32> = (0..dimension).map(|i| (i % 7) as f32 - 3.0).collect();
        for (place, bytes, scattered) in
            [("cache", IN_CACHE, false), ("64MiB", SPREAD, false), ("64MiB-scattered", SPREAD, true)]
        {
            let rows = Rows::new(dimension, bytes, scattered);
            let mut group = criterion.benchmark_group(format!("{place}/{dimension}"));
            group.throughput(Throughput::ElementsAndBytes {
                elements: rows.order.len() as u64,
                bytes: rows.bytes.len() as u64,
            });
            if bytes == SPREAD {
                group.sample_size(10);
            }
            for level in Level::available() {
                let Some(kernels) = Kernels::for_level(level) else { continue };
                let id = |kernel| BenchmarkId::new(kernel, level);
                group.bench_function(id("dot"), |bencher| {
                    bencher.iter(|| rows.order.iter().map(|&id| kernels.dot_f32(&query, rows.row(id))).sum::<f32>())
                });
                group.bench_function(id("dot-x4"), |bencher| {
                    bencher.iter(|| {
                        rows.fours().for_each(|four| {
                            black_box(kernels.dot_f32_x4(&query, four));
                        })
                    })
                });
                group.bench_function(id("l2-x4"), |bencher| {
                    bencher.iter(|| {
                        rows.fours().for_each(|four| {
                            black_box(kernels.l2_f32_x4(&query, four));
                        })
                    })
                });
                if scattered {
                    group.bench_function(id("dot-x4-prefetch"), |bencher| {
                        bencher.iter(|| {
                            for (four, ahead) in rows.fours().zip(rows.fours().skip(1)) {
                                ahead.iter().for_each(|row| kernels.prefetch(row, HINTED_LINES));
                                black_box(kernels.dot_f32_x4(&query, four));
                            }
                        })
                    });
                }
            }
            group.finish();
        }
    }
}

criterion_group!(benches, kernels);
criterion_main!(benches);
