//! `twindex search`: the nearest rows of one query or many.

use crate::args;
use crate::data;
use crate::failure::Failure;
use crate::output;
use serde::Serialize;
use std::io::{self, Write};
use twindex::dataset::{DEFAULT_FIELD, VectorReader};
use twindex::{Hit, Index, OpenOptions, SearchParams, Source};

/// Queries searched before their hits are printed.
const QUERIES_AT_ONCE: usize = 64;

#[derive(Serialize)]
struct Answer {
    query: u64,
    /// What the query is, where it is a vector of the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    hits: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    key: u64,
    distance: f32,
    reranked: bool,
}

/// How answers are printed.
#[derive(Clone, Copy)]
struct Form {
    json: bool,
    is_reranked: bool,
}

pub fn run(args: &args::Search) -> Result<(), Failure> {
    search(args).map_err(|failure| failure.with_originals(args.originals.as_deref()))
}

fn search(args: &args::Search) -> Result<(), Failure> {
    if args.originals.is_some() && args.rerank.is_none() && args.like.is_none() {
        return Err(Failure::Usage(
            "--originals is read to rerank, or for --like: say --rerank 2, for instance".into(),
        ));
    }
    let index = data::open_to_search(&args.index, OpenOptions::new(), args.originals.as_deref(), args.rerank)?;
    let params = |k| {
        let params = SearchParams::new(k).exact(args.exact);
        let params = args.ef.map_or(params, |ef| params.ef(ef));
        args.rerank.map_or(params, |oversample| params.rerank(oversample))
    };
    let form = Form { json: args.json, is_reranked: args.rerank.is_some() };
    let mut out = output::stdout();
    if let Some(vector) = &args.vector {
        let query = parse(vector, index.dimension())?;
        let hits = index.search(&query, &params(args.k))?;
        print(&mut out, form, 0, &hits, Title::None)?;
    } else if let Some(key) = args.like {
        let Some(query) = index.get(key)? else {
            return Err(Failure::of(args.index.display(), format!("there is no key {key}")));
        };
        // One more, for it will most likely find itself.
        let mut hits = index.search(&query.vector, &params(args.k + 1))?;
        hits.retain(|hit| hit.key != key);
        hits.truncate(args.k);
        print(&mut out, form, 0, &hits, Title::Like(key, query.source))?;
    } else if let Some(path) = &args.queries {
        let mut reader = VectorReader::open(path, DEFAULT_FIELD)?;
        data::check_dimension(path, reader.dimension(), index.dimension())?;
        many(&index, &mut reader, &params(args.k), form, &mut out)?;
    }
    Ok(out.flush()?)
}

fn many<R: io::Read>(
    index: &Index,
    reader: &mut VectorReader<R>,
    params: &SearchParams<'_>,
    form: Form,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut batch = Vec::new();
    let mut query = 0;
    while reader.next_batch(&mut batch, QUERIES_AT_ONCE)? > 0 {
        for hits in index.search_batch(&batch, params)? {
            print(out, form, query, &hits, Title::Number)?;
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

/// What stands above the hits of a query.
#[derive(Clone, Copy)]
enum Title {
    None,
    /// Its number, for there are many.
    Number,
    /// The query is the vector of a key.
    Like(u64, Source),
}

fn print(out: &mut impl Write, form: Form, query: u64, hits: &[Hit], title: Title) -> Result<(), Failure> {
    if form.json {
        let source = match title {
            Title::Like(_, Source::Code) => Some("code"),
            Title::Like(..) => Some("original"),
            Title::None | Title::Number => None,
        };
        let found = |hit: &Hit| Found { key: hit.key, distance: hit.distance, reranked: hit.reranked };
        let hits = hits.iter().map(found).collect();
        return Ok(out.write_all(output::json(&Answer { query, source, hits })?.as_bytes())?);
    }
    match title {
        Title::Number => writeln!(out, "{}query {query}", if query > 0 { "\n" } else { "" })?,
        Title::Like(key, Source::Code) => writeln!(out, "like key {key}, as its code has it")?,
        Title::None | Title::Like(..) => {}
    }
    let distance = if form.is_reranked { "reranked distance" } else { "distance" };
    let width = distance.len().max(14);
    writeln!(out, "{:>5}  {:>20}  {distance:>width$}", "rank", "key")?;
    for (rank, hit) in hits.iter().enumerate() {
        writeln!(out, "{:>5}  {:>20}  {:>width$}", rank + 1, hit.key, hit.distance)?;
    }
    Ok(())
}
