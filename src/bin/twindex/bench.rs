//! `twindex bench`: recall and speed.

use crate::args::{self, MAX_OVERSAMPLE};
use crate::data::{self, Table};
use crate::failure::Failure;
use crate::measure::{self, Extent, Sample, Setting};
use crate::output;
use crate::resources;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};
use twindex::{Encoding, Index, IndexKind, OpenOptions, Residency, SearchParams};

const DEFAULT_EF: [usize; 4] = [16, 32, 64, 128];
/// Queries scanned exactly between two steps of the progress bar.
const SCANNED_AT_ONCE: usize = 32;

#[derive(Serialize)]
struct Report {
    open_ms: f64,
    /// What the process takes as soon as the index is open, and the part of it that no file backs.
    open_rss_bytes: Option<u64>,
    open_anonymous_bytes: Option<u64>,
    peak_rss_bytes: Option<u64>,
    index_bytes: u64,
    encoding: &'static str,
    originals: &'static str,
    truth: Truth,
    results: Vec<Row>,
}

/// Where the true neighbours came from.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Truth {
    Given,
    Originals,
    Codes,
}

impl std::fmt::Display for Truth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Truth::Given => "the truth given",
            Truth::Originals => "a scan of the originals",
            Truth::Codes => {
                "a scan of the codes themselves: what they lose is not counted, but by --originals or --truth"
            }
        })
    }
}

#[derive(Serialize)]
struct Row {
    k: usize,
    /// Candidates kept; `null` for the exact scan.
    ef: Option<usize>,
    exact: bool,
    /// Rows reranked, in multiples of `k`; `null` where none were.
    rerank: Option<f32>,
    threads: usize,
    /// Queries a call; the times below are those of a call.
    batch: usize,
    recall: f64,
    qps: f64,
    cpu_qps: Option<f64>,
    p50_us: f64,
    p99_us: f64,
}

pub fn run(args: &args::Bench) -> Result<(), Failure> {
    bench(args).map_err(|failure| failure.with_originals(args.originals.as_deref()))
}

fn bench(args: &args::Bench) -> Result<(), Failure> {
    for path in [&args.json, &args.csv].into_iter().flatten().filter(|path| !output::is_stdout(path)) {
        output::check_folder(path)?;
    }
    output::check_distinct(
        &[("--json", args.json.as_deref()), ("--csv", args.csv.as_deref())],
        &[
            ("the index", Some(&args.index)),
            ("--queries", Some(&args.queries)),
            ("--truth", args.truth.as_deref()),
            ("--keys", args.keys.as_deref()),
            ("--originals", args.originals.as_deref()),
        ],
    )?;
    let residency = if args.resident { Residency::Resident } else { Residency::Mapped };
    // Searches of one query each run on threads of this command's own.
    let threads = if args.batch == 1 { 0 } else { args.threads };
    let options = OpenOptions::new().residency(residency).threads(threads);
    let start = Instant::now();
    let index = data::open_to_search(&args.index, options, args.originals.as_deref(), args.rerank)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let (open_rss_bytes, open_anonymous_bytes) = resources::rss_bytes();
    let index_bytes = std::fs::metadata(&args.index).map_err(|e| Failure::of(args.index.display(), e))?.len();
    if index.is_empty() {
        return Err(Failure::of(args.index.display(), "there are no rows to search"));
    }

    let queries = data::vectors(&args.queries, index.dimension())?;
    if queries.is_empty() {
        return Err(Failure::of(args.queries.display(), "there are no queries"));
    }
    let k = args.k.min(index.len());
    let (truth, nearest) = match &args.truth {
        Some(path) => {
            let count = queries.len() / index.dimension();
            (Truth::Given, read_truth(&index, path, args.keys.as_deref(), count, k)?)
        }
        None => scan(&index, &queries, k)?,
    };

    let settings = settings(args, &index, k);
    let results = measure_all(args, &index, &queries, &nearest, &settings)?;
    let report = Report {
        open_ms,
        open_rss_bytes,
        open_anonymous_bytes,
        peak_rss_bytes: resources::peak_rss_bytes(),
        index_bytes,
        encoding: index.encoding().name(),
        originals: if args.originals.is_some() { "attached" } else { index.originals().name() },
        truth,
        results,
    };

    if let Some(path) = &args.json {
        output::write_to(path, &output::json(&report)?)?;
    }
    if let Some(path) = &args.csv {
        output::write_to(path, &csv(&report.results))?;
    }
    if [&args.json, &args.csv].into_iter().flatten().any(|path| output::is_stdout(path)) {
        return Ok(());
    }
    output::write_to(Path::new("-"), &summary(args, &index, &report, queries.len() / index.dimension()))
}

/// What is measured: nothing twice.
fn settings(args: &args::Bench, index: &Index, k: usize) -> Vec<Setting> {
    let efs: &[usize] = match (&args.ef[..], index.kind()) {
        (_, IndexKind::Flat) => &[],
        ([], _) if args.exact => &[],
        ([], _) => &DEFAULT_EF,
        (given, _) => given,
    };
    let mut settings: Vec<Setting> = Vec::new();
    let rerank = args.rerank;
    for &ef in efs {
        let setting = Setting { k, ef: Some(ef), rerank }.raised(index.len());
        if !settings.contains(&setting) {
            settings.push(setting);
        }
    }
    if args.exact || settings.is_empty() {
        settings.push(Setting { k, ef: None, rerank });
    }
    settings
}

/// The keys of the `k` nearest rows of each query, by scans: of the originals where the index has them.
fn scan(index: &Index, queries: &[f32], k: usize) -> Result<(Truth, Vec<u64>), Failure> {
    let mut params = SearchParams::new(k).exact(true);
    let source = if index.has_originals() { Truth::Originals } else { Truth::Codes };
    if index.encoding() != Encoding::F32 && index.has_originals() {
        let all = index.len().div_ceil(k) as f32;
        if all > MAX_OVERSAMPLE {
            let reason = format!("--truth is needed: of {} rows not all can be reranked for {k}", index.len());
            return Err(Failure::failed(reason));
        }
        params = params.rerank(all);
    }
    let bar = output::progress("exact scan", Some((queries.len() / index.dimension()) as u64));
    let mut truth = Vec::new();
    for batch in queries.chunks(SCANNED_AT_ONCE * index.dimension()) {
        for hits in index.search_batch(batch, &params)? {
            truth.extend(hits.iter().map(|hit| hit.key));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok((source, truth))
}

/// The keys of the `k` nearest rows of each query, from a file of row numbers.
fn read_truth(index: &Index, path: &Path, keys: Option<&Path>, queries: usize, k: usize) -> Result<Vec<u64>, Failure> {
    let table = Table::read(path)?;
    if table.values.len() / table.columns != queries {
        let reason = format!("{} rows for {queries} queries", table.values.len() / table.columns);
        return Err(Failure::of(path.display(), reason));
    }
    if table.columns < k {
        return Err(Failure::of(path.display(), format!("{} columns, k is {k}", table.columns)));
    }
    let keys = keys.map(Table::read).transpose()?;
    let mut truth = Vec::with_capacity(queries * k);
    for (query, row) in table.values.chunks_exact(table.columns).enumerate() {
        for &number in &row[..k] {
            let key = match &keys {
                None => Some(number),
                Some(keys) => usize::try_from(number).ok().and_then(|at| keys.values.get(at).copied()),
            };
            match key.filter(|&key| index.contains(key)) {
                Some(key) => truth.push(key),
                None => {
                    let reason = format!("row {query} names row {number}, which the index does not hold; see --keys");
                    return Err(Failure::of(path.display(), reason));
                }
            }
        }
    }
    Ok(truth)
}

fn measure_all(
    args: &args::Bench,
    index: &Index,
    queries: &[f32],
    truth: &[u64],
    settings: &[Setting],
) -> Result<Vec<Row>, Failure> {
    let bar = output::progress("measuring", Some((settings.len() * (args.rounds + 1)) as u64));
    let extent = match args.seconds {
        Some(seconds) => Extent::For(Duration::from_secs_f64(seconds / args.rounds as f64)),
        None => Extent::Once,
    };
    // Finding the recall is the warming-up, too.
    let mut recalls = Vec::new();
    for &setting in settings {
        recalls.push(measure::recall(index, queries, truth, setting)?);
        bar.inc(1);
    }
    let mut samples = vec![Vec::new(); settings.len()];
    for _ in 0..args.rounds {
        for (&setting, samples) in settings.iter().zip(&mut samples) {
            samples.push(if args.batch == 1 {
                measure::round(index, queries, setting, args.threads, extent)?
            } else {
                measure::round_of_batches(index, queries, setting, args.batch, extent)?
            });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let rows = settings.iter().zip(recalls).zip(samples).map(|((setting, recall), samples)| {
        let Sample { qps, cpu_qps, p50_us, p99_us } = Sample::median(&samples);
        let &Setting { k, ef, rerank } = setting;
        let (exact, threads, batch) = (ef.is_none(), args.threads, args.batch);
        Row { k, ef, exact, rerank, threads, batch, recall, qps, cpu_qps, p50_us, p99_us }
    });
    Ok(rows.collect())
}

fn csv(rows: &[Row]) -> String {
    let mut text = String::from("k,ef,exact,rerank,threads,batch,recall,qps,cpu_qps,p50_us,p99_us\n");
    for row in rows {
        let optional = |value: Option<String>| value.unwrap_or_default();
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{:.6},{:.1},{},{:.3},{:.3}",
            row.k,
            optional(row.ef.map(|ef| ef.to_string())),
            row.exact,
            optional(row.rerank.map(|oversample| oversample.to_string())),
            row.threads,
            row.batch,
            row.recall,
            row.qps,
            optional(row.cpu_qps.map(|qps| format!("{qps:.1}"))),
            row.p50_us,
            row.p99_us,
        );
    }
    text
}

fn summary(args: &args::Bench, index: &Index, report: &Report, queries: usize) -> String {
    let mut text = format!(
        "{}: {} × {}, {}, {}, {}, {}, {}\n{} in {:.2} ms, {}",
        args.index.display(),
        output::count(index.len() as u64),
        index.dimension(),
        index.metric(),
        index.kind(),
        output::encoding(index.encoding(), index.originals()),
        output::bytes(report.index_bytes),
        index.level(),
        if args.resident { "read" } else { "mapped" },
        report.open_ms,
        output::plural(queries as u64, "query", "queries"),
    );
    let _ = write!(text, ", {}", output::plural(args.threads as u64, "thread", "threads"));
    if args.batch > 1 {
        let _ = write!(text, ", {} queries a call", args.batch);
    }
    let _ = writeln!(text, ", median of {}", output::plural(args.rounds as u64, "round", "rounds"));
    if let Some(path) = &args.originals {
        let _ = writeln!(text, "originals from {}", path.display());
    }
    if let Some(oversample) = args.rerank {
        let _ = writeln!(text, "reranked: {oversample} × k rows found by their codes");
    }
    let _ = writeln!(text, "recall against {}", report.truth);
    let samples: Vec<_> = report
        .results
        .iter()
        .map(|row| {
            let Row { recall, qps, cpu_qps, p50_us, p99_us, .. } = *row;
            (Setting { k: row.k, ef: row.ef, rerank: row.rerank }, recall, Sample { qps, cpu_qps, p50_us, p99_us })
        })
        .collect();
    text.push('\n');
    text.push_str(&table(&samples));
    if let Some(peak) = report.peak_rss_bytes {
        let _ = writeln!(text, "\npeak memory {}", output::bytes(peak));
    }
    text
}

/// Measurements for people to read, a line each.
pub fn table(rows: &[(Setting, f64, Sample)]) -> String {
    let k = rows.first().map_or(0, |(setting, ..)| setting.k);
    let mut text = format!(
        "{:>8} {:>11} {:>12} {:>15} {:>10} {:>10}\n",
        "ef",
        format!("recall@{k}"),
        "queries/s",
        "per CPU second",
        "p50 µs",
        "p99 µs"
    );
    for (setting, recall, sample) in rows {
        let ef = setting.ef.map_or("exact".into(), |ef| output::count(ef as u64));
        let cpu_qps = sample.cpu_qps.map_or("-".into(), |qps| output::count(qps as u64));
        let qps = output::count(sample.qps as u64);
        let _ = writeln!(
            text,
            "{ef:>8} {recall:>11.4} {qps:>12} {cpu_qps:>15} {:>10.1} {:>10.1}",
            sample.p50_us, sample.p99_us
        );
    }
    text
}
