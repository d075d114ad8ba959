//! The most memory an index takes over its whole life, one process a life:
//! `cargo bench --bench life -- BASE.npy QUERIES.npy flat|hnsw ENCODING none|f16|f32`.
//!
//! Vectors are read and added in batches, the index is saved and closed, opened again read-only from the mapped file,
//! and asked 1,000 queries for 10 hits (reranked twofold where there are originals). The peak of the resident set, the
//! pages of the mapped file that were touched among them, is printed as a share of the vectors as f32.

use std::path::Path;
use twindex::dataset::{DEFAULT_FIELD, VectorReader};
use twindex::{Encoding, Index, IndexKind, Metric, Originals, SearchParams};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [base, queries, kind, encoding, originals] = &args[..] else {
        // `cargo test --benches` has nothing to measure.
        println!("life: BASE.npy QUERIES.npy flat|hnsw ENCODING none|f16|f32");
        return Ok(());
    };
    let (kind, encoding): (IndexKind, Encoding) = (kind.parse()?, encoding.parse()?);
    let originals: Originals = originals.parse()?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("life.twx");

    let mut reader = VectorReader::open(Path::new(base), DEFAULT_FIELD)?;
    let dimension = reader.dimension();
    let index =
        Index::builder(dimension, Metric::InnerProduct).kind(kind).encoding(encoding).originals(originals).build()?;
    let mut batch = Vec::new();
    let mut rows = 0;
    while reader.next_batch(&mut batch, 4096)? > 0 {
        let keys: Vec<u64> = (rows..).take(batch.len() / dimension).collect();
        index.add_batch(&keys, &batch)?;
        rows += keys.len() as u64;
    }
    let grown = peak();
    index.save(&path)?;
    drop((index, reader, batch));

    let index = Index::open(&path)?;
    let mut queries = VectorReader::open(Path::new(queries), DEFAULT_FIELD)?;
    let mut batch = Vec::new();
    queries.next_batch(&mut batch, 1000)?;
    let params = SearchParams::new(10);
    let params = if index.has_originals() { params.rerank(2.0) } else { params };
    for query in batch.chunks_exact(dimension) {
        index.search(query, &params)?;
    }
    let raw = rows as f64 * dimension as f64 * 4.0;
    let share = |bytes: Option<u64>| bytes.map_or("?".into(), |bytes| format!("{:.3}", bytes as f64 / raw));
    println!(
        "{kind} {encoding} originals {originals}: {rows} rows, file {:.1} B/row, peak RSS ÷ f32 vectors {} (before saving {})",
        std::fs::metadata(&path)?.len() as f64 / rows as f64,
        share(peak()),
        share(grown),
    );
    Ok(())
}

/// The most memory this process had resident so far, in bytes; `None` where the system does not tell.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}
