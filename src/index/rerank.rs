//! Exact distances for the best candidates: the originals, wherever they are, and what is compared with them.
//!
//! | originals | where |
//! |---|---|
//! | the codes themselves | encoding `f32`: distances are exact already |
//! | kept | in the index, as f32 or f16: memory while it grows, the section ORIGINALS of a file afterwards |
//! | attached | a file of vectors in a storage of its own: checked, row by row, against the fingerprints in the index |
//!
//! Without any of these reranking is refused, also while rows are staged and distances exact for a while.
//!
//! Only the rows asked for are read, sorted and coalesced. So what lies in a file, or beyond JavaScript, stays there.

use super::topk::ordered;
use super::{Candidate, Index, Source, State};
use crate::codec::AnyCodec;
use crate::dataset::VectorLayout;
use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::scorer::FloatQuery;
use crate::segment::{Encoding, fingerprint};
use crate::storage::{RowBuf, Rows, Section, SectionRows, Storage};
use std::fmt;
use std::sync::Arc;

/// A file of vectors as rows, none of which is read before it is asked for: originals for [`Index::attach_originals`].
///
/// ```
/// use std::sync::Arc;
/// use twindex::{Encoding, VectorFile};
///
/// // Two rows of three components.
/// let bytes: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|x| x.to_le_bytes()).collect();
/// let file = VectorFile::raw(Arc::new(bytes), Encoding::F32, 3)?;
/// assert_eq!((file.rows(), file.dimension()), (2, 3));
/// # Ok::<(), twindex::Error>(())
/// ```
pub struct VectorFile<S: ?Sized> {
    rows: SectionRows<S>,
    encoding: Encoding,
    dimension: usize,
}

#[cfg(feature = "mmap")]
impl VectorFile<dyn Storage + Send + Sync> {
    /// Maps a file, `.npy` or `.fbin` by its extension.
    ///
    /// # Errors
    /// [`Error::Dataset`] for another extension; [`Error::Io`]; otherwise as [`npy`](Self::npy).
    ///
    /// # Example
    /// See [`Index::attach_originals`].
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Self> {
        let path = path.as_ref();
        let storage: Arc<dyn Storage + Send + Sync> = Arc::new(crate::storage::MmapStorage::open(path)?);
        match path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase().as_str() {
            "npy" => Self::npy(storage),
            "fbin" => Self::fbin(storage),
            _ => Err(Error::Dataset {
                at: path.display().to_string(),
                reason: "unknown extension; originals are read from .npy (f4 or f2) and .fbin".into(),
            }),
        }
    }
}

impl<S: Storage + ?Sized> VectorFile<S> {
    /// A two-dimensional `.npy` array of little-endian `f4` or `f2`.
    ///
    /// # Errors
    /// [`Error::Dataset`] for anything else; [`Error::Truncated`]; whatever the storage says.
    pub fn npy(storage: Arc<S>) -> Result<Self> {
        let layout = Reader::over(&*storage, |reader| VectorLayout::npy("originals", reader))?;
        Self::new(storage, &layout)
    }

    /// An `.fbin` file: `u32` rows, `u32` dimension, then `f32` components, all little-endian.
    ///
    /// # Errors
    /// As [`npy`](Self::npy).
    pub fn fbin(storage: Arc<S>) -> Result<Self> {
        let layout = Reader::over(&*storage, |reader| VectorLayout::fbin("originals", reader))?;
        Self::new(storage, &layout)
    }

    /// Components alone, little-endian, one vector after the other: [`Encoding::F32`] or [`Encoding::F16`].
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for another encoding or no components; [`Error::LengthMismatch`] for bytes that are
    /// no whole rows.
    pub fn raw(storage: Arc<S>, encoding: Encoding, dimension: usize) -> Result<Self> {
        if !matches!(encoding, Encoding::F32 | Encoding::F16) {
            return Err(Error::InvalidParameter {
                name: "encoding",
                expected: "f32 or f16",
                got: encoding.to_string(),
            });
        }
        if dimension == 0 {
            return Err(Error::InvalidParameter { name: "dimension", expected: "at least 1", got: "0".into() });
        }
        let stride = encoding.stride(dimension) as u64;
        let bytes = storage.len();
        if !bytes.is_multiple_of(stride) {
            let length = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
            let expected = length(bytes - bytes % stride);
            return Err(Error::LengthMismatch { what: "bytes of vectors", expected, got: length(bytes) });
        }
        Self::new(
            storage,
            &VectorLayout { offset: 0, rows: bytes / stride, dimension, is_half: encoding == Encoding::F16 },
        )
    }

    #[inline(never)]
    fn new(storage: Arc<S>, layout: &VectorLayout) -> Result<Self> {
        let encoding = if layout.is_half { Encoding::F16 } else { Encoding::F32 };
        let stride = encoding.stride(layout.dimension);
        let len = layout.rows.saturating_mul(stride as u64);
        let rows = SectionRows::new(Section::new(storage, layout.offset, len)?, stride)?;
        Ok(VectorFile { rows, encoding, dimension: layout.dimension })
    }

    /// Vectors in the file.
    pub fn rows(&self) -> u32 {
        self.rows.count()
    }

    /// Components of a vector.
    pub fn dimension(&self) -> usize {
        self.dimension
    }
}

impl<S: ?Sized> fmt::Debug for VectorFile<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VectorFile")
            .field("encoding", &self.encoding)
            .field("dimension", &self.dimension)
            .finish_non_exhaustive()
    }
}

/// The front of a storage as a stream: for headers.
struct Reader<'a, S: ?Sized> {
    storage: &'a S,
    at: u64,
    refusal: Option<Error>,
}

impl<S: Storage + ?Sized> Reader<'_, S> {
    /// What `read` makes of the front of `storage`. What the storage says is worth more than that reading failed.
    fn over(storage: &S, read: impl FnOnce(&mut Reader<'_, S>) -> Result<VectorLayout>) -> Result<VectorLayout> {
        let mut reader = Reader { storage, at: 0, refusal: None };
        let layout = read(&mut reader);
        reader.refusal.map_or(layout, Err)
    }
}

impl<S: Storage + ?Sized> std::io::Read for Reader<'_, S> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let left = self.storage.len().saturating_sub(self.at);
        let n = usize::try_from(left).map_or(out.len(), |left| left.min(out.len()));
        self.storage.read_into(self.at, &mut out[..n]).map_err(|e| {
            self.refusal = Some(e);
            std::io::ErrorKind::Other
        })?;
        self.at += n as u64;
        Ok(n)
    }
}

/// Originals attached to an index.
pub(super) struct Attached<S: ?Sized> {
    file: VectorFile<S>,
    codec: AnyCodec,
}

/// What rescoring reuses.
#[derive(Debug, Default)]
pub(super) struct RescoreScratch {
    exact: FloatQuery,
    rows: RowBuf,
    fingerprints: RowBuf,
    vector: Vec<f32>,
    ids: Vec<u32>,
}

impl<S: Storage + ?Sized> Index<S> {
    /// Gives a read-only or growing index the vectors it was built from, to rerank against: row i of the file is the
    /// i-th vector that was added (updates count as additions; `compact` renumbers). Vectors are compared with the
    /// fingerprints in the index when they are read. Where the index grows beyond the file, a search that meets a row
    /// which the file does not have is refused with [`Error::LengthMismatch`]; attach a longer one then.
    ///
    /// They have to be the vectors that were added, to the bit: normalised or rounded copies have other fingerprints.
    /// Not needed, and refused, where the index keeps originals itself.
    ///
    /// ```
    /// use twindex::{Encoding, Index, Metric, SearchParams, VectorFile};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("vectors.fbin");
    /// let vectors: Vec<f32> = (0..200 * 8).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
    /// let mut file = [200u32, 8].map(u32::to_le_bytes).concat(); // rows, dimension
    /// file.extend(vectors.iter().flat_map(|x| x.to_le_bytes()));
    /// std::fs::write(&path, file)?;
    ///
    /// let mut index = Index::builder(8, Metric::L2).encoding(Encoding::Int8).build()?;
    /// index.add_batch(&(0..200).collect::<Vec<_>>(), &vectors)?;
    /// index.attach_originals(VectorFile::open(&path)?)?;
    /// let hits = index.search(&vectors[..8], &SearchParams::new(3).rerank(2.0))?;
    /// assert_eq!((hits[0].key, hits[0].distance, hits[0].reranked), (0, 0.0, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`]; [`Error::LengthMismatch`] for fewer vectors than rows;
    /// [`Error::InvalidParameter`] where the index has its originals.
    pub fn attach_originals(&mut self, file: VectorFile<S>) -> Result<()> {
        let settings = &self.config.vectors;
        if file.dimension != settings.dimension {
            return Err(Error::DimensionMismatch { expected: settings.dimension, got: file.dimension });
        }
        if !self.has_fingerprints() {
            let expected = "an index without any; this one needs none attached to rerank";
            let got =
                if settings.encoding == Encoding::F32 { "codes that are the originals" } else { "kept originals" };
            return Err(Error::InvalidParameter { name: "originals", expected, got: got.into() });
        }
        let rows = self.rows();
        if file.rows() < rows {
            let (expected, got) = (rows as usize, file.rows() as usize);
            return Err(Error::LengthMismatch { what: "originals", expected, got });
        }
        let codec = match file.encoding {
            Encoding::F16 => AnyCodec::f16(settings.dimension, settings.metric),
            _ => AnyCodec::f32(settings.dimension, settings.metric),
        };
        self.attached = Some(Attached { file, codec });
        Ok(())
    }

    /// Rows there are, removed ones included.
    fn rows(&self) -> u32 {
        match &self.state {
            State::Growing(growing) => growing.snapshot().rows,
            State::Frozen(frozen) => frozen.segment().meta().rows,
        }
    }

    fn has_fingerprints(&self) -> bool {
        match &self.state {
            State::Growing(growing) => growing.vectors().has_fingerprints(),
            State::Frozen(frozen) => frozen.segment().fingerprints().is_some(),
        }
    }

    /// Whether there is something to rerank against: the codes themselves, kept or attached originals.
    pub fn has_originals(&self) -> bool {
        !self.has_fingerprints() || self.attached.is_some()
    }

    /// Reads the vector of row `id`, and says what it is.
    pub(super) fn read_vector(&self, id: u32, vector: &mut [f32]) -> Result<Source> {
        let mut fetched = RowBuf::new();
        if let Some(Attached { file, codec }) = self.attached.as_ref().filter(|attached| id < attached.file.rows()) {
            let ids = [id];
            let rows = Reached::new(&file.rows, &ids, &mut fetched)?;
            self.check_fingerprints(codec, &rows, &mut RowBuf::new(), &mut Vec::new())?;
            codec.decode(rows.row(0), vector);
            return Ok(Source::Original);
        }
        let frozen = match &self.state {
            State::Growing(growing) => return Ok(growing.vectors().get(id, vector)),
            State::Frozen(frozen) => frozen,
        };
        if let (Some(rows), Some(codec)) = (frozen.segment().originals(), frozen.original_codec()) {
            rows.fetch(&[id], &mut fetched)?;
            codec.decode(fetched.row(0), vector);
            return Ok(Source::Original);
        }
        frozen.segment().codes().fetch(&[id], &mut fetched)?;
        frozen.codec().decode(fetched.row(0), vector);
        Ok(if self.config.vectors.encoding == Encoding::F32 { Source::Original } else { Source::Code })
    }

    /// Puts exact distances into `candidates`, whose order is then lost to them. Nothing is done where distances are
    /// exact already.
    pub(super) fn rescore_candidates(
        &self,
        query: &[f32],
        candidates: &mut Vec<Candidate>,
        scratch: &mut RescoreScratch,
    ) -> Result<()> {
        if self.config.vectors.encoding == Encoding::F32 {
            return Ok(());
        }
        let kernels = self.config.kernels;
        scratch.ids.clear();
        scratch.ids.extend(candidates.iter().map(|candidate| candidate.id));
        let RescoreScratch { exact, rows: buffer, fingerprints, vector, ids } = scratch;
        if let Some(Attached { file, codec }) = &self.attached {
            let rows = Reached::new(&file.rows, ids, buffer)?;
            self.check_fingerprints(codec, &rows, fingerprints, vector)?;
            return rescore(codec, kernels, query, &rows, candidates, exact);
        }
        match &self.state {
            State::Growing(growing) => match growing.vectors().originals() {
                Some(kept) => {
                    let rows = Reached::new(kept.rows(), ids, buffer)?;
                    rescore(kept.codec(), kernels, query, &rows, candidates, exact)
                }
                None => Err(Error::NoOriginals),
            },
            State::Frozen(frozen) => match (frozen.segment().originals(), frozen.original_codec()) {
                (Some(originals), Some(codec)) => {
                    let rows = Reached::new(originals, ids, buffer)?;
                    rescore(codec, kernels, query, &rows, candidates, exact)
                }
                _ => Err(Error::NoOriginals),
            },
        }
    }

    /// Compares rows of attached originals with the fingerprints of what was added.
    fn check_fingerprints(
        &self,
        codec: &AnyCodec,
        rows: &Reached<'_, impl Rows>,
        fingerprints: &mut RowBuf,
        vector: &mut Vec<f32>,
    ) -> Result<()> {
        self.fetch_fingerprints(rows.ids, fingerprints)?;
        vector.resize(self.config.vectors.dimension, 0.0);
        for (i, &row) in rows.ids.iter().enumerate() {
            codec.decode(rows.row(i), vector);
            self.check_fingerprint(row, fingerprints, i, vector)?;
        }
        Ok(())
    }

    /// Reads the fingerprints of rows, where they lie in a file.
    fn fetch_fingerprints(&self, ids: &[u32], fetched: &mut RowBuf) -> Result<()> {
        match &self.state {
            State::Frozen(frozen) => match frozen.segment().fingerprints() {
                Some(stored) => stored.fetch(ids, fetched),
                None => fetched.reset(0, 0).map(|_| ()),
            },
            State::Growing(_) => Ok(()),
        }
    }

    /// Whether `vector` is the one that `row` was made of, if that is on record: as the i-th of `fetched`, in a file.
    fn check_fingerprint(&self, row: u32, fetched: &RowBuf, i: usize, vector: &[f32]) -> Result<()> {
        let expected = match &self.state {
            State::Growing(growing) => growing.vectors().fingerprint(row),
            State::Frozen(_) => fetched.as_slice().as_chunks().0.get(i).map(|bytes| u32::from_le_bytes(*bytes)),
        };
        match (expected, fingerprint(vector)) {
            (Some(expected), got) if expected != got => Err(Error::FingerprintMismatch { row, expected, got }),
            _ => Ok(()),
        }
    }

    /// Whether candidates that a caller brings are rows, with their keys: which of them are still to be found.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for one that is no row, or has another key.
    pub(super) fn check_candidates(&self, candidates: &[Candidate]) -> Result<Vec<bool>> {
        let state = |&Candidate { id, key, .. }: &Candidate| {
            let (known, live) = match &self.state {
                State::Growing(growing) => {
                    let at = growing.snapshot();
                    let known = (id < at.rows).then(|| growing.key(id));
                    (known, growing.is_visible(id, &at))
                }
                State::Frozen(frozen) => {
                    let segment = frozen.segment();
                    (segment.keys().get(id), !segment.tombstones().contains(id))
                }
            };
            match known == Some(key) {
                true => Ok(live),
                false => Err(Error::InvalidParameter {
                    name: "candidates",
                    expected: "rows of this index, each with its key",
                    got: format!("row {id} with key {key}"),
                }),
            }
        };
        candidates.iter().map(state).collect()
    }

    /// Compares vectors that a caller brings with the fingerprints of the rows they are said to be.
    pub(super) fn check_vectors(&self, candidates: &[Candidate], vectors: &[f32]) -> Result<()> {
        let (ids, mut fetched): (Vec<u32>, _) =
            (candidates.iter().map(|candidate| candidate.id).collect(), RowBuf::new());
        self.fetch_fingerprints(&ids, &mut fetched)?;
        let vectors = vectors.chunks_exact(self.config.vectors.dimension);
        ids.iter()
            .zip(vectors)
            .enumerate()
            .try_for_each(|(i, (&row, vector))| self.check_fingerprint(row, &fetched, i, vector))
    }
}

/// Rows by their places in a list of ids: borrowed where they can be, read all at once where not.
struct Reached<'a, R> {
    rows: &'a R,
    ids: &'a [u32],
    fetched: &'a RowBuf,
}

impl<'a, R: Rows> Reached<'a, R> {
    fn new(rows: &'a R, ids: &'a [u32], buffer: &'a mut RowBuf) -> Result<Self> {
        // Attached before the index grew, perhaps.
        if let Some(&id) = ids.iter().find(|&&id| id >= rows.count()) {
            let (expected, got) = (id as usize + 1, rows.count() as usize);
            return Err(Error::LengthMismatch { what: "originals", expected, got });
        }
        // Rows are resident all or none.
        if ids.first().is_some_and(|&id| rows.resident(id).is_none()) {
            rows.fetch(ids, buffer)?;
        }
        Ok(Reached { rows, ids, fetched: buffer })
    }

    fn row(&self, i: usize) -> &'a [u8] {
        self.rows.resident(self.ids[i]).unwrap_or_else(|| self.fetched.row(i))
    }
}

/// Rows prefetched ahead of the one that is compared, and how many lines of each.
const AHEAD: usize = 4;
const LINES: usize = 8;

/// Exact distances of the candidates, whose rows these are; rows at no distance (damaged) are dropped.
fn rescore(
    codec: &AnyCodec,
    kernels: &'static Kernels,
    query: &[f32],
    rows: &Reached<'_, impl Rows>,
    candidates: &mut Vec<Candidate>,
    exact: &mut FloatQuery,
) -> Result<()> {
    exact.prepare(codec, kernels, query)?;
    for i in 0..AHEAD.min(candidates.len()) {
        kernels.prefetch(rows.row(i), LINES);
    }
    for (i, candidate) in candidates.iter_mut().enumerate() {
        if i + AHEAD < rows.ids.len() {
            kernels.prefetch(rows.row(i + AHEAD), LINES);
        }
        candidate.distance = exact.distance(codec, kernels, rows.row(i));
    }
    candidates.retain(|candidate| ordered(candidate.distance).is_some());
    Ok(())
}
