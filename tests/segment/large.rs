//! Files beyond 2³² bytes: every offset is right to the byte, though the file is next to empty.

use crate::sample::{crc32, put};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use twindex::segment::{Encoding, Segment};
use twindex::storage::{MmapStorage, RowBuf, Rows, Storage};
use twindex::{Error, Result};

const ROWS: u32 = 1_100_000;
const DIMENSION: u32 = 4096;
const STRIDE: u64 = DIMENSION as u64 + 8;
/// Where CODES begin: behind 192 bytes and 12 bytes a row, a multiple of 64.
const CODES_AT: u64 = 192 + 12 * ROWS as u64;
/// The first, the middle, the last; and those across 2³¹ and 2³², counted from the start of CODES and of the file.
const WRITTEN: [u32; 7] = [
    0,
    ((1 << 31) / STRIDE) as u32,
    (((1 << 31) - CODES_AT) / STRIDE) as u32,
    ROWS / 2,
    ((1 << 32) / STRIDE) as u32,
    (((1 << 32) - CODES_AT) / STRIDE) as u32,
    ROWS - 1,
];

/// The row with this number: no two are alike, nor any two bytes at a distance of 2³² or 2³¹.
fn row(id: u32) -> Vec<u8> {
    let mut row: Vec<u8> = (0..DIMENSION).map(|i| (id.wrapping_mul(31).wrapping_add(i * i) >> 3) as u8).collect();
    row.extend((1.0 + id as f32).to_le_bytes());
    row.extend((-2.0 - id as f32).to_le_bytes());
    row
}

/// A flat segment of int8 rows under L2, by FORMAT.md: the head, keys and their order are there, and of the rows a few.
/// What is not written is a hole; the blocks' checksums are holes too, which only verify would see.
fn write_sparse(file: &mut File) -> io::Result<u64> {
    let align = |n: u64| n.next_multiple_of(64);
    let n = u64::from(ROWS);
    let mut end = 64;
    let mut entries: Vec<(u32, u64, u64, u64)> = Vec::new();
    let mut section = |tag: u32, element: u64, count: u64| {
        let offset = align(end);
        end = offset + element * count;
        entries.push((tag, element, offset, count));
        offset
    };
    section(1, 1, 128);
    let keys = section(2, 8, n);
    let order = section(3, 4, n);
    let codes = section(4, STRIDE, n);
    assert_eq!(codes, CODES_AT);
    section(13, 4, n);
    let blocks = align(codes + STRIDE * n + 4 * n).div_ceil(1 << 16);
    let checksums = section(11, 4, blocks);
    let table_offset = align(checksums + 4 * blocks);
    let file_len = table_offset + 32 * entries.len() as u64 + 8;

    let mut header = b"\x89TWX\r\n\x1a\n".to_vec();
    header.resize(64, 0);
    for (at, width, value) in
        [(8, 4, 1), (12, 4, 1), (16, 8, file_len), (24, 8, table_offset), (32, 4, entries.len() as u64)]
    {
        put(&mut header, at, width, value);
    }
    let crc = crc32(&header[..60]);
    put(&mut header, 60, 4, crc.into());
    let mut meta = vec![0; 128];
    let fields = [(0, 4, u64::from(DIMENSION)), (5, 1, 2), (8, 8, n), (24, 4, STRIDE), (28, 4, 64), (48, 4, !0)];
    for (at, width, value) in fields {
        put(&mut meta, at, width, value);
    }
    let mut table = vec![0; 32 * entries.len() + 8];
    for (i, &(tag, element, offset, count)) in entries.iter().enumerate() {
        for (at, width, value) in
            [(0, 4, tag.into()), (4, 4, element), (8, 8, offset), (16, 8, element * count), (24, 8, count)]
        {
            put(&mut table, 32 * i + at, width, value);
        }
    }
    let tail = table.len() - 4;
    let crc = crc32(&[&header[..], &meta, &table[..tail]].concat());
    put(&mut table, tail, 4, crc.into());

    file.set_len(file_len)?;
    let mut at = |offset: u64, bytes: &[u8]| {
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(bytes)
    };
    at(0, &header)?;
    at(64, &meta)?;
    at(keys, &(0..n).flat_map(|id| (3 * id).to_le_bytes()).collect::<Vec<u8>>())?;
    at(order, &(0..ROWS).flat_map(u32::to_le_bytes).collect::<Vec<u8>>())?;
    for id in WRITTEN {
        at(codes + STRIDE * u64::from(id), &row(id))?;
    }
    at(table_offset, &table)?;
    Ok(file_len)
}

/// Why no such file can be had here, if it cannot.
fn make(path: &Path) -> Result<(), String> {
    let mut file = File::create(path).map_err(|e| e.to_string())?;
    let written = write_sparse(&mut file).map_err(|e| format!("the file system refuses: {e}"))?;
    assert_eq!(file.metadata().map_err(|e| e.to_string())?.len(), written);
    assert!(written > 1 << 32);
    Ok(())
}

/// A file that is read and not mapped.
struct Reading(Mutex<File>, u64);

impl Storage for Reading {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut file = self.0.lock().unwrap();
        file.seek(SeekFrom::Start(offset))?;
        Ok(file.read_exact(out)?)
    }
}

fn check<S: Storage + ?Sized>(segment: &Segment<S>) {
    assert_eq!((segment.meta().encoding, segment.meta().rows), (Encoding::Int8, ROWS));
    let codes = segment.codes();
    assert_eq!((codes.count(), codes.stride() as u64), (ROWS, STRIDE));

    let neighbours = WRITTEN.iter().flat_map(|&id| [id.saturating_sub(1), id, (id + 1).min(ROWS - 1)]);
    let mut ids: Vec<u32> = neighbours.collect();
    ids.reverse();
    let mut rows = RowBuf::new();
    codes.fetch(&ids, &mut rows).unwrap();
    let empty = vec![0; STRIDE as usize];
    let expected = |id: u32| if WRITTEN.contains(&id) { row(id) } else { empty.clone() };
    for (i, &id) in ids.iter().enumerate() {
        assert!(rows.row(i) == expected(id), "row {id} as fetched");
        if let Some(resident) = codes.resident(id) {
            assert!(resident == expected(id), "row {id} as resident");
        }
    }
    for id in [ROWS, ROWS + 1, u32::MAX] {
        assert!(codes.resident(id).is_none());
        assert!(codes.fetch(&[0, id], &mut rows).is_err());
    }
    for id in WRITTEN {
        let mut seen = 0;
        let window = id.saturating_sub(300)..(id + 301).min(ROWS);
        let expected_rows = window.len();
        let result = codes.for_each_window_in(window, |first, window| {
            for (id, row) in (first..).zip(window.chunks_exact(STRIDE as usize)) {
                assert!(row == expected(id), "row {id} in a window");
                seen += 1;
            }
            Ok(())
        });
        result.unwrap();
        assert_eq!(seen, expected_rows);
        assert_eq!(segment.keys().find(3 * u64::from(id)).collect::<Vec<_>>(), [id]);
    }
    let fingerprints = segment.fingerprints().expect("int8 without originals");
    fingerprints.fetch(&[0, ROWS - 1], &mut rows).unwrap();
    assert_eq!(rows.as_slice(), [0; 8]);
}

/// The index over it: what a key stands for, and a search restricted to the rows that were written.
#[cfg(feature = "mmap")]
fn search(index: &twindex::Index) {
    use twindex::{Filter, SearchParams};
    let key = |id: u32| 3 * u64::from(id);
    let decoded = |id: u32| index.get(key(id)).unwrap().expect("a row under its key").vector;
    let last = decoded(ROWS - 1);
    // Neither rotated nor centred: the first factor times the byte and a half.
    let expected = |i: usize| (1.0 + (ROWS - 1) as f32) * (f32::from(row(ROWS - 1)[i] as i8) + 0.5);
    assert!((0..DIMENSION as usize).all(|i| last[i] == expected(i)));
    let mut keys = WRITTEN.map(key).to_vec();
    keys.sort_unstable();
    keys.dedup();
    let hits = index.search(&vec![1.0; DIMENSION as usize], &SearchParams::new(100).filter(Filter::keys(&keys)));
    let mut found: Vec<u64> = hits.unwrap().iter().map(|hit| hit.key).collect();
    found.sort_unstable();
    assert_eq!(found, keys);
}

#[test]
#[cfg_attr(not(target_pointer_width = "64"), ignore = "more than the address space")]
fn rows_beyond_four_gigabytes_are_found_in_a_mapped_and_in_a_read_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sparse.twx");
    if let Err(reason) = make(&path) {
        println!("skipped: a sparse file of 4.5 GB: {reason}");
        return;
    }
    let mapped = match MmapStorage::open(&path) {
        Ok(mapped) => mapped,
        Err(e) => {
            println!("skipped: mapping a sparse file of 4.5 GB: {e}");
            return;
        }
    };
    let segment = Segment::open(Arc::new(mapped)).unwrap();
    assert!(segment.codes().resident(ROWS - 1).is_some());
    check(&segment);
    drop(segment);

    #[cfg(feature = "mmap")]
    search(&twindex::Index::open(&path).unwrap());

    let file = File::open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    let segment = Segment::open(Arc::new(Reading(Mutex::new(file), len))).unwrap();
    assert!(segment.codes().resident(0).is_none());
    check(&segment);

    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(len - (1 << 32)).unwrap();
    let cut = Segment::open(Arc::new(MmapStorage::open(&path).unwrap()));
    assert!(matches!(cut, Err(Error::Truncated { expected, .. }) if expected == len), "{cut:?}");
}
