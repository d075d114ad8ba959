//! The native side of the npm package's parity tests: builds an index from raw floats and writes it, or searches a file
//! and prints keys and the bits of the distances. Run by `prepare.mjs`.
//!
//! ```text
//! native build VECTORS DIMENSION METRIC KIND M EF_CONSTRUCTION SEED ENCODING ORIGINALS OUT
//! native flat VECTORS DIMENSION ENCODING ORIGINALS OUT
//! native search FILE QUERIES K EF EXACT [RERANK [VECTORS]]
//! ```
//!
//! RERANK 0 is none; VECTORS are attached as originals. `flat` is a large index in fewer words: L2, keys 0, 1, ….

use std::error::Error;
use std::fs;
use std::sync::Arc;
use twindex::storage::Storage;
use twindex::{Encoding, Index, IndexKind, Metric, SearchParams, VectorFile};

fn floats(path: &str) -> Result<Vec<f32>, Box<dyn Error>> {
    let bytes = fs::read(path)?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn search(file: &str, queries: &str, settings: [&str; 4], originals: Option<&str>) -> Result<(), Box<dyn Error>> {
    let [k, ef, exact, rerank] = settings;
    let mut index = Index::open(file)?;
    if let Some(originals) = originals {
        let storage: Arc<dyn Storage + Send + Sync> = Arc::new(fs::read(originals)?);
        index.attach_originals(VectorFile::raw(storage, Encoding::F32, index.dimension())?)?;
    }
    let mut params = SearchParams::new(k.parse()?).ef(ef.parse()?).exact(exact.parse()?);
    if rerank != "0" {
        params = params.rerank(rerank.parse()?);
    }
    for query in floats(queries)?.chunks_exact(index.dimension()) {
        let hits = index.search(query, &params)?;
        let line: Vec<String> = hits.iter().map(|hit| format!("{}:{:08x}", hit.key, hit.distance.to_bits())).collect();
        println!("{}", line.join(" "));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["build", vectors, dimension, metric, kind, m, ef_construction, seed, encoding, originals, out] => {
            let vectors = floats(vectors)?;
            let dimension: usize = dimension.parse()?;
            let index = Index::builder(dimension, metric.parse()?)
                .kind(kind.parse()?)
                .m(m.parse()?)
                .ef_construction(ef_construction.parse()?)
                .seed(seed.parse()?)
                .encoding(encoding.parse()?)
                .originals(originals.parse()?)
                .threads(1)
                .build()?;
            let keys: Vec<u64> = (0..(vectors.len() / dimension) as u64).map(|i| i * 3 + 5).collect();
            index.add_batch(&keys, &vectors)?;
            for &key in keys.iter().step_by(10) {
                index.remove(key)?;
            }
            index.update(keys[1], &vectors[..dimension])?;
            index.save(out)?;
        }
        ["flat", vectors, dimension, encoding, originals, out] => {
            let vectors = floats(vectors)?;
            let dimension: usize = dimension.parse()?;
            let index = Index::builder(dimension, Metric::L2)
                .kind(IndexKind::Flat)
                .encoding(encoding.parse()?)
                .originals(originals.parse()?)
                .build()?;
            let keys: Vec<u64> = (0..(vectors.len() / dimension) as u64).collect();
            index.add_batch(&keys, &vectors)?;
            index.save(out)?;
        }
        ["search", file, queries, k, ef, exact] => search(file, queries, [k, ef, exact, "0"], None)?,
        ["search", file, queries, k, ef, exact, rerank] => search(file, queries, [k, ef, exact, rerank], None)?,
        ["search", file, queries, k, ef, exact, rerank, originals] => {
            search(file, queries, [k, ef, exact, rerank], Some(originals))?;
        }
        _ => return Err("build, flat or search, see the source".into()),
    }
    Ok(())
}
