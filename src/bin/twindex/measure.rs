//! Timing queries, and recall.

use crate::failure::Failure;
use crate::resources;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};
use twindex::{Index, SearchParams};

/// One way to search that is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    pub k: usize,
    /// `None`: the exact scan.
    pub ef: Option<usize>,
    /// Rows reranked, in multiples of `k`; `None`: the distances of the codes are final.
    pub rerank: Option<f32>,
}

impl Setting {
    pub fn params(self) -> SearchParams<'static> {
        let params = match self.ef {
            Some(ef) => SearchParams::new(self.k).ef(ef),
            None => SearchParams::new(self.k).exact(true),
        };
        self.rerank.map_or(params, |oversample| params.rerank(oversample))
    }

    /// The same, with no `ef` below the number of rows that are to be found, to which it would be raised anyway.
    pub fn raised(self, rows: usize) -> Setting {
        let wanted = self.params().candidates_wanted().min(rows);
        Setting { ef: self.ef.map(|ef| ef.max(wanted)), ..self }
    }
}

/// How long a round is.
#[derive(Debug, Clone, Copy)]
pub enum Extent {
    /// Each query once.
    Once,
    /// The queries over and over, until the time is up.
    For(Duration),
}

/// What was measured in a round.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Queries per second of wall clock time.
    pub qps: f64,
    /// Queries per second of CPU time, all threads together.
    pub cpu_qps: Option<f64>,
    /// Median time of a call, in microseconds.
    pub p50_us: f64,
    /// 99 of 100 calls took no longer, in microseconds.
    pub p99_us: f64,
}

impl Sample {
    /// From the nanoseconds of each call, which it sorts.
    fn of(queries: usize, seconds: f64, cpu_seconds: Option<f64>, times: &mut [u64]) -> Sample {
        times.sort_unstable();
        Sample {
            qps: queries as f64 / seconds,
            cpu_qps: cpu_seconds.filter(|&cpu| cpu > 0.0).map(|cpu| queries as f64 / cpu),
            p50_us: percentile(times, 0.50),
            p99_us: percentile(times, 0.99),
        }
    }

    /// The median of each figure by itself.
    pub fn median(samples: &[Sample]) -> Sample {
        let of = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
        let cpu: Option<Vec<f64>> = samples.iter().map(|sample| sample.cpu_qps).collect();
        Sample { qps: of(|s| s.qps), cpu_qps: cpu.map(median), p50_us: of(|s| s.p50_us), p99_us: of(|s| s.p99_us) }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

/// The smallest value that `part` of the sorted values do not exceed.
fn percentile(sorted: &[u64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).map_or(f64::NAN, |&nanoseconds| nanoseconds as f64 / 1e3)
}

/// One round: the queries (row-major, at least one), one call of `search` each, on `threads` threads.
pub fn round(
    index: &Index,
    queries: &[f32],
    setting: Setting,
    threads: usize,
    extent: Extent,
) -> Result<Sample, Failure> {
    let count = queries.len() / index.dimension();
    let next = AtomicUsize::new(0);
    let work = |deadline: Option<Instant>| -> Result<Vec<u64>, twindex::Error> {
        let params = setting.params();
        let mut times = Vec::with_capacity(count / threads + 1);
        let mut before = Instant::now();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let over = match deadline {
                Some(deadline) => before >= deadline,
                None => i >= count,
            };
            if over {
                return Ok(times);
            }
            let at = (i % count) * index.dimension();
            std::hint::black_box(index.search(&queries[at..at + index.dimension()], &params)?);
            let after = Instant::now();
            times.push((after - before).as_nanos() as u64);
            before = after;
        }
    };
    let deadline = |start: Instant| match extent {
        Extent::Once => None,
        Extent::For(duration) => Some(start + duration),
    };

    let (mut times, seconds, cpu) = if threads == 1 {
        let (start, cpu) = (Instant::now(), resources::cpu_seconds());
        let times = work(deadline(start))?;
        (times, start.elapsed().as_secs_f64(), cpu)
    } else {
        // Locked until all threads are there; then it tells the moment they start, or that they don't.
        let (gate, ready) = (RwLock::new(None), AtomicUsize::new(0));
        std::thread::scope(|scope| -> Result<_, Failure> {
            let enter = || {
                ready.fetch_add(1, Ordering::Relaxed);
                match *gate.read().unwrap_or_else(PoisonError::into_inner) {
                    Some(start) => work(deadline(start)),
                    None => Ok(Vec::new()),
                }
            };
            let mut closed = gate.write().unwrap_or_else(PoisonError::into_inner);
            let workers: Vec<_> = (0..threads)
                .map(|_| std::thread::Builder::new().spawn_scoped(scope, enter))
                .collect::<Result<_, _>>()
                .map_err(|e| Failure::failed(format!("{threads} threads cannot be had: {e}")))?;
            while ready.load(Ordering::Relaxed) < threads {
                std::thread::sleep(Duration::from_micros(50));
            }
            let (start, cpu) = (Instant::now(), resources::cpu_seconds());
            *closed = Some(start);
            drop(closed);
            let mut all = Vec::new();
            for worker in workers {
                all.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok((all, start.elapsed().as_secs_f64(), cpu))
        })?
    };
    let cpu = resources::cpu_seconds().zip(cpu).map(|(now, then)| now - then);
    let queries = times.len();
    Ok(Sample::of(queries, seconds, cpu, &mut times))
}

/// One round: the queries, `batch` a call of `search_batch`, on the threads the index was opened with.
pub fn round_of_batches(
    index: &Index,
    queries: &[f32],
    setting: Setting,
    batch: usize,
    extent: Extent,
) -> Result<Sample, Failure> {
    let params = setting.params();
    let (mut times, mut answered) = (Vec::new(), 0);
    let (start, cpu) = (Instant::now(), resources::cpu_seconds());
    let mut before = start;
    'round: loop {
        for queries in queries.chunks(batch * index.dimension()) {
            answered += std::hint::black_box(index.search_batch(queries, &params)?).len();
            let after = Instant::now();
            times.push((after - before).as_nanos() as u64);
            before = after;
            if matches!(extent, Extent::For(duration) if after - start >= duration) {
                break 'round;
            }
        }
        if matches!(extent, Extent::Once) {
            break;
        }
    }
    let cpu = resources::cpu_seconds().zip(cpu).map(|(now, then)| now - then);
    Ok(Sample::of(answered, start.elapsed().as_secs_f64(), cpu, &mut times))
}

/// The part of the true neighbours that a search with `setting` finds, over all queries: `truth` holds the keys of the
/// `setting.k` nearest rows of each, one query after the other.
pub fn recall(index: &Index, queries: &[f32], truth: &[u64], setting: Setting) -> Result<f64, Failure> {
    let params = setting.params();
    let mut found = 0;
    for (query, truth) in queries.chunks_exact(index.dimension()).zip(truth.chunks_exact(setting.k)) {
        let truth: HashSet<u64> = truth.iter().copied().collect();
        found += index.search(query, &params)?.iter().filter(|hit| truth.contains(&hit.key)).count();
    }
    Ok(found as f64 / truth.len() as f64)
}
