//! The index: one segment of rows, searched exactly or by its graph.
//!
//! | module | job |
//! |---|---|
//! | [`hnsw`] | the graph: parameters, links, search, construction |
//! | `growing` | an index that can be changed; how readers see changes |
//! | `vectors` | what a growing index keeps of a vector; how the centre of quantized ones is learned |
//! | `frozen` | an index read from a segment |
//! | `search` | one query: scan or graph |
//! | `batch` | many queries: scans that share rows |
//! | `rerank` | exact distances for the best candidates |
//! | `persist` | to and from bytes |
//! | `stats` | what an index is made of |
//! | `topk`, `visited`, `keymap`, `pool` | bounded lists, marks, key → id, reused buffers |

mod batch;
mod frozen;
mod growing;
pub mod hnsw;
mod keymap;
mod persist;
mod pool;
mod rerank;
mod search;
mod stats;
mod topk;
mod vectors;
mod visited;

pub use growing::MAX_ROWS;
pub use persist::{OpenOptions, Residency};
pub use rerank::VectorFile;
pub use stats::{SectionBytes, Stats};
pub use vectors::Source;

use crate::codec::AnyCodec;
use crate::error::{Error, Result, Scientific};
use crate::kernel::{Kernels, Level};
use crate::metric::{MAX_DIMENSION, Metric};
use crate::scorer::{AnyScratch, FloatQuery, Scorable};
use crate::segment::{Encoding, IndexKind, MAX_EF, Originals};
use crate::storage::{ChunkOptions, Storage};
use frozen::Frozen;
use growing::Growing;
use hnsw::Graph;
use hnsw::params::HnswParams;
use pool::{Pool, Threads};
use rerank::{Attached, RescoreScratch};
use search::{QueryScratch, View};
use std::sync::Arc;
use vectors::VectorSettings;

/// A vector index. It grows by itself, takes searches and changes at the same time from any number of threads, and
/// becomes a file that opens without being read.
///
/// `S` is the storage a read-only index reads from; natively it is what the default says.
///
/// ```
/// use twindex::{Index, Metric, SearchParams};
///
/// let index = Index::builder(3, Metric::Cosine).build()?;
/// index.add(7, &[0.1, 0.2, 0.3])?;
/// index.add_batch(&[8, 9], &[0.9, 0.1, 0.0, 0.0, 0.1, 0.9])?;
/// let hits = index.search(&[0.2, 0.4, 0.6], &SearchParams::new(1))?;
/// assert_eq!(hits[0].key, 7);
///
/// let bytes = index.to_bytes()?;
/// let same = Index::from_bytes(bytes)?;
/// assert_eq!(same.search(&[0.2, 0.4, 0.6], &SearchParams::new(1))?, hits);
/// # Ok::<(), twindex::Error>(())
/// ```
pub struct Index<S: Storage + ?Sized = dyn Storage + Send + Sync> {
    config: Config,
    state: State<S>,
    attached: Option<Attached<S>>,
    scratch: Pool<Scratch>,
}

enum State<S: ?Sized> {
    Growing(Box<Growing>),
    Frozen(Box<Frozen<S>>),
}

/// What an index was made with.
#[derive(Debug, Clone)]
struct Config {
    vectors: VectorSettings,
    ef: usize,
    graph: Option<HnswParams>,
    kernels: &'static Kernels,
    chunks: ChunkOptions,
    threads: Arc<Threads>,
    #[cfg(feature = "parallel")]
    deterministic: bool,
}

/// What a query reuses.
#[derive(Debug, Default)]
struct Scratch {
    scorer: AnyScratch,
    query: QueryScratch,
    rescore: RescoreScratch,
}

/// The settings of a new index; see [`Index::builder`].
#[derive(Debug, Clone)]
pub struct IndexBuilder {
    vectors: VectorSettings,
    kind: IndexKind,
    params: HnswParams,
    ef: usize,
    threads: usize,
    #[cfg(feature = "parallel")]
    deterministic: bool,
    level: Option<Wanted>,
    chunks: ChunkOptions,
}

impl IndexBuilder {
    /// Flat (every search is an exact scan) or HNSW. Default: HNSW.
    pub fn kind(mut self, kind: IndexKind) -> Self {
        self.kind = kind;
        self
    }

    /// How vectors are encoded: what search touches. Default: [`Encoding::F32`]. With any other, distances are
    /// estimates (of f16: exact for the rounded vector); [`SearchParams::rerank`] makes those of the best hits exact.
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.vectors.encoding = encoding;
        self
    }

    /// Whether the vectors as they came are kept besides their codes, for [`SearchParams::rerank`] and
    /// [`Index::get`]: not at all (the default), in f16 or in f32. With encoding `f32` the codes are the originals, and
    /// with `f16` those in f16.
    ///
    /// Where they are not kept, four bytes a row are: a fingerprint, by which originals that are
    /// [attached](Index::attach_originals) later can be known.
    pub fn originals(mut self, originals: Originals) -> Self {
        self.vectors.originals = originals;
        self
    }

    /// Whether vectors are rotated at random before they are quantized to `int8`, `int4` or `bits1`, so that no
    /// component stands out. Default: yes.
    pub fn rotate(mut self, rotate: bool) -> Self {
        self.vectors.rotate = rotate;
        self
    }

    /// Whether the mean is taken off vectors before they are quantized to `int8`, `int4` or `bits1`. Default: yes.
    ///
    /// The mean is that of the first rows: 1,024 of them, fewer where those would take more than 4 MiB. Until they are
    /// there, or the index is saved, rows are kept as they came and searched exactly, without the graph.
    /// [`Index::retrain`] learns it anew.
    pub fn centre(mut self, centre: bool) -> Self {
        self.vectors.centre = centre;
        self
    }

    /// Neighbours a row has on the upper levels of the graph, at most; twice as many on level 0. 2 to 256, default 16.
    /// More makes searches of high recall quicker and the index larger (about 8·m bytes a row while growing).
    pub fn m(mut self, m: usize) -> Self {
        self.params.m = m;
        self
    }

    /// Candidates considered when a row is inserted. 1 to 1,048,576, default 200. More makes a better graph, more
    /// slowly.
    pub fn ef_construction(mut self, ef_construction: usize) -> Self {
        self.params.ef_construction = ef_construction;
        self
    }

    /// Candidates kept by a search that names no `ef` itself. 1 to 1,048,576, default 64. Saved with the index.
    pub fn ef(mut self, ef: usize) -> Self {
        self.ef = ef;
        self
    }

    /// Decides the levels of rows in the graph, and the rotation of quantized vectors. With one thread, or where the
    /// build is [deterministic](#method.deterministic), the same input and seed give the same bytes. Default 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.params.seed = seed;
        self.vectors.seed = seed;
        self
    }

    /// Threads for `add_batch` and `search_batch`, at most 1024; 0, the default, means all cores. 1 makes the result
    /// independent of timing; so does [`deterministic`](#method.deterministic), on any number of threads.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Whether the graph is to be the same, byte for byte, however many threads build it. Default: no. There with the
    /// feature `parallel`; without it there is but one thread.
    ///
    /// Rows are then linked in rounds, of which each searches the graph as the last one left it. A round ends with its
    /// batch, so it is the same calls, one after the other, that give the same bytes: other batches give another graph,
    /// and so does building on one thread without this. Batches that are added at the same time take turns at being
    /// linked, in no certain order; bytes are then as good as any, but not the same every time. Small batches have small
    /// rounds, which keep fewer threads busy: give a thousand rows or more at a time.
    ///
    /// It costs little: 100,000 × 384 embeddings took 40 to 42 s of CPU time against 39 to 43 s without, and recall@10
    /// was 0.957 against 0.956 at `ef` 48, 0.991 both ways at 128.
    ///
    /// ```
    /// use twindex::{Index, Metric};
    ///
    /// let vectors: Vec<f32> = (0..2000 * 4).map(|i| ((i * 37) % 1009) as f32).collect();
    /// let build = |threads| {
    ///     let index = Index::builder(4, Metric::L2).deterministic(true).threads(threads).build()?;
    ///     index.add_batch(&(0..2000).collect::<Vec<_>>(), &vectors)?;
    ///     index.to_bytes()
    /// };
    /// assert!(build(1)? == build(3)?);
    /// # Ok::<(), twindex::Error>(())
    /// ```
    #[cfg(feature = "parallel")]
    pub fn deterministic(mut self, deterministic: bool) -> Self {
        self.deterministic = deterministic;
        self
    }

    /// Which kernels to use, instead of the best this machine has: for tests and benches.
    pub fn level(mut self, level: Level) -> Self {
        self.level = Some(Wanted::new(level));
        self
    }

    /// How memory grows.
    pub fn chunks(mut self, chunks: ChunkOptions) -> Self {
        self.chunks = chunks;
        self
    }

    /// The empty index.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a setting outside its range. Nothing is allocated before all are checked.
    pub fn build(self) -> Result<Index> {
        self.build_for()
    }

    /// The empty index, of the type that opening from a storage `S` gives.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_for<S: Storage + ?Sized>(self) -> Result<Index<S>> {
        let config = self.config()?;
        let state = State::Growing(Box::new(Growing::new(&config)?));
        Ok(Index { config, state, attached: None, scratch: Pool::default() })
    }

    fn config(self) -> Result<Config> {
        let refuse = |name, expected, got: usize| Err(Error::InvalidParameter { name, expected, got: got.to_string() });
        let VectorSettings { dimension, encoding, originals, .. } = self.vectors;
        if !(1..=MAX_DIMENSION).contains(&dimension) {
            return refuse("dimension", "1 to 65536", dimension);
        }
        if !originals.suits(encoding) {
            let expected = "none with encoding f32, none or f32 with f16: such codes are the originals already";
            return Err(Error::InvalidParameter { name: "originals", expected, got: originals.to_string() });
        }
        if !(1..=MAX_EF).contains(&self.ef) {
            return refuse("ef", "1 to 1048576", self.ef);
        }
        self.params.validate()?;
        Ok(Config {
            vectors: self.vectors,
            ef: self.ef,
            graph: (self.kind == IndexKind::Hnsw).then_some(self.params),
            kernels: kernels(self.level)?,
            chunks: self.chunks,
            threads: Arc::new(Threads::new(self.threads)?),
            #[cfg(feature = "parallel")]
            deterministic: self.deterministic,
        })
    }
}

/// A level asked for, and its kernels, if this machine has them.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    level: Level,
    kernels: Option<&'static Kernels>,
}

impl Wanted {
    fn new(level: Level) -> Self {
        Wanted { level, kernels: Kernels::for_level(level) }
    }
}

fn kernels(wanted: Option<Wanted>) -> Result<&'static Kernels> {
    match wanted {
        None => Ok(Kernels::best()),
        Some(Wanted { level, kernels }) => kernels.ok_or_else(|| Error::InvalidParameter {
            name: "level",
            expected: "a level this machine has",
            got: level.to_string(),
        }),
    }
}

/// What a search looks for.
///
/// ```
/// # use twindex::{Filter, SearchParams};
/// let params = SearchParams::new(10).ef(100).radius(0.5).filter(Filter::by(&|key| key % 2 == 0));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct SearchParams<'a> {
    k: usize,
    ef: Option<usize>,
    exact: bool,
    radius: Option<f32>,
    rerank: Option<f32>,
    filter: Option<Filter<'a>>,
}

impl<'a> SearchParams<'a> {
    /// The `k` nearest. Fewer come where fewer rows match; 0 gives none; a `k` beyond the number of rows costs nothing.
    pub fn new(k: usize) -> Self {
        SearchParams { k, ef: None, exact: false, radius: None, rerank: None, filter: None }
    }

    /// Candidates the graph search keeps: more finds more of the true neighbours, more slowly. At least 1; at least `k`
    /// are kept whatever is asked for. Default: the index's own.
    pub fn ef(mut self, ef: usize) -> Self {
        self.ef = Some(ef);
        self
    }

    /// Score every row instead of walking the graph: nothing is missed but what codes hide.
    pub fn exact(mut self, exact: bool) -> Self {
        self.exact = exact;
        self
    }

    /// Only hits at this distance or nearer, in the metric's own terms. It cuts the `k` nearest; it does not find more.
    /// With [`rerank`](Self::rerank) it is the exact distances that are cut.
    pub fn radius(mut self, radius: f32) -> Self {
        self.radius = Some(radius);
        self
    }

    /// Takes the best ⌈oversample · k⌉ rows by their codes, computes their exact distances from the originals, and
    /// keeps the best `k` of those. 1 to 1,000,000; `ef` is raised to that many where it is lower. Where distances are
    /// exact anyway, it makes no difference.
    ///
    /// Each candidate takes one read of an original: in memory while the index grows, a page or two of a mapped file.
    pub fn rerank(mut self, oversample: f32) -> Self {
        self.rerank = Some(oversample);
        self
    }

    /// Only rows the filter lets pass.
    pub fn filter(mut self, filter: Filter<'a>) -> Self {
        self.filter = Some(filter);
        self
    }

    fn validate(&self) -> Result<()> {
        if self.ef == Some(0) {
            return Err(Error::InvalidParameter { name: "ef", expected: "at least 1", got: "0".into() });
        }
        if let Some(oversample) = self.rerank.filter(|oversample| !(1.0..=1e6).contains(oversample)) {
            let got = Scientific(f64::from(oversample)).to_string();
            return Err(Error::InvalidParameter { name: "rerank", expected: "1 to 1000000", got });
        }
        match self.radius {
            Some(radius) if radius.is_nan() => {
                Err(Error::InvalidParameter { name: "radius", expected: "a number", got: "NaN".into() })
            }
            _ => Ok(()),
        }
    }
}

impl SearchParams<'_> {
    /// Rows to find by their codes: ⌈oversample · k⌉, and `k` without reranking. An `ef` below it is raised to it.
    ///
    /// ```
    /// # use twindex::SearchParams;
    /// assert_eq!(SearchParams::new(10).rerank(1.25).candidates_wanted(), 13);
    /// ```
    pub fn candidates_wanted(&self) -> usize {
        // By what was meant: 1.2 in single precision is a little more, of which ⌈ ⌉ would make a row more.
        let meant = |oversample: f32| f64::from(oversample) * (1.0 - f64::from(f32::EPSILON) / 2.0);
        self.rerank.map_or(self.k, |oversample| ((self.k as f64 * meant(oversample)).ceil() as usize).max(self.k))
    }

    fn within_radius(&self, distance: f32) -> bool {
        self.radius.is_none_or(|radius| distance <= radius)
    }
}

/// Which rows may be hits.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Filter<'a> {
    /// Rows with one of these keys; keys that are not in the index are passed over.
    Keys(&'a [u64]),
    /// Rows whose key the predicate accepts. It may be asked about a key more than once, and about any key.
    By(&'a (dyn Fn(u64) -> bool + Sync)),
}

impl<'a> Filter<'a> {
    /// Rows with one of these keys.
    pub fn keys(keys: &'a [u64]) -> Self {
        Filter::Keys(keys)
    }

    /// Rows whose key the predicate accepts.
    pub fn by(predicate: &'a (dyn Fn(u64) -> bool + Sync)) -> Self {
        Filter::By(predicate)
    }
}

impl std::fmt::Debug for Filter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Filter::Keys(keys) => f.debug_tuple("Keys").field(&keys.len()).finish(),
            Filter::By(_) => f.debug_tuple("By").finish_non_exhaustive(),
        }
    }
}

/// A row found.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Hit {
    /// The key the row was added under.
    pub key: u64,
    /// Its distance from the query, as [`Metric`] defines it: by its code, or, where `reranked`, by the original.
    pub distance: f32,
    /// Whether [`SearchParams::rerank`] was asked for, so that the distance is that of the original.
    pub reranked: bool,
}

/// A row that may be a hit, found by its code: see [`Index::candidates`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its number in the order of addition, from 0. It stays until the index is compacted.
    pub id: u32,
    /// Its key.
    pub key: u64,
    /// Its distance from the query by its code.
    pub distance: f32,
}

impl Candidate {
    /// A row with its key, to be [rescored](Index::rescore).
    pub fn new(id: u32, key: u64) -> Self {
        Candidate { id, key, distance: 0.0 }
    }
}

/// A vector that was asked for.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stored {
    /// Its components.
    pub vector: Vec<f32>,
    /// Whether they are those that were added.
    pub source: Source,
}

/// What the index is, not what it holds. No bound on `S`: `dyn Storage` has no `Debug` of its own.
impl<S: Storage + ?Sized> std::fmt::Debug for Index<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index")
            .field("kind", &self.kind())
            .field("dimension", &self.dimension())
            .field("metric", &self.metric())
            .field("len", &self.len())
            .field("read_only", &self.is_read_only())
            .finish_non_exhaustive()
    }
}

impl Index {
    /// Settings for a new, empty index of vectors with `dimension` components (1 to [`MAX_DIMENSION`]).
    pub fn builder(dimension: usize, metric: Metric) -> IndexBuilder {
        let vectors = VectorSettings {
            dimension,
            metric,
            encoding: Encoding::F32,
            originals: Originals::None,
            rotate: true,
            centre: true,
            seed: 0,
        };
        IndexBuilder {
            vectors,
            kind: IndexKind::Hnsw,
            params: HnswParams::default(),
            ef: 64,
            threads: 0,
            #[cfg(feature = "parallel")]
            deterministic: false,
            level: None,
            chunks: ChunkOptions::default(),
        }
    }

    /// Opens a file read-only by mapping it into memory: nothing is read until it is searched.
    ///
    /// # Errors
    /// [`Error::Io`]; for a file that is no intact segment what [`OpenOptions::open`] says.
    #[cfg(feature = "mmap")]
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    /// A read-only index over the bytes of a file, which are kept as they are.
    ///
    /// # Errors
    /// As [`OpenOptions::from_bytes`].
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        OpenOptions::new().from_bytes(bytes)
    }
}

impl<S: Storage + ?Sized> Index<S> {
    /// Components of a vector.
    pub fn dimension(&self) -> usize {
        self.config.vectors.dimension
    }

    /// How vectors are compared.
    pub fn metric(&self) -> Metric {
        self.config.vectors.metric
    }

    /// How vectors are encoded.
    pub fn encoding(&self) -> Encoding {
        self.config.vectors.encoding
    }

    /// What is kept of the vectors besides their codes.
    pub fn originals(&self) -> Originals {
        self.config.vectors.originals
    }

    /// Flat or HNSW.
    pub fn kind(&self) -> IndexKind {
        if self.config.graph.is_some() { IndexKind::Hnsw } else { IndexKind::Flat }
    }

    /// The graph's `m`; 0 for a flat index.
    pub fn m(&self) -> usize {
        self.config.graph.map_or(0, |params| params.m)
    }

    /// The graph's `ef_construction`; 0 for a flat index.
    pub fn ef_construction(&self) -> usize {
        self.config.graph.map_or(0, |params| params.ef_construction)
    }

    /// The seed the graph's levels are drawn by, and quantized vectors are rotated by; 0 where neither is done.
    pub fn seed(&self) -> u64 {
        let rotation = self.config.vectors.quantizer().map_or(0, |quantizer| quantizer.seed);
        self.config.graph.map_or(rotation, |params| params.seed)
    }

    /// The `ef` of searches that name none.
    pub fn ef(&self) -> usize {
        self.config.ef
    }

    /// The kernels in use.
    pub fn level(&self) -> Level {
        self.config.kernels.level()
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        matches!(self.state, State::Frozen(_))
    }

    /// Vectors in the index. O(1).
    pub fn len(&self) -> usize {
        match &self.state {
            State::Growing(growing) => growing.snapshot().live as usize,
            State::Frozen(frozen) => frozen.live() as usize,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The live row of `key`.
    fn find(&self, key: u64) -> Option<u32> {
        match &self.state {
            State::Growing(growing) => growing.find(key),
            State::Frozen(frozen) => frozen.find(key),
        }
    }

    /// Whether a vector is stored under `key`. O(1); O(log n) in a read-only index.
    pub fn contains(&self, key: u64) -> bool {
        self.find(key).is_some()
    }

    /// The keys in the index, in the order of insertion (an updated one counts from its update). O(n).
    pub fn keys(&self) -> Vec<u64> {
        match &self.state {
            State::Growing(growing) => {
                let at = growing.snapshot();
                (0..at.rows).filter(|&id| growing.is_visible(id, &at)).map(|id| growing.key(id)).collect()
            }
            State::Frozen(frozen) => {
                let (keys, tombstones) = (frozen.segment().keys(), frozen.segment().tombstones());
                (0..).zip(keys.iter()).filter(|&(id, _)| !tombstones.contains(id)).map(|(_, key)| key).collect()
            }
        }
    }

    /// The vector stored under `key`: as it was added, where the index has it (encoding `f32`, or originals that it
    /// keeps or that are attached), otherwise what its code stands for. [`Stored::source`] tells which.
    ///
    /// Under the cosine metric a code, and an original in f16, stand for the normalised vector.
    ///
    /// # Errors
    /// Whatever the storage says, where rows are not resident; [`Error::FingerprintMismatch`] where originals attached
    /// are others.
    pub fn get(&self, key: u64) -> Result<Option<Stored>> {
        let Some(id) = self.find(key) else { return Ok(None) };
        let mut vector = vec![0.0; self.config.vectors.dimension];
        let source = self.read_vector(id, &mut vector)?;
        Ok(Some(Stored { vector, source }))
    }

    fn growing(&self, operation: &'static str) -> Result<&Growing> {
        match &self.state {
            State::Growing(growing) => Ok(growing),
            State::Frozen(_) => Err(Error::ReadOnly { operation }),
        }
    }

    fn growing_mut(&mut self, operation: &'static str) -> Result<&mut Growing> {
        match &mut self.state {
            State::Growing(growing) => Ok(growing),
            State::Frozen(_) => Err(Error::ReadOnly { operation }),
        }
    }

    /// Adds a vector under a new key. Searches going on see it once the call is done.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`] if the key is there; [`Error::DimensionMismatch`], [`Error::NotFinite`],
    /// [`Error::ZeroVector`], [`Error::NormTooLarge`] or (f16) [`Error::OutOfRange`] for a vector that cannot be
    /// compared; [`Error::ReadOnly`]; [`Error::OutOfMemory`]. The index is then as it was.
    pub fn add(&self, key: u64, vector: &[f32]) -> Result<()> {
        self.growing("add")?.add(key, vector)
    }

    /// Adds `keys.len()` vectors, given one after the other: they are encoded on this thread, and linked on all those
    /// of the index. Searches see all of them at once, or none.
    ///
    /// # Errors
    /// As [`add`](Self::add), naming the row; [`Error::LengthMismatch`] unless there are `dimension` components a key;
    /// [`Error::DuplicateKey`] also for a key that is twice in the batch.
    pub fn add_batch(&self, keys: &[u64], vectors: &[f32]) -> Result<()> {
        self.growing("add_batch")?.add_batch(keys, vectors)
    }

    /// Replaces the vector of a key. A search going on sees the old one or the new one.
    ///
    /// The old row becomes a tombstone; [`compact`](Self::compact) gives its space back.
    ///
    /// # Errors
    /// [`Error::KeyNotFound`] if the key is not there; otherwise as [`add`](Self::add).
    pub fn update(&self, key: u64, vector: &[f32]) -> Result<()> {
        self.growing("update")?.update(key, vector)
    }

    /// Removes a key; `false` if it was not there.
    ///
    /// The row becomes a tombstone, over which searches still find their way; [`compact`](Self::compact) takes it out.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn remove(&self, key: u64) -> Result<bool> {
        self.growing("remove")?.remove(key)
    }

    /// Takes the tombstones out: rows move together, the links around the removed rows are mended, and rows that no
    /// search could reach are linked in again. The order of keys stays.
    ///
    /// More copies of one vector than `ef_construction` may stay out of the graph's reach even so; scans find them.
    ///
    /// Originals that were attached are let go where rows move: theirs are no longer in the same places.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::OutOfMemory`], with every vector still there.
    pub fn compact(&mut self) -> Result<()> {
        let chunks = self.config.chunks.clone();
        let growing = self.growing_mut("compact")?;
        let renumbers = !growing.snapshot().sees_all();
        let compacted = growing.compact(&chunks);
        if renumbers {
            self.attached = None;
        }
        compacted
    }

    /// Learns anew what quantized vectors are centred on, from all of them, and encodes them again; the graph stays.
    /// Worth it where the vectors added first were not like the rest. Without centring, or while the first centre is
    /// still to be learned, it does nothing.
    ///
    /// From the originals where the index keeps them itself; otherwise from what the codes stand for, which rounds a
    /// second time, and of `bits1` leaves little. Meanwhile there are two codes of every row.
    ///
    /// ```
    /// use twindex::{Encoding, Index, Metric, Originals};
    ///
    /// let mut index = Index::builder(4, Metric::L2).encoding(Encoding::Int8).originals(Originals::F32).build()?;
    /// for i in 0..2000 {
    ///     // The first thousand are of one kind, the rest of another.
    ///     let x = (i % 7) as f32 + if i < 1000 { 0.0 } else { 50.0 };
    ///     index.add(i, &[x, -x, x + 1.0, 0.5])?;
    /// }
    /// index.retrain()?;
    /// assert_eq!(index.len(), 2000);
    /// # Ok::<(), twindex::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::OutOfMemory`]; [`Error::NormTooLarge`] where a vector near that limit decodes to
    /// one beyond it. Everything is then as it was.
    pub fn retrain(&mut self) -> Result<()> {
        self.growing_mut("retrain")?.retrain()?;
        self.scratch.clear();
        Ok(())
    }

    /// Removes everything; the settings stay.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn clear(&mut self) -> Result<()> {
        let empty = Growing::new(&self.config)?;
        *self.growing_mut("clear")? = empty;
        self.attached = None;
        self.scratch.clear();
        Ok(())
    }

    /// The hits nearest to `query`: min(k, live matching rows) of them, unique, nearest first, ties by key.
    ///
    /// A graph search is approximate; [`SearchParams::exact`] is not, and neither are searches where a scan costs less
    /// than the graph (small indexes, `ef` near the number of rows, filters that few rows match). Of encodings other
    /// than `f32`, distances are estimates and decide which rows are found: see [`SearchParams::rerank`] and, for their
    /// error, [`codec::quantized`](crate::codec::quantized).
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::NotFinite`], [`Error::ZeroVector`], [`Error::NormTooLarge`] for the
    /// query; [`Error::InvalidParameter`] for a radius that is NaN, an `ef` of 0 or an oversample out of range;
    /// [`Error::NoOriginals`] where there is nothing to rerank against, [`Error::FingerprintMismatch`] where what was
    /// attached are other vectors.
    pub fn search(&self, query: &[f32], params: &SearchParams<'_>) -> Result<Vec<Hit>> {
        self.search_with(query, params, &mut self.scratch.lend())
    }

    fn search_with(&self, query: &[f32], params: &SearchParams<'_>, scratch: &mut Scratch) -> Result<Vec<Hit>> {
        params.validate()?;
        if params.rerank.is_some() && !self.has_originals() {
            return Err(Error::NoOriginals);
        }
        let is_exact = self.find_candidates(query, params, params.candidates_wanted(), scratch)?;
        self.hits(query, params, is_exact, scratch)
    }

    /// The hits among the candidates in `scratch`, reranked where that is asked for.
    fn hits(
        &self,
        query: &[f32],
        params: &SearchParams<'_>,
        is_exact: bool,
        scratch: &mut Scratch,
    ) -> Result<Vec<Hit>> {
        let reranked = params.rerank.is_some();
        if reranked && !is_exact {
            self.rescore_candidates(query, &mut scratch.query.candidates, &mut scratch.rescore)?;
            search::sort_again(params.k, &mut scratch.query);
        }
        let found = &scratch.query.candidates;
        let within = found.iter().take(params.k).take_while(|found| params.within_radius(found.distance)).count();
        // From a slice: memory for the hits is asked for once.
        Ok(found[..within].iter().map(|&Candidate { key, distance, .. }| Hit { key, distance, reranked }).collect())
    }

    /// The first half of a search with [`rerank`](SearchParams::rerank): the best ⌈oversample · k⌉ rows by their codes,
    /// nearest first. For originals that only the caller can reach: fetch those of the candidates, and give them to
    /// [`rescore`](Self::rescore). The radius waits until then.
    ///
    /// ```
    /// use twindex::{Encoding, Index, Metric, SearchParams};
    ///
    /// let vectors: Vec<f32> = (0..200 * 8).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
    /// let index = Index::builder(8, Metric::L2).encoding(Encoding::Int4).build()?;
    /// index.add_batch(&(0..200).collect::<Vec<_>>(), &vectors)?;
    ///
    /// let (query, params) = (&vectors[..8], SearchParams::new(3).rerank(2.0));
    /// let candidates = index.candidates(query, &params)?;
    /// assert_eq!(candidates.len(), 6);
    /// // From wherever they are: here, row i of `vectors`.
    /// let fetched: Vec<f32> = candidates.iter().flat_map(|c| &vectors[c.id as usize * 8..][..8]).copied().collect();
    /// let hits = index.rescore(query, &candidates, &fetched, &params)?;
    /// assert_eq!((hits.len(), hits[0].key, hits[0].distance), (3, 0, 0.0));
    /// # Ok::<(), twindex::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn candidates(&self, query: &[f32], params: &SearchParams<'_>) -> Result<Vec<Candidate>> {
        params.validate()?;
        let mut scratch = self.scratch.lend();
        self.find_candidates(query, params, params.candidates_wanted(), &mut scratch)?;
        Ok(scratch.query.candidates.clone())
    }

    /// The second half: the best `k` of `candidates` by the exact distances of their `vectors`, given one after the
    /// other. Where the index has fingerprints of its vectors (it has, unless it keeps originals), these are compared
    /// with them. Filter and radius apply,
    /// and a row that was removed or replaced since it was found is no hit.
    ///
    /// # Errors
    /// As [`search`](Self::search); [`Error::LengthMismatch`] unless there is one vector for each candidate;
    /// [`Error::InvalidParameter`] for a candidate that is no row of this index under its key; for a vector what
    /// [`add`](Self::add) says, [`Error::FingerprintMismatch`] for one that is not the row's.
    pub fn rescore(
        &self,
        query: &[f32],
        candidates: &[Candidate],
        vectors: &[f32],
        params: &SearchParams<'_>,
    ) -> Result<Vec<Hit>> {
        params.validate()?;
        let VectorSettings { dimension, metric, .. } = self.config.vectors;
        if candidates.len().checked_mul(dimension) != Some(vectors.len()) {
            let expected = candidates.len().saturating_mul(dimension);
            return Err(Error::LengthMismatch { what: "vectors", expected, got: vectors.len() });
        }
        let live = self.check_candidates(candidates)?;
        self.check_vectors(candidates, vectors)?;
        let (codec, kernels) = (AnyCodec::f32(dimension, metric), self.config.kernels);
        let mut exact = FloatQuery::default();
        exact.prepare(&codec, kernels, query)?;
        let mut scratch = self.scratch.lend();
        let (mut row, mut work) = (vec![0; codec.stride()], Vec::new());
        let mut allowed: Vec<u64> = match params.filter {
            Some(Filter::Keys(keys)) => keys.to_vec(),
            _ => Vec::new(),
        };
        allowed.sort_unstable();
        let passes = |key: u64| match params.filter {
            None => true,
            Some(Filter::Keys(_)) => allowed.binary_search(&key).is_ok(),
            Some(Filter::By(predicate)) => predicate(key),
        };
        scratch.query.candidates.clear();
        for (i, (&candidate, vector)) in candidates.iter().zip(vectors.chunks_exact(dimension)).enumerate() {
            codec.encode(vector, &mut row, &mut work).map_err(|e| e.for_row(i))?;
            let distance = exact.distance(&codec, kernels, &row);
            if live[i] && passes(candidate.key) && params.within_radius(distance) {
                scratch.query.candidates.push(Candidate { distance, ..candidate });
            }
        }
        search::keep_one_a_key(&mut scratch.query);
        search::sort_again(params.k, &mut scratch.query);
        let best = scratch.query.candidates.iter();
        Ok(best.map(|&Candidate { key, distance, .. }| Hit { key, distance, reranked: true }).collect())
    }

    /// Leaves the `k` rows nearest by their codes in `scratch`, and says whether their distances are exact.
    fn find_candidates(
        &self,
        query: &[f32],
        params: &SearchParams<'_>,
        k: usize,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let Scratch { scorer, query: buffers, .. } = scratch;
        let kernels = self.config.kernels;
        match &self.state {
            State::Growing(growing) => {
                let at = growing.snapshot();
                let visible = |id| growing.is_visible(id, &at);
                // After the snapshot: whatever that shows is among them.
                let current = growing.vectors().current();
                let graph = growing.links().filter(|_| !current.is_staged());
                let view = View {
                    rows: at.rows,
                    live: at.live,
                    visible: if at.sees_all() { None } else { Some(&visible) },
                    key: &|id| growing.key(id),
                    find: &|key| growing.find(key),
                    graph: graph.map(|links| links as &dyn Graph),
                };
                current.scorable(kernels).with_vector(query, scorer, |scorer| {
                    search::search(&view, scorer, params, k, self.config.ef, buffers)
                })?;
                let VectorSettings { encoding, originals, .. } = self.config.vectors;
                // Originals in f16 count from the first row on, not from when the rows are encoded.
                Ok(encoding == Encoding::F32 || current.is_staged() && originals != Originals::F16)
            }
            State::Frozen(frozen) => {
                let segment = frozen.segment();
                let (keys, tombstones, links) = (segment.keys(), segment.tombstones(), segment.links());
                let visible = |id| !tombstones.contains(id);
                let view = View {
                    rows: segment.meta().rows,
                    live: frozen.live(),
                    visible: if tombstones.is_empty() { None } else { Some(&visible) },
                    key: &|id| keys.get(id).unwrap_or(u64::MAX),
                    find: &|key| keys.find(key).find(|&id| visible(id)),
                    graph: links.as_ref().map(|links| links as &dyn Graph),
                };
                let (codec, rows, factors) = (frozen.codec(), segment.codes(), segment.factors());
                Scorable { codec, kernels, rows, factors }.with_vector(query, scorer, |scorer| {
                    search::search(&view, scorer, params, k, self.config.ef, buffers)
                })?;
                Ok(self.config.vectors.encoding == Encoding::F32)
            }
        }
    }
}

/// Searching many queries at once.
impl<S: Storage + Send + Sync + ?Sized> Index<S> {
    /// [`search`](Self::search) for each of the queries, given one after the other, on all the threads of the index:
    /// the same hits, to the last bit.
    ///
    /// Scans (flat indexes, [`SearchParams::exact`]) of rows in memory share rows among up to 64 queries, which makes a
    /// query several times as quick as by itself, where the processor has AVX-512, or for floats AVX2 and FMA.
    ///
    /// # Errors
    /// As [`search`](Self::search), naming the query; [`Error::LengthMismatch`] unless the components are a multiple of
    /// the dimension.
    pub fn search_batch(&self, queries: &[f32], params: &SearchParams<'_>) -> Result<Vec<Vec<Hit>>> {
        let dimension = self.config.vectors.dimension;
        if !queries.len().is_multiple_of(dimension) {
            let expected = queries.len().next_multiple_of(dimension);
            return Err(Error::LengthMismatch { what: "queries", expected, got: queries.len() });
        }
        let count = queries.len() / dimension;
        let results: Vec<std::sync::OnceLock<Vec<Hit>>> = (0..count).map(|_| std::sync::OnceLock::new()).collect();
        let size = self.group_size(count, params);
        self.config.threads.for_each(0..count.div_ceil(size), &self.scratch, |scratch, group| {
            let of = group * size..count.min((group + 1) * size);
            let together = &queries[of.start * dimension..of.end * dimension];
            let hits = &results[of.clone()];
            if size > 1 && self.search_group(together, of.start, params, hits, scratch)? {
                return Ok(());
            }
            for (i, query) in of.zip(together.chunks_exact(dimension)) {
                let hits = self.search_with(query, params, scratch).map_err(|e| e.for_row(i))?;
                results[i].get_or_init(|| hits);
            }
            Ok::<(), Error>(())
        })?;
        Ok(results.into_iter().map(|hits| hits.into_inner().unwrap_or_default()).collect())
    }
}
