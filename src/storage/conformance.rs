//! What every [`Storage`] and every [`Rows`] must do, written once for all of them.
//!
//! The suites panic at the first check that fails, and report what they checked and what they had to leave out. They
//! are part of the library, hidden, so that native tests and tests inside a JavaScript engine run the same code.

use super::{RowBuf, Rows, Storage, WINDOW_BYTES};
use crate::error::Error;
use std::fmt;

/// What a suite has done. Print it.
#[derive(Debug, Default)]
pub struct Report {
    /// What was tested.
    pub name: String,
    /// Checks made.
    pub checks: u32,
    /// What was not checked, and why.
    pub skipped: Vec<String>,
}

impl Report {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        assert!(holds, "{}: {}", self.name, what());
        self.checks += 1;
    }

    fn skip(&mut self, what: String) {
        if !self.skipped.contains(&what) {
            self.skipped.push(what);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} checks", self.name, self.checks)?;
        self.skipped.iter().try_for_each(|what| write!(f, "; skipped: {what}"))
    }
}

/// Bytes that differ from place to place, with no period that a size could share.
pub fn sample_bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8).collect()
}

/// The contract of [`Storage`], on what `make` makes of the bytes it is given.
///
/// # Panics
/// When it does not hold.
pub fn storage_suite<S: Storage>(name: &str, mut make: impl FnMut(&[u8]) -> S) -> Report {
    let mut report = Report::new(name);
    // Nothing, one byte, two, around a page, and past a window.
    for len in [0, 1, 2, 4095, 4096, 4097, WINDOW_BYTES + 1] {
        let bytes = sample_bytes(len);
        let storage = make(&bytes);
        report.check(storage.len() == len as u64, || format!("len() is {}, not {len}", storage.len()));
        report.check(storage.is_empty() == (len == 0), || format!("is_empty() at {len} bytes"));

        let mut edges = vec![0, 1, len / 2, len.saturating_sub(1), len];
        edges.retain(|&edge| edge <= len);
        for &from in &edges {
            for to in edges.iter().copied().filter(|&to| to >= from) {
                let mut out = vec![0xaa; to - from];
                let read = storage.read_into(from as u64, &mut out);
                report.check(read.is_ok(), || format!("reading {from}..{to} of {len} bytes: {read:?}"));
                report.check(out == bytes[from..to], || format!("{from}..{to} of {len} bytes are other bytes"));
            }
        }

        let end = len as u64;
        let past = [(end, 1), (end + 1, 0), (end.saturating_sub(1), 2), (0, len + 1), (1 << 32, 1), (1 << 53, 1)];
        for (offset, count) in past.into_iter().chain([(u64::MAX, 0), (u64::MAX, 1), (u64::MAX - 1, 2)]) {
            let read = storage.read_into(offset, &mut vec![0; count]);
            let truncated = matches!(read, Err(Error::Truncated { expected, got }) if got == end && expected > end);
            report.check(truncated, || format!("reading {count} at {offset} of {len} bytes: {read:?}"));
        }
        let mut again = vec![0; len];
        report.check(storage.read_into(0, &mut again).is_ok() && again == bytes, || "reading after errors".into());

        match storage.as_slice() {
            Some(slice) => report.check(slice == bytes, || format!("as_slice() at {len} bytes")),
            None => report.skip("as_slice (not resident)".into()),
        }
    }
    report
}

/// The contract of [`Rows`], on what `make` makes of a stride and the rows' bytes, at counts of a few and at `edges`,
/// each with one more and one less: counts at which something changes inside.
///
/// # Panics
/// When it does not hold.
pub fn rows_suite<R: Rows>(name: &str, edges: &[u32], mut make: impl FnMut(usize, &[u8]) -> R) -> Report {
    const MOST_BYTES: usize = 8 << 20;
    let mut report = Report::new(name);
    let mut counts = vec![0, 1, 2, 3];
    counts.extend(edges.iter().flat_map(|&edge| [edge.saturating_sub(1), edge, edge.saturating_add(1)]));
    counts.sort_unstable();
    counts.dedup();
    // A byte, odd, a word, a cache line, 384 f32, and one more: odd beyond any lane.
    for stride in [1, 3, 4, 64, 1536, 1537] {
        for &count in &counts {
            let len = stride * count as usize;
            if len > MOST_BYTES {
                report.skip(format!("{count} rows of {stride} bytes (more than {MOST_BYTES} bytes)"));
                continue;
            }
            let bytes = sample_bytes(len);
            check_rows(&mut report, &make(stride, &bytes), stride, count, &bytes);
        }
    }
    report
}

fn check_rows<R: Rows>(report: &mut Report, rows: &R, stride: usize, count: u32, bytes: &[u8]) {
    let row = |id: u32| &bytes[id as usize * stride..][..stride];
    let case = format!("{count} rows of {stride} bytes");
    report.check(rows.count() == count, || format!("{case}: count() is {}", rows.count()));
    report.check(rows.stride() == stride, || format!("{case}: stride() is {}", rows.stride()));

    let resident = count > 0 && rows.resident(0).is_some();
    for id in 0..count {
        let borrowed = rows.resident(id);
        report.check(borrowed == resident.then(|| row(id)), || format!("{case}: resident({id})"));
    }
    if count > 0 && !resident {
        report.skip("resident (not resident)".into());
    }
    for id in [count, count.saturating_add(1), u32::MAX] {
        report.check(rows.resident(id).is_none(), || format!("{case}: resident({id}) is something"));
    }

    let mut buf = RowBuf::new();
    let mut orders: Vec<Vec<u32>> = vec![Vec::new(), (0..count).collect(), (0..count).rev().collect()];
    if let Some(last) = count.checked_sub(1) {
        orders.push(vec![last, 0, last, last / 2, 0]);
        orders.push((0..20).map(|i: u32| i.wrapping_mul(0x9e37_79b9) % count).collect());
    }
    for ids in &orders {
        let fetched = rows.fetch(ids, &mut buf);
        report.check(fetched.is_ok(), || format!("{case}: fetch({ids:?}): {fetched:?}"));
        report.check((buf.rows(), buf.stride()) == (ids.len(), stride), || format!("{case}: shape of the buffer"));
        let same = ids.iter().enumerate().all(|(i, &id)| buf.row(i) == row(id));
        report.check(same && buf.as_slice().len() == ids.len() * stride, || format!("{case}: fetch({ids:?})"));
    }
    for wrong in [count, u32::MAX] {
        let ids = if count > 0 { vec![0, wrong, 0] } else { vec![wrong] };
        let fetched = rows.fetch(&ids, &mut buf);
        report.check(matches!(fetched, Err(Error::Corrupt { .. })), || format!("{case}: fetch({ids:?}): {fetched:?}"));
    }
    let all: Vec<u32> = (0..count).collect();
    report
        .check(rows.fetch(&all, &mut buf).is_ok() && buf.as_slice() == bytes, || format!("{case}: fetch after errors"));
}
