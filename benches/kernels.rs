//! Kernels by encoding, level and dimension: rows in cache, and rows spread over 64 MiB, in order and scattered; and
//! what it takes to arrange a query.
//!
//! `cargo bench --bench kernels -- avx2` picks a level, `-- '/384/'` a dimension, `-- cache/768/int4` an encoding.
//! Times are for a pass over the rows; the throughput is in rows a second (its inverse: time a row) and bytes of rows a
//! second.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use twindex::kernel::{Bits1Query, Int4Query, Int8Query};
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
    fn new(stride: usize, bytes: usize, scattered: bool) -> Rows {
        let count = (bytes / stride).next_multiple_of(4);
        // Ordinary numbers in every encoding: no subnormals, nothing infinite.
        let bytes = (0..count * stride).map(|i| 0x30 + (i % 11) as u8).collect();
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

/// Where rows lie, with the group of benchmarks over them.
struct Bench<'a> {
    group: BenchmarkGroup<'a, WallTime>,
    rows: &'a Rows,
    scattered: bool,
}

impl Bench<'_> {
    fn one<T>(&mut self, name: &str, kernels: &Kernels, kernel: impl Fn(&[u8]) -> T) {
        let rows = self.rows;
        self.group.bench_function(BenchmarkId::new(name, kernels.level()), |bencher| {
            bencher.iter(|| {
                for &id in &rows.order {
                    black_box(kernel(rows.row(id)));
                }
            })
        });
    }

    fn four<T>(&mut self, name: &str, kernels: &Kernels, kernel: impl Fn([&[u8]; 4]) -> T) {
        let rows = self.rows;
        self.group.bench_function(BenchmarkId::new(format!("{name}-x4"), kernels.level()), |bencher| {
            bencher.iter(|| {
                for four in rows.fours() {
                    black_box(kernel(four));
                }
            })
        });
        if self.scattered {
            self.group.bench_function(BenchmarkId::new(format!("{name}-x4-prefetch"), kernels.level()), |bencher| {
                bencher.iter(|| {
                    for (four, ahead) in rows.fours().zip(rows.fours().skip(1)) {
                        ahead.iter().for_each(|row| kernels.prefetch(row, HINTED_LINES));
                        black_box(kernel(four));
                    }
                })
            });
        }
    }
}

fn available() -> impl Iterator<Item = &'static Kernels> {
    Level::available().into_iter().filter_map(Kernels::for_level)
}

fn kernels(criterion: &mut Criterion) {
    for dimension in DIMENSIONS {
        let query: Vec<f32> = (0..dimension).map(|i| (i % 7) as f32 - 3.0).collect();
        let words: Vec<i16> = (0..dimension).map(|i| (i * 619 % 8191) as i16 - 4095).collect();
        let bytes: Vec<i8> = (0..dimension).map(|i| (i * 61 % 255) as i8).collect();
        let bits: Vec<i8> = (0..dimension).map(|i| (i * 19 % 31) as i8 - 15).collect();
        for (place, size, scattered) in
            [("cache", IN_CACHE, false), ("64MiB", SPREAD, false), ("64MiB-scattered", SPREAD, true)]
        {
            let mut over = |encoding: &str, stride: usize, run: &dyn Fn(&mut Bench<'_>, &'static Kernels)| {
                let rows = Rows::new(stride, size, scattered);
                let mut group = criterion.benchmark_group(format!("{place}/{dimension}/{encoding}"));
                group.throughput(Throughput::ElementsAndBytes {
                    elements: rows.order.len() as u64,
                    bytes: rows.bytes.len() as u64,
                });
                if size == SPREAD {
                    group.sample_size(10);
                }
                let mut bench = Bench { group, rows: &rows, scattered };
                available().for_each(|kernels| run(&mut bench, kernels));
                bench.group.finish();
            };
            over("f32", 4 * dimension, &|bench, kernels| {
                bench.one("dot", kernels, |row| kernels.dot_f32(&query, row));
                bench.four("dot", kernels, |rows| kernels.dot_f32_x4(&query, rows));
                bench.four("l2", kernels, |rows| kernels.l2_f32_x4(&query, rows));
            });
            over("f16", 2 * dimension, &|bench, kernels| {
                bench.one("dot", kernels, |row| kernels.dot_f16(&query, row));
                bench.four("dot", kernels, |rows| kernels.dot_f16_x4(&query, rows));
                bench.four("l2", kernels, |rows| kernels.l2_f16_x4(&query, rows));
            });
            over("int8", dimension, &|bench, kernels| {
                let mut query = Int8Query::default();
                kernels.arrange_int8(&words, &mut query);
                bench.one("dot", kernels, |row| kernels.dot_int8(&query, row));
                bench.four("dot", kernels, |rows| kernels.dot_int8_x4(&query, rows));
            });
            over("int4", dimension.div_ceil(2), &|bench, kernels| {
                let mut query = Int4Query::default();
                kernels.arrange_int4(&bytes, &mut query);
                bench.one("dot", kernels, |row| kernels.dot_int4(&query, row));
                bench.four("dot", kernels, |rows| kernels.dot_int4_x4(&query, rows));
            });
            over("bits1", dimension.div_ceil(8), &|bench, kernels| {
                let mut query = Bits1Query::default();
                kernels.arrange_bits1(&bits, &mut query);
                bench.one("dot", kernels, |row| kernels.dot_bits1(&query, row));
                bench.four("dot", kernels, |rows| kernels.dot_bits1_x4(&query, rows));
            });
        }
        let mut group = criterion.benchmark_group(format!("arrange/{dimension}"));
        for kernels in available() {
            let (mut int8, mut int4, mut bits1) = <(Int8Query, Int4Query, Bits1Query)>::default();
            group.bench_function(BenchmarkId::new("int8", kernels.level()), |bencher| {
                bencher.iter(|| kernels.arrange_int8(black_box(&words), &mut int8))
            });
            group.bench_function(BenchmarkId::new("int4", kernels.level()), |bencher| {
                bencher.iter(|| kernels.arrange_int4(black_box(&bytes), &mut int4))
            });
            group.bench_function(BenchmarkId::new("bits1", kernels.level()), |bencher| {
                bencher.iter(|| kernels.arrange_bits1(black_box(&bits), &mut bits1))
            });
        }
        group.finish();
    }
}

criterion_group!(benches, kernels);
criterion_main!(benches);
