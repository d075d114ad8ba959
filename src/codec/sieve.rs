//! Scans for a group of queries: which row may be among the best of which query, without its distance.
//!
//! [`kernel::sieve`](crate::kernel::sieve) estimates inner products quickly. A codec makes of an estimate a number that
//! the canonical distance is *at least*; where that is beyond the query's limit, the row is passed over, and no row
//! that could be a hit ever is. All codecs have the bound in one form, evaluated in f64 for query q and row x:
//!
//! ```text
//! D_x + F_x · (S_q · (estimate − K_x) + B_q) − E_q · M_x  >  H_q    the row is no hit of this query
//! ```
//!
//! Where anything is no number the comparison is false, and the row is scored.
//!
//! # Floats
//!
//! u = 2⁻²⁴, γ = (n + 16)·u / (1 − (n + 16)·u), at most 1/200; Q and N are the norms of q and x. By Cauchy and Schwarz
//! Σ|qᵢxᵢ| ≤ Q·N. The canonical sum and the estimate are off from the inner product by γ·Q·N + n·2⁻¹⁴⁹ at most (the
//! latter for products that underflow), so they differ by 2γ·Q·N + n·2⁻¹⁴⁸. The sum of squares s that comes with the
//! estimate gives N² ≤ (s + n·2⁻¹⁴⁹)(1 + 2γ) and N² ≥ (s − n·2⁻¹⁴⁹)(1 − 2γ).
//!
//! - Inner product: the distance is −raw, so D = 0, F = −1, E = 2γ·Q, M = N, H = limit + n·2⁻¹⁴⁸.
//! - L2: raw ≥ e·(1 − γ) − n·2⁻¹⁴⁹ where e = Q² + N² − 2⟨q, x⟩ is exact; so raw ≤ limit only where
//!   e ≤ (limit + n·2⁻¹⁴⁹)(1 + 2γ). D = N², F = −2, E = 4γ·Q, M = N.
//! - Cosine: the distance is 1 − raw·f, rounded twice: by u·|raw·f| ≤ 1.01·u·Q·N·|f| and, below a limit under 2, by
//!   less than 2⁻²² in all. F = −f, M = N·|f|, E = (2γ + 2u)·Q, H = limit + 2⁻²² − 1, and D = −n·2⁻¹⁴⁸·|f|. From a
//!   limit of 2 on, where distances are clamped, every row passes.
//!
//! Factors are taken a hundredth larger than they need be, and squares a part of 2⁻³⁰: f64 rounds by less. A row whose
//! sum of squares is beyond 2¹²⁶ (the norm limit of two metrics; only cosine has longer ones) may overflow and always
//! passes; and so does one so short that its square underflows.
//!
//! # Codes
//!
//! u now are a query's integers, c a row's; u = step·h + l with h of 8 bits. The estimate is Σ (hᵢ + 128)·cᵢ, exact;
//! Σuᵢcᵢ differs from step·Σhᵢcᵢ by ‖l‖·‖c‖ at most. With ⟨u, g⟩ doubled, p = 2·Σuᵢcᵢ + β, the distance's inner term is
//! scale·p·f, rounded three times, and the rest of the sum, o and the query's offset, twice: 8u of each magnitude, with
//! |scale·p·f| ≤ scale·2·‖u‖·‖g‖·f, is more than all that.

use crate::error::Result;
use crate::kernel::sieve::{GROUP, PANEL, SIEVE_ROWS, Sieve, TOGETHER};
use crate::storage::reserve;

/// Half the distance of neighbouring f32 near 1.
pub(super) const U: f64 = 1.0 / (1u64 << 24) as f64;

/// What f64 may be wrong by, generously.
pub(super) const SLACK: f64 = 1.0 / (1u64 << 30) as f64;

/// The product of two f32 that underflows is off by this at most.
pub(super) fn underflow() -> f64 {
    2f64.powi(-149)
}

/// What the bound takes of a query.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfQuery {
    /// S.
    pub scale: f64,
    /// B.
    pub base: f64,
    /// E.
    pub error: f64,
    /// H is this and the limit · [`Group::stretch`].
    pub offset: f64,
}

/// What the bound takes of a row.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfRow {
    /// D.
    pub offset: f64,
    /// F.
    pub factor: f64,
    /// K.
    pub shift: f64,
    /// M.
    pub error: f64,
}

/// Queries packed side by side, and the estimates for six rows.
#[derive(Debug)]
pub struct Group {
    sieve: Sieve,
    /// Queries, rounded up, in registers.
    registers: usize,
    queries: Vec<OfQuery>,
    /// S, B, E and H, one after the other.
    scale: [f64; GROUP],
    base: [f64; GROUP],
    error: [f64; GROUP],
    threshold: [f64; GROUP],
    /// What a limit is multiplied by.
    pub stretch: f64,
    /// From this limit on every row passes.
    pub cap: f32,
    floats: Vec<f32>,
    bytes: Vec<u8>,
    /// Six rows, where they have to be widened first.
    pub wide: Vec<u8>,
    sums: [f32; SIEVE_ROWS * GROUP],
    whole: [i32; SIEVE_ROWS * GROUP],
    is_whole: bool,
    /// Of the six rows, for the bound.
    pub rows: [OfRow; SIEVE_ROWS],
}

impl Group {
    /// For queries of which these are told; panels are to be filled.
    pub fn new(sieve: Sieve, queries: Vec<OfQuery>, stretch: f64, cap: f32) -> Self {
        let mut group = Group {
            sieve,
            registers: queries.len().div_ceil(PANEL).clamp(1, GROUP / PANEL),
            scale: [0.0; GROUP],
            base: [0.0; GROUP],
            error: [0.0; GROUP],
            // No query there: no row passes.
            threshold: [f64::NEG_INFINITY; GROUP],
            queries,
            stretch,
            cap,
            floats: Vec::new(),
            bytes: Vec::new(),
            wide: Vec::new(),
            sums: [0.0; SIEVE_ROWS * GROUP],
            whole: [0; SIEVE_ROWS * GROUP],
            is_whole: false,
            rows: [OfRow::default(); SIEVE_ROWS],
        };
        for q in 0..group.queries.len().min(GROUP) {
            let of = group.queries[q];
            (group.scale[q], group.base[q], group.error[q]) = (of.scale, of.base, of.error);
            group.limit(q, f32::MAX);
        }
        group
    }

    /// The query's limit is this now.
    #[inline]
    pub fn limit(&mut self, q: usize, limit: f32) {
        self.threshold[q] = match limit < self.cap {
            true => f64::from(limit) * self.stretch + self.queries[q].offset,
            false => f64::INFINITY,
        };
    }

    /// Packs vectors of floats.
    pub fn pack_floats<'a>(&mut self, dimension: usize, queries: impl Iterator<Item = &'a [f32]>) -> Result<()> {
        let width = self.registers * PANEL;
        reserve(&mut self.floats, width * dimension)?;
        self.floats.resize(width * dimension, 0.0);
        for (q, query) in queries.enumerate() {
            self.floats.iter_mut().skip(q).step_by(width).zip(query).for_each(|(place, x)| *place = *x);
        }
        Ok(())
    }

    /// Packs vectors of bytes, unsigned by adding 128.
    pub fn pack_bytes(&mut self, q: usize, query: impl ExactSizeIterator<Item = i8>) -> Result<()> {
        let width = self.registers * PANEL * TOGETHER;
        let len = query.len().div_ceil(TOGETHER) * width;
        reserve(&mut self.bytes, len)?;
        self.bytes.resize(len, 0);
        for (i, x) in query.enumerate() {
            self.bytes[i / TOGETHER * width + q * TOGETHER + i % TOGETHER] = (x as u8) ^ 0x80;
        }
        Ok(())
    }

    /// Estimates for rows of floats; gives the rows' sums of squares.
    pub fn estimate_floats(&mut self, rows: [&[u8]; SIEVE_ROWS]) -> [f32; SIEVE_ROWS] {
        self.is_whole = false;
        let out = &mut self.sums[..SIEVE_ROWS * PANEL * self.registers];
        self.sieve.floats(self.registers, &self.floats, rows, out)
    }

    /// Estimates for rows of signed bytes; gives the rows' sums, and sums of squares.
    pub fn estimate_bytes(&mut self, rows: [&[u8]; SIEVE_ROWS]) -> [[i32; 2]; SIEVE_ROWS] {
        self.is_whole = true;
        let out = &mut self.whole[..SIEVE_ROWS * PANEL * self.registers];
        self.sieve.bytes(self.registers, &self.bytes, rows, out).unwrap_or_default()
    }

    /// Bit q is set where row `r` of the six may be a hit of query q, as the limits are now.
    #[inline]
    pub fn passing(&self, r: usize) -> u64 {
        let width = PANEL * self.registers;
        let row = self.rows[r];
        match self.is_whole {
            true => self.compare(&self.whole[r * width..][..width], row),
            false => self.compare(&self.sums[r * width..][..width], row),
        }
    }

    #[inline]
    fn compare<T: Copy + Into<f64>>(&self, estimates: &[T], row: OfRow) -> u64 {
        let mut passing = 0;
        let (scale, base) = (self.scale.as_chunks::<PANEL>().0, self.base.as_chunks::<PANEL>().0);
        let (error, threshold) = (self.error.as_chunks::<PANEL>().0, self.threshold.as_chunks::<PANEL>().0);
        for (part, estimates) in estimates.as_chunks::<PANEL>().0.iter().enumerate() {
            let mut flags = [0u64; PANEL];
            for i in 0..PANEL {
                let inner = scale[part][i] * (estimates[i].into() - row.shift) + base[part][i];
                let least = row.offset + row.factor * inner - error[part][i] * row.error;
                // NaN passes.
                flags[i] = u64::from(least > threshold[part][i]) ^ 1;
            }
            if flags.iter().fold(0, |any, flag| any | flag) != 0 {
                let bits = flags.iter().rev().fold(0, |bits, flag| bits << 1 | flag);
                passing |= bits << (part * PANEL);
            }
        }
        // Places without a query have no threshold to be below, but a row may be no number.
        passing & (u64::MAX >> (GROUP - self.queries.len().clamp(1, GROUP)))
    }
}
