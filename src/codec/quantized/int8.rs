//! 8 bits a component: a signed byte s, with the grid value s + ½.

use super::{Grid, sum_of_bytes};
use crate::kernel::{INT8_QUERY_MAX, Int8Query, Kernels};

/// The grid of 256 points.
#[derive(Debug, Clone, Copy, Default)]
pub struct Int8;

impl Grid for Int8 {
    type Value = i16;
    type Arranged = Int8Query;

    const LEVELS: i32 = 256;
    const QUERY_MAX: i32 = INT8_QUERY_MAX as i32;
    const WIDTHS: (f32, f32, usize) = (0.85, 1.02, 8);
    const COSINE_SQUARED: f32 = 0.9999;
    const STEP: i32 = 32;
    const BETA: f64 = 1.0;

    #[inline]
    fn spread(bytes: &[u8], wide: &mut [u8]) {
        wide.copy_from_slice(bytes);
    }

    fn code_bytes(dimension: usize) -> usize {
        dimension
    }

    fn pack(_: usize, code: impl Fn(usize) -> i32, bytes: &mut [u8]) {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = (code(i) - 128) as i8 as u8;
        }
    }

    #[inline]
    fn unpack(_: usize, bytes: &[u8], i: usize) -> i32 {
        i32::from(bytes[i] as i8) + 128
    }

    fn doubled(_: usize, bytes: &[u8], values: &mut Vec<i16>) {
        values.extend(bytes.iter().map(|&byte| 2 * i16::from(byte as i8) + 1));
    }

    fn sum_of_doubled(dimension: usize, bytes: &[u8]) -> i64 {
        2 * sum_of_bytes(bytes, |byte| u16::from(byte ^ 0x80)) - 255 * dimension as i64
    }

    fn is_padded(_: usize, _: &[u8]) -> bool {
        true
    }

    #[inline]
    fn value(rounded: i32) -> i16 {
        rounded as i16
    }

    #[inline]
    fn number(value: i16) -> i32 {
        value.into()
    }

    fn arrange(kernels: &Kernels, values: &[i16], arranged: &mut Int8Query) {
        kernels.arrange_int8(values, arranged);
    }

    #[inline]
    fn product(kernels: &Kernels, arranged: &Int8Query, sum: i64, code: &[u8]) -> i64 {
        2 * kernels.dot_int8(arranged, code) + sum
    }

    #[inline]
    fn product_x4(kernels: &Kernels, arranged: &Int8Query, sum: i64, codes: [&[u8]; 4]) -> [i64; 4] {
        kernels.dot_int8_x4(arranged, codes).map(|dot| 2 * dot + sum)
    }
}
