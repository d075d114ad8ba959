//! Estimates of inner products, of many queries with a few rows at once: quick, not canonical.
//!
//! The [numeric contract](super) rules out fused operations and sums that share registers across queries. So a scan for
//! many queries first *estimates*, which row may be among the best of which query, by a product of matrices, and asks
//! the canonical kernels about those few alone. How wrong an estimate may be at most is the caller's arithmetic
//! ([`codec::sieve`](crate::codec::sieve)); here is what it builds on:
//!
//! - floats: each sum is n fused operations, one after the other, from 0: |estimate − Σ qᵢxᵢ| ≤ γₙ · Σ |qᵢxᵢ| + n · 2⁻¹⁴⁹;
//! - bytes: exact.
//!
//! ```text
//!            a panel: component by component, 16 · V queries side by side
//!              q₀ ·················· q₁₆ ··················
//!   6 rows  x₀ ┌──── 6 · V registers of sums, each of 16 queries with one row
//!           x₁ │
//! ```
//!
//! A component of a row is read once for all queries, a register of the panel once for six rows.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "intrinsics that read or write through pointers"))]

use super::Kernels;
#[cfg(target_arch = "x86_64")]
use super::Level;

/// Whether any level of this target has a sieve. Where none has, what needs one is not compiled.
pub const SIEVES: bool = cfg!(target_arch = "x86_64");

/// Rows estimated at once.
pub const SIEVE_ROWS: usize = 6;

/// The most queries estimated at once.
pub const GROUP: usize = 64;

/// Queries in a register: a panel is a whole number of them wide.
pub const PANEL: usize = 16;

/// Components of a query that lie together in a panel of bytes.
pub const TOGETHER: usize = 4;

type Floats = unsafe fn(usize, &[f32], [&[u8]; SIEVE_ROWS], &mut [f32]) -> [f32; SIEVE_ROWS];
type Bytes = unsafe fn(usize, &[u8], [&[u8]; SIEVE_ROWS], &mut [i32]) -> [[i32; 2]; SIEVE_ROWS];

/// The estimating kernels of a level: see the [module docs](self).
#[derive(Debug, Clone, Copy)]
pub struct Sieve {
    floats: Floats,
    bytes: Option<Bytes>,
}

impl Kernels {
    /// The estimating kernels, where this level has them.
    pub fn sieve(&self) -> Option<Sieve> {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => Some(Sieve { floats: avx512::floats, bytes: Some(avx512::bytes) }),
            // Not implied by AVX2, though nearly every processor has both.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 if std::arch::is_x86_feature_detected!("fma") => {
                Some(Sieve { floats: avx2::floats, bytes: None })
            }
            _ => None,
        }
    }
}

#[expect(unsafe_code, reason = "calls of functions that need their level's instructions")]
impl Sieve {
    /// Whether there are estimates for bytes.
    pub fn has_bytes(&self) -> bool {
        self.bytes.is_some()
    }

    /// Estimates Σ qᵢxᵢ for 16 · `registers` queries with each of six rows of `f32`, into `out`, row by row; and gives
    /// Σ xᵢ² of the rows, with the same error. Component i of query j is number 16 · `registers` · i + j of the panel.
    ///
    /// # Panics
    /// Unless there are 1 to 4 registers, rows as long as the panel says, and as many places as sums.
    #[inline]
    pub fn floats(
        &self,
        registers: usize,
        panel: &[f32],
        rows: [&[u8]; SIEVE_ROWS],
        out: &mut [f32],
    ) -> [f32; SIEVE_ROWS] {
        assert!((1..=GROUP / PANEL).contains(&registers) && out.len() == SIEVE_ROWS * PANEL * registers);
        let bytes = size_of_val(panel) / (PANEL * registers);
        assert!(panel.len().is_multiple_of(PANEL * registers) && rows.iter().all(|row| row.len() == bytes));
        // SAFETY: the only way to a sieve is `Kernels::sieve`, of kernels whose level this process runs.
        unsafe { (self.floats)(registers, panel, rows, out) }
    }

    /// Σ (qᵢ)(xᵢ) for 16 · `registers` queries of unsigned bytes with each of six rows of signed bytes, into `out`, row
    /// by row; and Σ xᵢ and Σ xᵢ² of the rows. All exact. Component i of query j is byte 4 · j + i mod 4 of the ⌊i/4⌋-th
    /// 64 · `registers` bytes of the panel. Components behind a row's last do not count. `None` where the level has no
    /// such kernel.
    ///
    /// # Panics
    /// As [`floats`](Self::floats).
    #[inline]
    pub fn bytes(
        &self,
        registers: usize,
        panel: &[u8],
        rows: [&[u8]; SIEVE_ROWS],
        out: &mut [i32],
    ) -> Option<[[i32; 2]; SIEVE_ROWS]> {
        assert!((1..=GROUP / PANEL).contains(&registers) && out.len() == SIEVE_ROWS * PANEL * registers);
        let step = PANEL * TOGETHER * registers;
        let len = rows[0].len();
        assert!(panel.len() == len.div_ceil(TOGETHER) * step && rows.iter().all(|row| row.len() == len));
        // SAFETY: as in `floats`.
        self.bytes.map(|bytes| unsafe { bytes(registers, panel, rows, out) })
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{PANEL, SIEVE_ROWS, TOGETHER};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) fn floats(
        registers: usize,
        panel: &[f32],
        rows: [&[u8]; SIEVE_ROWS],
        out: &mut [f32],
    ) -> [f32; SIEVE_ROWS] {
        match registers {
            1 => floats_of::<1>(panel, rows, out),
            2 => floats_of::<2>(panel, rows, out),
            3 => floats_of::<3>(panel, rows, out),
            _ => floats_of::<4>(panel, rows, out),
        }
        squares(rows)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn floats_of<const V: usize>(panel: &[f32], rows: [&[u8]; SIEVE_ROWS], out: &mut [f32]) {
        let steps = panel.as_chunks::<PANEL>().0.as_chunks::<V>().0;
        let rows = rows.map(|row| row.as_chunks::<4>().0[..steps.len()].as_ptr());
        let mut sums = [[_mm512_setzero_ps(); V]; SIEVE_ROWS];
        for (i, step) in steps.iter().enumerate() {
            let mut q = [_mm512_setzero_ps(); V];
            for v in 0..V {
                // SAFETY: the load reads the 16 floats of `step[v]`, and needs no alignment.
                q[v] = unsafe { _mm512_loadu_ps(step[v].as_ptr()) };
            }
            for r in 0..SIEVE_ROWS {
                // SAFETY: i < steps.len(), and that many components of each row were sliced. (Indexing six slices
                // takes more registers than there are.)
                let x = _mm512_set1_ps(f32::from_le_bytes(unsafe { *rows[r].add(i) }));
                for v in 0..V {
                    sums[r][v] = _mm512_fmadd_ps(x, q[v], sums[r][v]);
                }
            }
        }
        for (sum, out) in sums.as_flattened().iter().zip(out.as_chunks_mut::<PANEL>().0) {
            // SAFETY: the store writes the 16 floats of `out`, and needs no alignment.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr(), *sum) };
        }
    }

    /// Σ xᵢ² of each row.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn squares(rows: [&[u8]; SIEVE_ROWS]) -> [f32; SIEVE_ROWS] {
        let mut sums = [_mm512_setzero_ps(); SIEVE_ROWS];
        for at in (0..rows[0].len()).step_by(64) {
            for (sum, row) in sums.iter_mut().zip(rows) {
                let left = row.len() - at;
                let mask = if left < 64 { (1u16 << (left / 4)) - 1 } else { u16::MAX };
                // SAFETY: float j is read only where it lies within the row; the load never faults for what it does
                // not read, and needs no alignment.
                let x = unsafe { _mm512_maskz_loadu_ps(mask, row[at..].as_ptr().cast()) };
                *sum = _mm512_fmadd_ps(x, x, *sum);
            }
        }
        let mut out = [0.0; SIEVE_ROWS];
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = _mm512_reduce_add_ps(sum);
        }
        out
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn bytes(
        registers: usize,
        panel: &[u8],
        rows: [&[u8]; SIEVE_ROWS],
        out: &mut [i32],
    ) -> [[i32; 2]; SIEVE_ROWS] {
        match registers {
            1 => bytes_of::<1>(panel, rows, out),
            2 => bytes_of::<2>(panel, rows, out),
            3 => bytes_of::<3>(panel, rows, out),
            _ => bytes_of::<4>(panel, rows, out),
        }
        moments(rows)
    }

    /// No sum overflows up to 65,536 components: 255 · 128 · 65,536 < 2³¹.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn bytes_of<const V: usize>(panel: &[u8], rows: [&[u8]; SIEVE_ROWS], out: &mut [i32]) {
        let steps = panel.as_chunks::<{ PANEL * TOGETHER }>().0.as_chunks::<V>().0;
        let whole = rows[0].len() / TOGETHER;
        let (steps, last) = steps.split_at(whole);
        let starts = rows.map(|row| row.as_chunks::<TOGETHER>().0[..whole].as_ptr());
        let mut sums = [[_mm512_setzero_si512(); V]; SIEVE_ROWS];
        for (i, step) in steps.iter().enumerate() {
            // SAFETY: i < whole, and that many words of each row were sliced. (Indexing six slices takes more registers
            // than there are.)
            add_bytes(&mut sums, step, |r| unsafe { *starts[r].add(i) });
        }
        if let [last] = last {
            let mut tails = [[0; TOGETHER]; SIEVE_ROWS];
            for (tail, row) in tails.iter_mut().zip(rows) {
                let rest = row.as_chunks::<TOGETHER>().1;
                tail[..rest.len()].copy_from_slice(rest);
            }
            add_bytes(&mut sums, last, |r| tails[r]);
        }
        for (sum, out) in sums.as_flattened().iter().zip(out.as_chunks_mut::<PANEL>().0) {
            // SAFETY: the store writes the 16 numbers of `out`, and needs no alignment.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), *sum) };
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn add_bytes<const V: usize>(
        sums: &mut [[__m512i; V]; SIEVE_ROWS],
        step: &[[u8; PANEL * TOGETHER]; V],
        x: impl Fn(usize) -> [u8; TOGETHER],
    ) {
        let mut q = [_mm512_setzero_si512(); V];
        for v in 0..V {
            // SAFETY: the load reads the 64 bytes of `step[v]`, and needs no alignment.
            q[v] = unsafe { _mm512_loadu_si512(step[v].as_ptr().cast()) };
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            let x = _mm512_set1_epi32(i32::from_le_bytes(x(r)));
            for v in 0..V {
                sums[v] = _mm512_dpbusd_epi32(sums[v], q[v], x);
            }
        }
    }

    /// Σ xᵢ and Σ xᵢ² of each row: at most 2³⁰ up to 65,536 components.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn moments(rows: [&[u8]; SIEVE_ROWS]) -> [[i32; 2]; SIEVE_ROWS] {
        let mut out = [[0; 2]; SIEVE_ROWS];
        for (out, row) in out.iter_mut().zip(rows) {
            let (mut sums, mut squares) = (_mm512_setzero_si512(), _mm512_setzero_si512());
            for bytes in row.chunks(32) {
                let mask = if bytes.len() < 32 { (1u32 << bytes.len()) - 1 } else { u32::MAX };
                // SAFETY: byte j is read only where j < bytes.len(); the load never faults for what it does not read,
                // and needs no alignment.
                let x = _mm512_cvtepi8_epi16(unsafe { _mm256_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) });
                sums = _mm512_add_epi32(sums, _mm512_madd_epi16(x, _mm512_set1_epi16(1)));
                squares = _mm512_add_epi32(squares, _mm512_madd_epi16(x, x));
            }
            *out = [_mm512_reduce_add_epi32(sums), _mm512_reduce_add_epi32(squares)];
        }
        out
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{PANEL, SIEVE_ROWS};
    use std::arch::x86_64::*;

    /// A register of the panel is two here: six rows take twelve sums, of sixteen registers.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn floats(
        registers: usize,
        panel: &[f32],
        rows: [&[u8]; SIEVE_ROWS],
        out: &mut [f32],
    ) -> [f32; SIEVE_ROWS] {
        let panel = panel.as_chunks::<8>().0.as_chunks::<2>().0;
        let n = panel.len() / registers;
        let components = rows.map(|row| &row.as_chunks::<4>().0[..n]);
        let [a, b, c, d, e, f] = components;
        for column in 0..registers {
            let mut sums = [[_mm256_setzero_ps(); 2]; SIEVE_ROWS];
            for (i, step) in panel.iter().skip(column).step_by(registers).take(n).enumerate() {
                let mut q = [_mm256_setzero_ps(); 2];
                for v in 0..2 {
                    // SAFETY: the load reads the 8 floats of `step[v]`, and needs no alignment.
                    q[v] = unsafe { _mm256_loadu_ps(step[v].as_ptr()) };
                }
                for (sums, x) in sums.iter_mut().zip([a[i], b[i], c[i], d[i], e[i], f[i]]) {
                    let x = _mm256_set1_ps(f32::from_le_bytes(x));
                    for v in 0..2 {
                        sums[v] = _mm256_fmadd_ps(x, q[v], sums[v]);
                    }
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                let out = &mut out[(r * registers + column) * PANEL..][..PANEL];
                for (sum, out) in sums.iter().zip(out.as_chunks_mut::<8>().0) {
                    // SAFETY: the store writes the 8 floats of `out`, and needs no alignment.
                    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), *sum) };
                }
            }
        }
        components.map(|row| {
            let mut lanes = [0f32; PANEL];
            let (blocks, tail) = row.as_chunks::<PANEL>();
            for block in blocks.iter().map(|block| &block[..]).chain([tail]) {
                for (lane, x) in lanes.iter_mut().zip(block) {
                    let x = f32::from_le_bytes(*x);
                    *lane = x.mul_add(x, *lane);
                }
            }
            lanes.into_iter().sum()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Level;

    /// From −1 to 1, with all bits in use.
    fn number(i: usize) -> f32 {
        (i as f32 * 0.618_034 + 0.1).fract() * 2.0 - 1.0
    }

    fn byte(i: usize) -> u8 {
        (i * i * 31 + i * 7 + 3) as u8
    }

    /// Around the edges of a word of four and of a register, for every width of panel, each row different.
    #[test]
    fn estimates_are_within_their_bound_and_whole_numbers_exact() {
        for (level, sieve) in
            Level::available().into_iter().filter_map(|level| Some((level, Kernels::for_level(level)?.sieve()?)))
        {
            for n in [1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 384, 2048] {
                for registers in 1..=GROUP / PANEL {
                    floats_are_near(level, sieve, n, registers);
                    bytes_are_exact(level, sieve, n, registers);
                }
            }
        }
    }

    fn floats_are_near(level: Level, sieve: Sieve, n: usize, registers: usize) {
        let width = PANEL * registers;
        let panel: Vec<f32> = (0..n * width).map(number).collect();
        let rows: [Vec<f32>; SIEVE_ROWS] = std::array::from_fn(|r| (0..n).map(|i| number(i * 7 + r * 1009)).collect());
        let bytes = rows.each_ref().map(|row| row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        let mut out = vec![f32::NAN; SIEVE_ROWS * width];
        let squares = sieve.floats(registers, &panel, bytes.each_ref().map(|row| &row[..]), &mut out);
        let gamma = (n + 16) as f64 / f64::from(1 << 24) * 1.01;
        let product = |a: f32, b: f32| f64::from(a) * f64::from(b);
        for r in 0..SIEVE_ROWS {
            let what = format!("{level}, {n} components, {registers} registers, row {r}");
            let exact: f64 = rows[r].iter().map(|&x| product(x, x)).sum();
            assert!((f64::from(squares[r]) - exact).abs() <= gamma * exact, "{what}");
            for q in 0..width {
                let terms = || (0..n).map(|i| product(panel[i * width + q], rows[r][i]));
                let (exact, magnitude) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                assert!((f64::from(out[r * width + q]) - exact).abs() <= gamma * magnitude, "{what}, query {q}");
            }
        }
    }

    fn bytes_are_exact(level: Level, sieve: Sieve, n: usize, registers: usize) {
        if !sieve.has_bytes() {
            return;
        }
        let width = PANEL * registers;
        let panel: Vec<u8> = (0..n.div_ceil(TOGETHER) * TOGETHER * width).map(byte).collect();
        let rows: [Vec<u8>; SIEVE_ROWS] = std::array::from_fn(|r| (0..n).map(|i| byte(i + 13 * r)).collect());
        let mut out = vec![i32::MIN; SIEVE_ROWS * width];
        let moments = sieve.bytes(registers, &panel, rows.each_ref().map(|row| &row[..]), &mut out).unwrap();
        let signed = |x: u8| i32::from(x as i8);
        for r in 0..SIEVE_ROWS {
            let what = format!("{level}, {n} components, {registers} registers, row {r}");
            let sum = rows[r].iter().map(|&x| signed(x)).sum::<i32>();
            assert_eq!(moments[r], [sum, rows[r].iter().map(|&x| signed(x).pow(2)).sum()], "{what}");
            for q in 0..width {
                let at = |i: usize| i / TOGETHER * TOGETHER * width + q * TOGETHER + i % TOGETHER;
                let exact: i32 = (0..n).map(|i| i32::from(panel[at(i)]) * signed(rows[r][i])).sum();
                assert_eq!(out[r * width + q], exact, "{what}, query {q}");
            }
        }
    }

    /// The largest sum there can be, of either sign.
    #[test]
    fn the_largest_bytes_do_not_overflow() {
        let n = crate::metric::MAX_DIMENSION;
        for sieve in Level::available().into_iter().filter_map(|level| Kernels::for_level(level)?.sieve()) {
            for x in [0x80u8, 0x7f] {
                let (panel, row) = (vec![255; n * PANEL], vec![x; n]);
                let mut out = vec![0; SIEVE_ROWS * PANEL];
                if sieve.bytes(1, &panel, [&row; SIEVE_ROWS], &mut out).is_some() {
                    assert!(out.iter().all(|&sum| sum == 255 * i32::from(x as i8) * n as i32));
                }
            }
        }
    }
}
