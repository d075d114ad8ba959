//! 4 bits a component: c = 0 to 15, with the grid value c − 7½. The low nibble of byte j is component j, the high
//! nibble component j + ⌈d/2⌉.

use super::{Grid, sum_of_bytes};
use crate::kernel::{Int4Query, Kernels};

/// The grid of 16 points.
#[derive(Debug, Clone, Copy, Default)]
pub struct Int4;

impl Grid for Int4 {
    type Value = i8;
    type Arranged = Int4Query;

    const LEVELS: i32 = 16;
    const QUERY_MAX: i32 = 127;
    const WIDTHS: (f32, f32, usize) = (0.45, 1.05, 24);
    const COSINE_SQUARED: f32 = 0.989;
    const STEP: i32 = 1;
    const BETA: f64 = -15.0;

    #[inline]
    fn spread(bytes: &[u8], wide: &mut [u8]) {
        let (low, high) = wide.split_at_mut(bytes.len());
        low.iter_mut().zip(bytes).for_each(|(wide, byte)| *wide = byte & 15);
        high.iter_mut().zip(bytes).for_each(|(wide, byte)| *wide = byte >> 4);
    }

    fn code_bytes(dimension: usize) -> usize {
        dimension.div_ceil(2)
    }

    fn pack(dimension: usize, code: impl Fn(usize) -> i32, bytes: &mut [u8]) {
        let half = bytes.len();
        for (j, byte) in bytes.iter_mut().enumerate() {
            let high = if half + j < dimension { code(half + j) } else { 0 };
            *byte = (code(j) | high << 4) as u8;
        }
    }

    #[inline]
    fn unpack(dimension: usize, bytes: &[u8], i: usize) -> i32 {
        let half = dimension.div_ceil(2);
        i32::from(if i < half { bytes[i] & 15 } else { bytes[i - half] >> 4 })
    }

    fn doubled(dimension: usize, bytes: &[u8], values: &mut Vec<i8>) {
        values.extend(bytes.iter().map(|byte| 2 * (byte & 15) as i8 - 15));
        let high = &bytes[..dimension - bytes.len()];
        values.extend(high.iter().map(|byte| 2 * (byte >> 4) as i8 - 15));
    }

    fn sum_of_doubled(dimension: usize, bytes: &[u8]) -> i64 {
        2 * sum_of_bytes(bytes, |byte| u16::from(byte & 15) + u16::from(byte >> 4)) - 15 * dimension as i64
    }

    fn is_padded(dimension: usize, bytes: &[u8]) -> bool {
        dimension.is_multiple_of(2) || bytes.last().is_none_or(|byte| byte >> 4 == 0)
    }

    #[inline]
    fn value(rounded: i32) -> i8 {
        rounded as i8
    }

    #[inline]
    fn number(value: i8) -> i32 {
        value.into()
    }

    fn arrange(kernels: &Kernels, values: &[i8], arranged: &mut Int4Query) {
        kernels.arrange_int4(values, arranged);
    }

    #[inline]
    fn product(kernels: &Kernels, arranged: &Int4Query, sum: i64, code: &[u8]) -> i64 {
        2 * i64::from(kernels.dot_int4(arranged, code)) - 15 * sum
    }

    #[inline]
    fn product_x4(kernels: &Kernels, arranged: &Int4Query, sum: i64, codes: [&[u8]; 4]) -> [i64; 4] {
        kernels.dot_int4_x4(arranged, codes).map(|dot| 2 * i64::from(dot) - 15 * sum)
    }
}
