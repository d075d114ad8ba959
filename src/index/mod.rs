//! The index: one segment of rows, searched exactly or by its graph.
//!
//! | module | job |
//! |---|---|
//! | [`hnsw`] | the graph: parameters, links, search, construction |
//! | `growing` | an index that can be changed; how readers see changes |
//! | `frozen` | an index read from a segment |
//! | `search` | one query: exact scan or graph |
//! | `persist` | to and from bytes |
//! | `stats` | what an index is made of |
//! | `topk`, `visited`, `keymap`, `pool` | bounded lists, marks, key → id, reused buffers |

mod frozen;
mod growing;
pub mod hnsw;
mod keymap;
mod persist;
mod pool;
mod search;
mod stats;
mod topk;
mod visited;

pub use growing::MAX_ROWS;
pub use persist::{OpenOptions, Residency};
pub use stats::{SectionBytes, Stats};

use crate::codec::Codec;
use crate::codec::f32::F32Codec;
use crate::error::{Error, Result};
use crate::kernel::{Kernels, Level};
use crate::metric::{MAX_DIMENSION, Metric};
use crate::scorer::{RowScorer, ScorerScratch};
use crate::segment::{IndexKind, MAX_EF};
use crate::storage::{ChunkOptions, RowBuf, Rows, Storage};
use frozen::Frozen;
use growing::Growing;
use hnsw::Graph;
use hnsw::params::HnswParams;
use pool::{Pool, Threads};
use search::{QueryScratch, View};
use std::sync::Arc;

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
    scratch: Pool<Scratch>,
}

enum State<S: ?Sized> {
    Growing(Box<Growing>),
    Frozen(Box<Frozen<S>>),
}

/// What an index was made with.
#[derive(Debug, Clone)]
struct Config {
    dimension: usize,
    metric: Metric,
    ef: usize,
    graph: Option<HnswParams>,
    kernels: &'static Kernels,
    chunks: ChunkOptions,
    threads: Arc<Threads>,
}

/// What a query reuses.
#[derive(Debug, Default)]
struct Scratch {
    scorer: ScorerScratch<Vec<f32>>,
    query: QueryScratch,
}

/// The settings of a new index; see [`Index::builder`].
#[derive(Debug, Clone)]
pub struct IndexBuilder {
    dimension: usize,
    metric: Metric,
    kind: IndexKind,
    params: HnswParams,
    ef: usize,
    threads: usize,
    level: Option<Level>,
    chunks: ChunkOptions,
}

impl IndexBuilder {
    /// Flat (every search is an exact scan) or HNSW. Default: HNSW.
    pub fn kind(mut self, kind: IndexKind) -> Self {
        self.kind = kind;
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

    /// Decides the levels of rows in the graph. With one thread, the same input and seed give the same bytes. Default
    /// 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.params.seed = seed;
        self
    }

    /// Threads for `add_batch` and `search_batch`, at most 1024; 0, the default, means all cores. 1 makes the result
    /// independent of timing.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Which kernels to use, instead of the best this machine has: for tests and benches.
    pub fn level(mut self, level: Level) -> Self {
        self.level = Some(level);
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
        Ok(Index { state: State::Growing(Box::new(Growing::new(&config)?)), config, scratch: Pool::default() })
    }

    fn config(self) -> Result<Config> {
        let refuse = |name, expected, got: usize| Err(Error::InvalidParameter { name, expected, got: got.to_string() });
        if !(1..=MAX_DIMENSION).contains(&self.dimension) {
            return refuse("dimension", "1 to 65536", self.dimension);
        }
        if !(1..=MAX_EF).contains(&self.ef) {
            return refuse("ef", "1 to 1048576", self.ef);
        }
        self.params.validate()?;
        Ok(Config {
            dimension: self.dimension,
            metric: self.metric,
            ef: self.ef,
            graph: (self.kind == IndexKind::Hnsw).then_some(self.params),
            kernels: kernels(self.level)?,
            chunks: self.chunks,
            threads: Arc::new(Threads::new(self.threads)?),
        })
    }
}

fn kernels(level: Option<Level>) -> Result<&'static Kernels> {
    match level {
        None => Ok(Kernels::best()),
        Some(level) => Kernels::for_level(level).ok_or_else(|| Error::InvalidParameter {
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
    filter: Option<Filter<'a>>,
}

impl<'a> SearchParams<'a> {
    /// The `k` nearest. Fewer come where fewer rows match; 0 gives none; a `k` beyond the number of rows costs nothing.
    pub fn new(k: usize) -> Self {
        SearchParams { k, ef: None, exact: false, radius: None, filter: None }
    }

    /// Candidates the graph search keeps: more finds more of the true neighbours, more slowly. At least 1; at least `k`
    /// are kept whatever is asked for. Default: the index's own.
    pub fn ef(mut self, ef: usize) -> Self {
        self.ef = Some(ef);
        self
    }

    /// Score every row instead of walking the graph: recall 1.
    pub fn exact(mut self, exact: bool) -> Self {
        self.exact = exact;
        self
    }

    /// Only hits at this distance or nearer, in the metric's own terms. It cuts the `k` nearest; it does not find more.
    pub fn radius(mut self, radius: f32) -> Self {
        self.radius = Some(radius);
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
        match self.radius {
            Some(radius) if radius.is_nan() => {
                Err(Error::InvalidParameter { name: "radius", expected: "a number", got: "NaN".into() })
            }
            _ => Ok(()),
        }
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
    /// Its distance from the query, as [`Metric`] defines it.
    pub distance: f32,
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
        IndexBuilder {
            dimension,
            metric,
            kind: IndexKind::Hnsw,
            params: HnswParams::default(),
            ef: 64,
            threads: 0,
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
        self.config.dimension
    }

    /// How vectors are compared.
    pub fn metric(&self) -> Metric {
        self.config.metric
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

    /// The seed the graph's levels are drawn by; 0 for a flat index.
    pub fn seed(&self) -> u64 {
        self.config.graph.map_or(0, |params| params.seed)
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

    /// The vector stored under `key`, exactly as it was added.
    ///
    /// # Errors
    /// Whatever the storage says, where rows are not resident.
    pub fn get(&self, key: u64) -> Result<Option<Vec<f32>>> {
        let Some(id) = self.find(key) else { return Ok(None) };
        match &self.state {
            State::Growing(growing) => decode(growing.codec(), growing.rows(), id),
            State::Frozen(frozen) => decode(frozen.codec(), frozen.segment().codes(), id),
        }
        .map(Some)
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
    /// [`Error::ZeroVector`] or [`Error::NormTooLarge`] for a vector that cannot be compared; [`Error::ReadOnly`];
    /// [`Error::OutOfMemory`]. The index is then as it was.
    pub fn add(&self, key: u64, vector: &[f32]) -> Result<()> {
        self.growing("add")?.add(key, vector)
    }

    /// Adds `keys.len()` vectors, given one after the other, on all the threads of the index. Searches see all of them
    /// at once, or none.
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
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::OutOfMemory`], with every vector still there.
    pub fn compact(&mut self) -> Result<()> {
        let chunks = self.config.chunks.clone();
        self.growing_mut("compact")?.compact(&chunks)
    }

    /// Removes everything; the settings stay.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn clear(&mut self) -> Result<()> {
        let empty = Growing::new(&self.config)?;
        *self.growing_mut("clear")? = empty;
        self.scratch.clear();
        Ok(())
    }

    /// The hits nearest to `query`: min(k, live matching rows) of them, unique, nearest first, ties by key.
    ///
    /// A graph search is approximate; [`SearchParams::exact`] is not, and neither are searches where a scan costs less
    /// than the graph (small indexes, `ef` near the number of rows, filters that few rows match).
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::NotFinite`], [`Error::ZeroVector`], [`Error::NormTooLarge`] for the
    /// query;
    /// [`Error::InvalidParameter`] for a radius that is NaN or an `ef` of 0.
    pub fn search(&self, query: &[f32], params: &SearchParams<'_>) -> Result<Vec<Hit>> {
        self.search_with(query, params, &mut self.scratch.lend())
    }

    fn search_with(&self, query: &[f32], params: &SearchParams<'_>, scratch: &mut Scratch) -> Result<Vec<Hit>> {
        let Scratch { scorer, query: buffers } = scratch;
        let kernels = self.config.kernels;
        match &self.state {
            State::Growing(growing) => {
                let at = growing.snapshot();
                let visible = |id| growing.is_visible(id, &at);
                let view = View {
                    rows: at.rows,
                    live: at.live,
                    visible: if at.sees_all() { None } else { Some(&visible) },
                    key: &|id| growing.key(id),
                    find: &|key| growing.find(key),
                    graph: growing.links().map(|links| links as &dyn Graph),
                };
                let rows = growing.rows();
                let mut scorer =
                    RowScorer::for_vector(growing.codec(), kernels, rows, growing.factors(), query, scorer)?;
                search::search(&view, &mut scorer, params, self.config.ef, buffers)
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
                let mut scorer =
                    RowScorer::for_vector(frozen.codec(), kernels, segment.codes(), segment.factors(), query, scorer)?;
                search::search(&view, &mut scorer, params, self.config.ef, buffers)
            }
        }
    }
}

/// Searching many queries at once.
impl<S: Storage + Send + Sync + ?Sized> Index<S> {
    /// [`search`](Self::search) for each of the queries, given one after the other, on all the threads of the index.
    ///
    /// # Errors
    /// As [`search`](Self::search), naming the query; [`Error::LengthMismatch`] unless the components are a multiple of
    /// the dimension.
    pub fn search_batch(&self, queries: &[f32], params: &SearchParams<'_>) -> Result<Vec<Vec<Hit>>> {
        let dimension = self.config.dimension;
        if !queries.len().is_multiple_of(dimension) {
            let expected = queries.len().next_multiple_of(dimension);
            return Err(Error::LengthMismatch { what: "queries", expected, got: queries.len() });
        }
        let results: Vec<std::sync::OnceLock<Vec<Hit>>> =
            (0..queries.len() / dimension).map(|_| std::sync::OnceLock::new()).collect();
        self.config.threads.for_each(0..results.len(), &self.scratch, |scratch, i| {
            let query = &queries[i * dimension..(i + 1) * dimension];
            let hits = self.search_with(query, params, scratch).map_err(|e| e.for_row(i))?;
            results[i].get_or_init(|| hits);
            Ok::<(), Error>(())
        })?;
        Ok(results.into_iter().map(|hits| hits.into_inner().unwrap_or_default()).collect())
    }
}

fn decode(codec: &F32Codec, rows: &impl Rows, id: u32) -> Result<Vec<f32>> {
    let mut vector = vec![0.0; codec.dimension()];
    match rows.resident(id) {
        Some(row) => codec.decode(row, &mut vector),
        None => {
            let mut fetched = RowBuf::new();
            rows.fetch(&[id], &mut fetched)?;
            codec.decode(fetched.row(0), &mut vector);
        }
    }
    Ok(vector)
}
