//! What is written is what is read, through every kind of storage.

use crate::sample::{
    CENTRE, CHECKSUMS, CODES, FACTORS, FINGERPRINTS, KEY_ORDER, KEYS, LINK_OFFSETS, LINKS, META, Map, ORIGINALS,
    Sample, TOMBSTONES, UPPER, get, stride_of,
};
use std::sync::Arc;
use twindex::segment::{
    Encoding, GraphMeta, IndexKind, LevelMeta, MAX_LEVEL, MAX_M, Meta, Originals, QuantizerMeta, Segment, SegmentWriter,
};
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

    let all: Vec<u32> = (0..sample.meta.rows).collect();
    let mut rows = RowBuf::new();
    segment.codes().fetch(&all, &mut rows).unwrap();
    assert_eq!(rows.as_slice(), sample.codes);

    let centre = segment.centre().unwrap();
    assert_eq!(centre.unwrap_or_default(), sample.centre);

    let encoded = sample.meta.encoding != Encoding::F32;
    let kept = sample.meta.originals != Originals::None;
    assert_eq!(segment.fingerprints().is_some(), encoded && !kept);
    if let Some(fingerprints) = segment.fingerprints() {
        assert_eq!((fingerprints.count(), fingerprints.stride()), (sample.meta.rows, 4));
        fingerprints.fetch(&all, &mut rows).unwrap();
        assert_eq!(rows.as_slice(), sample.fingerprints.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
    }
    assert_eq!(segment.originals().is_some(), kept);
    if let Some(originals) = segment.originals() {
        let stride = sample.meta.originals.stride(sample.meta.dimension as usize);
        assert_eq!((originals.count(), originals.stride()), (sample.meta.rows, stride));
        originals.fetch(&all, &mut rows).unwrap();
        assert_eq!(rows.as_slice(), sample.originals);
    }

    let factors = segment.factors().map(|f| f.iter().collect::<Vec<_>>());
    assert_eq!(factors, sample.has_factors().then(|| sample.factors.clone()));

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

/// Every encoding with all that can be kept beside it.
fn pairs() -> impl Iterator<Item = (Encoding, Originals)> {
    Encoding::ALL.into_iter().flat_map(|encoding| {
        let originals = Originals::ALL.into_iter().filter(move |originals| originals.suits(encoding));
        originals.map(move |originals| (encoding, originals))
    })
}

/// All odd, so that the last byte of 4-bit codes is half empty; of 1-bit codes it has 1, 3, 7, 7, 1, 7 and 1 bits.
const DIMENSIONS: [u32; 7] = [1, 3, 7, 15, 33, 127, 385];

/// All encodings, originals, metrics, kinds and dimensions; no rows, one and some, some of them removed.
fn encoded_samples() -> impl Iterator<Item = Sample> {
    pairs().flat_map(|(encoding, originals)| {
        Metric::ALL.into_iter().flat_map(move |metric| {
            IndexKind::ALL.into_iter().flat_map(move |kind| {
                let shapes = DIMENSIONS.into_iter().flat_map(|dimension| [0, 1, 9].map(|rows| (rows, dimension)));
                shapes.chain([(65, 12)]).map(move |(rows, dimension)| {
                    Sample::new(rows, dimension, metric, kind, rows > 1, 7).encoded(encoding, originals)
                })
            })
        })
    })
}

#[test]
fn every_encoding_comes_back_with_and_without_originals() {
    let mut count = 0;
    for sample in encoded_samples() {
        let bytes = sample.bytes();
        check(&sample, Arc::new(bytes.clone()));
        check(&sample, Arc::new(CopyingStorage::new(bytes)));
        count += 1;
    }
    // f32 alone, f16 without or with f32 originals, the others with all three.
    assert_eq!(count, (1 + 2 + 3 * 3) * 3 * 2 * (DIMENSIONS.len() * 3 + 1));
}

#[test]
fn quantizers_with_and_without_rotation_and_centre_come_back() {
    for (encoding, originals) in pairs() {
        for rows in [0, 9] {
            for (rotated, centred, seed) in [(false, false, 0), (false, true, 1), (true, false, u64::MAX)] {
                let quantizer = QuantizerMeta { rotated, centred, seed };
                let sample = Sample::new(rows, 7, Metric::L2, IndexKind::Flat, false, 3);
                let sample = sample.quantized(encoding, originals, quantizer);
                let bytes = sample.bytes();
                let has_centre = Map::of(&bytes).sections.iter().any(|s| s.0 == CENTRE);
                assert_eq!(has_centre, encoding.is_quantized() && centred && rows > 0);
                check(&sample, Arc::new(bytes));
            }
        }
    }
}

/// The table of FORMAT.md, written down again: which sections, in which order, how long.
#[test]
fn every_section_is_there_when_it_should_be_and_as_long_as_it_should_be() {
    for sample in encoded_samples() {
        let (meta, bytes) = (&sample.meta, sample.bytes());
        let (n, d) = (meta.rows as usize, meta.dimension as usize);
        let (encoded, quantized) = (meta.encoding != Encoding::F32, meta.quantizer.is_some());
        let graph = meta.graph.as_ref();
        let levels = graph.map_or(&[][..], |g| &g.levels);
        let upper: u64 = levels.iter().map(|l| 2 * u64::from(l.nodes) + 1 + l.links).sum();
        let original = match meta.originals {
            Originals::F16 => 2 * d,
            Originals::F32 => 4 * d,
            _ => 0,
        };
        let expected: Vec<(u32, usize)> = [
            (META, 128 + 16 * levels.len(), true),
            (KEYS, 8 * n, true),
            (KEY_ORDER, 4 * n, true),
            (CENTRE, 4 * d, quantized && n > 0),
            (CODES, stride_of(meta.encoding, d) * n, true),
            (FACTORS, 4 * n, meta.metric == Metric::Cosine && !quantized),
            (TOMBSTONES, n.div_ceil(8), meta.tombstones > 0),
            (LINK_OFFSETS, 8 * (17 * n.div_ceil(64) + 1), graph.is_some()),
            (LINKS, 4 * graph.map_or(0, |g| g.links) as usize, graph.is_some()),
            (UPPER, 4 * upper as usize, !levels.is_empty()),
            (FINGERPRINTS, 4 * n, encoded && original == 0),
            (ORIGINALS, original * n, original > 0),
        ]
        .into_iter()
        .filter_map(|(tag, len, there)| there.then_some((tag, len)))
        .collect();
        let map = Map::of(&bytes);
        let found: Vec<(u32, usize)> = map.sections.iter().map(|&(tag, _, len)| (tag, len)).collect();
        assert_eq!(found[..found.len() - 1], expected, "{meta:?}");
        assert_eq!(found[found.len() - 1].0, CHECKSUMS);

        let named = Segment::open(Arc::new(bytes.clone())).unwrap().section_bytes();
        let lens: Vec<u64> = named[1..named.len() - 1].iter().map(|&(_, len)| len).collect();
        assert_eq!(lens, found.iter().map(|&(_, len)| len as u64).collect::<Vec<_>>());
        assert_eq!(get(&bytes, 12, 4), u64::from(encoded), "the feature flag");
    }
}

#[test]
fn names_strides_and_texts_of_encodings_agree() {
    let names = ["f32", "f16", "int8", "int4", "bits1"];
    assert_eq!(Encoding::ALL.map(Encoding::name), names);
    for (encoding, name) in Encoding::ALL.into_iter().zip(names) {
        assert_eq!((encoding.to_string(), name.parse::<Encoding>().unwrap()), (name.to_string(), encoding));
        for dimension in DIMENSIONS.into_iter().chain([2, 8, 16, MAX_DIMENSION as u32]) {
            let (dimension, factors) = (dimension as usize, if encoding.is_quantized() { 8 } else { 0 });
            assert_eq!(encoding.stride(dimension), stride_of(encoding, dimension));
            assert_eq!(encoding.code_bytes(dimension) + factors, encoding.stride(dimension));
        }
    }
    assert_eq!(Encoding::ALL.map(Encoding::is_quantized), [false, false, true, true, true]);
    assert_eq!(Originals::ALL.map(Originals::name), ["none", "f16", "f32"]);
    for originals in Originals::ALL {
        assert_eq!(originals.to_string().parse::<Originals>().unwrap(), originals);
    }
    for wrong in ["", "F32", "int2", "none ", "f64"] {
        let refused = wrong.parse::<Encoding>();
        assert!(matches!(refused, Err(Error::InvalidParameter { name: "encoding", .. })), "{wrong}: {refused:?}");
        let refused = wrong.parse::<Originals>();
        assert!(matches!(refused, Err(Error::InvalidParameter { name: "originals", .. })), "{wrong}: {refused:?}");
    }
}

/// No stride wraps around to a small one.
#[test]
fn strides_beyond_the_address_space_saturate() {
    for dimension in [usize::MAX / 4 + 1, usize::MAX - 8, usize::MAX - 7, usize::MAX] {
        for encoding in Encoding::ALL {
            let exact = match encoding {
                Encoding::F32 => 4 * dimension as u128,
                Encoding::F16 => 2 * dimension as u128,
                Encoding::Int8 => dimension as u128 + 8,
                Encoding::Int4 => (dimension as u128).div_ceil(2) + 8,
                _ => (dimension as u128).div_ceil(8) + 8,
            };
            assert_eq!(encoding.stride(dimension) as u128, exact.min(usize::MAX as u128), "{encoding}, {dimension}");
        }
    }
    assert_eq!(Originals::F32.stride(usize::MAX), usize::MAX);
    assert_eq!(Originals::None.stride(usize::MAX), 0);
}

#[test]
fn the_same_segment_gives_the_same_bytes() {
    for sample in all_samples().chain(encoded_samples()) {
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

/// Three rows under cosine with a graph, as the files beside the script have them that made them from FORMAT.md,
/// without this crate.
fn golden_f32() -> Sample {
    let graph = GraphMeta {
        m: 2,
        ef_construction: 100,
        seed: 42,
        entry: Some(2),
        links: 5,
        levels: vec![LevelMeta { nodes: 2, links: 2 }],
    };
    Sample {
        meta: Meta {
            dimension: 2,
            metric: Metric::Cosine,
            encoding: Encoding::F32,
            kind: IndexKind::Hnsw,
            rows: 3,
            tombstones: 1,
            stride: 8,
            ef: 50,
            originals: Originals::None,
            quantizer: None,
            graph: Some(graph),
        },
        keys: vec![7, 5, 7],
        centre: Vec::new(),
        codes: [3.0_f32, 4.0, 0.0, 2.0, -1.0, 0.0].map(f32::to_le_bytes).concat(),
        factors: vec![0.2, 0.5, 1.0],
        removed: vec![true, false, false],
        lists: vec![vec![1, 2], vec![0], vec![1, 0]],
        upper: vec![vec![(1, vec![2]), (2, vec![1])]],
        fingerprints: Vec::new(),
        originals: Vec::new(),
    }
}

fn golden_int4() -> Sample {
    let mut sample = golden_f32();
    sample.meta = Meta {
        dimension: 3,
        encoding: Encoding::Int4,
        stride: 10,
        originals: Originals::F16,
        quantizer: Some(QuantizerMeta { rotated: false, centred: true, seed: 77 }),
        ..sample.meta
    };
    sample.centre = vec![-0.125, 0.25, 0.375];
    sample.codes = [
        [0x4F, 0x0D, 0x7D, 0xF7, 0xCA, 0x3D, 0x00, 0x00, 0xC0, 0xBD],
        [0xF9, 0x04, 0xDF, 0xF4, 0xA6, 0x3D, 0x00, 0x00, 0x20, 0x3E],
        [0x40, 0x05, 0x69, 0x69, 0xE9, 0x3D, 0x00, 0x00, 0xC0, 0xBD],
    ]
    .concat();
    let originals: [u16; 9] = [0x4200, 0x4400, 0, 0, 0, 0x4000, 0xBC00, 0, 0];
    sample.originals = originals.map(u16::to_le_bytes).concat();
    sample
}

fn golden_f16() -> Sample {
    let mut sample = Sample::new(2, 3, Metric::L2, IndexKind::Flat, false, 0).encoded(Encoding::F16, Originals::None);
    sample.meta.ef = 30;
    sample.keys = vec![9, 4];
    let codes: [u16; 6] = [0x2E66, 0xC000, 0, 0x3C00, 0x3800, 0x5CB0];
    sample.codes = codes.map(u16::to_le_bytes).concat();
    sample.fingerprints = vec![0x66AB_2B63, 0x87E7_D28C];
    sample
}

#[test]
fn the_golden_files_are_what_the_writer_writes() {
    let files = [
        (golden_f32(), &include_bytes!("../data/format/v1-hnsw.twx")[..]),
        (golden_int4(), include_bytes!("../data/format/v1-int4.twx")),
        (golden_f16(), include_bytes!("../data/format/v1-f16.twx")),
    ];
    for (sample, golden) in files {
        check(&sample, Arc::new(golden.to_vec()));
        assert!(sample.bytes() == golden, "{:?}", sample.meta);
    }
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

/// Neither codes nor originals nor fingerprints are read at open, nor is the centre before it is asked for.
#[test]
fn opening_reads_neither_originals_nor_fingerprints() {
    for (encoding, originals) in [(Encoding::Int8, Originals::F32), (Encoding::Bits1, Originals::None)] {
        let sample = Sample::new(1000, 64, Metric::Cosine, IndexKind::Flat, false, 4).encoded(encoding, originals);
        let storage = Arc::new(CopyingStorage::new(sample.bytes()));
        let mut segment = Segment::open(Arc::clone(&storage)).unwrap();
        let copied = 1000 * (8 + 4);
        let head = 64 + 128 + 32 * Map::of(&sample.bytes()).sections.len() as u64 + 8;
        assert_eq!(storage.bytes_read(), head + copied);
        assert_eq!(segment.owned_bytes(), copied);
        for rows in [segment.originals(), segment.fingerprints()].into_iter().flatten() {
            assert!(rows.resident(0).is_none());
        }
        assert_eq!(segment.centre().unwrap().as_deref(), Some(&sample.centre[..]));
        assert_eq!(storage.bytes_read(), head + copied + 4 * 64);
        segment.make_codes_resident().unwrap();
        assert_eq!(segment.owned_bytes(), copied + 1000 * stride_of(encoding, 64) as u64);
        assert!(segment.codes().resident(999).is_some());
    }
}

#[test]
fn section_bytes_add_up_to_the_file_but_for_padding() {
    let samples = [Originals::None, Originals::F16].map(|originals| Sample::full(1).encoded(Encoding::Int4, originals));
    samples.into_iter().chain([Sample::full(1)]).for_each(|sample| add_up(&sample.bytes()));
}

fn add_up(bytes: &[u8]) {
    let map = Map::of(bytes);
    let segment = Segment::open(Arc::new(bytes.to_vec())).unwrap();
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
        originals: Originals::None,
        quantizer: None,
        graph: Some(graph),
    }
}

/// The same with int4 rows of 9 bytes, a centre and the originals in f16.
fn promised_quantized(originals: Originals) -> Meta {
    Meta {
        encoding: Encoding::Int4,
        stride: 9,
        originals,
        quantizer: Some(QuantizerMeta { rotated: true, centred: true, seed: 5 }),
        ..promised()
    }
}

const GOOD_QUANTIZED: [Step; 8] = [
    |w| w.keys([1, 2, 3]),
    |w| w.key_order([0, 1, 2]),
    |w| w.centre(&[0.5, -0.5]),
    |w| w.codes([[0; 27]]),
    |w| w.tombstones([false, true, false]),
    |w| w.links(|id, out| out.push((id + 1) % 3)),
    |w| w.try_originals([Ok([0; 6]), Ok([0; 6])]),
    |w| w.fingerprints([7, 8, 9]),
];
const WITH_ORIGINALS: [usize; 7] = [0, 1, 2, 3, 4, 5, 6];
const WITH_FINGERPRINTS: [usize; 7] = [0, 1, 2, 3, 4, 5, 7];

#[test]
fn promises_of_quantized_files_are_kept_or_broken() {
    for (originals, steps) in [(Originals::F16, WITH_ORIGINALS), (Originals::None, WITH_FINGERPRINTS)] {
        let begin = || SegmentWriter::begin(Vec::new(), &promised_quantized(originals)).unwrap();
        let mut writer = begin();
        steps.iter().for_each(|&step| GOOD_QUANTIZED[step](&mut writer).unwrap());
        let (bytes, _) = writer.finish().unwrap();
        Segment::open(Arc::new(bytes)).unwrap().verify().unwrap();

        for left_out in 0..steps.len() {
            let mut writer = begin();
            for &step in &steps[..left_out] {
                GOOD_QUANTIZED[step](&mut writer).unwrap();
            }
            for &step in &steps[left_out + 1..] {
                assert!(GOOD_QUANTIZED[step](&mut writer).is_err(), "{step} where {left_out} was left out");
            }
            assert!(writer.finish().is_err(), "{left_out} left out");
        }
        let broken: [(usize, &str, Step); 12] = [
            (2, "a centre too short", |w| w.centre(&[0.5])),
            (2, "a centre too long", |w| w.centre(&[0.5; 3])),
            (2, "a centre that is not finite", |w| w.centre(&[0.5, f32::NAN])),
            (2, "an infinite centre", |w| w.centre(&[f32::INFINITY, 0.0])),
            (3, "rows without their factors", |w| w.codes([[0; 3]])),
            (4, "factors, which the rows have in them", |w| w.factors([1.0; 3])),
            (6, "originals too short", |w| w.try_originals([Ok([0; 11])])),
            (6, "originals too long", |w| w.try_originals([Ok([0; 13])])),
            (6, "a failing source", |w| w.try_originals([Ok([0; 6]), Err(Error::NotASegment)])),
            (6, "too few fingerprints", |w| w.fingerprints([7, 8])),
            (6, "too many fingerprints", |w| w.fingerprints([7, 8, 9, 10])),
            (6, "keys again", |w| w.keys([1, 2, 3])),
        ];
        for (at, what, step) in broken {
            let mut writer = begin();
            steps[..at].iter().for_each(|&step| GOOD_QUANTIZED[step](&mut writer).unwrap());
            assert!(step(&mut writer).is_err(), "{what}");
            steps[at..].iter().for_each(|&step| assert!(GOOD_QUANTIZED[step](&mut writer).is_err(), "after {what}"));
            assert!(writer.finish().is_err(), "{what}");
        }
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
        originals: Originals::None,
        quantizer: None,
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

    let quantizer = Some(QuantizerMeta { rotated: true, centred: true, seed: u64::MAX });
    let int8 = |rows, dimension: u32| Meta {
        encoding: Encoding::Int8,
        stride: dimension.saturating_add(8),
        originals: Originals::F32,
        quantizer,
        ..flat(rows, dimension)
    };
    SegmentWriter::begin(std::io::sink(), &int8(MAX_ROWS, dimension)).unwrap();
    let f16 = |dimension| Meta { encoding: Encoding::F16, stride: 2 * dimension, ..flat(1, dimension) };
    SegmentWriter::begin(std::io::sink(), &f16(4)).unwrap();

    let refused = [
        Meta { originals: Originals::F16, ..flat(1, 4) },
        Meta { originals: Originals::F32, ..flat(1, 4) },
        Meta { quantizer, ..flat(1, 4) },
        Meta { quantizer, ..f16(4) },
        Meta { stride: 16, ..f16(4) },
        Meta { quantizer: None, ..int8(1, 4) },
        Meta { stride: 4, ..int8(1, 4) },
        Meta { stride: 13, ..int8(1, 4) },
        Meta { encoding: Encoding::Int4, ..int8(1, 4) },
        Meta { encoding: Encoding::Bits1, ..int8(1, 9) },
        int8(u32::MAX, 4),
        int8(1, dimension + 1),
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
