//! Rows far out, and sizes at the limits of an address: the arithmetic of offsets, where 32 bits of it would not do.
//! Written once; natively and in WebAssembly, where a `usize` has 32 bits, the same tests run.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use twindex::Error;
use twindex::storage::{
    ChunkOptions, ChunkedCells, ChunkedRows, MAX_ROWS, RowBuf, Rows, Section, SectionRows, Storage,
};

/// Stamps every test of the suite with a harness's attribute.
macro_rules! stamp {
    ($attribute:meta) => {
        $crate::far_offsets::stamp! {
            $attribute:
            rows_around_powers_of_two_are_read_where_they_are,
            memory_near_the_limit_of_an_address_is_refused,
            ranges_that_wrap_around_are_truncated,
        }
    };
    ($attribute:meta: $($test:ident,)*) => {
        $(#[$attribute]
        fn $test() {
            $crate::far_offsets::$test();
        })*
    };
}
pub(crate) use stamp;

/// As long as it is said to be, with bytes that follow from their offset; two at a distance of 2³¹ or 2³² differ
/// mostly. Nothing of it is resident.
struct Endless(u64);

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

impl Storage for Endless {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> twindex::Result<()> {
        let end = offset.checked_add(out.len() as u64).filter(|&end| end <= self.0);
        end.ok_or(Error::Truncated { expected: offset.saturating_add(out.len() as u64), got: self.0 })?;
        out.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = byte_at(at));
        Ok(())
    }
}

/// Around 2³¹, 2³² and 2³³, in strides that hit them and strides that don't.
pub fn rows_around_powers_of_two_are_read_where_they_are() {
    let mut checked = 0;
    for stride in [1, 2, 3, 10, 24, 104, 776, 4104, 65_544] {
        for base in [0, 64, 12_345] {
            let last = (1_u64 << 34).div_ceil(stride).min(u64::from(MAX_ROWS));
            let storage = Arc::new(Endless(base + last * stride + 5));
            let section = Section::new(storage, base, last * stride).unwrap();
            let rows = SectionRows::new(section, stride as usize).unwrap();
            assert_eq!(u64::from(rows.count()), last);
            let powers = [1_u64 << 31, 1 << 32, 1 << 33];
            let near = powers.into_iter().flat_map(|power| [power / stride, power.saturating_sub(base) / stride]);
            let near = near.chain([last - 1]).flat_map(|id| [id.saturating_sub(1), id, id + 1]);
            let ids: Vec<u32> = near.filter(|&id| id < last).map(|id| id as u32).rev().collect();
            assert!(ids.len() > 4);
            let row = |id: u32| {
                let from = base + u64::from(id) * stride;
                (from..from + stride).map(byte_at).collect::<Vec<_>>()
            };
            let mut found = RowBuf::new();
            rows.fetch(&ids, &mut found).unwrap();
            for (i, &id) in ids.iter().enumerate() {
                assert!(found.row(i) == row(id), "row {id} of {stride} bytes behind {base}");
                let ids = id..id + 1;
                let windows = rows.for_each_window_in(ids, |first, bytes| {
                    assert!(first == id && bytes == row(id), "row {id} of {stride} bytes behind {base} in a window");
                    checked += 1;
                    Ok(())
                });
                windows.unwrap();
            }
            assert!(matches!(rows.fetch(&[rows.count()], &mut found), Err(Error::Corrupt { .. })));
        }
    }
    assert!(checked > 200, "{checked}");
}

/// Lengths that a `usize` just holds, and those from which on no allocation can be as long. (`isize::MAX` can be, where
/// memory is addressed with 32 bits.)
fn near_the_limit() -> impl Iterator<Item = usize> {
    let half = isize::MAX as usize;
    (0..=8).map(|less| usize::MAX - less).chain([half + 1, half + 2])
}

/// Room for what no address space holds is refused, and what asked for it goes on.
pub fn memory_near_the_limit_of_an_address_is_refused() {
    let out_of_memory = |result: twindex::Result<()>, what: &str, n: usize| {
        assert!(matches!(result, Err(Error::OutOfMemory { .. })), "{what}, {n}: {result:?}");
    };
    for n in near_the_limit() {
        let mut buf = RowBuf::new();
        for (stride, rows) in [(1, n), (n, 1), (2, n / 2 + 1), (n / 2 + 1, 2), (n, n), (8, n / 8), (n, 3)] {
            // n / 8 rows of 8 bytes are a few bytes less than n.
            out_of_memory(buf.reset(stride, rows).map(drop), "a buffer of rows", n);
            assert_eq!(buf.as_slice(), [0; 0]);
        }
        buf.reset(4, 2).unwrap();
        assert_eq!(buf.rows(), 2);

        for options in [ChunkOptions::default(), ChunkOptions { rows_per_chunk: Some(4), ..ChunkOptions::default() }] {
            let rows = ChunkedRows::new(n, &options).unwrap();
            out_of_memory(rows.append(1, |_, _| Ok(())).map(drop), "a row", n);
            assert!(rows.count() == 0 && rows.allocated_bytes() <= 16);
            let cells = ChunkedCells::<AtomicU64>::new(n / 8, &options).unwrap();
            out_of_memory(cells.grow_to(1), "a row of cells", n);
            assert!(cells.count() == 0 && cells.allocated_bytes() <= 16);
        }

        let len = n as u64;
        let mut section = Section::new(Arc::new(Endless(len)), 0, len).unwrap();
        out_of_memory(section.make_resident(), "a copy of a section", n);
        assert!(!section.is_copied());
        let mut rows = SectionRows::new(section, n).unwrap();
        assert_eq!((rows.count(), rows.resident(0)), (1, None));
        out_of_memory(rows.fetch(&[0], &mut buf), "a row fetched", n);
        out_of_memory(rows.fetch(&[0, 0, 0], &mut buf), "rows fetched", n);
        out_of_memory(rows.for_each_window(|_, _| Ok(())), "a window", n);
        out_of_memory(rows.make_resident(), "rows", n);
    }
}

/// Ranges whose end no `u64` holds are behind the end of every storage.
pub fn ranges_that_wrap_around_are_truncated() {
    for len in [0, 1, 64, 1 << 31, 1 << 32, u64::MAX - 8, u64::MAX] {
        let storage = Arc::new(Endless(len));
        for offset in [1, 8, 9, 64, 1 << 31, 1 << 32, 1 << 63, u64::MAX - 8, u64::MAX] {
            for wanted in [u64::MAX, u64::MAX - 7, u64::MAX - offset + 1, len.saturating_sub(offset) + 1] {
                if wanted == 0 {
                    continue;
                }
                let section = Section::new(Arc::clone(&storage), offset, wanted);
                match offset.checked_add(wanted) {
                    Some(end) if end <= len => {
                        section.unwrap();
                    }
                    _ => assert!(matches!(section, Err(Error::Truncated { .. })), "{wanted} at {offset} of {len}"),
                }
            }
        }
    }
    let section = Section::new(Arc::new(Endless(u64::MAX)), 1, u64::MAX - 1).unwrap();
    let mut out = [0; 9];
    for offset in [u64::MAX - 8, u64::MAX - 9, u64::MAX] {
        assert!(matches!(section.read_into(offset, &mut out), Err(Error::Truncated { .. })), "{offset}");
    }
    section.read_into(u64::MAX - 10, &mut out).unwrap();
    assert_eq!(out[8], byte_at(u64::MAX - 1));
}
