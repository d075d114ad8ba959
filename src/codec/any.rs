//! The codec of an index, known only when it is made or opened.

use super::Codec;
use super::f16::F16Codec;
use super::f32::F32Codec;
use super::quantized::{Bits1, Int4, Int8, QuantizedCodec};
use crate::error::Result;
use crate::metric::Metric;

/// One of the codecs. What happens once a row is asked of it; what happens once a distance is asked of the codec
/// itself, within `each_codec!`.
#[derive(Debug, Clone)]
pub enum AnyCodec {
    /// Components as they came.
    F32(F32Codec),
    /// Components in half precision.
    F16(F16Codec),
    /// 8 bits a component.
    Int8(QuantizedCodec<Int8>),
    /// 4 bits a component.
    Int4(QuantizedCodec<Int4>),
    /// One bit a component.
    Bits1(QuantizedCodec<Bits1>),
}

/// Evaluates an expression for whichever codec it is.
macro_rules! each_codec {
    ($any:expr, $codec:ident => $body:expr) => {
        match $any {
            $crate::codec::AnyCodec::F32($codec) => $body,
            $crate::codec::AnyCodec::F16($codec) => $body,
            $crate::codec::AnyCodec::Int8($codec) => $body,
            $crate::codec::AnyCodec::Int4($codec) => $body,
            $crate::codec::AnyCodec::Bits1($codec) => $body,
        }
    };
}
pub(crate) use each_codec;

impl AnyCodec {
    /// Rows of `f32`.
    pub fn f32(dimension: usize, metric: Metric) -> Self {
        AnyCodec::F32(F32Codec::new(dimension, metric))
    }

    /// Rows of f16.
    pub fn f16(dimension: usize, metric: Metric) -> Self {
        AnyCodec::F16(F16Codec::new(dimension, metric))
    }

    /// The same codec, centred on `centre`; as it is, where it is none that centres.
    pub fn centred(&self, centre: Vec<f32>) -> Self {
        match self {
            AnyCodec::F32(_) | AnyCodec::F16(_) => self.clone(),
            AnyCodec::Int8(codec) => AnyCodec::Int8(codec.centred(centre)),
            AnyCodec::Int4(codec) => AnyCodec::Int4(codec.centred(centre)),
            AnyCodec::Bits1(codec) => AnyCodec::Bits1(codec.centred(centre)),
        }
    }

    /// What vectors are centred on; empty where they are not.
    pub fn centre(&self) -> &[f32] {
        match self {
            AnyCodec::F32(_) | AnyCodec::F16(_) => &[],
            AnyCodec::Int8(codec) => codec.centre(),
            AnyCodec::Int4(codec) => codec.centre(),
            AnyCodec::Bits1(codec) => codec.centre(),
        }
    }

    /// Bytes in a row.
    pub fn stride(&self) -> usize {
        each_codec!(self, codec => codec.stride())
    }

    /// Whether rows come with a factor.
    pub fn has_factors(&self) -> bool {
        each_codec!(self, codec => codec.has_factors())
    }

    /// See [`Codec::check`].
    ///
    /// # Errors
    /// As there.
    pub fn check(&self, vector: &[f32]) -> Result<()> {
        each_codec!(self, codec => codec.check(vector))
    }

    /// See [`Codec::encode`].
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self, vector: &[f32], row: &mut [u8], work: &mut Vec<f32>) -> Result<f32> {
        each_codec!(self, codec => codec.encode(vector, row, work))
    }

    /// See [`Codec::validate`].
    ///
    /// # Errors
    /// As there.
    pub fn validate(&self, row: &[u8], factor: f32) -> Result<()> {
        each_codec!(self, codec => codec.validate(row, factor))
    }

    /// See [`Codec::factor_of`].
    pub fn factor_of(&self, row: &[u8]) -> f32 {
        each_codec!(self, codec => codec.factor_of(row))
    }

    /// See [`Codec::decode`].
    pub fn decode(&self, row: &[u8], vector: &mut [f32]) {
        each_codec!(self, codec => codec.decode(row, vector))
    }
}
