//! One bit a component, its sign: b = 0 or 1, with the grid value b − ½. Bit i mod 8 of byte i / 8 is component i.

use super::{Grid, sum_of_bytes};
use crate::kernel::{Bits1Query, Kernels};

/// The grid of two points.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bits1;

impl Grid for Bits1 {
    type Value = i8;
    type Arranged = Bits1Query;

    const LEVELS: i32 = 2;
    /// Five planes; a sixth would find one neighbour more in a thousand.
    const QUERY_MAX: i32 = 15;
    /// All widths give the same signs.
    const WIDTHS: (f32, f32, usize) = (1.0, 1.0, 1);
    /// 2/π.
    const COSINE_SQUARED: f32 = std::f32::consts::FRAC_2_PI;
    const STEP: i32 = 1;
    const BETA: f64 = -1.0;

    #[inline]
    fn spread(bytes: &[u8], wide: &mut [u8]) {
        for (wide, byte) in wide.chunks_mut(8).zip(bytes) {
            wide.iter_mut().enumerate().for_each(|(i, wide)| *wide = byte >> i & 1);
        }
    }

    fn code_bytes(dimension: usize) -> usize {
        dimension.div_ceil(8)
    }

    fn pack(dimension: usize, code: impl Fn(usize) -> i32, bytes: &mut [u8]) {
        for (j, byte) in bytes.iter_mut().enumerate() {
            let components = 8 * j..dimension.min(8 * j + 8);
            *byte = components.fold(0, |byte, i| byte | (code(i) as u8) << (i % 8));
        }
    }

    #[inline]
    fn unpack(_: usize, bytes: &[u8], i: usize) -> i32 {
        i32::from(bytes[i / 8] >> (i % 8) & 1)
    }

    fn doubled(dimension: usize, bytes: &[u8], values: &mut Vec<i8>) {
        for byte in bytes {
            values.extend::<[i8; 8]>(std::array::from_fn(|i| 2 * (byte >> i & 1) as i8 - 1));
        }
        values.truncate(dimension);
    }

    fn sum_of_doubled(dimension: usize, bytes: &[u8]) -> i64 {
        2 * sum_of_bytes(bytes, |byte| byte.count_ones() as u16) - dimension as i64
    }

    fn is_padded(dimension: usize, bytes: &[u8]) -> bool {
        dimension.is_multiple_of(8) || bytes.last().is_none_or(|byte| byte >> (dimension % 8) == 0)
    }

    #[inline]
    fn value(rounded: i32) -> i8 {
        rounded as i8
    }

    #[inline]
    fn number(value: i8) -> i32 {
        value.into()
    }

    fn arrange(kernels: &Kernels, values: &[i8], arranged: &mut Bits1Query) {
        kernels.arrange_bits1(values, arranged);
    }

    #[inline]
    fn product(kernels: &Kernels, arranged: &Bits1Query, sum: i64, code: &[u8]) -> i64 {
        2 * i64::from(kernels.dot_bits1(arranged, code)) - sum
    }

    #[inline]
    fn product_x4(kernels: &Kernels, arranged: &Bits1Query, sum: i64, codes: [&[u8]; 4]) -> [i64; 4] {
        kernels.dot_bits1_x4(arranged, codes).map(|dot| 2 * i64::from(dot) - sum)
    }
}
