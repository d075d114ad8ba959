//! `twindex search`: the nearest rows of one query or many.

use crate::args;
use crate::data;
use crate::failure::Failure;
use crate::output;
use serde::Serialize;
use std::io::{self, Write};
use twindex::dataset::{DEFAULT_FIELD, VectorReader};
use twindex::{Hit, Index, Residency, SearchParams};

/// Queries searched before their hits are printed.
const QUERIES_AT_ONCE: usize = 64;

#[derive(Serialize)]
struct Answer {
    query: u64,
    hits: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    key: u64,
    distance: f32,
}

pub fn run(args: &args::Search) -> Result<(), Failure> {
    let index = data::open(&args.index, Residency::Mapped)?;
    let params = |k| {
        let params = SearchParams::new(k).exact(args.exact);
        args.ef.map_or(params, |ef| params.ef(ef))
    };
    let mut out = output::stdout();
    if let Some(vector) = &args.vector {
        let query = parse(vector, index.dimension())?;
        let hits = index.search(&query, &params(args.k))?;
        print(&mut out, args.json, 0, &hits, None)?;
    } else if let Some(key) = args.like {
        let Some(query) = index.get(key)? else {
            return Err(Failure::of(args.index.display(), format!("there is no key {key}")));
        };
        // One more, for it will most likely find itself.
        let mut hits = index.search(&query.vector, &params(args.k + 1))?;
        hits.retain(|hit| hit.key != key);
        hits.truncate(args.k);
        print(&mut out, args.json, 0, &hits, None)?;
    } else if let Some(path) = &args.queries {
        let mut reader = VectorReader::open(path, DEFAULT_FIELD)?;
        data::check_dimension(path, reader.dimension(), index.dimension())?;
        many(&index, &mut reader, &params(args.k), args.json, &mut out)?;
    }
    Ok(out.flush()?)
}

fn many<R: io::Read>(
    index: &Index,
    reader: &mut VectorReader<R>,
    params: &SearchParams<'_>,
    json: bool,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut batch = Vec::new();
    let mut query = 0;
    while reader.next_batch(&mut batch, QUERIES_AT_ONCE)? > 0 {
        for hits in index.search_batch(&batch, params)? {
            print(out, json, query, &hits, Some(query))?;
            query += 1;
        }
        // Whoever reads along gets whole batches, and a closed pipe ends the search.
        out.flush()?;
    }
    Ok(())
}

/// The one vector that a JSON array on the command line is.
fn parse(vector: &str, dimension: usize) -> Result<Vec<f32>, Failure> {
    let usage = |e: twindex::Error| match e {
        twindex::Error::Dataset { reason, .. } => Failure::Usage(format!("--vector: {reason}")),
        other => other.into(),
    };
    let mut reader = VectorReader::json_lines("--vector", vector.as_bytes(), DEFAULT_FIELD).map_err(usage)?;
    if reader.dimension() != dimension {
        let got = reader.dimension();
        return Err(Failure::Usage(format!("--vector: {got} components, those of the index have {dimension}")));
    }
    let (mut query, mut more) = (Vec::new(), Vec::new());
    reader.next_batch(&mut query, 1).map_err(usage)?;
    if reader.next_batch(&mut more, 1).map_err(usage)? > 0 {
        return Err(Failure::Usage("--vector: one vector is expected; --queries reads many".into()));
    }
    Ok(query)
}

/// `title`: the number of the query, where there are many.
fn print(out: &mut impl Write, json: bool, query: u64, hits: &[Hit], title: Option<u64>) -> Result<(), Failure> {
    if json {
        let hits = hits.iter().map(|hit| Found { key: hit.key, distance: hit.distance }).collect();
        return Ok(out.write_all(output::json(&Answer { query, hits })?.as_bytes())?);
    }
    if let Some(number) = title {
        writeln!(out, "{}query {number}", if number > 0 { "\n" } else { "" })?;
    }
    writeln!(out, "{:>5}  {:>20}  {:>14}", "rank", "key", "distance")?;
    for (rank, hit) in hits.iter().enumerate() {
        writeln!(out, "{:>5}  {:>20}  {:>14}", rank + 1, hit.key, hit.distance)?;
    }
    Ok(())
}
