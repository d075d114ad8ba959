//! Integer queries, arranged once so that a level's kernels read them straight through.
//!
//! A row of codes is read as it lies in the file; the query is the side that gives way. Each level fills the fields its
//! kernels read and leaves the others empty, and a kernel refuses a query that another level arranged.

use super::Level;

/// The largest magnitude of a component of an [`Int8Query`]: with it no sum in one of sixteen 32-bit lanes can overflow
/// up to [`MAX_DIMENSION`](crate::MAX_DIMENSION) (128 · 4,095 · 65,536 / 16 < 2³¹).
pub const INT8_QUERY_MAX: i16 = 4095;

/// A query for rows of int8 codes, of 13 bits a component: what a row loses by its 8 bits is then all that is lost.
#[derive(Debug, Clone, Default)]
pub struct Int8Query {
    pub(super) level: Option<Level>,
    pub(super) dimension: usize,
    /// The components, in order; padded with zeros or empty where the level likes it better so.
    pub(super) words: Vec<i16>,
    /// Each component as two digits of base 64, for levels that multiply bytes; see [`digits`].
    pub(super) low: Vec<i8>,
    pub(super) high: Vec<i8>,
    /// What a sum has too much where codes are read as unsigned.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no level here reads codes as unsigned"))]
    pub(super) excess: i64,
}

/// A query for rows of int4 codes, of 8 bits a component.
///
/// The low nibble of byte j of a row is component j, the high nibble component j + ⌈n/2⌉: two halves of a query, with
/// no component moved.
#[derive(Debug, Clone, Default)]
pub struct Int4Query {
    pub(super) level: Option<Level>,
    pub(super) dimension: usize,
    /// The components that meet low nibbles, one for each byte of a row; or both kinds, in an order of the level's own.
    pub(super) low: Vec<i8>,
    /// Those that meet high nibbles; of an odd number the last is 0.
    pub(super) high: Vec<i8>,
    /// For levels that multiply 16-bit words, in an order of their own.
    #[cfg_attr(
        not(all(target_arch = "wasm32", target_feature = "simd128")),
        expect(dead_code, reason = "the levels here multiply bytes")
    )]
    pub(super) words: Vec<i16>,
}

/// A query for rows of 1-bit codes, of up to 8 bits a component.
///
/// Bit i mod 8 (least significant first) of byte i / 8 of a row is component i. A level that counts bits transposes the
/// query: plane b holds bit b of every component, laid out as a row is, and the topmost plane counts negatively (two's
/// complement). There are only as many planes as the components need.
#[derive(Debug, Clone, Default)]
pub struct Bits1Query {
    pub(super) level: Option<Level>,
    pub(super) dimension: usize,
    /// The planes, each of `stride` bytes, the least significant first.
    pub(super) planes: Vec<u8>,
    /// Bytes from one plane to the next: those of a row, and zeros up to a multiple of what the level asks for.
    pub(super) stride: usize,
    /// Bits that the components need: how many planes there are, or would be.
    pub(super) bits: usize,
    /// For levels that multiply bytes: the components, in an order of the level's own.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "the levels here count bits"))]
    pub(super) components: Vec<i8>,
}

impl Int8Query {
    /// Components of the query.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    pub(super) fn check(&self, row: &[u8]) {
        refuse_unless(self.dimension, self.dimension, row);
    }
}

impl Int4Query {
    /// Components of the query.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    pub(super) fn check(&self, row: &[u8]) {
        refuse_unless(self.dimension, self.dimension.div_ceil(2), row);
    }

    /// Fills the two halves.
    pub(super) fn split(&mut self, values: &[i8]) {
        let half = values.len().div_ceil(2);
        let (low, high) = values.split_at(half);
        self.dimension = values.len();
        self.low.clear();
        self.low.extend_from_slice(low);
        self.high.clear();
        self.high.extend_from_slice(high);
        self.high.resize(half, 0);
    }
}

impl Bits1Query {
    /// Components of the query.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Planes of the query, or bits a component needs: 2 where every one is −2 to 1, and 8 at most.
    pub fn planes(&self) -> usize {
        self.bits
    }

    pub(super) fn check(&self, row: &[u8]) {
        refuse_unless(self.dimension, self.dimension.div_ceil(8), row);
    }

    /// Sets the dimension, and the bits that the components need.
    #[inline]
    pub(super) fn set_bits(&mut self, values: &[i8]) {
        self.dimension = values.len();
        // Bits that differ from the sign in any, and the sign.
        let differing = values.iter().fold(1, |bits, &x| bits | (x ^ (x >> 7)));
        self.bits = 9 - differing.leading_zeros() as usize;
    }

    /// Fills the planes, each padded with zeros to a multiple of `align` bytes.
    pub(super) fn transpose(&mut self, values: &[i8], align: usize) {
        self.set_bits(values);
        self.stride = values.len().div_ceil(8).next_multiple_of(align);
        self.planes.clear();
        self.planes.resize(self.bits * self.stride, 0);
        if self.stride == 0 {
            return;
        }
        for (plane, bytes) in self.planes.chunks_exact_mut(self.stride).enumerate() {
            for (byte, values) in bytes.iter_mut().zip(values.chunks(8)) {
                *byte = (0..).zip(values).fold(0, |byte, (i, &x)| byte | ((x >> plane) as u8 & 1) << i);
            }
        }
    }
}

/// The two digits of `value` in base 64, the low one in −32..32: value = 64 · high + low.
#[inline]
pub(super) fn digits(value: i16) -> (i8, i8) {
    let high = (value + 32) >> 6;
    ((value - 64 * high) as i8, high as i8)
}

#[inline]
fn refuse_unless(dimension: usize, bytes: usize, row: &[u8]) {
    if row.len() != bytes {
        super::refuse(dimension, bytes, row.len());
    }
}
