//! The native side of the npm package's parity tests: builds an index from raw floats and writes it, or searches a file
//! and prints keys and the bits of the distances. Run by `prepare.mjs`.
//!
//! ```text
//! native build VECTORS DIMENSION METRIC KIND M EF_CONSTRUCTION SEED OUT
//! native search FILE QUERIES K EF EXACT
//! ```

use std::error::Error;
use std::fs;
use twindex::{Index, SearchParams};

fn floats(path: &str) -> Result<Vec<f32>, Box<dyn Error>> {
    let bytes = fs::read(path)?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["build", vectors, dimension, metric, kind, m, ef_construction, seed, out] => {
            let vectors = floats(vectors)?;
            let dimension: usize = dimension.parse()?;
            let index = Index::builder(dimension, metric.parse()?)
                .kind(kind.parse()?)
                .m(m.parse()?)
                .ef_construction(ef_construction.parse()?)
                .seed(seed.parse()?)
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
        ["search", file, queries, k, ef, exact] => {
            let index = Index::open(file)?;
            let params = SearchParams::new(k.parse()?).ef(ef.parse()?).exact(exact.parse()?);
            for query in floats(queries)?.chunks_exact(index.dimension()) {
                let hits = index.search(query, &params)?;
                let line: Vec<String> =
                    hits.iter().map(|hit| format!("{}:{:08x}", hit.key, hit.distance.to_bits())).collect();
                println!("{}", line.join(" "));
            }
        }
        _ => return Err("build or search, see the source".into()),
    }
    Ok(())
}
