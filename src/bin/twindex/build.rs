//! `twindex build`: a file of vectors becomes an index file.

use crate::args;
use crate::data::BATCH;
use crate::failure::Failure;
use crate::output;
use crate::resources;
use serde::Serialize;
use std::fs::File;
use std::path::Path;
use std::time::Instant;
use twindex::dataset::{DEFAULT_FIELD, IntegerReader, VectorReader};
use twindex::{Error, Index, IndexKind};

#[derive(Serialize)]
struct Report {
    rows: u64,
    dimension: usize,
    metric: &'static str,
    encoding: &'static str,
    originals: &'static str,
    /// From opening the input to the saved file.
    seconds: f64,
    cpu_seconds: Option<f64>,
    peak_rss_bytes: Option<u64>,
    /// What the built index, and all else of the process, takes of memory that no file backs.
    anonymous_bytes: Option<u64>,
    file_bytes: u64,
}

pub fn run(args: &args::Build) -> Result<(), Failure> {
    check(args)?;
    let start = Instant::now();
    let cpu = resources::cpu_seconds();

    let reader = VectorReader::open(&args.input, args.field.as_deref().unwrap_or(DEFAULT_FIELD))?;
    let mut builder = Index::builder(reader.dimension(), args.metric)
        .kind(args.index)
        .encoding(args.encoding)
        .originals(args.originals)
        .rotate(!args.no_rotate)
        .centre(!args.no_centre)
        .seed(args.seed)
        .deterministic(args.deterministic);
    if let Some(m) = args.m {
        builder = builder.m(m);
    }
    if let Some(ef_construction) = args.ef_construction {
        builder = builder.ef_construction(ef_construction);
    }
    let index = builder.threads(args.threads.unwrap_or(0)).build().map_err(|e| Failure::of(args.input.display(), e))?;
    let keys = match &args.keys {
        Some(path) => Keys::File(path, open_keys(path, &reader)?),
        None => Keys::RowNumbers,
    };
    let dimension = reader.dimension();
    let rows = fill(&index, &args.input, reader, keys, BATCH)?;
    let (_, anonymous_bytes) = resources::rss_bytes();
    index.save(&args.output).map_err(|e| Failure::of(args.output.display(), e))?;
    let file_bytes = std::fs::metadata(&args.output).map_err(|e| Failure::of(args.output.display(), e))?.len();

    let report = Report {
        rows,
        dimension,
        metric: args.metric.name(),
        encoding: args.encoding.name(),
        originals: args.originals.name(),
        seconds: start.elapsed().as_secs_f64(),
        cpu_seconds: resources::cpu_seconds().zip(cpu).map(|(now, then)| now - then),
        peak_rss_bytes: resources::peak_rss_bytes(),
        anonymous_bytes,
        file_bytes,
    };
    if let Some(path) = &args.json {
        output::write_to(path, &output::json(&report)?)?;
        if output::is_stdout(path) {
            return Ok(());
        }
    }
    output::write_to(Path::new("-"), &summary(args, &report))
}

fn check(args: &args::Build) -> Result<(), Failure> {
    let extension = args.input.extension().and_then(|e| e.to_str()).unwrap_or_default();
    if args.field.is_some() && !["jsonl", "ndjson"].contains(&extension.to_ascii_lowercase().as_str()) {
        return Err(Failure::Usage("--field is for .jsonl files".into()));
    }
    if args.index == IndexKind::Flat && (args.m.is_some() || args.ef_construction.is_some()) {
        return Err(Failure::Usage("--m and --ef-construction are for --index hnsw: a flat index has no graph".into()));
    }
    if !args.originals.suits(args.encoding) {
        let reason = format!("--originals {} adds nothing to --encoding {}", args.originals, args.encoding);
        return Err(Failure::Usage(reason));
    }
    for (option, is_given) in [("--no-rotate", args.no_rotate), ("--no-centre", args.no_centre)] {
        if is_given && !args.encoding.is_quantized() {
            let reason = format!("{option} is for --encoding int8, int4 and bits1: {} is not quantized", args.encoding);
            return Err(Failure::Usage(reason));
        }
    }
    output::check_folder(&args.output)?;
    output::check_distinct(
        &[("--output", Some(&args.output)), ("--json", args.json.as_deref())],
        &[("--input", Some(&args.input)), ("--keys", args.keys.as_deref())],
    )?;
    match &args.json {
        Some(path) if !output::is_stdout(path) => output::check_folder(path),
        _ => Ok(()),
    }
}

fn summary(args: &args::Build, report: &Report) -> String {
    let rate = if report.seconds > 0.0 { (report.rows as f64 / report.seconds) as u64 } else { 0 };
    let peak = report.peak_rss_bytes.map(|peak| format!(", peak memory {}", output::bytes(peak))).unwrap_or_default();
    format!(
        "{}: {} × {}, {}, {}, {}, {}\n{:.2} s, {} rows/s{peak}\n",
        args.output.display(),
        output::plural(report.rows, "row", "rows"),
        report.dimension,
        report.metric,
        args.index,
        output::encoding(args.encoding, args.originals),
        output::bytes(report.file_bytes),
        report.seconds,
        output::count(rate),
    )
}

/// Where the keys of the rows come from.
pub enum Keys<'a> {
    RowNumbers,
    File(&'a Path, IntegerReader<File>),
}

fn open_keys(path: &Path, vectors: &VectorReader<File>) -> Result<IntegerReader<File>, Failure> {
    let keys = IntegerReader::open(path)?;
    if keys.columns() != 1 {
        return Err(Failure::of(path.display(), format!("{} columns; keys are one number a row", keys.columns())));
    }
    match vectors.rows() {
        Some(rows) if rows != keys.rows() => {
            Err(Failure::of(path.display(), format!("{} keys for {rows} vectors", keys.rows())))
        }
        _ => Ok(keys),
    }
}

/// Adds all rows of `reader`, a batch at a time, and returns how many they were.
pub fn fill(
    index: &Index,
    path: &Path,
    mut reader: VectorReader<File>,
    mut keys: Keys<'_>,
    batch_rows: usize,
) -> Result<u64, Failure> {
    let bar = output::progress("building", reader.rows());
    let (mut vectors, mut batch_keys) = (Vec::new(), Vec::new());
    let mut rows = 0;
    loop {
        let count = reader.next_batch(&mut vectors, batch_rows)?;
        match &mut keys {
            Keys::RowNumbers => {
                batch_keys.clear();
                batch_keys.extend(rows..rows + count as u64);
            }
            // At the end of the vectors one more key is asked for, to see that there is none.
            Keys::File(keys_path, reader) => {
                if reader.next_batch(&mut batch_keys, count.max(1))? != count {
                    let reason = format!("the vectors are not as many as the {} keys", reader.rows());
                    return Err(Failure::of(keys_path.display(), reason));
                }
            }
        }
        if count == 0 {
            break;
        }
        index.add_batch(&batch_keys, &vectors).map_err(|e| Failure::of(path.display(), shifted(e, rows)))?;
        rows += count as u64;
        bar.inc(count as u64);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// The error of a batch, its row counted from the start of the file.
fn shifted(mut error: Error, by: u64) -> Error {
    if let Error::NotFinite { row, .. }
    | Error::ZeroVector { row }
    | Error::NormTooLarge { row, .. }
    | Error::OutOfRange { row, .. } = &mut error
    {
        *row += by as usize;
    }
    error
}
