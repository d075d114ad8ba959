//! How much of the memory's read bandwidth an exact scan uses, by encoding: `cargo bench --bench scan`.
//!
//! One thread, one query at a time, 100,000 random vectors in growing indexes. Beside each index lies a buffer of as
//! many rows of the same stride, cut and mapped the same way; summing it up as integers is the bandwidth: front to
//! back, four pages side by side, or with a hint of what comes 4 or 8 KiB later, whichever is quickest. Sums and scans
//! take turns, each after a pass that is not timed (small encodings stay in a cache, and so does their buffer), and the
//! medians of their ratios are printed, so that a busy machine does little harm.
//!
//! `of bandwidth` is rows scanned a second ÷ (bandwidth ÷ bytes a row).

use cpu_time::ThreadTime;
use std::hint::black_box;
use twindex::storage::{ChunkOptions, ChunkedRows, Rows};
use twindex::{Encoding, Index, IndexKind, Kernels, Metric, SearchParams};

const ROWS: usize = 100_000;
const DIMENSIONS: [usize; 2] = [384, 768];
const QUERIES: usize = 16;
const ROUNDS: usize = 21;
/// Bytes a measurement reads at least, in whole passes: long enough for the clock.
const BYTES: usize = 256 << 20;
/// Rows added at once.
const BATCH: usize = 4096;
/// Lines summed up side by side: enough to keep the adders busy.
const STREAMS: usize = 4;
const LINE: usize = 64;
const PAGE: usize = 4096;

fn main() {
    // `cargo test --benches` runs every bench once, quickly.
    let quick = !std::env::args().any(|arg| arg == "--bench");
    for dimension in DIMENSIONS {
        if quick { measure(dimension, 2_000, 1, 1) } else { measure(dimension, ROWS, ROUNDS, BYTES) }
    }
}

/// One encoding's rows, and a buffer of their size.
struct Contender {
    index: Index,
    buffer: ChunkedRows,
    /// Of all rounds: seconds a pass, and a scan.
    times: Vec<(f64, f64)>,
}

impl Contender {
    fn new(encoding: Encoding, dimension: usize, rows: usize) -> Contender {
        let index = Index::builder(dimension, Metric::InnerProduct).kind(IndexKind::Flat).encoding(encoding).build();
        let index = index.expect("settings within their ranges");
        let mut random = Random(1);
        for first in (0..rows).step_by(BATCH) {
            let keys: Vec<u64> = (first as u64..rows.min(first + BATCH) as u64).collect();
            let vectors: Vec<f32> = (0..keys.len() * dimension).map(|_| random.next()).collect();
            index.add_batch(&keys, &vectors).expect("finite vectors under new keys");
        }
        let buffer = ChunkedRows::new(encoding.stride(dimension), &ChunkOptions::default()).expect("a stride");
        let fill = |i: u32, row: &mut [u8]| {
            row.fill(i as u8);
            Ok(())
        };
        buffer.append(rows as u32, fill).expect("memory");
        Contender { index, buffer, times: Vec::new() }
    }

    fn bytes(&self) -> usize {
        self.buffer.count() as usize * self.buffer.stride()
    }

    fn measure(&mut self, queries: &[f32], bytes: usize) {
        let passes = bytes.div_ceil(self.bytes());
        let params = SearchParams::new(10).exact(true);
        let sum = |page, ahead| {
            let sums = self.buffer.runs().map(|run| sum(run, page, ahead));
            sums.fold(0, |total: u64, sum| total.wrapping_add(sum))
        };
        let scan = |i: usize| {
            let query = queries.chunks_exact(self.index.dimension()).nth(i % QUERIES);
            query.map(|query| self.index.search(query, &params).expect("a finite query"))
        };
        let ways = [(LINE, None), (PAGE, None), (LINE, Some(PAGE)), (LINE, Some(2 * PAGE))];
        let sums = ways.map(|(page, ahead)| timed(passes, |_| sum(page, ahead))).into_iter().fold(f64::MAX, f64::min);
        let scans = timed(passes, scan);
        self.times.push((sums, scans));
    }

    /// The median over all rounds of a figure made from the seconds of a pass and of a scan.
    fn median(&self, figure: impl Fn(f64, f64) -> f64) -> f64 {
        median(self.times.iter().map(|&(sum, scan)| figure(sum, scan)).collect())
    }
}

fn measure(dimension: usize, rows: usize, rounds: usize, bytes: usize) {
    let mut random = Random(2);
    let queries: Vec<f32> = (0..QUERIES * dimension).map(|_| random.next()).collect();
    let mut contenders = Encoding::ALL.map(|encoding| Contender::new(encoding, dimension, rows));
    for _ in 0..rounds {
        for contender in &mut contenders {
            contender.measure(&queries, bytes);
        }
    }
    let [f32, ..] = &contenders;
    println!("{rows} x {dimension}, one query at a time, kernels {}, medians of {rounds} rounds", f32.index.level());
    println!(
        "{:>8} {:>10} {:>9} {:>10} {:>12} {:>14}",
        "", "bytes/row", "GB/s", "Mrows/s", "of bandwidth", "scans ÷ f32's"
    );
    for contender in &contenders {
        let ratios = contender.times.iter().zip(&f32.times).map(|(own, f32)| f32.1 / own.1);
        println!(
            "{:>8} {:>10} {:>9.2} {:>10.2} {:>12.3} {:>14.2}",
            contender.index.encoding().name(),
            contender.buffer.stride(),
            contender.median(|sum, _| contender.bytes() as f64 / sum / 1e9),
            contender.median(|_, scan| rows as f64 / scan / 1e6),
            contender.median(|sum, scan| sum / scan),
            median(ratios.collect()),
        );
    }
}

/// Seconds of CPU time one of `passes` takes, after one that does not count.
fn timed<T>(passes: usize, mut pass: impl FnMut(usize) -> T) -> f64 {
    black_box(pass(0));
    let start = ThreadTime::now();
    for i in 0..passes {
        black_box(pass(i));
    }
    start.elapsed().as_secs_f64() / passes as f64
}

/// All bytes of `run` as integers, but for some at the end: a line from each of the next `STREAMS` pieces of `page`
/// bytes in turn, and a hint of those `ahead`.
fn sum(run: &[u8], page: usize, ahead: Option<usize>) -> u64 {
    let kernels = Kernels::best();
    let mut lanes = [[0u64; LINE / 8]; STREAMS];
    for (i, block) in run.chunks_exact(STREAMS * page).enumerate() {
        if let Some(next) = ahead.and_then(|ahead| run.get(i * STREAMS * page + ahead..)) {
            kernels.prefetch(next, STREAMS * page / LINE);
        }
        for at in (0..page).step_by(LINE) {
            for (stream, lanes) in lanes.iter_mut().enumerate() {
                let line = &block[stream * page + at..][..LINE];
                for (lane, word) in lanes.iter_mut().zip(line.as_chunks::<8>().0) {
                    *lane = lane.wrapping_add(u64::from_le_bytes(*word));
                }
            }
        }
    }
    lanes.iter().flatten().fold(0, |total, lane| total.wrapping_add(*lane))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Numbers between −1 and 1, the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
