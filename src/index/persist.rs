//! To bytes and back: the same file whether it is written to a path, a stream or a buffer.

use super::frozen::Frozen;
use super::growing::{Growing, MAX_ROWS};
use super::hnsw::Graph;
use super::hnsw::params::HnswParams;
use super::pool::{Pool, Threads};
use super::vectors::VectorSettings;
use super::{Config, Index, State, Wanted, kernels};
use crate::error::{Error, Result};
use crate::kernel::Level;
use crate::metric::Metric;
use crate::scorer::Factors;
use crate::segment::{Encoding, GraphMeta, IndexKind, LevelMeta, Meta, Segment, SegmentWriter, order_by_key};
use crate::storage::reserve;
use crate::storage::window::WINDOW_BYTES;
use crate::storage::{ChunkOptions, Storage};
use std::io::{self, Write};
use std::sync::Arc;

/// Where the bytes of an opened index are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Residency {
    /// Read-only, where they are: a file is mapped, a buffer is kept. Opens in constant time.
    #[default]
    Mapped,
    /// Read-only, read into memory once (on huge pages where there are any): no page faults later, and quicker
    /// searches. Originals, and fingerprints where there are none, stay mapped.
    Resident,
    /// Copied into growing memory, vector by vector checked: the index can be added to.
    Owned,
}

/// How to open an index.
///
/// ```
/// use twindex::{Index, Metric, OpenOptions, Residency};
///
/// let bytes = Index::builder(2, Metric::L2).build()?.to_bytes()?;
/// let index = OpenOptions::new().residency(Residency::Owned).expect_dimension(2).from_bytes(bytes)?;
/// index.add(1, &[0.5, 0.5])?;
/// # Ok::<(), twindex::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    residency: Residency,
    dimension: Option<usize>,
    metric: Option<Metric>,
    kind: Option<IndexKind>,
    encoding: Option<Encoding>,
    verify: bool,
    threads: usize,
    #[cfg(feature = "parallel")]
    deterministic: bool,
    level: Option<Wanted>,
    chunks: ChunkOptions,
}

impl OpenOptions {
    /// Mapped, nothing expected, all cores.
    pub fn new() -> Self {
        OpenOptions::default()
    }

    /// Where the bytes are held.
    pub fn residency(mut self, residency: Residency) -> Self {
        self.residency = residency;
        self
    }

    /// Refuse a file of another dimension.
    pub fn expect_dimension(mut self, dimension: usize) -> Self {
        self.dimension = Some(dimension);
        self
    }

    /// Refuse a file of another metric.
    pub fn expect_metric(mut self, metric: Metric) -> Self {
        self.metric = Some(metric);
        self
    }

    /// Refuse a file of another kind.
    pub fn expect_kind(mut self, kind: IndexKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Refuse a file of another encoding.
    pub fn expect_encoding(mut self, encoding: Encoding) -> Self {
        self.encoding = Some(encoding);
        self
    }

    /// Read and check every byte and every link first, as [`Index::verify`] does. Without it opening takes constant
    /// time, and damaged vectors give wrong distances.
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Threads for batches, at most 1024; 0, the default, means all cores.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Whether what is added to it, where it is [`Residency::Owned`], gives the same bytes however many threads add it:
    /// see [`IndexBuilder::deterministic`]. The file does not say whether it was built so; ask for it here again.
    ///
    /// [`IndexBuilder::deterministic`]: super::IndexBuilder::deterministic
    #[cfg(feature = "parallel")]
    pub fn deterministic(mut self, deterministic: bool) -> Self {
        self.deterministic = deterministic;
        self
    }

    /// Which kernels to use, instead of the best this machine has.
    pub fn level(mut self, level: Level) -> Self {
        self.level = Some(Wanted::new(level));
        self
    }

    /// How memory grows, for [`Residency::Owned`].
    pub fn chunks(mut self, chunks: ChunkOptions) -> Self {
        self.chunks = chunks;
        self
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`Error::Io`], and as [`from_storage`](Self::from_storage).
    #[cfg(feature = "mmap")]
    pub fn open(&self, path: impl AsRef<std::path::Path>) -> Result<Index> {
        let storage: Arc<dyn Storage + Send + Sync> = match self.residency {
            Residency::Resident => {
                // Originals come last in a file, and are looked at row by row: they stay mapped.
                let mapped = Segment::open(Arc::new(crate::storage::MmapStorage::open(&path)?))?;
                Arc::new(crate::storage::MmapStorage::read_front(path, mapped.searched_len())?)
            }
            Residency::Mapped | Residency::Owned => Arc::new(crate::storage::MmapStorage::open(path)?),
        };
        self.from_storage(storage)
    }

    /// Opens the bytes of a file.
    ///
    /// # Errors
    /// As [`from_storage`](Self::from_storage).
    pub fn from_bytes(&self, bytes: impl Into<Vec<u8>>) -> Result<Index> {
        let storage: Arc<dyn Storage + Send + Sync> = Arc::new(bytes.into());
        self.from_storage(storage)
    }

    /// Opens a segment in any storage. Where that is not resident, keys and links are copied into memory, and with
    /// [`Residency::Resident`] the rows too.
    ///
    /// # Errors
    /// [`Error::NotASegment`], [`Error::UnsupportedVersion`], [`Error::UnsupportedFeatures`], [`Error::Truncated`],
    /// [`Error::Corrupt`], [`Error::ChecksumMismatch`] for bytes that cannot be used; [`Error::Mismatch`] where they
    /// contradict what is expected of them; whatever the storage says.
    pub fn from_storage<S: Storage + ?Sized>(&self, storage: Arc<S>) -> Result<Index<S>> {
        let mut segment = Segment::open(storage)?;
        let config = self.config(segment.meta())?;
        if self.verify {
            let frozen = Frozen::new(segment)?;
            frozen.verify()?;
            segment = frozen.into_segment();
        }
        let state = match self.residency {
            Residency::Owned => State::Growing(Box::new(Growing::load(segment, &config)?)),
            residency => {
                if residency == Residency::Resident {
                    segment.make_codes_resident()?;
                }
                State::Frozen(Box::new(Frozen::new(segment)?))
            }
        };
        Ok(Index { config, state, attached: None, scratch: Pool::default() })
    }

    fn config(&self, meta: &Meta) -> Result<Config> {
        fn expect<T: PartialEq + ToString>(what: &'static str, expected: Option<T>, got: T) -> Result<()> {
            match expected {
                Some(expected) if expected != got => {
                    Err(Error::Mismatch { what, expected: expected.to_string(), got: got.to_string() })
                }
                _ => Ok(()),
            }
        }
        expect("dimension", self.dimension, meta.dimension as usize)?;
        expect("metric", self.metric, meta.metric)?;
        expect("kind", self.kind, meta.kind)?;
        expect("encoding", self.encoding, meta.encoding)?;
        if meta.rows > MAX_ROWS {
            return Err(Error::TooLarge { what: "rows", limit: MAX_ROWS.into(), got: meta.rows.into() });
        }
        let graph = meta.graph.as_ref().map(|graph| HnswParams {
            m: graph.m as usize,
            ef_construction: graph.ef_construction as usize,
            seed: graph.seed,
        });
        Ok(Config {
            vectors: VectorSettings::of(meta),
            ef: meta.ef as usize,
            graph,
            kernels: kernels(self.level)?,
            chunks: self.chunks.clone(),
            threads: Arc::new(Threads::new(self.threads)?),
            #[cfg(feature = "parallel")]
            deterministic: self.deterministic,
        })
    }
}

impl<S: Storage + ?Sized> Index<S> {
    /// Writes the index to a file: to a temporary one beside it first, which replaces it once it is safely on disk.
    /// Changes wait meanwhile, searches don't.
    ///
    /// Where the centre of quantized vectors is still to be learned, it is learned now, from the rows there are: see
    /// [`IndexBuilder::centre`](crate::IndexBuilder::centre).
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::FileInUse`]; the old file is then still there.
    #[cfg(feature = "mmap")]
    pub fn save(&self, path: impl AsRef<std::path::Path>) -> Result<()> {
        crate::segment::save_atomic(path, |mut out| self.write_to(&mut out)).map(|_| ())
    }

    /// Writes the bytes of the file to `out`, front to back, and returns how many they are. Learns the centre as
    /// [`save`](Self::save) does.
    ///
    /// # Errors
    /// [`Error::Io`] from `out`; [`Error::OutOfMemory`] (up to eight bytes a row are needed to sort the keys).
    pub fn write_to(&self, out: &mut dyn Write) -> Result<u64> {
        match &self.state {
            State::Growing(growing) => write_growing(growing, &self.config, out),
            State::Frozen(frozen) => copy(frozen.segment().storage().as_ref(), out),
        }
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; otherwise as [`write_to`](Self::write_to).
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut buffer = Buffer::default();
        match self.write_to(&mut buffer) {
            Ok(_) => Ok(buffer.bytes),
            Err(_) if buffer.refused > 0 => Err(Error::OutOfMemory { bytes: buffer.refused }),
            Err(e) => Err(e),
        }
    }

    /// Reads every byte and every link of a read-only index and checks them against each other; for one that can be
    /// changed, checks the bytes it would be saved as, for which it learns the centre as [`save`](Self::save) does.
    ///
    /// # Errors
    /// [`Error::ChecksumMismatch`] or [`Error::Corrupt`], naming the first place.
    pub fn verify(&self) -> Result<()> {
        match &self.state {
            State::Growing(_) => Frozen::new(Segment::open(Arc::new(self.to_bytes()?))?)?.verify(),
            State::Frozen(frozen) => frozen.verify(),
        }
    }
}

/// Bytes in memory that is asked for, where a `Vec` by itself would end the process.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Bytes the allocator refused.
    refused: u64,
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.try_reserve(bytes.len()).is_err() {
            self.refused = self.bytes.len() as u64 + bytes.len() as u64;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn copy<S: Storage + ?Sized>(storage: &S, out: &mut dyn Write) -> Result<u64> {
    if let Some(bytes) = storage.as_slice() {
        out.write_all(bytes)?;
        return Ok(storage.len());
    }
    let mut window = vec![0; WINDOW_BYTES];
    let mut at = 0;
    while at < storage.len() {
        let len = (storage.len() - at).min(WINDOW_BYTES as u64);
        let window = &mut window[..len as usize];
        storage.read_into(at, window)?;
        out.write_all(window)?;
        at += len;
    }
    Ok(at)
}

fn write_growing(growing: &Growing, config: &Config, out: &mut dyn Write) -> Result<u64> {
    let _alone = growing.pause();
    growing.settle()?;
    let at = growing.snapshot();
    let graph = growing.links().map(|links| {
        let params = links.params();
        let mut list = Vec::new();
        let mut count = |id, level| {
            links.links(id, level, &mut list);
            list.len() as u64
        };
        let top = links.entry().map_or(0, |(_, level)| level);
        let mut levels = vec![LevelMeta { nodes: 0, links: 0 }; usize::from(top)];
        let mut total = 0;
        for id in 0..at.rows {
            total += count(id, 0);
            for level in 1..=links.level(id) {
                if let Some(meta) = levels.get_mut(usize::from(level) - 1) {
                    meta.nodes += 1;
                    meta.links += count(id, level);
                }
            }
        }
        GraphMeta {
            m: params.m as u32,
            ef_construction: params.ef_construction as u32,
            seed: params.seed,
            entry: links.entry().map(|(id, _)| id),
            links: total,
            levels,
        }
    });
    let levels = graph.as_ref().map_or(0, |graph| graph.levels.len());
    let settings = &config.vectors;
    let meta = Meta {
        dimension: settings.dimension as u32,
        metric: settings.metric,
        encoding: settings.encoding,
        originals: settings.originals,
        quantizer: settings.quantizer(),
        kind: if graph.is_some() { IndexKind::Hnsw } else { IndexKind::Flat },
        rows: at.rows,
        tombstones: at.rows - at.live,
        stride: settings.encoding.stride(settings.dimension) as u32,
        ef: config.ef as u32,
        graph,
    };
    // None of them where there are no rows.
    let (vectors, current) = (growing.vectors(), growing.vectors().current());
    let coded = vectors.coded();
    let mut writer = SegmentWriter::begin(out, &meta)?;
    writer.keys((0..at.rows).map(|id| growing.key(id)))?;
    writer.key_order(order_by_key(at.rows, &|id| growing.key(id))?)?;
    if at.rows > 0 && !current.codec().centre().is_empty() {
        writer.centre(current.codec().centre())?;
    }
    writer.codes(coded.into_iter().flat_map(|coded| coded.rows().runs()))?;
    if meta.has_factors() {
        writer.factors((0..at.rows).map(|id| current.factors().factor(id)))?;
    }
    if meta.tombstones > 0 {
        writer.tombstones((0..at.rows).map(|id| !growing.is_visible(id, &at)))?;
    }
    if let Some(links) = growing.links() {
        writer.links(|id, list| links.links(id, 0, list))?;
        for level in 1..=levels {
            let level = level as u8;
            let mut nodes: Vec<u32> = Vec::new();
            reserve(&mut nodes, (0..at.rows).filter(|&id| links.level(id) >= level).count())?;
            nodes.extend((0..at.rows).filter(|&id| links.level(id) >= level));
            writer.upper(usize::from(level), &nodes, |id, list| links.links(id, level, list))?;
        }
    }
    if vectors.has_fingerprints() {
        writer.fingerprints((0..at.rows).map(|id| vectors.fingerprint(id).unwrap_or_default()))?;
    }
    if let Some(originals) = vectors.originals() {
        writer.try_originals(originals.rows().runs().map(Ok))?;
    }
    Ok(writer.finish()?.1)
}
