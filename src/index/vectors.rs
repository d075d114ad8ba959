//! The vectors of a growing index: their codes, and what is kept of them besides.
//!
//! ```text
//!                    the first rows                    once there are enough, or at `save`
//! staged   f32 ┤ searched exactly, by scans ├ ──▶ centre = their mean; all are encoded, and linked ──▶ coded
//! originals    the vectors as they came, in f32 or f16, where the index is to keep them
//! fingerprints of the vectors, where it is not, so that originals from outside can be checked
//! ```
//!
//! Only encodings that are centred stage anything. How many rows are staged depends on the dimension alone, and the
//! centre on their values and their order, not on how they were handed over: one by one and in batches give one index.
//! (Saving before they are there learns the centre from those there are: what is saved is what is searched.)
//! Whoever searches holds on to what was there when the search began.

use crate::codec::quantized::{self, QuantizedCodec};
use crate::codec::{AnyCodec, squared_norm};
use crate::error::{Error, Result, Scientific};
use crate::kernel::Kernels;
use crate::metric::Metric;
use crate::scorer::{Factors, Scorable};
use crate::segment::{Encoding, Meta, Originals, QuantizerMeta, Segment, fingerprint};
use crate::storage::{ChunkOptions, ChunkedCells, ChunkedRows, Rows, SectionRows, Storage};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// How many times as long as the average vector one may be to count for the centre.
const OUTLYING: f64 = 8.0;

/// What is kept of a vector, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorSettings {
    pub dimension: usize,
    pub metric: Metric,
    pub encoding: Encoding,
    pub originals: Originals,
    /// Whether quantized vectors are rotated first.
    pub rotate: bool,
    /// Whether quantized vectors are centred first.
    pub centre: bool,
    /// Decides the rotation.
    pub seed: u64,
}

impl VectorSettings {
    /// Those of a file.
    pub fn of(meta: &Meta) -> Self {
        let quantizer = meta.quantizer.unwrap_or(QuantizerMeta { rotated: false, centred: false, seed: 0 });
        VectorSettings {
            dimension: meta.dimension as usize,
            metric: meta.metric,
            encoding: meta.encoding,
            originals: meta.originals,
            rotate: quantizer.rotated,
            centre: quantizer.centred,
            seed: quantizer.seed,
        }
    }

    /// What META says of the quantizer.
    pub fn quantizer(&self) -> Option<QuantizerMeta> {
        let seed = if self.rotate { self.seed } else { 0 };
        let quantizer = QuantizerMeta { rotated: self.rotate, centred: self.centre, seed };
        self.encoding.is_quantized().then_some(quantizer)
    }

    /// The codec, not centred yet.
    pub fn codec(&self) -> AnyCodec {
        let &VectorSettings { dimension, metric, .. } = self;
        let seed = self.rotate.then_some(self.seed);
        match self.encoding {
            Encoding::F32 => AnyCodec::f32(dimension, metric),
            Encoding::F16 => AnyCodec::f16(dimension, metric),
            Encoding::Int8 => AnyCodec::Int8(QuantizedCodec::new(dimension, metric, seed)),
            Encoding::Int4 => AnyCodec::Int4(QuantizedCodec::new(dimension, metric, seed)),
            Encoding::Bits1 => AnyCodec::Bits1(QuantizedCodec::new(dimension, metric, seed)),
        }
    }

    /// The codec of the originals, where they are kept apart from the codes.
    pub fn original_codec(&self) -> Option<AnyCodec> {
        match self.originals {
            Originals::None => None,
            Originals::F16 => Some(AnyCodec::f16(self.dimension, self.metric)),
            Originals::F32 => Some(AnyCodec::f32(self.dimension, self.metric)),
        }
    }

    fn is_centred(&self) -> bool {
        self.encoding.is_quantized() && self.centre
    }

    /// Rows the centre is learned from: 1,024, fewer where those would take more than 4 MiB, but not below 64. (The
    /// mean of n rows is off by a share 1/n of their variance.)
    fn rows_staged(&self) -> u32 {
        ((1 << 20) / self.dimension).clamp(64, 1024) as u32
    }
}

/// One `f32` a row.
#[derive(Debug)]
pub struct FactorCells(ChunkedCells<AtomicU32>);

impl FactorCells {
    fn set(&self, id: u32, factor: f32) {
        if let Some([cell, ..]) = self.0.row(id) {
            cell.store(factor.to_bits(), Ordering::Relaxed);
        }
    }
}

impl Factors for FactorCells {
    #[inline]
    fn factor(&self, id: u32) -> f32 {
        match self.0.row(id) {
            Some([bits, ..]) => f32::from_bits(bits.load(Ordering::Relaxed)),
            _ => 1.0,
        }
    }
}

/// Rows of one codec.
#[derive(Debug)]
pub struct Coded {
    codec: AnyCodec,
    rows: ChunkedRows,
    factors: Option<FactorCells>,
}

impl Coded {
    pub fn new(codec: AnyCodec, chunks: &ChunkOptions) -> Result<Self> {
        let factors = codec.has_factors().then(|| ChunkedCells::new(1, chunks)).transpose()?.map(FactorCells);
        Ok(Coded { factors, ..Coded::originals(codec, chunks)? })
    }

    /// Rows that are not searched, but looked at one by one: a factor is computed from its row then.
    fn originals(codec: AnyCodec, chunks: &ChunkOptions) -> Result<Self> {
        Ok(Coded { rows: ChunkedRows::new(codec.stride(), chunks)?, factors: None, codec })
    }

    pub fn codec(&self) -> &AnyCodec {
        &self.codec
    }

    pub fn rows(&self) -> &ChunkedRows {
        &self.rows
    }

    pub fn factors(&self) -> Option<&FactorCells> {
        self.factors.as_ref()
    }

    /// What scorers are made of.
    pub fn scorable(&self, kernels: &'static Kernels) -> Scorable<'_, ChunkedRows, Option<&FactorCells>> {
        Scorable { codec: &self.codec, kernels, rows: &self.rows, factors: self.factors.as_ref() }
    }

    /// The vector row `id` stands for.
    pub fn decode(&self, id: u32, vector: &mut [f32]) {
        if let Some(row) = self.rows.resident(id) {
            self.codec.decode(row, vector);
        }
    }

    /// Appends `n` rows: `fill` writes the i-th and gives its factor. All appear at once, or none.
    pub fn append(&self, n: u32, mut fill: impl FnMut(u32, &mut [u8]) -> Result<f32>) -> Result<u32> {
        let first = self.rows.count();
        if let Some(factors) = &self.factors {
            factors.0.grow_to(first + n)?;
        }
        self.rows.append(n, |i, row| {
            let factor = fill(i, row)?;
            if let Some(factors) = &self.factors {
                factors.set(first + i, factor);
            }
            Ok(())
        })
    }

    fn move_row(&mut self, from: u32, to: u32) -> Result<()> {
        self.rows.copy_row(from, to)?;
        if let Some(factors) = &self.factors {
            factors.set(to, factors.factor(from));
        }
        Ok(())
    }

    fn truncate(&mut self, rows: u32) {
        self.rows.truncate(rows);
        if let Some(factors) = &mut self.factors {
            factors.0.truncate(rows);
        }
    }

    fn allocated_bytes(&self) -> (u64, u64) {
        (self.rows.allocated_bytes(), self.factors.as_ref().map_or(0, |factors| factors.0.allocated_bytes()))
    }
}

/// The rows to search: they stay while this is held.
pub enum Current<'a> {
    Coded(&'a Coded),
    Staged(Arc<Coded>),
}

impl Deref for Current<'_> {
    type Target = Coded;

    fn deref(&self) -> &Coded {
        match self {
            Current::Coded(coded) => coded,
            Current::Staged(staged) => staged,
        }
    }
}

impl Current<'_> {
    /// Whether the vectors still are as they came, and in no graph.
    pub fn is_staged(&self) -> bool {
        matches!(self, Current::Staged(_))
    }
}

/// See the [module docs](self).
#[derive(Debug)]
pub struct Vectors {
    settings: VectorSettings,
    chunks: ChunkOptions,
    /// The codec, not centred.
    plain: AnyCodec,
    staged: RwLock<Option<Arc<Coded>>>,
    coded: OnceLock<Coded>,
    originals: Option<Coded>,
    fingerprints: Option<ChunkedCells<AtomicU32>>,
    /// Rows there are, for readers.
    count: AtomicU32,
    /// What encoding a row takes.
    work: Mutex<Vec<f32>>,
}

impl Vectors {
    pub fn new(settings: &VectorSettings, chunks: &ChunkOptions) -> Result<Self> {
        let plain = settings.codec();
        let originals = settings.original_codec().map(|codec| Coded::originals(codec, chunks)).transpose()?;
        let is_fingerprinted = settings.encoding != Encoding::F32 && originals.is_none();
        let vectors = Vectors {
            settings: settings.clone(),
            chunks: chunks.clone(),
            staged: RwLock::default(),
            coded: OnceLock::new(),
            originals,
            fingerprints: is_fingerprinted.then(|| ChunkedCells::new(1, chunks)).transpose()?,
            count: AtomicU32::new(0),
            work: Mutex::default(),
            plain,
        };
        if settings.is_centred() {
            let staged = Coded::new(AnyCodec::f32(settings.dimension, settings.metric), chunks)?;
            *vectors.staged.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(staged));
        } else {
            vectors.set_coded(Coded::new(vectors.plain.clone(), chunks)?);
        }
        Ok(vectors)
    }

    /// From now on rows are these. Under the writers' lock.
    pub fn set_coded(&self, coded: Coded) {
        let _ = self.coded.set(coded);
        self.staged.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Rows there are. What [`current`](Self::current) gives afterwards has at least these.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// The rows to search.
    #[inline]
    pub fn current(&self) -> Current<'_> {
        match self.coded.get() {
            Some(coded) => Current::Coded(coded),
            None => self.current_staged(),
        }
    }

    #[cold]
    fn current_staged(&self) -> Current<'_> {
        let staged = self.staged.read().unwrap_or_else(PoisonError::into_inner).clone();
        match staged {
            Some(staged) => Current::Staged(staged),
            // Encoded in between: they were there before the staged rows went.
            None => Current::Coded(self.coded.wait()),
        }
    }

    /// The encoded rows, once there are any.
    pub fn coded(&self) -> Option<&Coded> {
        self.coded.get()
    }

    /// The originals kept apart from the codes.
    pub fn originals(&self) -> Option<&Coded> {
        self.originals.as_ref()
    }

    /// Whether fingerprints are kept.
    pub fn has_fingerprints(&self) -> bool {
        self.fingerprints.is_some()
    }

    /// The fingerprint of the vector that row `id` was made of.
    pub fn fingerprint(&self, id: u32) -> Option<u32> {
        self.fingerprints.as_ref()?.row(id)?.first().map(|cell| cell.load(Ordering::Relaxed))
    }

    /// What the vector under row `id` was, and whether it is that exactly; otherwise it is what its code decodes to.
    pub fn get(&self, id: u32, vector: &mut [f32]) -> Source {
        if let Some(originals) = &self.originals {
            originals.decode(id, vector);
            return Source::Original;
        }
        let current = self.current();
        current.decode(id, vector);
        if current.is_staged() || self.settings.encoding == Encoding::F32 { Source::Original } else { Source::Code }
    }

    /// Rows that may be appended before those staged have to be encoded.
    pub fn room(&self) -> u32 {
        match self.coded.get() {
            Some(_) => u32::MAX,
            None => self.settings.rows_staged().saturating_sub(self.count()),
        }
    }

    /// Refuses what [`append`](Self::append) or the encoding of what is staged would refuse of `vectors`, while those
    /// may come apart: some staged, the others encoded. Otherwise `append` takes them all or none.
    pub fn check(&self, vectors: &[f32]) -> Result<()> {
        if self.coded.get().is_some() {
            return Ok(());
        }
        for (i, vector) in vectors.chunks_exact(self.settings.dimension).enumerate() {
            let codecs = [Some(&self.plain), self.originals.as_ref().map(Coded::codec)];
            codecs.into_iter().flatten().try_for_each(|codec| codec.check(vector)).map_err(|e| e.for_row(i))?;
        }
        Ok(())
    }

    /// Appends vectors, as many as there is [`room`](Self::room) for at most, or none where one is refused; `also(i,
    /// id)` does what else belongs to the i-th before readers see it. One writer at a time.
    pub fn append(&self, vectors: &[f32], mut also: impl FnMut(u32, u32)) -> Result<u32> {
        let dimension = self.settings.dimension;
        let first = self.count();
        let n = (vectors.len() / dimension) as u32;
        let vector = |i: u32| &vectors[i as usize * dimension..][..dimension];
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fingerprints) = &self.fingerprints {
            fingerprints.grow_to(first + n)?;
            for (id, vector) in (first..).zip(vectors.chunks_exact(dimension)) {
                if let Some([cell, ..]) = fingerprints.row(id) {
                    cell.store(fingerprint(vector), Ordering::Relaxed);
                }
            }
        }
        let current = self.current();
        let mut spare = Vec::new();
        current.append(n, |i, row| {
            let refused = |i: u32| move |e: Error| e.for_row(i as usize);
            let factor = current.codec().encode(vector(i), row, &mut work).map_err(refused(i))?;
            also(i, first + i);
            // With the last row, so that neither stays without the other.
            if i + 1 == n
                && let Some(originals) = &self.originals
            {
                originals
                    .append(n, |i, row| originals.codec().encode(vector(i), row, &mut spare).map_err(refused(i)))?;
            }
            Ok(factor)
        })?;
        self.count.store(first + n, Ordering::Release);
        Ok(first)
    }

    /// The staged rows, encoded; `None` where none are staged. They are not used yet: see
    /// [`set_coded`](Self::set_coded).
    pub fn encode_staged(&self) -> Result<Option<Coded>> {
        let Current::Staged(staged) = self.current() else { return Ok(None) };
        let rows = staged.rows().count();
        self.encode_all(rows, &|_| true, &|id, vector| staged.decode(id, vector)).map(Some)
    }

    /// Encodes `rows` vectors, which `vector` gives by id, around the mean of those that count.
    ///
    /// Vectors more than [`OUTLYING`] times as long as the average are left out of the mean: one of a thousand times
    /// the length among a thousand would move it as far as the others reach, and double their error.
    fn encode_all(&self, rows: u32, counts: &dyn Fn(u32) -> bool, vector: &dyn Fn(u32, &mut [f32])) -> Result<Coded> {
        let norm_of = |x: &[f32]| squared_norm(x.len(), |i| x[i]).sqrt();
        let mut buffer = vec![0.0; self.settings.dimension];
        let (mut norms, mut counted) = (0.0, 0);
        for id in (0..rows).filter(|&id| counts(id)) {
            vector(id, &mut buffer);
            norms += norm_of(&buffer);
            counted += 1;
        }
        let longest = OUTLYING * norms / f64::from(counted.max(1));
        let mut sums = vec![0.0; self.settings.dimension];
        let mut taken = 0;
        for id in (0..rows).filter(|&id| counts(id)) {
            vector(id, &mut buffer);
            let norm = norm_of(&buffer);
            let divisor = match self.settings.metric {
                Metric::Cosine => norm,
                Metric::L2 | Metric::InnerProduct if norm > longest => continue,
                Metric::L2 | Metric::InnerProduct => 1.0,
            };
            for (sum, &x) in sums.iter_mut().zip(&buffer) {
                *sum += f64::from(x) / divisor;
            }
            taken += 1;
        }
        let centre = sums.iter().map(|sum| (sum / f64::from(taken.max(1))) as f32).collect();
        let coded = Coded::new(self.plain.centred(centre), &self.chunks)?;
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        coded.append(rows, |id, row| {
            vector(id, &mut buffer);
            coded.codec().encode(&buffer, row, &mut work)
        })?;
        Ok(coded)
    }

    /// Learns the centre anew, from the rows that `live` tells, and encodes all rows again: from the originals where
    /// they are kept, otherwise from what their codes decode to, which rounds a second time.
    pub fn retrain(&mut self, live: &dyn Fn(u32) -> bool) -> Result<()> {
        let Some(coded) = self.coded.get().filter(|_| self.settings.is_centred()) else { return Ok(()) };
        let source = self.originals.as_ref().unwrap_or(coded);
        let fresh = self.encode_all(self.count(), live, &|id, vector| source.decode(id, vector))?;
        self.coded = OnceLock::from(fresh);
        Ok(())
    }

    /// Takes over the rows of a segment, each of them checked, when the rest of it is no longer needed: where it had to
    /// be copied in, that memory is given back first, and rows fill it again.
    pub fn load<S: Storage + ?Sized>(&mut self, segment: Segment<S>) -> Result<()> {
        let rows = segment.meta().rows;
        let coded = Coded::new(self.plain.centred(centre_of(&segment)?), &self.chunks)?;
        if let (Some(cells), Some(stored)) = (&coded.factors, segment.factors()) {
            cells.0.grow_to(rows)?;
            (0..rows).for_each(|id| cells.set(id, stored.factor(id)));
        }
        let (codes, originals) = (segment.codes().clone(), segment.originals().cloned());
        let fingerprints = segment.fingerprints().cloned();
        drop(segment);
        copy_rows(&codes, &coded.rows, |id, row| coded.codec.validate(row, coded.factors().factor(id)))?;
        if let (Some(to), Some(from)) = (&self.originals, originals) {
            copy_rows(&from, &to.rows, |_, row| to.codec.validate(row, to.codec.factor_of(row)))?;
        }
        if let (Some(cells), Some(from)) = (&self.fingerprints, fingerprints) {
            cells.grow_to(rows)?;
            from.for_each_window(|first, window| {
                for (id, bytes) in (first..).zip(window.as_chunks().0) {
                    if let Some([cell, ..]) = cells.row(id) {
                        cell.store(u32::from_le_bytes(*bytes), Ordering::Relaxed);
                    }
                }
                Ok(())
            })?;
        }
        self.coded = OnceLock::from(coded);
        *self.staged.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        *self.count.get_mut() = rows;
        Ok(())
    }

    /// Puts row `from` in the place of row `to`, before it.
    pub fn move_row(&mut self, from: u32, to: u32) -> Result<()> {
        let fingerprint = self.fingerprint(from);
        if let Some(cells) = &self.fingerprints
            && let (Some([cell, ..]), Some(fingerprint)) = (cells.row(to), fingerprint)
        {
            cell.store(fingerprint, Ordering::Relaxed);
        }
        self.each_mut(|coded| coded.move_row(from, to))
    }

    /// Keeps the first `rows` rows.
    pub fn truncate(&mut self, rows: u32) -> Result<()> {
        if rows == 0 {
            // The next centre is learned from the next rows.
            *self = Vectors::new(&self.settings, &self.chunks)?;
            return Ok(());
        }
        if let Some(fingerprints) = &mut self.fingerprints {
            fingerprints.truncate(rows);
        }
        *self.count.get_mut() = rows;
        self.each_mut(|coded| {
            coded.truncate(rows);
            Ok(())
        })
    }

    fn each_mut(&mut self, mut f: impl FnMut(&mut Coded) -> Result<()>) -> Result<()> {
        let staged = self.staged.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Nobody searches while this is borrowed for change, so that no one else holds the staged rows.
        let staged = staged.as_mut().and_then(Arc::get_mut);
        [staged, self.coded.get_mut(), self.originals.as_mut()].into_iter().flatten().try_for_each(&mut f)
    }

    /// Bytes of memory, by the names of the file's sections.
    pub fn bytes(&self) -> Vec<(&'static str, u64)> {
        let current = self.current();
        let (rows, factors) = current.allocated_bytes();
        let mut bytes = vec![("CODES", rows)];
        if current.factors().is_some() {
            bytes.push(("FACTORS", factors));
        }
        bytes.extend(self.fingerprints.as_ref().map(|cells| ("FINGERPRINTS", cells.allocated_bytes())));
        bytes.extend(self.originals.as_ref().map(|originals| ("ORIGINALS", originals.allocated_bytes().0)));
        bytes
    }
}

/// What the rows of a segment are centred on; empty where they are not. It has to be short enough for rows that are
/// added to have finite factors, as the mean of vectors always is.
pub fn centre_of<S: Storage + ?Sized>(segment: &Segment<S>) -> Result<Vec<f32>> {
    let centre = segment.centre()?.unwrap_or_default();
    let norm = squared_norm(centre.len(), |i| centre[i]).sqrt();
    // The mean of vectors at the limit may be rounded to a little more.
    if norm > 1.001 * quantized::norm_limit() {
        let reason = format!("a norm of {}, which no mean of vectors has", Scientific(norm));
        return Err(Error::Corrupt { section: "CENTRE", reason });
    }
    Ok(centre)
}

/// Copies all rows of a section, each of them checked.
fn copy_rows<S: Storage + ?Sized>(
    from: &SectionRows<S>,
    to: &ChunkedRows,
    mut check: impl FnMut(u32, &[u8]) -> Result<()>,
) -> Result<()> {
    let stride = from.stride();
    from.for_each_window(|first, window| {
        to.append((window.len() / stride) as u32, |i, row| {
            row.copy_from_slice(&window[i as usize * stride..][..stride]);
            check(first + i, row).map_err(|e| e.for_row((first + i) as usize))
        })?;
        Ok(())
    })
}

/// Where a vector that was asked for came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// It is the vector that was added, at the precision at which originals are kept.
    Original,
    /// It is what its code stands for.
    Code,
}
