//! An index read from a segment: nothing is decoded, nothing can be changed.

use super::hnsw::Graph;
use super::vectors::{VectorSettings, centre_of};
use crate::codec::AnyCodec;
use crate::error::Result;
use crate::kernel::Kernels;
use crate::scorer::Factors;
use crate::segment::{FactorsView, LinksView, Segment};
use crate::storage::Storage;

/// Cache lines prefetched of a list: all of most lists.
const LINES: usize = 3;

/// A segment and what it takes to search it.
#[derive(Debug)]
pub struct Frozen<S: ?Sized> {
    codec: AnyCodec,
    original_codec: Option<AnyCodec>,
    segment: Segment<S>,
}

impl<S: Storage + ?Sized> Frozen<S> {
    /// Over an opened segment, whose centre is read.
    #[inline(never)]
    pub fn new(segment: Segment<S>) -> Result<Self> {
        let settings = VectorSettings::of(segment.meta());
        let codec = settings.codec().centred(centre_of(&segment)?);
        Ok(Frozen { codec, original_codec: settings.original_codec(), segment })
    }

    pub fn codec(&self) -> &AnyCodec {
        &self.codec
    }

    /// The codec of the section ORIGINALS, where there is one.
    pub fn original_codec(&self) -> Option<&AnyCodec> {
        self.original_codec.as_ref()
    }

    pub fn segment(&self) -> &Segment<S> {
        &self.segment
    }

    /// The segment alone.
    pub fn into_segment(self) -> Segment<S> {
        self.segment
    }

    /// Rows that are not removed.
    pub fn live(&self) -> u32 {
        let meta = self.segment.meta();
        meta.rows.saturating_sub(meta.tombstones)
    }

    /// The live row of `key`.
    pub fn find(&self, key: u64) -> Option<u32> {
        let tombstones = self.segment.tombstones();
        self.segment.keys().find(key).find(|&id| !tombstones.contains(id))
    }

    /// Reads every byte and every link, and checks every row as if it were added.
    pub fn verify(&self) -> Result<()> {
        self.segment.verify()?;
        let (factors, stride) = (self.segment.factors(), self.codec.stride());
        self.segment.codes().for_each_window(|first, window| {
            (first..).zip(window.chunks_exact(stride)).try_for_each(|(id, row)| {
                self.codec.validate(row, factors.factor(id)).map_err(|e| e.for_row(id as usize))
            })
        })
    }
}

impl Factors for FactorsView<'_> {
    #[inline]
    fn factor(&self, id: u32) -> f32 {
        self.get(id).unwrap_or(1.0)
    }
}

impl Graph for LinksView<'_> {
    #[inline]
    fn entry(&self) -> Option<(u32, u8)> {
        Some((LinksView::entry(self)?, self.max_level() as u8))
    }

    #[inline]
    fn links(&self, id: u32, level: u8, out: &mut Vec<u32>) {
        self.list(id, usize::from(level), out);
    }

    #[inline]
    fn prefetch(&self, id: u32) {
        Kernels::best().prefetch(self.base_list(id).unwrap_or_default(), LINES);
    }
}
