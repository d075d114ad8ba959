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
use crate::{Filter, Index, IndexKind, Metric, OpenOptions, Residency, SearchParams};
use js_sys::{Array, BigUint64Array, Float32Array, Object, Reflect};
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
    found_keys: Vec<u64>,
    found_distances: Vec<f32>,
    found_lengths: Vec<u32>,
}

#[wasm_bindgen]
impl RawIndex {
    /// An empty index that grows. `metric`: 0 L2, 1 inner product, 2 cosine; `kind`: 0 flat, 1 HNSW; `m`,
    /// `ef_construction` and `ef` have their defaults where undefined.
    pub fn create(
        dimension: u32,
        metric: u32,
        kind: u32,
        m: Option<u32>,
        ef_construction: Option<u32>,
        ef: Option<u32>,
        seed: u64,
    ) -> Result<RawIndex, JsValue> {
        let build = || {
            let metric = pick(&METRICS, metric, "metric")?;
            let mut builder = Index::builder(dimension as usize, metric).kind(pick(&KINDS, kind, "kind")?).seed(seed);
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

    /// Opens a file whose bytes `source` gives: copied in as owned (it can grow), or read-only where asked.
    /// An expectation that the file contradicts is an error.
    pub fn open(
        source: JsSource,
        length: f64,
        read_only: bool,
        verify: bool,
        dimension: Option<u32>,
        metric: Option<u32>,
        kind: Option<u32>,
    ) -> Result<RawIndex, JsValue> {
        let open = || {
            let residency = if read_only { Residency::Resident } else { Residency::Owned };
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
        let metric = self.index.metric();
        METRICS.iter().position(|&m| m == metric).map(|code| code as u32)
    }

    /// The code of the kind, as in [`create`](RawIndex::create).
    #[wasm_bindgen(getter)]
    pub fn kind(&mut self) -> Option<u32> {
        let kind = self.index.kind();
        KINDS.iter().position(|&k| k == kind).map(|code| code as u32)
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

    /// The vector of a key, as it was added.
    pub fn get(&mut self, key: u64) -> Result<Option<Vec<f32>>, JsValue> {
        Ok(self.index.get(key).map_err(thrown)?.map(|stored| stored.vector))
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

    /// Removes every row.
    pub fn clear(&mut self) -> Result<(), JsValue> {
        self.index.clear().map_err(thrown)
    }

    /// Searches one query, or with `batch` one query after the other. The hits wait for the `take` functions.
    /// `filter` lists the keys that may be found.
    #[expect(clippy::too_many_arguments, reason = "scalars are the cheap thing to pass at this boundary")]
    pub fn search(
        &mut self,
        queries: &Float32Array,
        batch: bool,
        k: u32,
        ef: Option<u32>,
        exact: bool,
        radius: Option<f32>,
        filter: Option<BigUint64Array>,
    ) -> Result<(), JsValue> {
        let outcome = self.find(queries, batch, k, ef, exact, radius, filter.as_ref());
        self.release();
        outcome.map_err(thrown)
    }

    /// The keys of the last search's hits, query by query, nearest first; once.
    pub fn take_keys(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.found_keys)
    }

    /// The distances of the last search's hits, in the order of their keys; once.
    pub fn take_distances(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.found_distances)
    }

    /// How many hits each query of the last search has; once.
    pub fn take_lengths(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.found_lengths)
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
        let set = |name: &str, value: JsValue| Reflect::set(&object, &name.into(), &value);
        let list = |values: &[u64]| JsValue::from(values.iter().map(|&v| JsValue::from(v as f64)).collect::<Array>());
        set("rows", (stats.rows as f64).into())?;
        set("live", (stats.live as f64).into())?;
        set("tombstones", (stats.tombstones as f64).into())?;
        set("unreachable", (stats.unreachable as f64).into())?;
        set("residentBytes", (stats.resident_bytes as f64).into())?;
        set("levels", list(&stats.levels))?;
        set("degrees", list(&stats.degrees))?;
        let sections = Object::new();
        for section in &stats.sections {
            Reflect::set(&sections, &section.name.into(), &(section.bytes as f64).into())?;
        }
        set("sections", sections.into())?;
        Ok(object.into())
    }
}

impl RawIndex {
    fn over(index: Index<JsStorage>) -> RawIndex {
        RawIndex {
            index,
            vectors: Vec::new(),
            keys: Vec::new(),
            found_keys: Vec::new(),
            found_distances: Vec::new(),
            found_lengths: Vec::new(),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the body of `search`")]
    fn find(
        &mut self,
        queries: &Float32Array,
        batch: bool,
        k: u32,
        ef: Option<u32>,
        exact: bool,
        radius: Option<f32>,
        filter: Option<&BigUint64Array>,
    ) -> Result<()> {
        copy_vectors(queries, &mut self.vectors)?;
        let mut params = SearchParams::new(k as usize).exact(exact);
        if let Some(ef) = ef {
            params = params.ef(ef as usize);
        }
        if let Some(radius) = radius {
            params = params.radius(radius);
        }
        if let Some(filter) = filter {
            copy_keys(filter, &mut self.keys)?;
            params = params.filter(Filter::keys(&self.keys));
        }
        let found = if batch {
            self.index.search_batch(&self.vectors, &params)?
        } else {
            vec![self.index.search(&self.vectors, &params)?]
        };
        let hits = found.iter().map(Vec::len).sum();
        self.found_keys.clear();
        self.found_distances.clear();
        self.found_lengths.clear();
        reserve(&mut self.found_keys, hits)?;
        reserve(&mut self.found_distances, hits)?;
        reserve(&mut self.found_lengths, found.len())?;
        for hits in &found {
            self.found_lengths.push(hits.len() as u32);
            self.found_keys.extend(hits.iter().map(|hit| hit.key));
            self.found_distances.extend(hits.iter().map(|hit| hit.distance));
        }
        Ok(())
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

fn pick<T: Copy>(values: &[T], code: u32, name: &'static str) -> Result<T> {
    values.get(code as usize).copied().ok_or_else(|| Error::InvalidParameter {
        name,
        expected: "a code that the bindings know",
        got: code.to_string(),
    })
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
