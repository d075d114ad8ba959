//! JavaScript bindings: the only place that names `wasm-bindgen` and `js-sys`.
//!
//! The npm package's hand-written TypeScript stands over [`RawIndex`]: it parses options, checks arguments and names
//! them in its errors; scalars and typed arrays arrive here.
//!
//! | module | job |
//! |---|---|
//! | this one | [`RawIndex`]: an [`Index`] as a JavaScript class |
//! | [`storage`] | [`JsStorage`]: bytes that JavaScript owns, as a [`Storage`](crate::storage::Storage) |
//!
//! **Crossing.** A vector or key list crosses once: `length`, then one `copy_to` into a buffer in linear memory that
//! was asked for with `try_reserve`, so that a refusal is an error and not a trap (which would take the page's index
//! with it). Answers leave as `Vec`s that the glue copies into typed arrays of JavaScript's own; no view of linear
//! memory is ever handed to a user.
//!
//! **Errors.** Every fallible function throws a JavaScript `Error` whose `code` is [`Error::code`].

pub mod storage;

pub use storage::{JsSource, JsStorage};

use crate::error::{Error, Result};
use crate::{
    Candidate, Encoding, Filter, Hit, Index, IndexKind, Metric, OpenOptions, Originals, Residency, SearchParams,
    Source, VectorFile,
};
use js_sys::{Array, BigUint64Array, Float32Array, Object, Reflect, Uint32Array};
use std::io;
use std::sync::Arc;
use wasm_bindgen::prelude::*;

/// Scratch buffers are kept between calls up to this many bytes; larger ones go back to the allocator.
const KEEP_BYTES: usize = 1 << 20;

/// Bytes of a saved file that are handed to JavaScript at a time.
const SAVE_CHUNK: usize = 256 << 10;

/// The codes of [`Metric`] at this boundary.
const METRICS: [Metric; 3] = [Metric::L2, Metric::InnerProduct, Metric::Cosine];

/// The codes of [`IndexKind`] at this boundary.
const KINDS: [IndexKind; 2] = [IndexKind::Flat, IndexKind::Hnsw];

/// The codes of [`Encoding`] at this boundary.
const ENCODINGS: [Encoding; 5] = [Encoding::F32, Encoding::F16, Encoding::Int8, Encoding::Int4, Encoding::Bits1];

/// The codes of [`Originals`] at this boundary.
const ORIGINALS: [Originals; 3] = [Originals::None, Originals::F16, Originals::F32];

/// The codes of [`Residency`] at this boundary: a JavaScript source is never mapped, so what is "mapped" natively is
/// read on demand here.
const RESIDENCIES: [Residency; 3] = [Residency::Owned, Residency::Resident, Residency::Mapped];

#[wasm_bindgen]
extern "C" {
    /// A JavaScript object that takes the bytes of a file in order.
    #[wasm_bindgen(typescript_type = "{ write(bytes: Uint8Array): void }")]
    #[derive(Debug)]
    pub type JsSink;

    /// `bytes` is a view of linear memory that is good during the call only: the sink copies it.
    #[wasm_bindgen(method, catch)]
    fn write(this: &JsSink, bytes: &[u8]) -> std::result::Result<(), JsValue>;
}

/// An index as JavaScript holds it.
///
/// All methods take `&mut self`: there is one thread, and the TypeScript above refuses calls from within a callback.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawIndex {
    index: Index<JsStorage>,
    vectors: Vec<f32>,
    keys: Vec<u64>,
    found: Found,
    original: bool,
}

#[wasm_bindgen]
impl RawIndex {
    /// An empty index that grows. `metric`: 0 L2, 1 inner product, 2 cosine; `kind`: 0 flat, 1 HNSW; `encoding`: 0 f32,
    /// 1 f16, 2 int8, 3 int4, 4 bits1; `originals`: 0 none, 1 f16, 2 f32; `m`, `ef_construction` and `ef` have their
    /// defaults where undefined.
    #[expect(clippy::too_many_arguments, reason = "scalars are the cheap thing to pass at this boundary")]
    pub fn create(
        dimension: u32,
        metric: u32,
        kind: u32,
        m: Option<u32>,
        ef_construction: Option<u32>,
        ef: Option<u32>,
        seed: u64,
        encoding: u32,
        originals: u32,
        rotate: bool,
        centre: bool,
    ) -> Result<RawIndex, JsValue> {
        let build = || {
            let mut builder = Index::builder(dimension as usize, pick(&METRICS, metric, "metric")?)
                .kind(pick(&KINDS, kind, "kind")?)
                .encoding(pick(&ENCODINGS, encoding, "encoding")?)
                .originals(pick(&ORIGINALS, originals, "originals")?)
                .rotate(rotate)
                .centre(centre)
                .seed(seed);
            if let Some(m) = m {
                builder = builder.m(m as usize);
            }
            if let Some(ef_construction) = ef_construction {
                builder = builder.ef_construction(ef_construction as usize);
            }
            if let Some(ef) = ef {
                builder = builder.ef(ef as usize);
            }
            builder.threads(1).build_for()
        };
        build().map(RawIndex::over).map_err(thrown)
    }

    /// Opens a file whose bytes `source` gives. `residency`: 0 all is copied in and can be changed; 1 read-only, codes
    /// and links are copied in; 2 read-only, codes too are read on demand. An expectation that the file contradicts is
    /// an error.
    #[expect(clippy::too_many_arguments, reason = "scalars are the cheap thing to pass at this boundary")]
    pub fn open(
        source: JsSource,
        length: f64,
        residency: u32,
        verify: bool,
        dimension: Option<u32>,
        metric: Option<u32>,
        kind: Option<u32>,
        encoding: Option<u32>,
    ) -> Result<RawIndex, JsValue> {
        let open = || {
            let residency = pick(&RESIDENCIES, residency, "residency")?;
            let mut options = OpenOptions::new().residency(residency).verify(verify).threads(1);
            if let Some(dimension) = dimension {
                options = options.expect_dimension(dimension as usize);
            }
            if let Some(metric) = metric {
                options = options.expect_metric(pick(&METRICS, metric, "metric")?);
            }
            if let Some(kind) = kind {
                options = options.expect_kind(pick(&KINDS, kind, "kind")?);
            }
            if let Some(encoding) = encoding {
                options = options.expect_encoding(pick(&ENCODINGS, encoding, "encoding")?);
            }
            options.from_storage(Arc::new(JsStorage::new(source, length)?))
        };
        open().map(RawIndex::over).map_err(thrown)
    }

    /// Components of a vector.
    #[wasm_bindgen(getter)]
    pub fn dimension(&mut self) -> u32 {
        self.index.dimension() as u32
    }

    /// The code of the metric, as in [`create`](RawIndex::create).
    #[wasm_bindgen(getter)]
    pub fn metric(&mut self) -> Option<u32> {
        code_of(&METRICS, self.index.metric())
    }

    /// The code of the kind, as in [`create`](RawIndex::create).
    #[wasm_bindgen(getter)]
    pub fn kind(&mut self) -> Option<u32> {
        code_of(&KINDS, self.index.kind())
    }

    /// The code of the encoding, as in [`create`](RawIndex::create).
    #[wasm_bindgen(getter)]
    pub fn encoding(&mut self) -> Option<u32> {
        code_of(&ENCODINGS, self.index.encoding())
    }

    /// The code of the originals kept, as in [`create`](RawIndex::create).
    #[wasm_bindgen(getter)]
    pub fn originals(&mut self) -> Option<u32> {
        code_of(&ORIGINALS, self.index.originals())
    }

    /// Links a row has at the levels above the lowest.
    #[wasm_bindgen(getter)]
    pub fn m(&mut self) -> u32 {
        self.index.m() as u32
    }

    /// Candidates kept while a row is linked in.
    #[wasm_bindgen(getter)]
    pub fn ef_construction(&mut self) -> u32 {
        self.index.ef_construction() as u32
    }

    /// Candidates kept during a search that doesn't say.
    #[wasm_bindgen(getter)]
    pub fn ef(&mut self) -> u32 {
        self.index.ef() as u32
    }

    /// Where the random levels come from.
    #[wasm_bindgen(getter)]
    pub fn seed(&mut self) -> u64 {
        self.index.seed()
    }

    /// Whether adding is refused.
    #[wasm_bindgen(getter)]
    pub fn read_only(&mut self) -> bool {
        self.index.is_read_only()
    }

    /// The name of the kernels in use.
    #[wasm_bindgen(getter)]
    pub fn level(&mut self) -> String {
        self.index.level().to_string()
    }

    /// Live rows.
    #[wasm_bindgen(getter)]
    pub fn size(&mut self) -> f64 {
        self.index.len() as f64
    }

    /// Whether a live row has this key.
    pub fn has(&mut self, key: u64) -> bool {
        self.index.contains(key)
    }

    /// The keys of the live rows, in order of insertion.
    pub fn keys(&mut self) -> Vec<u64> {
        self.index.keys()
    }

    /// The vector of a key; [`original`](RawIndex::original) tells where it is from.
    pub fn get(&mut self, key: u64) -> Result<Option<Vec<f32>>, JsValue> {
        let found = self.index.get(key).map_err(thrown)?;
        self.original = found.as_ref().is_some_and(|stored| stored.source == Source::Original);
        Ok(found.map(|stored| stored.vector))
    }

    /// Whether the last `get` found the vector that was added, and not what its code stands for.
    #[wasm_bindgen(getter)]
    pub fn original(&mut self) -> bool {
        self.original
    }

    /// Attaches the originals that `source` has, to rerank against. `format`: 0 `.npy`, 1 `.fbin`, 2 components in f32,
    /// 3 in f16.
    pub fn attach_originals(&mut self, source: JsSource, length: f64, format: u32) -> Result<(), JsValue> {
        let attach = || {
            let storage = Arc::new(JsStorage::new(source, length)?);
            let dimension = self.index.dimension();
            let file = match format {
                0 => VectorFile::npy(storage),
                1 => VectorFile::fbin(storage),
                code => VectorFile::raw(storage, pick(&ENCODINGS, code - 2, "format")?, dimension),
            };
            self.index.attach_originals(file?)
        };
        attach().map_err(thrown)
    }

    /// Adds a row under a new key.
    pub fn add(&mut self, key: u64, vector: &Float32Array) -> Result<(), JsValue> {
        copy_vectors(vector, &mut self.vectors).map_err(thrown)?;
        self.index.add(key, &self.vectors).map_err(thrown)
    }

    /// Adds rows under new keys: all of them or none. `vectors` holds one vector after the other.
    pub fn add_batch(&mut self, keys: &BigUint64Array, vectors: &Float32Array) -> Result<(), JsValue> {
        let outcome = copy_keys(keys, &mut self.keys)
            .and_then(|()| copy_vectors(vectors, &mut self.vectors))
            .and_then(|()| self.index.add_batch(&self.keys, &self.vectors));
        self.release();
        outcome.map_err(thrown)
    }

    /// Replaces the vector of a key.
    pub fn update(&mut self, key: u64, vector: &Float32Array) -> Result<(), JsValue> {
        copy_vectors(vector, &mut self.vectors).map_err(thrown)?;
        self.index.update(key, &self.vectors).map_err(thrown)
    }

    /// Removes a key; false where it wasn't there.
    pub fn remove(&mut self, key: u64) -> Result<bool, JsValue> {
        self.index.remove(key).map_err(thrown)
    }

    /// Rebuilds without the removed rows.
    pub fn compact(&mut self) -> Result<(), JsValue> {
        self.index.compact().map_err(thrown)
    }

    /// Learns the centre anew and encodes all rows again.
    pub fn retrain(&mut self) -> Result<(), JsValue> {
        self.index.retrain().map_err(thrown)
    }

    /// Removes every row.
    pub fn clear(&mut self) -> Result<(), JsValue> {
        self.index.clear().map_err(thrown)
    }

    /// Searches. `mode`: 0 one query, 1 one query after the other, 2 one query for its candidates. What is found waits
    /// for the `take` functions. `filter` lists the keys that may be found.
    #[expect(clippy::too_many_arguments, reason = "scalars are the cheap thing to pass at this boundary")]
    pub fn search(
        &mut self,
        queries: &Float32Array,
        mode: u32,
        k: u32,
        ef: Option<u32>,
        exact: bool,
        radius: Option<f32>,
        rerank: Option<f32>,
        filter: Option<BigUint64Array>,
    ) -> Result<(), JsValue> {
        let params = Params { k, ef, exact, radius, rerank, filter };
        let outcome = copy_vectors(queries, &mut self.vectors).and_then(|()| self.find(mode, &params));
        self.release();
        outcome.map_err(thrown)
    }

    /// Rescores the candidates `ids`, whose keys are `keys`, by their `vectors`, one after the other. What is found
    /// waits for the `take` functions.
    #[expect(clippy::too_many_arguments, reason = "scalars are the cheap thing to pass at this boundary")]
    pub fn rescore(
        &mut self,
        query: &Float32Array,
        ids: &Uint32Array,
        keys: &BigUint64Array,
        vectors: &Float32Array,
        k: u32,
        radius: Option<f32>,
        filter: Option<BigUint64Array>,
    ) -> Result<(), JsValue> {
        let params = Params { k, ef: None, exact: false, radius, rerank: None, filter };
        let outcome = self.find_among(query, ids, keys, vectors, &params);
        self.release();
        outcome.map_err(thrown)
    }

    /// The rows of the last search's candidates, in the order of their keys; once.
    pub fn take_ids(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.found.ids)
    }

    /// The keys of the last search's hits, query by query, nearest first; once.
    pub fn take_keys(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.found.keys)
    }

    /// The distances of the last search's hits, in the order of their keys; once.
    pub fn take_distances(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.found.distances)
    }

    /// How many hits each query of the last search has; once.
    pub fn take_lengths(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.found.lengths)
    }

    /// Whether the distances of the last search's hits are those of originals.
    #[wasm_bindgen(getter)]
    pub fn reranked(&mut self) -> bool {
        self.found.reranked
    }

    /// Writes the file into `sink`, some hundred kilobytes at a time.
    pub fn save(&mut self, sink: JsSink) -> Result<(), JsValue> {
        let mut chunk = Vec::new();
        let outcome = reserve(&mut chunk, SAVE_CHUNK).and_then(|()| {
            let mut out = SinkWriter { sink, chunk, refusal: None };
            let written = self.index.write_to(&mut out).and_then(|_| Ok(io::Write::flush(&mut out)?));
            // What JavaScript said is worth more than that writing failed.
            out.refusal.map_or(written, |reason| Err(Error::Storage { reason }))
        });
        outcome.map_err(thrown)
    }

    /// What the index is made of, as a plain object.
    pub fn stats(&mut self) -> Result<JsValue, JsValue> {
        let stats = self.index.stats().map_err(thrown)?;
        let object = Object::new();
        let sections = Object::new();
        let numbers = [
            ("rows", stats.rows),
            ("live", stats.live),
            ("tombstones", stats.tombstones),
            ("unreachable", stats.unreachable),
            ("residentBytes", stats.resident_bytes),
        ];
        let sizes = stats.sections.iter().map(|section| (&sections, section.name, section.bytes));
        for (object, name, value) in numbers.iter().map(|&(name, value)| (&object, name, value)).chain(sizes) {
            Reflect::set(object, &name.into(), &(value as f64).into())?;
        }
        let lists =
            [("levels", counts(&stats.levels)), ("degrees", counts(&stats.degrees)), ("sections", sections.into())];
        for (name, value) in lists {
            Reflect::set(&object, &name.into(), &value)?;
        }
        Ok(object.into())
    }
}

impl RawIndex {
    fn over(index: Index<JsStorage>) -> RawIndex {
        RawIndex { index, vectors: Vec::new(), keys: Vec::new(), found: Found::default(), original: false }
    }

    /// The body of [`search`](RawIndex::search); the queries are in `self.vectors`.
    fn find(&mut self, mode: u32, params: &Params) -> Result<()> {
        let params = params.with_filter(&mut self.keys)?;
        match mode {
            0 => self.found.keep(&[self.index.search(&self.vectors, &params)?]),
            1 => self.found.keep(&self.index.search_batch(&self.vectors, &params)?),
            _ => self.found.keep_candidates(&self.index.candidates(&self.vectors, &params)?),
        }
    }

    /// The body of [`rescore`](RawIndex::rescore).
    fn find_among(
        &mut self,
        query: &Float32Array,
        ids: &Uint32Array,
        keys: &BigUint64Array,
        vectors: &Float32Array,
        params: &Params,
    ) -> Result<()> {
        let (expected, got) = (ids.length() as usize, keys.length() as usize);
        if expected != got {
            return Err(Error::LengthMismatch { what: "keys", expected, got });
        }
        let mut rows = Vec::new();
        reserve(&mut rows, expected)?;
        rows.resize(expected, 0);
        ids.copy_to(&mut rows);
        copy_keys(keys, &mut self.keys)?;
        let mut candidates = Vec::new();
        reserve(&mut candidates, expected)?;
        candidates.extend(rows.iter().zip(&self.keys).map(|(&id, &key)| Candidate::new(id, key)));
        let mut wanted = Vec::new();
        copy_vectors(query, &mut wanted)?;
        copy_vectors(vectors, &mut self.vectors)?;
        let params = params.with_filter(&mut self.keys)?;
        self.found.keep(&[self.index.rescore(&wanted, &candidates, &self.vectors, &params)?])
    }

    /// Gives large scratch buffers back, so that one big batch doesn't hold its memory for ever.
    fn release(&mut self) {
        if self.vectors.capacity() * size_of::<f32>() > KEEP_BYTES {
            self.vectors = Vec::new();
        }
        if self.keys.capacity() * size_of::<u64>() > KEEP_BYTES {
            self.keys = Vec::new();
        }
    }
}

/// What the last search found, until JavaScript takes it.
#[derive(Debug, Default)]
struct Found {
    ids: Vec<u32>,
    keys: Vec<u64>,
    distances: Vec<f32>,
    lengths: Vec<u32>,
    reranked: bool,
}

impl Found {
    fn keep(&mut self, found: &[Vec<Hit>]) -> Result<()> {
        self.forget(found.iter().map(Vec::len).sum(), found.len())?;
        for hits in found {
            self.lengths.push(hits.len() as u32);
            self.keys.extend(hits.iter().map(|hit| hit.key));
            self.distances.extend(hits.iter().map(|hit| hit.distance));
            self.reranked |= hits.iter().any(|hit| hit.reranked);
        }
        Ok(())
    }

    fn keep_candidates(&mut self, found: &[Candidate]) -> Result<()> {
        self.forget(found.len(), 0)?;
        reserve(&mut self.ids, found.len())?;
        self.ids.extend(found.iter().map(|candidate| candidate.id));
        self.keys.extend(found.iter().map(|candidate| candidate.key));
        self.distances.extend(found.iter().map(|candidate| candidate.distance));
        Ok(())
    }

    /// Empties it, and makes room for so many hits of so many queries.
    fn forget(&mut self, hits: usize, queries: usize) -> Result<()> {
        self.reranked = false;
        self.ids.clear();
        self.keys.clear();
        self.distances.clear();
        self.lengths.clear();
        reserve(&mut self.keys, hits)?;
        reserve(&mut self.distances, hits)?;
        reserve(&mut self.lengths, queries)
    }
}

/// [`SearchParams`] as they cross.
struct Params {
    k: u32,
    ef: Option<u32>,
    exact: bool,
    radius: Option<f32>,
    rerank: Option<f32>,
    filter: Option<BigUint64Array>,
}

impl Params {
    /// With the keys of the filter copied into `keys`.
    fn with_filter<'a>(&self, keys: &'a mut Vec<u64>) -> Result<SearchParams<'a>> {
        let mut params = SearchParams::new(self.k as usize).exact(self.exact);
        if let Some(ef) = self.ef {
            params = params.ef(ef as usize);
        }
        if let Some(radius) = self.radius {
            params = params.radius(radius);
        }
        if let Some(oversample) = self.rerank {
            params = params.rerank(oversample);
        }
        if let Some(filter) = &self.filter {
            copy_keys(filter, keys)?;
            params = params.filter(Filter::keys(keys));
        }
        Ok(params)
    }
}

/// Collects what is written into chunks and hands each to JavaScript.
struct SinkWriter {
    sink: JsSink,
    chunk: Vec<u8>,
    refusal: Option<String>,
}

impl io::Write for SinkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunk.len() == SAVE_CHUNK {
            self.flush()?;
        }
        let taken = bytes.len().min(SAVE_CHUNK - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = self.sink.write(&self.chunk);
        self.chunk.clear();
        outcome.map_err(|e| {
            self.refusal = Some(storage::reason(&e));
            io::ErrorKind::Other.into()
        })
    }
}

/// The error that JavaScript catches.
fn thrown(error: Error) -> JsValue {
    let out = js_sys::Error::new(&error.to_string());
    // Setting a property of an object that was made a moment ago cannot fail.
    let _ = Reflect::set(&out, &"code".into(), &error.code().into());
    out.into()
}

/// As a list of numbers.
fn counts(values: &[u64]) -> JsValue {
    let list = Array::new();
    values.iter().for_each(|&value| {
        list.push(&JsValue::from(value as f64));
    });
    list.into()
}

fn pick<T: Copy>(values: &[T], code: u32, name: &'static str) -> Result<T> {
    values.get(code as usize).copied().ok_or_else(|| Error::InvalidParameter {
        name,
        expected: "a code that the bindings know",
        got: code.to_string(),
    })
}

fn code_of<T: PartialEq>(values: &[T], value: T) -> Option<u32> {
    values.iter().position(|known| *known == value).map(|code| code as u32)
}

fn reserve<T>(buffer: &mut Vec<T>, length: usize) -> Result<()> {
    let missing = length.saturating_sub(buffer.len());
    let bytes = (length as u64).saturating_mul(size_of::<T>() as u64);
    buffer.try_reserve_exact(missing).map_err(|_| Error::OutOfMemory { bytes })
}

fn copy_vectors(from: &Float32Array, to: &mut Vec<f32>) -> Result<()> {
    let length = from.length() as usize;
    reserve(to, length)?;
    to.resize(length, 0.0);
    from.copy_to(to);
    Ok(())
}

fn copy_keys(from: &BigUint64Array, to: &mut Vec<u64>) -> Result<()> {
    let length = from.length() as usize;
    reserve(to, length)?;
    to.resize(length, 0);
    from.copy_to(to);
    Ok(())
}
