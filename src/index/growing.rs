//! An index that can be changed: chunked rows, atomic links, and commits that readers see whole or not at all.
//!
//! Every change ends in a *commit*: a version number goes up by one. A row carries the version it was born in and, once
//! removed or replaced, the one it died in; a reader takes the version when it starts and sees just the rows alive in
//! it. So an update shows the old vector or the new one, never both and never neither, and a batch appears as a whole.
//! (Asking for a key takes no snapshot: it answers by what the key map says at that moment, row by row.)
//!
//! | lock | who takes it |
//! |---|---|
//! | `gate`, shared | every writer, for as long as it writes |
//! | `gate`, exclusive | `save`: no change half done is written |
//! | `commit` | writers, for the moments when ids are handed out and when a change becomes visible |
//! | `round` | writers of a deterministic index, while they link: batches take turns |
//! | none of these | searches; a filter by keys takes a shard of the key map, for a look-up |

use super::Config;
use super::hnsw::build::{self, BuildScratch};
use super::hnsw::links::GrowingLinks;
#[cfg(feature = "parallel")]
use super::hnsw::round::{self, Round};
use super::keymap::KeyMap;
use super::pool::{Pool, Threads};
use super::vectors::{Coded, Vectors};
use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::scorer::AnyScratch;
#[cfg(feature = "parallel")]
use crate::scorer::Scorer;
use crate::segment::Segment;
use crate::storage::{ChunkOptions, ChunkedCells, Storage, reserve};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The most rows an index can hold, tombstones included.
pub const MAX_ROWS: u32 = i32::MAX as u32;

/// Rows of a new graph that are inserted one after the other before threads share the rest.
const ROWS_ALONE: u32 = 256;

/// How often `compact` looks for rows no search reaches.
const MENDING_ROUNDS: usize = 4;

/// Rows, keys, life spans and links, all growing in chunks.
#[derive(Debug)]
pub struct Growing {
    kernels: &'static Kernels,
    dimension: usize,
    vectors: Vectors,
    keys: ChunkedCells<AtomicU64>,
    /// Born, died: the versions; 0 = not yet.
    spans: ChunkedCells<AtomicU32>,
    links: Option<GrowingLinks>,
    ids: KeyMap,
    /// Version and number of live rows, published together: version · 2³² + live.
    state: AtomicU64,
    gate: RwLock<()>,
    commit: Mutex<()>,
    scratch: Pool<WriterScratch>,
    threads: Arc<Threads>,
    /// Held while rows are linked in rounds; `None` where the order of linking is left to the threads.
    #[cfg(feature = "parallel")]
    round: Option<Mutex<Round>>,
}

/// What a writer reuses from one row to the next.
#[derive(Debug, Default)]
struct WriterScratch {
    scorer: AnyScratch,
    build: BuildScratch,
}

/// Rows and how they are compared, as linking in rounds wants them.
#[cfg(feature = "parallel")]
struct CodedScore<'a> {
    coded: &'a Coded,
    kernels: &'static Kernels,
}

#[cfg(feature = "parallel")]
impl round::Score<WriterScratch> for CodedScore<'_> {
    fn with(
        &self,
        row: u32,
        scratch: &mut WriterScratch,
        f: &mut dyn FnMut(&mut dyn Scorer, &mut BuildScratch) -> Result<()>,
    ) -> Result<()> {
        let WriterScratch { scorer, build } = scratch;
        self.coded.scorable(self.kernels).with_row(row, scorer, |scorer| f(scorer, build))
    }

    fn rows(&self) -> u32 {
        self.coded.rows().count()
    }
}

#[inline]
fn key_in(keys: &ChunkedCells<AtomicU64>, id: u32) -> u64 {
    match keys.row(id) {
        Some([key, ..]) => key.load(Ordering::Relaxed),
        _ => 0,
    }
}

#[inline]
fn is_visible_in(spans: &ChunkedCells<AtomicU32>, id: u32, at: &Snapshot) -> bool {
    match spans.row(id) {
        Some([born, died, ..]) => {
            let (born, died) = (born.load(Ordering::Relaxed), died.load(Ordering::Relaxed));
            born != 0 && born <= at.version && (died == 0 || died > at.version)
        }
        _ => false,
    }
}

/// How a new row's key is to be treated at commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intent {
    Add,
    Update,
}

/// The state of the index at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot {
    version: u32,
    /// Rows there are, visible or not: ids below it exist.
    pub rows: u32,
    /// Rows that are visible.
    pub live: u32,
}

impl Snapshot {
    /// Whether every row is visible. (`live` was read first, and no more rows are live than there are: where the two
    /// are equal, all rows were alive when `live` was read.)
    pub fn sees_all(&self) -> bool {
        self.live == self.rows
    }
}

impl Growing {
    /// An empty index.
    pub fn new(config: &Config) -> Result<Self> {
        let chunks = &config.chunks;
        let links = config.graph.map(|params| GrowingLinks::new(params, chunks)).transpose()?;
        Ok(Growing {
            kernels: config.kernels,
            dimension: config.vectors.dimension,
            vectors: Vectors::new(&config.vectors, chunks)?,
            keys: ChunkedCells::new(1, chunks)?,
            spans: ChunkedCells::new(2, chunks)?,
            links,
            ids: KeyMap::new(),
            state: AtomicU64::new(0),
            gate: RwLock::new(()),
            commit: Mutex::new(()),
            scratch: Pool::default(),
            threads: config.threads.clone(),
            #[cfg(feature = "parallel")]
            round: config.deterministic.then(Mutex::default),
        })
    }

    pub fn vectors(&self) -> &Vectors {
        &self.vectors
    }

    pub fn links(&self) -> Option<&GrowingLinks> {
        self.links.as_ref()
    }

    /// The key of row `id`, alive or not.
    #[inline]
    pub fn key(&self, id: u32) -> u64 {
        key_in(&self.keys, id)
    }

    /// The live row of `key`.
    pub fn find(&self, key: u64) -> Option<u32> {
        self.ids.get(key, |id| self.key(id))
    }

    /// What a reader that starts now may see.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state.load(Ordering::Acquire);
        // The rows afterwards: whatever the version shows is among them.
        Snapshot { version: (state >> 32) as u32, live: state as u32, rows: self.vectors.count() }
    }

    /// Whether the reader sees row `id`.
    #[inline]
    pub fn is_visible(&self, id: u32, at: &Snapshot) -> bool {
        is_visible_in(&self.spans, id, at)
    }

    pub fn add(&self, key: u64, vector: &[f32]) -> Result<()> {
        self.write(&[key], vector, Intent::Add)
    }

    pub fn update(&self, key: u64, vector: &[f32]) -> Result<()> {
        self.write(&[key], vector, Intent::Update)
    }

    pub fn add_batch(&self, keys: &[u64], vectors: &[f32]) -> Result<()> {
        self.write(keys, vectors, Intent::Add)
    }

    fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no change is under way, and keeps new ones out.
    pub fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit(&self) -> MutexGuard<'_, ()> {
        self.commit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_keys(&self, keys: &[u64], intent: Intent) -> Result<()> {
        for &key in keys {
            match (self.find(key), intent) {
                (Some(_), Intent::Add) => return Err(Error::DuplicateKey { key }),
                (None, Intent::Update) => return Err(Error::KeyNotFound { key }),
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&self, keys: &[u64], vectors: &[f32], intent: Intent) -> Result<()> {
        let dimension = self.dimension;
        if keys.len() == 1 && vectors.len() != dimension {
            return Err(Error::DimensionMismatch { expected: dimension, got: vectors.len() });
        }
        if keys.len().checked_mul(dimension) != Some(vectors.len()) {
            let expected = keys.len().saturating_mul(dimension);
            return Err(Error::LengthMismatch { what: "vectors", expected, got: vectors.len() });
        }
        if keys.is_empty() {
            return Ok(());
        }
        if keys.len() > 1 {
            let mut sorted = Vec::new();
            reserve(&mut sorted, keys.len())?;
            sorted.extend_from_slice(keys);
            sorted.sort_unstable();
            if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Error::DuplicateKey { key: pair[0] });
            }
        }
        let _inside = self.enter();
        self.check_keys(keys, intent)?;
        let (first, linked) = self.append(keys, vectors)?;
        if let Some(coded) = self.vectors.coded() {
            self.link(coded, first.max(linked)..first + keys.len() as u32)?;
        }
        self.publish(keys, first, intent)
    }

    /// Writes rows and keys under new ids, visible to no reader yet. Gives the first id, and the first that is still to
    /// be linked: rows staged are linked when they are encoded.
    fn append(&self, keys: &[u64], vectors: &[f32]) -> Result<(u32, u32)> {
        let _alone = self.commit();
        self.vectors.check(vectors)?;
        let first = self.vectors.count();
        let end = u64::from(first) + keys.len() as u64;
        if end > u64::from(MAX_ROWS) {
            return Err(Error::TooLarge { what: "rows", limit: u64::from(MAX_ROWS), got: end });
        }
        let end = end as u32;
        self.keys.grow_to(end)?;
        self.spans.grow_to(end)?;
        if let Some(links) = &self.links {
            let levels: Vec<u8> = (first..end).map(|id| links.params().level(id)).collect();
            links.grow(first, &levels)?;
        }
        let (mut at, mut linked) = (first, first);
        while at < end {
            let room = self.vectors.room();
            if room == 0 {
                self.encode_staged()?;
                linked = at;
                continue;
            }
            let part = (at - first) as usize..(at - first) as usize + room.min(end - at) as usize;
            let keys = &keys[part.clone()];
            self.vectors.append(&vectors[part.start * self.dimension..part.end * self.dimension], |i, id| {
                if let (Some([key, ..]), Some([born, died, ..])) = (self.keys.row(id), self.spans.row(id)) {
                    key.store(keys[i as usize], Ordering::Relaxed);
                    born.store(0, Ordering::Relaxed);
                    died.store(0, Ordering::Relaxed);
                }
            })?;
            at += keys.len() as u32;
        }
        // Rows staged are linked by whoever encodes them, which may be another writer, as soon as this one lets go.
        if self.vectors.coded().is_none() {
            linked = end;
        }
        if self.vectors.room() == 0 {
            self.encode_staged()?;
        }
        Ok((first, linked))
    }

    /// Encodes the rows that are staged, if any, and links them. The caller holds the commit lock: all of them are
    /// there, and no others come.
    fn encode_staged(&self) -> Result<()> {
        if let Some(coded) = self.vectors.encode_staged()? {
            self.link(&coded, 0..coded.rows().count())?;
            self.vectors.set_coded(coded);
        }
        Ok(())
    }

    /// Leaves nothing staged, so that what is saved is what is searched.
    pub fn settle(&self) -> Result<()> {
        let _alone = self.commit();
        if self.vectors.count() > 0 { self.encode_staged() } else { Ok(()) }
    }

    /// Makes the rows from `first` on visible, all at once, if their keys are still as `intent` wants them.
    fn publish(&self, keys: &[u64], first: u32, intent: Intent) -> Result<()> {
        let _alone = self.commit();
        let key_of = |id| self.key(id);
        // Another writer may have been quicker. Then these rows stay invisible until `compact`.
        self.check_keys(keys, intent)?;
        self.ids.reserve(keys, key_of)?;
        let Snapshot { live, .. } = self.snapshot();
        let version = self.next_version();
        for (id, &key) in (first..).zip(keys) {
            if let Some([born, ..]) = self.spans.row(id) {
                born.store(version, Ordering::Relaxed);
            }
            if let Some(old) = self.ids.insert(key, id, key_of) {
                self.bury(old, version);
            }
        }
        let added = if intent == Intent::Add { keys.len() as u32 } else { 0 };
        self.show(version, live + added);
        Ok(())
    }

    /// From here on readers see `version`.
    fn show(&self, version: u32, live: u32) {
        self.state.store(u64::from(version) << 32 | u64::from(live), Ordering::Release);
    }

    /// Versions do not run out: a row is born once and dies once, so there are at most 1 + 2 · [`MAX_ROWS`] =
    /// `u32::MAX`.
    fn next_version(&self) -> u32 {
        self.snapshot().version + 1
    }

    fn bury(&self, id: u32, version: u32) {
        if let Some([_, died, ..]) = self.spans.row(id) {
            died.store(version, Ordering::Relaxed);
        }
    }

    pub fn remove(&self, key: u64) -> Result<bool> {
        let _inside = self.enter();
        let _alone = self.commit();
        if self.find(key).is_none() {
            return Ok(false);
        }
        let version = self.next_version();
        if let Some(id) = self.ids.remove(key, |id| self.key(id)) {
            self.bury(id, version);
        }
        self.show(version, self.snapshot().live - 1);
        Ok(true)
    }

    /// Links rows whose ids exist into the graph, on as many threads as the index was given.
    fn link(&self, coded: &Coded, ids: Range<u32>) -> Result<()> {
        let Some(links) = self.links.as_ref().filter(|_| !ids.is_empty()) else { return Ok(()) };
        #[cfg(feature = "parallel")]
        if let Some(round) = &self.round {
            // All it holds from one round to the next is a number, which no panic leaves half written.
            let mut round = round.lock().unwrap_or_else(PoisonError::into_inner);
            let score = CodedScore { coded, kernels: self.kernels };
            return round::link(links, &score, ids, &self.threads, &self.scratch, &mut round);
        }
        // The first rows one after the other, so that the rest find a graph to join.
        let alone = ids.start..ids.end.min(ids.start.max(ROWS_ALONE));
        let together = alone.end as usize..ids.end as usize;
        {
            let mut scratch = self.scratch.lend();
            for id in alone {
                self.link_one(links, coded, id, &mut scratch)?;
            }
        }
        self.threads.for_each(together, &self.scratch, |scratch, id| self.link_one(links, coded, id as u32, scratch))
    }

    /// Tells the rounds how many rows the graph has.
    fn start_rounds_from(&mut self, rows: u32) {
        #[cfg(feature = "parallel")]
        if let Some(round) = &mut self.round {
            round.get_mut().unwrap_or_else(PoisonError::into_inner).start_from(rows);
        }
        let _ = rows;
    }

    fn link_one(&self, links: &GrowingLinks, coded: &Coded, id: u32, scratch: &mut WriterScratch) -> Result<()> {
        let WriterScratch { scorer, build } = scratch;
        coded
            .scorable(self.kernels)
            .with_row(id, scorer, |scorer| build::insert(links, scorer, id, &|| coded.rows().count(), build))
    }

    /// A copy of a segment that can be changed; every row is checked on the way.
    ///
    /// The rows come last, when the segment is no more: where its keys and links had to be copied in, that memory is
    /// given back first, and rows fill it again.
    pub fn load<S: Storage + ?Sized>(segment: Segment<S>, config: &Config) -> Result<Self> {
        let mut growing = Growing::new(config)?;
        let rows = segment.meta().rows;
        if rows == 0 {
            return Ok(growing);
        }
        let (keys, tombstones) = (segment.keys(), segment.tombstones());
        growing.keys.grow_to(rows)?;
        growing.spans.grow_to(rows)?;
        let key_of = |id| growing.key(id);
        let mut live = 0;
        for (id, key) in (0..rows).zip(keys.iter()) {
            if let (Some([cell, ..]), Some([born, died, ..])) = (growing.keys.row(id), growing.spans.row(id)) {
                cell.store(key, Ordering::Relaxed);
                born.store(1, Ordering::Relaxed);
                died.store(u32::from(tombstones.contains(id)), Ordering::Relaxed);
            }
            if !tombstones.contains(id) {
                growing.ids.reserve(&[key], key_of)?;
                if growing.ids.insert(key, id, key_of).is_some() {
                    return Err(Error::Corrupt { section: "KEYS", reason: format!("two live rows have key {key}") });
                }
                live += 1;
            }
        }
        if let (Some(links), Some(from)) = (&growing.links, segment.links()) {
            links.load(&from, rows)?;
        }
        growing.vectors.load(segment)?;
        growing.start_rounds_from(rows);
        growing.show(1, live);
        Ok(growing)
    }

    /// Takes out the rows that are not live, mends the graph, and links in again what no search would reach.
    pub fn compact(&mut self, chunks: &ChunkOptions) -> Result<()> {
        let at = self.snapshot();
        let mut renumbered = Vec::new();
        reserve(&mut renumbered, at.rows as usize)?;
        let mut kept = 0;
        for id in 0..at.rows {
            let live = self.is_visible(id, &at);
            renumbered.push(if live { kept } else { u32::MAX });
            kept += u32::from(live);
        }
        let renumber = |id: u32| renumbered.get(id as usize).copied().filter(|&new| new != u32::MAX);
        if kept < at.rows {
            // Staged rows have no links yet.
            if let (Some(links), Some(coded)) = (&self.links, self.vectors.coded()) {
                let mut scratch = self.scratch.lend();
                let WriterScratch { scorer, build } = &mut *scratch;
                coded.scorable(self.kernels).with_row(0, scorer, |scorer| {
                    build::detach(links, scorer, &|id| renumber(id).is_some(), at.rows, build)
                })?;
            }
            if let Some(links) = &mut self.links {
                links.compact(renumber, chunks)?;
            }
            for id in 0..at.rows {
                if let Some(new) = renumber(id) {
                    self.move_row(id, new)?;
                }
            }
            let keys = &self.keys;
            self.ids.renumber(|id| renumbered[id as usize], |id| key_in(keys, id));
            self.vectors.truncate(kept)?;
            self.keys.truncate(kept);
            self.spans.truncate(kept);
        }
        drop(renumbered);
        for id in 0..kept {
            if let Some([born, died, ..]) = self.spans.row(id) {
                born.store(1, Ordering::Relaxed);
                died.store(0, Ordering::Relaxed);
            }
        }
        self.show(1, kept);
        self.scratch.clear();
        // Staged rows are linked when they are encoded.
        self.start_rounds_from(if self.vectors.coded().is_some() { kept } else { 0 });
        self.mend(kept)
    }

    fn move_row(&mut self, from: u32, to: u32) -> Result<()> {
        self.vectors.move_row(from, to)?;
        let key = self.key(from);
        if let Some([cell, ..]) = self.keys.row(to) {
            cell.store(key, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Learns the centre of quantized rows anew and encodes them again; the links stay.
    pub fn retrain(&mut self) -> Result<()> {
        let at = self.snapshot();
        let spans = &self.spans;
        self.vectors.retrain(&|id| is_visible_in(spans, id, &at))
    }

    /// Links in again what no search would reach. Each round leaves fewer; a few rows may remain where vectors
    /// coincide.
    fn mend(&self, rows: u32) -> Result<()> {
        let (Some(links), Some(coded)) = (&self.links, self.vectors.coded()) else { return Ok(()) };
        let mut scratch = self.scratch.lend();
        for _ in 0..MENDING_ROUNDS {
            let lost = build::unreachable(links, rows)?;
            if lost.is_empty() {
                break;
            }
            for id in lost {
                self.link_one(links, coded, id, &mut scratch)?;
            }
        }
        Ok(())
    }

    /// Bytes of memory, by the names of the file's sections.
    pub fn bytes(&self) -> Vec<(&'static str, u64)> {
        let mut bytes = self.vectors.bytes();
        bytes.extend([
            ("KEYS", self.keys.allocated_bytes()),
            ("KEY_ORDER", self.ids.allocated_bytes()),
            ("TOMBSTONES", self.spans.allocated_bytes()),
        ]);
        bytes.extend(self.links.as_ref().map(|links| ("LINKS", links.allocated_bytes())));
        bytes
    }
}
