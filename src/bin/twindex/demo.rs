//! `twindex demo`: the whole way through on real sentence embeddings. Build, save, reopen, ask, measure.

use crate::args;
use crate::bench;
use crate::build::{self, Keys};
use crate::data::{self, Table};
use crate::failure::Failure;
use crate::measure::{self, Extent, Sample, Setting};
use crate::output;
use crate::resources;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use twindex::dataset::{DEFAULT_FIELD, VectorReader};
use twindex::{Index, Metric, OpenOptions, SearchParams};

/// Where the repository keeps the set, from its root.
const DATA: &str = "tests/data/wordnet";
/// Queries of the bundled set that show what embeddings do.
const QUESTIONS: [usize; 12] = [6, 79, 86, 89, 100, 134, 144, 145, 163, 169, 186, 191];
const ANSWERS: usize = 3;
const K: usize = 10;
const EF: [usize; 4] = [16, 32, 64, 128];
const ROUNDS: usize = 5;
/// Small enough for the bar to move.
const BATCH: usize = 512;
/// Characters in a line.
const WIDTH: usize = 79;

pub fn run(args: &args::Demo) -> Result<(), Failure> {
    let folder = find(args.data.as_deref())?;
    let texts = lines(&folder.join("texts.txt"))?;
    let questions = lines(&folder.join("queries.txt"))?;
    let path = args.output.clone().unwrap_or_else(|| {
        let target = Path::new("target");
        if target.is_dir() { target.join("demo.twx") } else { std::env::temp_dir().join("demo.twx") }
    });
    output::check_folder(&path)?;

    let mut out = output::stdout();
    build_and_save(&mut out, &folder.join("base.f16.npy"), &texts, &path)?;

    let start = Instant::now();
    let index = OpenOptions::new().expect_metric(Metric::InnerProduct).open(&path);
    let index = index.map_err(|e| Failure::of(path.display(), e))?;
    let opened = start.elapsed().as_secs_f64() * 1e3;
    writeln!(out, "Open    mapped into memory in {opened:.2} ms")?;
    out.flush()?;

    let queries_path = folder.join("queries.f16.npy");
    let queries = data::vectors(&queries_path, index.dimension())?;
    if queries.len() / index.dimension() != questions.len() || queries.is_empty() {
        return Err(Failure::of(queries_path.display(), "there are not as many queries as lines in queries.txt"));
    }
    ask(&mut out, &index, &queries, &questions, &texts)?;
    measure(&mut out, &index, &queries, &folder.join("truth.i32.npy"))?;
    if let Some(peak) = resources::peak_rss_bytes() {
        writeln!(out, "\nPeak memory of all this: {}", output::bytes(peak))?;
    }
    what_next(&mut out, &path, &folder)?;
    Ok(out.flush()?)
}

fn build_and_save(out: &mut impl Write, base: &Path, texts: &[String], path: &Path) -> Result<(), Failure> {
    let reader = VectorReader::open(base, DEFAULT_FIELD)?;
    if reader.rows() != Some(texts.len() as u64) {
        return Err(Failure::of(base.display(), "there are not as many rows as lines in texts.txt"));
    }
    writeln!(out, "{} definitions from WordNet, as sentence embeddings", output::count(texts.len() as u64))?;
    writeln!(out, "of {} dimensions (all-MiniLM-L6-v2)\n", reader.dimension())?;
    out.flush()?;

    let start = Instant::now();
    let index = Index::builder(reader.dimension(), Metric::InnerProduct).build()?;
    let rows = build::fill(&index, base, reader, Keys::RowNumbers, BATCH)?;
    let seconds = start.elapsed().as_secs_f64();
    writeln!(
        out,
        "Build   HNSW, m {}, ef_construction {}: {seconds:.2} s, {} rows/s, kernels {}",
        index.m(),
        index.ef_construction(),
        output::count((rows as f64 / seconds) as u64),
        index.level(),
    )?;
    writeln!(out, "Memory  {} while growing", output::bytes(index.stats()?.resident_bytes))?;
    index.save(path).map_err(|e| Failure::of(path.display(), e))?;
    let bytes = std::fs::metadata(path).map_err(|e| Failure::of(path.display(), e))?.len();
    writeln!(out, "Save    {}, {}", path.display(), output::bytes(bytes))?;
    Ok(())
}

fn ask(
    out: &mut impl Write,
    index: &Index,
    queries: &[f32],
    questions: &[String],
    texts: &[String],
) -> Result<(), Failure> {
    writeln!(out, "\nNearest definitions (the distance is -<q, x>: smaller is closer)")?;
    let params = SearchParams::new(ANSWERS);
    for (query, question) in
        QUESTIONS.iter().filter_map(|&i| Some((queries.chunks_exact(index.dimension()).nth(i)?, questions.get(i)?)))
    {
        writeln!(out, "\n  \"{}\"", output::cut(question, WIDTH - 4))?;
        for hit in index.search(query, &params)? {
            let text = usize::try_from(hit.key).ok().and_then(|row| texts.get(row)).map_or("", String::as_str);
            writeln!(out, "    {:>6.3}  {}", hit.distance, output::cut(text, WIDTH - 12))?;
        }
    }
    Ok(out.flush()?)
}

fn measure(out: &mut impl Write, index: &Index, queries: &[f32], truth_path: &Path) -> Result<(), Failure> {
    let truth = Table::read(truth_path)?;
    let count = queries.len() / index.dimension();
    if truth.columns < K || truth.values.len() / truth.columns != count {
        return Err(Failure::of(truth_path.display(), format!("{count} rows of at least {K} numbers are expected")));
    }
    let truth: Vec<u64> = truth.values.chunks_exact(truth.columns).flat_map(|row| &row[..K]).copied().collect();

    let settings: Vec<Setting> =
        EF.iter().map(|&ef| Some(ef)).chain([None]).map(|ef| Setting { k: K, ef, rerank: None }).collect();
    let mut rows = Vec::new();
    let bar = output::progress("measuring", Some(settings.len() as u64));
    for setting in settings {
        let recall = measure::recall(index, queries, &truth, setting)?;
        let samples: Result<Vec<_>, _> =
            (0..ROUNDS).map(|_| measure::round(index, queries, setting, 1, Extent::Once)).collect();
        rows.push((setting, recall, Sample::median(&samples?)));
        bar.inc(1);
    }
    bar.finish_and_clear();
    writeln!(out, "\nQuality and speed over {count} queries, one thread:\n")?;
    write!(out, "{}", bench::table(&rows))?;
    Ok(out.flush()?)
}

/// Commands to try, as this program was called.
fn what_next(out: &mut impl Write, path: &Path, folder: &Path) -> Result<(), Failure> {
    let program = std::env::args().next().unwrap_or_else(|| "twindex".into());
    let here = std::env::current_dir().unwrap_or_default();
    let folder = folder.strip_prefix(&here).unwrap_or(folder).display();
    let path = path.display();
    writeln!(out, "\nNext:")?;
    writeln!(out, "  {program} info {path}")?;
    writeln!(out, "  {program} search {path} --like 6")?;
    writeln!(out, "  {program} bench {path} \\\n      --queries {folder}/queries.f16.npy")?;
    writeln!(out, "  {program} build --help")?;
    Ok(())
}

/// The folder of the bundled set: where the user says, else in the repository this was compiled in, else in this one.
fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let is_there = |folder: &Path| folder.join("base.f16.npy").is_file();
    if let Some(folder) = given {
        if !is_there(folder) {
            return Err(Failure::of(folder.display(), "there is no base.f16.npy in it"));
        }
        return Ok(folder.to_owned());
    }
    let candidates = [Path::new(env!("CARGO_MANIFEST_DIR")).join(DATA), PathBuf::from(DATA)];
    candidates.into_iter().find(|folder| is_there(folder)).ok_or_else(|| {
        Failure::failed(format!(
            "the demo's data ({DATA} in the repository) are not here; run it in a clone, or say --data FOLDER"
        ))
    })
}

fn lines(path: &Path) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::of(path.display(), e))?;
    Ok(text.lines().map(str::to_owned).collect())
}
