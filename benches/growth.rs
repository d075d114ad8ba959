//! What growing in chunks costs a search, against one block allocated for all rows: `cargo bench --bench growth`.
//!
//! Both indexes hold the same rows and links (one thread, same seed). They are searched in turn, many short rounds; the
//! ratio of the CPU times of each pair is taken, and the median of the ratios printed, so that a busy machine does
//! little harm.

use cpu_time::ThreadTime;
use std::hint::black_box;
use std::time::Duration;
use twindex::storage::ChunkOptions;
use twindex::{Index, Metric, SearchParams};

const ROUNDS: usize = 61;
const QUERIES: usize = 500;

fn main() {
    // `cargo test --benches` runs every bench once, quickly.
    let quick = !std::env::args().any(|arg| arg == "--bench");
    for (dimension, rows) in [(4, 100_000), (16, 100_000), (384, 50_000)] {
        let rows = if quick { 2_000 } else { rows };
        compare(dimension, rows, if quick { 1 } else { ROUNDS });
    }
}

fn compare(dimension: usize, rows: usize, rounds: usize) {
    let mut random = Random(1);
    let vectors: Vec<f32> = (0..rows * dimension).map(|_| random.next()).collect();
    let queries: Vec<f32> = (0..QUERIES * dimension).map(|_| random.next()).collect();
    let keys: Vec<u64> = (0..rows as u64).collect();
    let build = |chunks: ChunkOptions| {
        let index = Index::builder(dimension, Metric::L2)
            .ef_construction(64)
            .threads(1)
            .chunks(chunks)
            .build()
            .expect("settings within their ranges");
        index.add_batch(&keys, &vectors).expect("finite vectors under new keys");
        index
    };
    let chunked = build(ChunkOptions::default());
    let block =
        build(ChunkOptions { rows_per_chunk: Some((rows as u32).next_power_of_two()), ..ChunkOptions::default() });
    for (what, exact) in [("graph", false), ("scan", true)] {
        let params = SearchParams::new(10).exact(exact);
        let queries = if exact { &queries[..20 * dimension] } else { &queries[..] };
        let mut fastest = [Duration::MAX; 2];
        let mut ratios: Vec<f64> = (0..rounds)
            .map(|round| {
                // In turn, and each first every other time.
                let (first, second) = if round % 2 == 0 { (&chunked, &block) } else { (&block, &chunked) };
                let (a, b) = (time(first, queries, &params), time(second, queries, &params));
                let (chunked, block) = if round % 2 == 0 { (a, b) } else { (b, a) };
                fastest = [fastest[0].min(chunked), fastest[1].min(block)];
                chunked.as_secs_f64() / block.as_secs_f64()
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        println!(
            "{rows} x {dimension} {what}: chunks / one block {:.3} (median of {rounds}), {:.3} (fastest rounds)",
            ratios[rounds / 2],
            fastest[0].as_secs_f64() / fastest[1].as_secs_f64(),
        );
    }
}

fn time(index: &Index, queries: &[f32], params: &SearchParams<'_>) -> Duration {
    let start = ThreadTime::now();
    for query in queries.chunks(index.dimension()) {
        black_box(index.search(black_box(query), params).expect("a finite query"));
    }
    start.elapsed()
}

/// Numbers between −1 and 1, the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
