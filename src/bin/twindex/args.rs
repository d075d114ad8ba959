//! The commands and their options. Scripts rely on these names.

use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand};
use std::path::PathBuf;
use twindex::{Encoding, IndexKind, MAX_EF, MAX_M, Metric, Originals};

/// Vector search: exact and HNSW search over one file format
#[derive(Debug, Parser)]
#[command(name = "twindex", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build an index from a file of vectors
    Build(Build),
    /// Measure recall and speed
    Bench(Bench),
    /// Find the nearest vectors
    Search(Search),
    /// Show what an index is made of
    Info(Info),
    /// Check every byte and link of an index
    Verify(Verify),
    /// Build, save, reopen, search and measure an index of real sentence embeddings
    Demo(Demo),
}

fn metric() -> impl TypedValueParser<Value = Metric> {
    PossibleValuesParser::new(Metric::ALL.map(Metric::name)).try_map(|name| name.parse::<Metric>())
}

fn kind() -> impl TypedValueParser<Value = IndexKind> {
    PossibleValuesParser::new(IndexKind::ALL.map(IndexKind::name)).try_map(|name| name.parse::<IndexKind>())
}

fn encoding() -> impl TypedValueParser<Value = Encoding> {
    PossibleValuesParser::new(Encoding::ALL.map(Encoding::name)).try_map(|name| name.parse::<Encoding>())
}

fn originals() -> impl TypedValueParser<Value = Originals> {
    PossibleValuesParser::new(Originals::ALL.map(Originals::name)).try_map(|name: String| name.parse::<Originals>())
}

fn oversample(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(oversample) if (1.0..=MAX_OVERSAMPLE).contains(&oversample) => Ok(oversample),
        _ => Err(format!("a number from 1 to {MAX_OVERSAMPLE} is expected")),
    }
}

fn between(low: usize, high: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(low as u64..=high as u64)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("a number of seconds above 0 is expected, a day at most".into()),
    }
}

/// Most threads a command may be told to use.
const MAX_THREADS: usize = 1024;
/// Most queries a command may be told to answer with one call.
const MAX_BATCH: usize = 1 << 20;
/// Most neighbours a command may be asked for.
const MAX_K: usize = 1 << 20;
/// Most candidates a search may be told to rerank for each neighbour it is asked for.
pub const MAX_OVERSAMPLE: f32 = 1e6;

#[derive(Debug, Args)]
pub struct Build {
    /// Vectors: .npy (f2, f4, f8; 2-D, C order), .fvecs, .fbin or .jsonl; read in batches, never held whole
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    /// The index file to write
    #[arg(long, value_name = "FILE.twx")]
    pub output: PathBuf,
    /// How vectors are compared
    #[arg(long, value_parser = metric())]
    pub metric: Metric,
    /// hnsw (a graph: fast) or flat (every search scans all rows: exact)
    #[arg(long, value_parser = kind(), default_value = "hnsw")]
    pub index: IndexKind,
    /// What search touches of a vector: f32 (4 bytes a component), f16 (2), int8 (1), int4 (1/2) or bits1 (1/8)
    #[arg(long, value_parser = encoding(), default_value = "f32")]
    pub encoding: Encoding,
    /// Whether the vectors themselves are kept in the file besides, for --rerank
    #[arg(long, value_parser = originals(), default_value = "none")]
    pub originals: Originals,
    /// Quantize vectors as they lie, instead of rotating them at random first (int8, int4, bits1)
    #[arg(long)]
    pub no_rotate: bool,
    /// Quantize vectors without taking their mean off first (int8, int4, bits1)
    #[arg(long)]
    pub no_centre: bool,
    /// Neighbours a row keeps in the graph [default: 16]
    #[arg(long, value_parser = between(2, MAX_M))]
    pub m: Option<usize>,
    /// Candidates weighed when a row is inserted [default: 200]
    #[arg(long, value_parser = between(1, MAX_EF))]
    pub ef_construction: Option<usize>,
    /// Threads; 1 gives the same file every time [default: all cores]
    #[arg(long, value_parser = between(1, MAX_THREADS))]
    pub threads: Option<usize>,
    /// The same file every time, however many threads build it; not the one that --threads 1 gives without it
    #[arg(long)]
    pub deterministic: bool,
    /// Seed of the graph's levels and of the rotation of quantized vectors
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Keys of the rows: .npy of integers, one a row [default: the row numbers]
    #[arg(long, value_name = "FILE.npy")]
    pub keys: Option<PathBuf>,
    /// Field of a JSON line that holds the vector [default: embedding]
    #[arg(long)]
    pub field: Option<String>,
    /// Write {rows, dimension, metric, encoding, originals, seconds, cpu_seconds, peak_rss_bytes, anonymous_bytes,
    /// file_bytes} here (- for standard output)
    #[arg(long, value_name = "FILE.json")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Bench {
    /// The index file
    #[arg(value_name = "FILE.twx")]
    pub index: PathBuf,
    /// Queries, in any format that build reads
    #[arg(long, value_name = "FILE")]
    pub queries: PathBuf,
    /// Nearest row numbers of each query, at least k columns [default: found by a scan of the originals, or of the
    /// codes where there are none]
    #[arg(long, value_name = "FILE.npy")]
    pub truth: Option<PathBuf>,
    /// Keys of the rows that the truth numbers, as given to build [default: the row numbers]
    #[arg(long, value_name = "FILE.npy", requires = "truth")]
    pub keys: Option<PathBuf>,
    /// Neighbours to find
    #[arg(long, value_parser = between(1, MAX_K), default_value_t = 10)]
    pub k: usize,
    /// Candidates a search keeps: one measurement each (k at least) [default: 16,32,64,128]
    #[arg(long, value_parser = between(1, MAX_EF), value_delimiter = ',')]
    pub ef: Vec<usize>,
    /// Measure the exact scan (alone, unless --ef is given too)
    #[arg(long)]
    pub exact: bool,
    /// Find so many times k rows by their codes, and the best k of them by their originals [default: no reranking]
    #[arg(long, value_name = "OVERSAMPLE", value_parser = oversample)]
    pub rerank: Option<f32>,
    /// The vectors the index was built from, in the order of their addition, where it does not keep them itself: .npy
    /// (f2, f4) or .fbin, mapped into memory
    #[arg(long, value_name = "FILE")]
    pub originals: Option<PathBuf>,
    /// Search the file where it is, mapped into memory (the default)
    #[arg(long, conflicts_with = "resident")]
    pub mmap: bool,
    /// Read the file into memory first
    #[arg(long)]
    pub resident: bool,
    /// Threads that search at the same time
    #[arg(long, value_parser = between(1, MAX_THREADS), default_value_t = 1)]
    pub threads: usize,
    /// Search for so many queries with one call
    #[arg(long, value_name = "QUERIES", value_parser = between(1, MAX_BATCH), default_value_t = 1)]
    pub batch: usize,
    /// Search for this long per measurement, over all rounds together, instead of each query once a round
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Rounds; their median is reported. Measurements take turns within a round
    #[arg(long, value_parser = between(1, 1000), default_value_t = 5)]
    pub rounds: usize,
    /// Write {open_ms, open_rss_bytes, open_anonymous_bytes, peak_rss_bytes, index_bytes, encoding, originals, truth,
    /// results: […]} here (- for standard output)
    #[arg(long, value_name = "FILE.json")]
    pub json: Option<PathBuf>,
    /// Write the results as a table here (- for standard output)
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true))]
pub struct Search {
    /// The index file
    #[arg(value_name = "FILE.twx")]
    pub index: PathBuf,
    /// The query, as a JSON array
    #[arg(long, value_name = "[…]", group = "source")]
    pub vector: Option<String>,
    /// Queries, in any format that build reads
    #[arg(long, value_name = "FILE", group = "source")]
    pub queries: Option<PathBuf>,
    /// The vector of this key is the query; it is not among its own hits
    #[arg(long, value_name = "KEY", group = "source")]
    pub like: Option<u64>,
    /// Neighbours to find
    #[arg(long, value_parser = between(1, MAX_K), default_value_t = 10)]
    pub k: usize,
    /// Candidates the search keeps [default: the index's own]
    #[arg(long, value_parser = between(1, MAX_EF))]
    pub ef: Option<usize>,
    /// Scan every row instead of walking the graph
    #[arg(long, conflicts_with = "ef")]
    pub exact: bool,
    /// Find so many times k rows by their codes, and the best k of them by their originals [default: no reranking]
    #[arg(long, value_name = "OVERSAMPLE", value_parser = oversample)]
    pub rerank: Option<f32>,
    /// The vectors the index was built from, in the order of their addition, where it does not keep them itself: .npy
    /// (f2, f4) or .fbin, mapped into memory
    #[arg(long, value_name = "FILE")]
    pub originals: Option<PathBuf>,
    /// Print a JSON line per query: {query, hits: [{key, distance, reranked}]}; with --like also its source, original
    /// or code
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Info {
    /// The index file
    #[arg(value_name = "FILE.twx")]
    pub index: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Verify {
    /// The index file
    #[arg(value_name = "FILE.twx")]
    pub index: PathBuf,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// The bundled data set [default: tests/data/wordnet in the repository]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The index file to write [default: target/demo.twx, or demo.twx among the temporary files]
    #[arg(long, value_name = "FILE.twx")]
    pub output: Option<PathBuf>,
}
