//! What is written is what is read, through every kind of storage.

use crate::sample::{Map, Sample, get};
use std::sync::Arc;
use twindex::segment::{Encoding, GraphMeta, IndexKind, LevelMeta, MAX_LEVEL, MAX_M, Meta, Segment, SegmentWriter};
use twindex::storage::{CopyingStorage, MAX_ROWS, RowBuf, Rows, Storage};
use twindex::{Error, MAX_DIMENSION, Metric, Result};

/// 64 rows share a record of link offsets, 8 a byte of tombstones.
const ROW_COUNTS: [u32; 8] = [0, 1, 8, 9, 63, 64, 65, 129];

fn all_samples() -> impl Iterator<Item = Sample> {
    ROW_COUNTS.into_iter().flat_map(|rows| {
        Metric::ALL.into_iter().flat_map(move |metric| {
            IndexKind::ALL.into_iter().flat_map(move |kind| {
                [false, true].map(|removed| Sample::new(rows, 3, metric, kind, removed, u64::from(rows) + 1))
            })
        })
    })
}

fn check<S: Storage + ?Sized>(sample: &Sample, storage: Arc<S>) {
    let segment = Segment::open(storage).unwrap();
    segment.verify().unwrap();
    assert_eq!(segment.meta(), &sample.meta);

    let keys = segment.keys();
    assert!(keys.iter().eq(sample.keys.iter().copied()));
    assert_eq!(keys.get(sample.meta.rows), None);
    for key in sample.keys.iter().flat_map(|&key| [key, key ^ 1, key.wrapping_sub(1)]) {
        let expected = (0_u32..).zip(&sample.keys).filter(|(_, k)| **k == key).map(|(id, _)| id);
        assert!(keys.find(key).eq(expected), "key {key}");
    }

    let mut rows = RowBuf::new();
    segment.codes().fetch(&(0..sample.meta.rows).collect::<Vec<_>>(), &mut rows).unwrap();
    assert_eq!(rows.as_slice(), sample.rows.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());

    let factors = segment.factors().map(|f| f.iter().collect::<Vec<_>>());
    assert_eq!(factors, (sample.meta.metric == Metric::Cosine).then(|| sample.factors.clone()));

    let tombstones = segment.tombstones();
    assert_eq!(tombstones.is_empty(), sample.meta.tombstones == 0);
    assert!((0..).zip(&sample.removed).all(|(id, &removed)| tombstones.contains(id) == removed));
    assert!(!tombstones.contains(sample.meta.rows.next_multiple_of(8)));

    match segment.links() {
        None => assert_eq!(sample.meta.kind, IndexKind::Flat),
        Some(links) => {
            let graph = sample.meta.graph.as_ref().unwrap();
            assert_eq!((links.entry(), links.max_level()), (graph.entry, graph.levels.len()));
            let mut list = vec![1, 2, 3];
            for (id, expected) in (0..).zip(&sample.lists) {
                links.list(id, 0, &mut list);
                assert_eq!(&list, expected, "row {id}");
            }
            for (level, lists) in (1..).zip(&sample.upper) {
                assert!(links.nodes(level).eq(lists.iter().map(|&(id, _)| id)));
                for id in 0..=sample.meta.rows {
                    let found = lists.iter().find(|(node, _)| *node == id);
                    links.list(id, level, &mut list);
                    assert_eq!(list, found.map_or(&[][..], |(_, list)| list), "row {id} on level {level}");
                }
            }
            for (id, level) in [(sample.meta.rows, 0), (u32::MAX, 0), (0, links.max_level() + 1), (0, usize::MAX)] {
                list.push(9);
                links.list(id, level, &mut list);
                assert_eq!(list, [0_u32; 0], "row {id} on level {level}");
            }
            assert_eq!(links.nodes(0).count(), 0);
        }
    }
}

#[test]
fn every_shape_comes_back_through_every_storage() {
    let mut count = 0;
    for sample in all_samples() {
        let bytes = sample.bytes();
        check(&sample, Arc::new(bytes.clone()));
        check(&sample, Arc::<[u8]>::from(bytes.clone()));
        check(&sample, Arc::new(CopyingStorage::new(bytes.clone())));
        check::<dyn Storage + Send + Sync>(&sample, Arc::new(bytes));
        count += 1;
    }
    assert_eq!(count, ROW_COUNTS.len() * 3 * 2 * 2);
}

#[test]
fn the_same_segment_gives_the_same_bytes() {
    for sample in all_samples() {
        assert_eq!(sample.bytes(), sample.bytes());
    }
}

/// 129 rows of 300 components are 151 KiB: three blocks, and runs that straddle them.
#[test]
fn a_file_of_several_blocks_comes_back() {
    let sample = Sample::new(129, 300, Metric::Cosine, IndexKind::Hnsw, true, 9);
    let bytes = sample.bytes();
    assert!(bytes.len() > 2 << 16);
    check(&sample, Arc::new(CopyingStorage::new(bytes.clone())));
    check(&sample, Arc::new(bytes));
}

#[test]
fn all_rows_may_be_removed() {
    let mut sample = Sample::new(9, 3, Metric::L2, IndexKind::Hnsw, false, 3);
    sample.removed.fill(true);
    sample.meta.tombstones = 9;
    sample.keys.fill(77);
    check(&sample, Arc::new(sample.bytes()));
}

/// The file beside the script that made it from FORMAT.md, without this crate.
#[test]
fn the_golden_file_is_what_the_writer_writes() {
    let golden = include_bytes!("../data/format/v1-hnsw.twx");
    let graph = GraphMeta {
        m: 2,
        ef_construction: 100,
        seed: 42,
        entry: Some(2),
        links: 5,
        levels: vec![LevelMeta { nodes: 2, links: 2 }],
    };
    let sample = Sample {
        meta: Meta {
            dimension: 2,
            metric: Metric::Cosine,
            encoding: Encoding::F32,
            kind: IndexKind::Hnsw,
            rows: 3,
            tombstones: 1,
            stride: 8,
            ef: 50,
            graph: Some(graph),
        },
        keys: vec![7, 5, 7],
        rows: vec![3.0, 4.0, 0.0, 2.0, -1.0, 0.0],
        factors: vec![0.2, 0.5, 1.0],
        removed: vec![true, false, false],
        lists: vec![vec![1, 2], vec![0], vec![1, 0]],
        upper: vec![vec![(1, vec![2]), (2, vec![1])]],
    };
    check(&sample, Arc::new(golden.to_vec()));
    assert_eq!(sample.bytes(), golden);
}

#[test]
fn opening_reads_no_rows_and_verifying_reads_in_blocks() {
    let sample = Sample::new(129, 300, Metric::L2, IndexKind::Hnsw, false, 4);
    let bytes = sample.bytes();
    let len = bytes.len() as u64;
    let storage = Arc::new(CopyingStorage::new(bytes));
    let mut segment = Segment::open(Arc::clone(&storage)).unwrap();
    let codes = 4 * 300 * 129;
    assert!(storage.bytes_read() < len - codes + 4096, "{} of {len}", storage.bytes_read());
    assert!(segment.owned_bytes() > 0 && segment.owned_bytes() < len - codes);
    assert!(segment.codes().resident(0).is_none());
    segment.make_codes_resident().unwrap();
    assert!(segment.codes().resident(128).is_some());
    assert!(segment.owned_bytes() >= codes);
}

#[test]
fn section_bytes_add_up_to_the_file_but_for_padding() {
    let bytes = Sample::full(1).bytes();
    let map = Map::of(&bytes);
    let segment = Segment::open(Arc::new(bytes.clone())).unwrap();
    let named = segment.section_bytes();
    assert_eq!(named.len(), map.sections.len() + 2);
    let sum: u64 = named.iter().map(|&(_, len)| len).sum();
    let padding = bytes.len() as u64 - sum;
    assert!(padding < 64 * named.len() as u64);
    assert_eq!(segment.file_len(), bytes.len() as u64);
    assert_eq!(segment.owned_bytes(), 0);
    assert!(map.sections.iter().all(|&(_, offset, _)| offset % 64 == 0));
}

type Step = fn(&mut SegmentWriter<Vec<u8>>) -> Result<()>;

/// A segment of 3 rows of 2 components under cosine, one row removed, with links but no upper level.
fn promised() -> Meta {
    let graph = GraphMeta { m: 2, ef_construction: 9, seed: 0, entry: Some(0), links: 3, levels: Vec::new() };
    Meta {
        dimension: 2,
        metric: Metric::Cosine,
        encoding: Encoding::F32,
        kind: IndexKind::Hnsw,
        rows: 3,
        tombstones: 1,
        stride: 8,
        ef: 9,
        graph: Some(graph),
    }
}

const GOOD: [Step; 6] = [
    |w| w.keys([1, 2, 3]),
    |w| w.key_order([0, 1, 2]),
    |w| w.codes([[0; 12], [0; 12]]),
    |w| w.factors([1.0; 3]),
    |w| w.tombstones([false, true, false]),
    |w| w.links(|id, out| out.push((id + 1) % 3)),
];

#[test]
fn kept_promises_make_a_file() {
    let mut writer = SegmentWriter::begin(Vec::new(), &promised()).unwrap();
    GOOD.iter().for_each(|step| step(&mut writer).unwrap());
    let (bytes, _) = writer.finish().unwrap();
    Segment::open(Arc::new(bytes)).unwrap().verify().unwrap();
}

#[test]
fn broken_promises_are_errors_and_no_file_is_sealed() {
    let broken: [(usize, &str, Step); 24] = [
        (0, "too few keys", |w| w.keys([1, 2])),
        (0, "too many keys", |w| w.keys([1, 2, 3, 4])),
        (0, "keys without end", |w| w.keys(0..)),
        (0, "out of turn", |w| w.codes([[0; 24]])),
        (1, "keys twice", |w| w.keys([1, 2, 3])),
        (1, "order too short", |w| w.key_order([0])),
        (1, "order beyond the rows", |w| w.key_order([0, 1, 3])),
        (2, "rows too short", |w| w.codes([[0; 23]])),
        (2, "rows too long", |w| w.codes([[0; 25]])),
        (2, "rows without end", |w| w.codes(std::iter::repeat([0; 5]))),
        (2, "a failing source", |w| w.try_codes([Ok([0; 8]), Err(Error::NotASegment)])),
        (3, "too few factors", |w| w.factors([1.0; 2])),
        (3, "NaN factor", |w| w.factors([1.0, f32::NAN, 1.0])),
        (3, "factor zero", |w| w.factors([1.0, 0.0, 1.0])),
        (4, "too few flags", |w| w.tombstones([false, true])),
        (4, "too many flags", |w| w.tombstones([false, true, false, false])),
        (4, "none removed", |w| w.tombstones([false; 3])),
        (5, "too few links", |w| w.links(|_, _| ())),
        (5, "a list too long", |w| w.links(|_, out| out.extend([0, 1, 2, 0, 1]))),
        (5, "a link beyond the rows", |w| w.links(|_, out| out.push(3))),
        (5, "a link to itself", |w| w.links(|id, out| out.push(id))),
        (5, "an upper level", |w| w.upper(1, &[0], |_, _| ())),
        (6, "an upper level", |w| w.upper(1, &[0], |_, _| ())),
        (6, "links twice", |w| w.links(|id, out| out.push((id + 1) % 3))),
    ];
    for (at, what, step) in broken {
        let mut writer = SegmentWriter::begin(Vec::new(), &promised()).unwrap();
        GOOD[..at].iter().for_each(|step| step(&mut writer).unwrap());
        assert!(step(&mut writer).is_err(), "{what}");
        GOOD[at..].iter().for_each(|step| assert!(step(&mut writer).is_err(), "after {what}"));
        assert!(writer.finish().is_err(), "{what}");
    }
    for len in 0..GOOD.len() {
        let mut writer = SegmentWriter::begin(Vec::new(), &promised()).unwrap();
        GOOD[..len].iter().for_each(|step| step(&mut writer).unwrap());
        assert!(writer.finish().is_err(), "only {len} sections");
    }
}

#[test]
fn lists_that_change_between_the_passes_are_an_error() {
    let mut writer = SegmentWriter::begin(Vec::new(), &promised()).unwrap();
    GOOD[..5].iter().for_each(|step| step(&mut writer).unwrap());
    let mut calls = 0;
    let changed = writer.links(|id, out| {
        let second_pass = calls >= 3;
        calls += 1;
        match (second_pass, id) {
            (false, _) | (true, 0) => out.push((id + 1) % 3),
            (true, 1) => out.extend([0, 2]),
            (true, _) => {}
        }
    });
    assert!(matches!(changed, Err(Error::InvalidParameter { name: "links", .. })), "{changed:?}");
}

#[test]
fn levels_come_in_order_and_whole() {
    let sample = Sample::full(2);
    let nodes = |level: usize| sample.upper[level - 1].iter().map(|&(id, _)| id).collect::<Vec<_>>();
    let attempt = |calls: &[(usize, Vec<u32>)]| {
        let mut writer = SegmentWriter::begin(Vec::new(), &sample.meta)?;
        writer.keys(sample.keys.iter().copied())?;
        writer.key_order(0..67)?;
        writer.codes([vec![0; 67 * 12]])?;
        writer.factors(sample.factors.iter().copied())?;
        writer.tombstones(sample.removed.iter().copied())?;
        writer.links(|id, out| out.extend_from_slice(&sample.lists[id as usize]))?;
        for (level, nodes) in calls {
            let lists = &sample.upper[level - 1];
            writer.upper(*level, nodes, |id, out| {
                out.extend(lists.iter().filter(|(node, _)| *node == id).flat_map(|(_, list)| list));
            })?;
        }
        writer.finish().map(drop)
    };
    attempt(&[(1, nodes(1)), (2, nodes(2))]).unwrap();
    attempt(&[(1, nodes(1))]).unwrap_err();
    attempt(&[(2, nodes(2)), (1, nodes(1))]).unwrap_err();
    attempt(&[(1, nodes(1)), (1, nodes(1))]).unwrap_err();
    attempt(&[(1, nodes(1)), (2, nodes(2)), (2, nodes(2))]).unwrap_err();
    attempt(&[(1, nodes(1).into_iter().rev().collect()), (2, nodes(2))]).unwrap_err();
    attempt(&[(1, nodes(2)), (2, nodes(2))]).unwrap_err();
}

/// The largest values come back to the bit, those one beyond are refused before a byte is written.
#[test]
fn what_the_fields_hold_is_written_and_what_they_do_not_is_refused() {
    let flat = |rows: u32, dimension: u32| Meta {
        dimension,
        metric: Metric::L2,
        encoding: Encoding::F32,
        kind: IndexKind::Flat,
        rows,
        tombstones: 0,
        stride: dimension.wrapping_mul(4),
        ef: 1,
        graph: None,
    };
    let dimension = MAX_DIMENSION as u32;
    let mut head = Vec::new();
    SegmentWriter::begin(&mut head, &flat(MAX_ROWS, dimension)).unwrap();
    assert!(head.is_empty(), "nothing goes out before a block is full");

    /// Takes the first block and refuses the second.
    struct FirstBlock(Vec<u8>);
    impl std::io::Write for FirstBlock {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if !self.0.is_empty() {
                return Err(std::io::Error::other("full"));
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut first = FirstBlock(Vec::new());
    let mut writer = SegmentWriter::begin(&mut first, &flat(MAX_ROWS, dimension)).unwrap();
    assert!(matches!(writer.keys(0..u64::from(MAX_ROWS)), Err(Error::Io(_))));
    let head = first.0;
    let rows = u64::from(MAX_ROWS);
    assert_eq!(get(&head, 64 + 8, 8), rows);
    let align = |n: u64| n.next_multiple_of(64);
    let checksums = align(align(align(192 + 8 * rows) + 4 * rows) + rows * 4 * u64::from(dimension));
    let table = align(checksums + 4 * checksums.div_ceil(1 << 16));
    assert_eq!((get(&head, 24, 8), get(&head, 16, 8)), (table, table + 5 * 32 + 8));

    let graph = |m: u32, levels: usize| GraphMeta {
        m,
        ef_construction: 1,
        seed: u64::MAX,
        entry: Some(MAX_ROWS - 1),
        links: 2 * u64::from(m) * rows,
        levels: vec![LevelMeta { nodes: 1, links: 0 }; levels],
    };
    let hnsw = |graph| Meta { kind: IndexKind::Hnsw, graph: Some(graph), ..flat(MAX_ROWS, dimension) };
    let most = hnsw(graph(MAX_M as u32, MAX_LEVEL));
    SegmentWriter::begin(std::io::sink(), &most).unwrap();
    let level = |nodes, links| GraphMeta { levels: vec![LevelMeta { nodes, links }], ..graph(16, 0) };
    SegmentWriter::begin(std::io::sink(), &hnsw(level(MAX_ROWS, u64::from(u32::MAX)))).unwrap();

    let refused = [
        flat(u32::MAX, 4),
        flat(1, 0),
        flat(1, dimension + 1),
        Meta { stride: 12, ..flat(1, 4) },
        Meta { tombstones: 2, ..flat(1, 4) },
        Meta { ef: 0, ..flat(1, 4) },
        Meta { ef: (1 << 20) + 1, ..flat(1, 4) },
        Meta { kind: IndexKind::Hnsw, ..flat(1, 4) },
        Meta { kind: IndexKind::Flat, ..most.clone() },
        hnsw(graph(1, 0)),
        hnsw(graph(MAX_M as u32 + 1, 0)),
        hnsw(graph(16, MAX_LEVEL + 1)),
        hnsw(graph(16, 256)),
        hnsw(GraphMeta { entry: None, ..graph(16, 0) }),
        hnsw(GraphMeta { entry: Some(MAX_ROWS), ..graph(16, 0) }),
        hnsw(GraphMeta { links: 2 * 16 * rows + 1, ..graph(16, 0) }),
        hnsw(GraphMeta { ef_construction: 0, ..graph(16, 0) }),
        hnsw(level(0, 0)),
        hnsw(level(3, 3 * 16 + 1)),
        hnsw(level(MAX_ROWS, u64::from(u32::MAX) + 1)),
        hnsw(GraphMeta {
            levels: vec![LevelMeta { nodes: 2, links: 0 }, LevelMeta { nodes: 3, links: 0 }],
            ..graph(16, 0)
        }),
    ];
    for meta in refused {
        let mut out = Vec::new();
        let refused = SegmentWriter::begin(&mut out, &meta).map(drop);
        assert!(matches!(refused, Err(Error::InvalidParameter { name: "meta", .. })), "{meta:?}: {refused:?}");
        assert!(out.is_empty());
    }
}
