//! `twindex info` and `twindex verify`.

use crate::args;
use crate::data;
use crate::failure::Failure;
use crate::output;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use twindex::segment::{QuantizerMeta, Segment};
use twindex::storage::MmapStorage;
use twindex::{Error, IndexKind, OpenOptions, Stats};

/// Widest bar of the degree histogram, in characters.
const BAR: u64 = 40;
/// Lines of the degree histogram, at most.
const BINS: usize = 12;

#[derive(Serialize)]
struct Report {
    file: String,
    file_bytes: u64,
    kind: &'static str,
    metric: &'static str,
    dimension: usize,
    encoding: &'static str,
    originals: &'static str,
    #[serde(flatten)]
    quantizer: Option<QuantizerReport>,
    #[serde(flatten)]
    graph: Option<GraphReport>,
    ef: usize,
    /// The kernels this machine would search with.
    level: String,
    rows: u64,
    live: u64,
    tombstones: u64,
    sections: Vec<Section>,
    resident_bytes: u64,
    levels: Vec<u64>,
    degrees: Vec<u64>,
    unreachable: u64,
}

#[derive(Serialize)]
struct GraphReport {
    m: usize,
    ef_construction: usize,
    seed: u64,
}

#[derive(Serialize)]
struct QuantizerReport {
    rotated: bool,
    centred: bool,
    rotation_seed: u64,
}

#[derive(Serialize)]
struct Section {
    name: &'static str,
    bytes: u64,
    /// `null` where there are no rows.
    bytes_per_row: Option<f64>,
}

pub fn info(args: &args::Info) -> Result<(), Failure> {
    let index = data::open(&args.index, OpenOptions::new())?;
    let file_bytes = std::fs::metadata(&args.index).map_err(|e| Failure::of(args.index.display(), e))?.len();
    let Stats { rows, live, tombstones, sections, resident_bytes, levels, degrees, unreachable, .. } =
        index.stats().map_err(|e| Failure::of(args.index.display(), e))?;
    let report = Report {
        file: args.index.display().to_string(),
        file_bytes,
        kind: index.kind().name(),
        metric: index.metric().name(),
        dimension: index.dimension(),
        encoding: index.encoding().name(),
        originals: index.originals().name(),
        quantizer: quantizer(&args.index)?,
        graph: (index.kind() == IndexKind::Hnsw).then(|| GraphReport {
            m: index.m(),
            ef_construction: index.ef_construction(),
            seed: index.seed(),
        }),
        ef: index.ef(),
        level: index.level().to_string(),
        rows,
        live,
        tombstones,
        sections: sections
            .iter()
            .map(|section| Section {
                name: section.name,
                bytes: section.bytes,
                bytes_per_row: (rows > 0).then(|| section.bytes as f64 / rows as f64),
            })
            .collect(),
        resident_bytes,
        levels,
        degrees,
        unreachable,
    };
    let text = if args.json { output::json(&report)? } else { describe(&report) };
    output::write_to(Path::new("-"), &text)
}

/// What META says of the preparation of quantized vectors.
fn quantizer(path: &Path) -> Result<Option<QuantizerReport>, Failure> {
    let segment = MmapStorage::open(path).and_then(|storage| Segment::open(Arc::new(storage)));
    let segment = segment.map_err(|e: Error| Failure::of(path.display(), e))?;
    Ok(segment.meta().quantizer.map(|QuantizerMeta { rotated, centred, seed }| QuantizerReport {
        rotated,
        centred,
        rotation_seed: seed,
    }))
}

fn describe(report: &Report) -> String {
    let mut text = format!("{}\n", report.file);
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<17} {value}");
    };
    line("size", format!("{} ({} bytes)", output::bytes(report.file_bytes), output::count(report.file_bytes)));
    line("kind", report.kind.into());
    line("metric", report.metric.into());
    line("dimension", output::count(report.dimension as u64));
    line("encoding", report.encoding.into());
    if let Some(quantizer) = &report.quantizer {
        let rotation = if quantizer.rotated { format!("seed {}", quantizer.rotation_seed) } else { "none".into() };
        line("rotation", rotation);
        line("centre", if quantizer.centred { "the mean of the first rows" } else { "none" }.into());
    }
    line("originals", originals(report));
    line("rows", output::count(report.live));
    if report.tombstones > 0 {
        line("tombstones", format!("{} (compact gives their space back)", output::count(report.tombstones)));
    }
    if let Some(graph) = &report.graph {
        line("m", graph.m.to_string());
        line("ef construction", graph.ef_construction.to_string());
        line("ef", format!("{} where a search names none", report.ef));
        line("seed", graph.seed.to_string());
    }
    line("kernels", report.level.clone());
    line("copied to memory", output::bytes(report.resident_bytes));

    let _ = writeln!(text, "\nsections");
    for section in report.sections.iter().filter(|section| section.bytes > 0) {
        let part = 100.0 * section.bytes as f64 / report.file_bytes as f64;
        let _ = write!(text, "  {:<17} {:>12} {part:>6.1} %", section.name, output::bytes(section.bytes));
        let _ = match section.bytes_per_row {
            Some(bytes) => writeln!(text, " {bytes:>10.1} B a row"),
            None => writeln!(text),
        };
    }

    if report.graph.is_some() {
        let _ = writeln!(text, "\nrows by their highest level");
        for (level, &rows) in report.levels.iter().enumerate() {
            let _ = writeln!(text, "  {level:<17} {:>12}", output::count(rows));
        }
        let _ = writeln!(text, "\nrows by links on level 0");
        histogram(&mut text, &report.degrees);
        let unreachable = output::plural(report.unreachable, "row", "rows");
        let _ = writeln!(text, "\nout of reach of a search by graph: {unreachable}");
    }
    text
}

fn originals(report: &Report) -> String {
    match (report.originals, report.encoding) {
        ("none", "f32") => "the codes".into(),
        ("none", _) => "none, but a fingerprint of each".into(),
        (kept, _) => kept.into(),
    }
}

fn histogram(text: &mut String, degrees: &[u64]) {
    let width = degrees.len().div_ceil(BINS).max(1);
    let bins: Vec<u64> = degrees.chunks(width).map(|bin| bin.iter().sum()).collect();
    let most = bins.iter().copied().max().unwrap_or(0).max(1);
    for (i, &rows) in bins.iter().enumerate() {
        let first = i * width;
        let last = (first + width).min(degrees.len()) - 1;
        let range = if first == last { first.to_string() } else { format!("{first} to {last}") };
        let bar = "#".repeat((rows * BAR).div_ceil(most) as usize);
        let _ = writeln!(text, "{}", format!("  {range:<17} {:>12}  {bar}", output::count(rows)).trim_end());
    }
}

pub fn verify(args: &args::Verify) -> Result<(), Failure> {
    let start = Instant::now();
    let index = data::open(&args.index, OpenOptions::new())?;
    index.verify().map_err(|e| Failure::of(args.index.display(), e))?;
    let file_bytes = std::fs::metadata(&args.index).map_err(|e| Failure::of(args.index.display(), e))?.len();
    let text = format!(
        "{}: intact ({}, {} checked in {:.2} s)\n",
        args.index.display(),
        output::plural(index.len() as u64, "row", "rows"),
        output::bytes(file_bytes),
        start.elapsed().as_secs_f64(),
    );
    output::write_to(Path::new("-"), &text)
}
