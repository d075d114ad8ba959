//! Damaged, truncated, spliced and hostile files: refused, or harmless.

use crate::sample::{
    CENTRE, CHECKSUMS, CODES, FACTORS, FINGERPRINTS, KEY_ORDER, KEYS, LINK_OFFSETS, LINKS, M, META, Map, ORIGINALS,
    Random, Sample, TOMBSTONES, UPPER, get, put,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use twindex::segment::{Encoding, IndexKind, Originals, QuantizerMeta, Segment};
use twindex::storage::{CopyingStorage, RowBuf, Rows, Storage};
use twindex::{Error, Metric, Result};

fn open(bytes: &[u8]) -> Result<Segment<Vec<u8>>> {
    Segment::open(Arc::new(bytes.to_vec()))
}

fn open_and_verify(bytes: &[u8]) -> Result<()> {
    open(bytes)?.verify()
}

/// Every section there can be, over the three: of rows as they are, of quantized ones with originals, and of others
/// with fingerprints. Bits are left over in the last byte of a quantized row.
fn full_samples() -> [Sample; 3] {
    [
        Sample::full(1),
        Sample::full(1).encoded(Encoding::Int4, Originals::F16),
        Sample::full(1).encoded(Encoding::F16, Originals::None),
    ]
}

/// Reads everything there is to read, and holds what is promised of any file that opens.
fn walk<S: Storage + ?Sized>(segment: &Segment<S>) {
    let rows = segment.meta().rows;
    let keys = segment.keys();
    let mut found = 0;
    for key in keys.iter().chain([0, u64::MAX]) {
        for id in keys.find(key) {
            assert_eq!(keys.get(id), Some(key));
            found += 1;
        }
    }
    assert!(found <= rows as usize * rows as usize);
    let tombstones = segment.tombstones();
    let _ = (0..rows).filter(|&id| tombstones.contains(id)).count();
    let _ = segment.factors().map(|f| f.iter().sum::<f32>());
    let mut codes = RowBuf::new();
    for rows_of in [Some(segment.codes()), segment.originals(), segment.fingerprints()].into_iter().flatten() {
        assert_eq!(rows_of.count(), rows);
        rows_of.fetch(&(0..rows).collect::<Vec<_>>(), &mut codes).unwrap();
    }
    match segment.centre() {
        Ok(centre) => assert!(centre.is_none_or(|c| c.iter().all(|x| x.is_finite()))),
        Err(e) => assert!(matches!(e, Error::Corrupt { section: "CENTRE", .. })),
    }
    if let Some(links) = segment.links() {
        let m = segment.meta().graph.as_ref().unwrap().m as usize;
        let mut list = Vec::new();
        for level in 0..=links.max_level() + 1 {
            assert!(links.nodes(level).all(|id| id < rows));
            let cap = if level == 0 { 2 * m } else { m };
            for id in (0..rows).chain([rows, u32::MAX]) {
                links.list(id, level, &mut list);
                assert!(list.len() <= cap && list.iter().all(|&to| to < rows), "row {id} on level {level}: {list:?}");
            }
        }
        assert!(links.entry().is_none_or(|entry| entry < rows));
    }
    let _ = segment.verify();
}

#[test]
fn every_truncation_is_called_one() {
    full_samples().iter().for_each(|sample| truncate(&sample.bytes()));
}

fn truncate(bytes: &[u8]) {
    let steps = (0..500).map(|i| i * (bytes.len() - 1) / 499);
    for len in (0..=512).chain(steps).chain(bytes.len() - 600..bytes.len()) {
        let cut = &bytes[..len];
        for result in [open_and_verify(cut), Segment::open(Arc::new(CopyingStorage::new(cut.to_vec()))).map(drop)] {
            match result {
                Err(Error::Truncated { got, .. }) => assert_eq!(got, len as u64),
                other => panic!("cut at {len}: {other:?}"),
            }
        }
    }
}

#[test]
fn nothing_may_follow_the_end() {
    let mut bytes = Sample::full(1).bytes();
    bytes.push(0);
    assert!(matches!(open(&bytes), Err(Error::Corrupt { section: "HEADER", .. })));
}

#[test]
fn other_files_are_not_segments() {
    for bytes in [&b"PK\x03\x04"[..], &[0; 100], b"\x89PNG\r\n\x1a\n and so on, for more than sixty-four bytes in all."]
    {
        assert!(matches!(open(bytes), Err(Error::NotASegment)), "{bytes:?}");
    }
}

#[test]
fn every_flipped_bit_of_the_head_is_refused_at_open() {
    for sample in full_samples() {
        let bytes = sample.bytes();
        let map = Map::of(&bytes);
        let (meta, meta_len) = map.section(META);
        let head = (0..64).chain(meta..meta + meta_len).chain(map.table..bytes.len());
        let mut damaged = bytes.clone();
        for at in head {
            for bit in 0..8 {
                damaged[at] ^= 1 << bit;
                let opened = open(&damaged);
                assert!(opened.is_err(), "bit {bit} of byte {at}");
                damaged[at] = bytes[at];
            }
        }
        open_and_verify(&damaged).unwrap();
    }
}

/// The same with the checksums put right: what then opens is what another META allows, and never more than that.
#[test]
fn every_flipped_bit_of_the_head_with_right_checksums_is_refused_or_free() {
    for sample in full_samples() {
        let bytes = sample.bytes();
        let map = Map::of(&bytes);
        let (meta, meta_len) = map.section(META);
        // Number of tombstones, ef, m, ef_construction, seed, entry; where rows are quantized the metric, which then
        // implies no section, and flag and seed of the rotation.
        let mut free = [(16, 24), (28, 48), (48, 52)].map(|(from, to)| meta + from..meta + to).to_vec();
        if sample.meta.quantizer.is_some() {
            free.extend([meta + 4..meta + 5, meta + 65..meta + 66, meta + 72..meta + 80]);
        }
        for at in (8..60).chain(meta..meta + meta_len).chain(map.table..bytes.len() - 8) {
            for bit in 0..8 {
                let flipped = bytes[at] ^ 1 << bit;
                match open(&map.patched(&bytes, at, 1, flipped.into())) {
                    Ok(segment) => {
                        assert!(free.iter().any(|free| free.contains(&at)), "bit {bit} of byte {at}");
                        assert!(at != meta + 65 || bit == 0, "bit {bit} of the quantizer's flags");
                        walk(&segment);
                    }
                    Err(Error::Corrupt { .. } | Error::Truncated { .. }) => {}
                    Err(Error::UnsupportedVersion { .. }) => assert!((8..12).contains(&at)),
                    Err(Error::UnsupportedFeatures { .. }) => assert!((12..16).contains(&at)),
                    Err(e) => panic!("bit {bit} of byte {at}: {e}"),
                }
            }
        }
    }
}

#[test]
fn every_changed_byte_is_refused_by_verify() {
    let flat = Sample::new(9, 2, Metric::L2, IndexKind::Flat, false, 2);
    let small = [
        flat.clone().encoded(Encoding::Int8, Originals::F32),
        flat.clone().encoded(Encoding::Bits1, Originals::None),
        flat,
    ];
    for sample in full_samples().into_iter().chain(small) {
        let bytes = sample.bytes();
        let mut damaged = bytes.clone();
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xFF] {
                damaged[at] ^= flip;
                assert!(open_and_verify(&damaged).is_err(), "byte {at} ^ {flip:#x}");
                damaged[at] = bytes[at];
            }
        }
    }
}

#[test]
fn damage_in_any_block_is_found_where_it_is() {
    let sample = Sample::new(129, 300, Metric::L2, IndexKind::Flat, false, 5);
    let bytes = sample.bytes();
    for at in [0x10000 - 1, 0x10000, 0x1FFFF, 0x20000].into_iter().chain((200..bytes.len() - 900).step_by(7919)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        let expected = (at as u64) & !0xFFFF;
        for result in
            [open(&damaged).unwrap().verify(), Segment::open(Arc::new(CopyingStorage::new(damaged))).unwrap().verify()]
        {
            assert!(matches!(result, Err(Error::ChecksumMismatch { offset, .. }) if offset == expected), "byte {at}");
        }
    }
}

#[test]
fn versions_and_features_are_judged_before_anything_else() {
    let bytes = Sample::full(1).bytes();
    let map = Map::of(&bytes);
    for version in [2, 3, 0xFFFF, u32::MAX] {
        let mut newer = bytes.clone();
        put(&mut newer, 8, 4, version.into());
        for newer in [newer, map.patched(&bytes, 8, 4, version.into())] {
            match open(&newer) {
                Err(Error::UnsupportedVersion { supported: 1, got }) => assert_eq!(got, version),
                other => panic!("version {version}: {other:?}"),
            }
        }
    }
    assert!(matches!(open(&map.patched(&bytes, 8, 4, 0)), Err(Error::Corrupt { section: "HEADER", .. })));
    for bit in 1..32 {
        for known in [0, 1] {
            match open(&map.patched(&bytes, 12, 4, 1 << bit | known)) {
                Err(Error::UnsupportedFeatures { flags }) => assert_eq!(flags, 1 << bit),
                other => panic!("bit {bit}: {other:?}"),
            }
        }
    }
}

#[test]
fn the_feature_flag_and_the_encoding_imply_each_other() {
    let plain = Sample::new(5, 4, Metric::L2, IndexKind::Flat, false, 1);
    for encoding in Encoding::ALL {
        let bytes = plain.clone().encoded(encoding, Originals::None).bytes();
        let flag = u64::from(encoding != Encoding::F32);
        assert_eq!(get(&bytes, 12, 4), flag);
        let opened = open(&Map::of(&bytes).patched(&bytes, 12, 4, 1 - flag));
        assert!(matches!(opened, Err(Error::Corrupt { section: "HEADER", .. })), "{encoding}: {opened:?}");
    }
}

#[test]
fn unknown_tags_are_refused() {
    let sample = Sample::new(5, 3, Metric::L2, IndexKind::Flat, false, 1);
    let bytes = sample.bytes();
    let map = Map::of(&bytes);
    // Squared Euclidean and inner product files differ in nothing but the tag; other tags imply other sections.
    for (field, good) in [(4, &[0, 1][..]), (5, &[0]), (6, &[0]), (7, &[0])] {
        for tag in 0..=255 {
            let opened = open(&map.patched(&bytes, 64 + field, 1, tag));
            match good.contains(&tag) {
                true => opened.unwrap().verify().unwrap(),
                false => assert!(matches!(opened, Err(Error::Corrupt { .. })), "tag {tag} in byte {field}"),
            }
        }
    }
}

/// What META says of encoding, originals and quantizer: what contradicts the rest is refused, and META named where the
/// contradiction is within it.
#[test]
fn what_meta_says_of_codes_and_originals_has_to_fit() {
    let plain = Sample::new(5, 3, Metric::L2, IndexKind::Flat, false, 1);
    let refused = |bytes: &[u8], field: usize, width: usize, value: u64, section: &[&str]| {
        let opened = open(&Map::of(bytes).patched(bytes, 64 + field, width, value));
        match opened {
            Err(Error::Corrupt { section: named, .. }) if section.contains(&named) => {}
            other => panic!("{value:#x} in byte {field} of META: {other:?}"),
        }
    };
    let f32 = plain.bytes();
    let f16 = plain.clone().encoded(Encoding::F16, Originals::None).bytes();
    let int4 = plain.clone().encoded(Encoding::Int4, Originals::F16).bytes();
    let bits1 = plain.clone().encoded(Encoding::Bits1, Originals::None).bytes();

    // Originals beside f32 codes, settings of a quantizer where there is none, and originals that do not exist.
    for (field, width) in [(64, 1), (65, 1), (72, 8), (79, 1)] {
        for value in [1, 2, 3] {
            refused(&f32, field, width, value, &["META"]);
        }
    }
    for (field, width) in [(65, 1), (72, 8), (79, 1)] {
        for value in [1, 2, 3] {
            refused(&f16, field, width, value, &["META"]);
        }
    }
    for bytes in [&f32, &f16, &int4, &bits1] {
        for tag in 3..=255 {
            refused(bytes, 64, 1, tag, &["META"]);
        }
        for at in (66..72).chain(80..128) {
            refused(bytes, at, 1, 0x10, &["META"]);
        }
    }
    // f16 originals beside f16 codes would be the same bytes. Others that exist imply other sections.
    refused(&f16, 64, 1, 1, &["META"]);
    for (bytes, own) in [(&f16, 0), (&int4, 1), (&bits1, 0)] {
        for tag in (0..3).filter(|&tag| tag != own && (bytes != &f16 || tag != 1)) {
            refused(bytes, 64, 1, tag, &["TABLE", "ORIGINALS", "FINGERPRINTS"]);
        }
    }
    // Rotated and centred is 3. Without the centre its section must not be there; unknown flags never.
    for bytes in [&int4, &bits1] {
        let map = Map::of(bytes);
        assert_eq!(get(bytes, 64 + 65, 1), 3);
        open(&map.patched(bytes, 64 + 65, 1, 2)).unwrap().verify().unwrap();
        open(&map.patched(bytes, 64 + 72, 8, u64::MAX)).unwrap().verify().unwrap();
        [0, 1].iter().for_each(|&flags| refused(bytes, 65, 1, flags, &["TABLE"]));
        (4..=255).for_each(|flags| refused(bytes, 65, 1, flags, &["META"]));
    }
    let bare = QuantizerMeta { rotated: false, centred: false, seed: 0 };
    let bare = plain.clone().quantized(Encoding::Int8, Originals::F32, bare).bytes();
    [2, 3].iter().for_each(|&flags| refused(&bare, 65, 1, flags, &["TABLE"]));
    // Without rows there is no centre either way.
    let none = Sample::new(0, 3, Metric::L2, IndexKind::Flat, false, 1).encoded(Encoding::Int8, Originals::None);
    let none = none.bytes();
    (0..4).for_each(|flags| open(&Map::of(&none).patched(&none, 64 + 65, 1, flags)).unwrap().verify().unwrap());

    // Strides of other encodings and those without factors.
    for (bytes, own) in [(&f32, 12), (&f16, 6), (&int4, 10), (&bits1, 9), (&bare, 11)] {
        assert_eq!(get(bytes, 64 + 24, 4), own);
        for stride in [0, 1, 2, 3, 6, 8, 9, 10, 11, 12, 13, own - 8 * u64::from(own > 8), 1 << 31, u64::from(u32::MAX)]
        {
            if stride != own {
                refused(bytes, 24, 4, stride, &["META"]);
            }
        }
    }
    // An encoding with its right stride over the sections of another.
    for (bytes, own) in [(&f32, 0), (&f16, 1), (&bare, 2), (&int4, 3), (&bits1, 4)] {
        for (tag, stride) in [(0, 12), (1, 6), (2, 11), (3, 10), (4, 9)] {
            if tag != own {
                let mut other = bytes.to_vec();
                put(&mut other, 64 + 24, 4, stride);
                refused(&other, 5, 1, tag, &["META", "TABLE", "CODES"]);
            }
        }
    }
}

/// Every number of header, META and table at its edges, and counts whose products wrap around 2³² or 2⁶⁴.
#[test]
fn hostile_numbers_with_right_checksums_are_refused_or_harmless() {
    full_samples().iter().for_each(hostile_numbers);
}

fn hostile_numbers(sample: &Sample) {
    let bytes = sample.bytes();
    let map = Map::of(&bytes);
    let n = u64::from(sample.meta.rows);
    let edges = [0, 1, 2, 3, n - 1, n, n + 1, 1 << 16, 1 << 30, 1 << 31, (1 << 31) + 1, u64::from(u32::MAX) - 1];
    let wide = [1 << 32, (1 << 32) + 2, (1 << 32) + n, 1 << 40, 1 << 61, 1 << 62, 1 << 63, u64::MAX - 63, u64::MAX];
    let (meta, meta_len) = map.section(META);
    // What may change without contradicting the layout: tombstones, ef, m, ef_construction, seed, entry.
    let mut free = [16, 28, 32, 36, 40, 44, 48].map(|at| meta + at).to_vec();
    // And the seed of the rotation.
    if sample.meta.quantizer.is_some() {
        free.extend([meta + 72, meta + 76]);
    }
    for at in
        (16..60).step_by(4).chain((meta..meta + meta_len).step_by(4)).chain((map.table..bytes.len() - 8).step_by(4))
    {
        for (width, &value) in edges.iter().map(|v| (4, v)).chain(wide.iter().map(|v| (8, v))) {
            if at % width != 0 || at + width > bytes.len() - 8 {
                continue;
            }
            let damaged = map.patched(&bytes, at, width, value);
            if damaged == bytes {
                continue;
            }
            match open(&damaged) {
                Ok(segment) if free.contains(&at) => walk(&segment),
                Ok(_) => panic!("{value:#x} at {at} was accepted"),
                Err(e) => {
                    assert!(matches!(e, Error::Corrupt { .. } | Error::Truncated { .. }), "{value:#x} at {at}: {e}")
                }
            }
        }
    }
    for (rows, dimension) in
        [(1_u64 << 30, 4_u64), ((1 << 31) + 1, 2), (1 << 62, 4), ((1 << 32) + n, 3), (1 << 16, 1 << 14)]
    {
        let mut damaged = bytes.clone();
        put(&mut damaged, meta, 4, dimension);
        put(&mut damaged, meta + 8, 8, rows);
        put(&mut damaged, meta + 24, 4, 4 * dimension);
        map.reseal(&mut damaged);
        assert!(matches!(open(&damaged), Err(Error::Corrupt { .. })), "{rows} × {dimension}");
    }
}

#[test]
fn tables_with_other_sections_are_refused() {
    full_samples().iter().for_each(|sample| other_sections(&sample.bytes()));
}

fn other_sections(bytes: &[u8]) {
    let map = Map::of(bytes);
    let count = map.sections.len();
    for i in 0..count {
        let entry = map.table + 32 * i;
        let own = u64::from(map.sections[i].0);
        let tags = [0, 6, 12, 13, 14, 77, u64::from(u32::MAX), get(bytes, map.table + 32 * ((i + 1) % count), 4)];
        for tag in tags.into_iter().filter(|&tag| tag != own) {
            let opened = open(&map.patched(bytes, entry, 4, tag));
            assert!(matches!(opened, Err(Error::Corrupt { .. })), "entry {i} as {tag}: {opened:?}");
        }
        let mut swapped = bytes.to_vec();
        let other = map.table + 32 * ((i + 1) % count);
        swapped[entry..entry + 32].copy_from_slice(&bytes[other..other + 32]);
        swapped[other..other + 32].copy_from_slice(&bytes[entry..entry + 32]);
        map.reseal(&mut swapped);
        assert!(open(&swapped).is_err(), "entry {i} swapped with the next");
    }
}

/// The byte ranges to poison, what to write there, and the section that verify has to name.
#[test]
fn wrong_values_with_right_checksums_are_named_by_verify_and_harmless_before() {
    let sample = Sample::full(1);
    let bytes = sample.bytes();
    let map = Map::of(&bytes);
    let at = |tag, index: usize, width: usize| map.section(tag).0 + index * width;
    let n = u64::from(sample.meta.rows);
    let f = |x: f32| u64::from(x.to_bits());
    let level1 = sample.upper[0].len();
    let level2 = 2 * level1 + 1 + sample.meta.graph.as_ref().unwrap().levels[0].links as usize;
    let nodes2 = sample.upper[1].len();
    let second_of_row_0 = u64::from(sample.lists[0][1]);
    let record = |row: usize| at(LINK_OFFSETS, 0, 1) + 136 * (row / 64) + 8 + 2 * (row % 64);

    let mut cases: Vec<(&str, &str, usize, usize, u64)> = vec![
        ("KEYS", "two live rows with one key", at(KEYS, 3, 8), 8, sample.keys[5]),
        ("KEY_ORDER", "a row twice", at(KEY_ORDER, 1, 4), 4, get(&bytes, at(KEY_ORDER, 0, 4), 4)),
        ("KEY_ORDER", "no row", at(KEY_ORDER, 7, 4), 4, n),
        ("KEY_ORDER", "no row", at(KEY_ORDER, 66, 4), 4, u64::from(u32::MAX)),
        ("TOMBSTONES", "one more", at(TOMBSTONES, 0, 1), 1, get(&bytes, at(TOMBSTONES, 0, 1), 1) | 1),
        ("LINKS", "itself", at(LINKS, 0, 4), 4, 0),
        ("LINKS", "twice", at(LINKS, 0, 4), 4, second_of_row_0),
        ("LINK_OFFSETS", "first start", record(0), 2, 1),
        ("LINK_OFFSETS", "a start far off", record(5), 2, 0xFFFF),
        ("LINK_OFFSETS", "a base far off", at(LINK_OFFSETS, 17, 8), 8, u64::MAX),
        ("LINK_OFFSETS", "a base that wraps", at(LINK_OFFSETS, 0, 8), 8, u64::MAX - 3),
        ("LINK_OFFSETS", "the last base", at(LINK_OFFSETS, 34, 8), 8, 1 << 62),
        ("LINK_OFFSETS", "a start behind the last row", record(127), 2, 0),
        ("UPPER", "nodes out of order", at(UPPER, 1, 4), 4, 0),
        ("UPPER", "a node beyond the rows", at(UPPER, level1 - 1, 4), 4, n),
        ("UPPER", "a node that is not below", at(UPPER, level2 + 1, 4), 4, 26),
        ("UPPER", "the first offset", at(UPPER, level1, 4), 4, 1),
        ("UPPER", "an offset far off", at(UPPER, level1 + 2, 4), 4, u64::from(u32::MAX)),
        ("UPPER", "the last offset", at(UPPER, 2 * level1, 4), 4, 0),
        ("UPPER", "a link to a node of level 0", at(UPPER, 2 * level1 + 1, 4), 4, 1),
        ("UPPER", "a link to itself", at(UPPER, level2 + 2 * nodes2 + 1, 4), 4, 0),
        ("UPPER", "the entry point below the top", at(META, 0, 1) + 48, 4, 5),
        ("CODES", "the padding behind it is not zero", at(CODES, 0, 1) + map.section(CODES).1, 1, 1),
    ];
    for id in [n, n + 1, 1 << 31, u64::from(u32::MAX)] {
        cases.push(("LINKS", "a link beyond the rows", at(LINKS, 3, 4), 4, id));
        cases.push(("UPPER", "a link beyond the rows", at(UPPER, 2 * level1 + 1, 4), 4, id));
    }
    for x in [0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        cases.push(("FACTORS", "a factor", at(FACTORS, 66, 4), 4, f(x)));
    }
    for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        cases.push(("CODES", "a component", at(CODES, 200, 4), 4, f(x)));
    }
    for (section, what, offset, width, value) in cases {
        let damaged = map.patched(&bytes, offset, width, value);
        assert_ne!(damaged, bytes, "{section}: {what}");
        let segment = open(&damaged).unwrap_or_else(|e| panic!("{section}: {what}: {e}"));
        walk(&segment);
        match segment.verify() {
            Err(Error::Corrupt { section: named, reason }) => {
                let key_order = section == "KEYS" && named == "KEY_ORDER";
                assert!(named == section || key_order, "{section}: {what}: {named}: {reason}");
            }
            other => panic!("{section}: {what}: {other:?}"),
        }
    }
}

#[test]
fn wrong_values_of_encoded_rows_are_named_by_verify_and_harmless_before() {
    let wrong = |sample: Sample, section: &str, tag: u32, cases: &[(&str, usize, usize, u64)]| {
        let bytes = sample.bytes();
        let map = Map::of(&bytes);
        open_and_verify(&bytes).unwrap();
        for &(what, at, width, value) in cases {
            let damaged = map.patched(&bytes, map.section(tag).0 + at, width, value);
            assert_ne!(damaged, bytes, "{section}: {what}");
            let segment = open(&damaged).unwrap_or_else(|e| panic!("{section}: {what}: {e}"));
            walk(&segment);
            match segment.verify() {
                Err(Error::Corrupt { section: named, .. }) => assert_eq!(named, section, "{what}"),
                other => panic!("{section}: {what}: {other:?}"),
            }
        }
    };
    let f = |x: f32| u64::from(x.to_bits());
    let (nan, inf) = (f(f32::NAN), f(f32::INFINITY));
    let halves =
        |at: usize| [0x7C00, 0xFC00, 0x7C01, 0x7FFF, 0xFE00].map(|half| ("an f16 that is not finite", at, 2, half));
    let n = 67;
    let full = || Sample::full(1);
    wrong(full().encoded(Encoding::F16, Originals::None), "CODES", CODES, &halves(6 * n - 2));
    wrong(full().encoded(Encoding::F16, Originals::None), "FACTORS", FACTORS, &[("a negative factor", 0, 4, f(-1.0))]);
    let int4 = || full().encoded(Encoding::Int4, Originals::F16);
    wrong(int4(), "ORIGINALS", ORIGINALS, &halves(6 * n - 2));
    let centre = [("NaN", 0, 4, nan), ("infinite", 8, 4, inf), ("negative infinite", 4, 4, f(f32::NEG_INFINITY))];
    wrong(int4(), "CENTRE", CENTRE, &centre);
    let originals = [("NaN", 0, 4, nan), ("infinite", 12 * n - 4, 4, inf)];
    wrong(full().encoded(Encoding::Bits1, Originals::F32), "ORIGINALS", ORIGINALS, &originals);

    // Codes of 3, 2 and 1 bytes for 3 components, and the factors behind them.
    for (encoding, len) in [(Encoding::Int8, 3), (Encoding::Int4, 2), (Encoding::Bits1, 1)] {
        let last = (n - 1) * (len + 8) + len;
        let cases = [
            ("the first factor is NaN", last, 4, nan),
            ("the first factor is infinite", len, 4, inf),
            ("the first factor is negative", last, 4, f(-f32::MIN_POSITIVE)),
            ("the first factor is negative infinity", last, 4, f(f32::NEG_INFINITY)),
            ("the second factor is NaN", len + 4, 4, nan),
            ("the second factor is infinite", last + 4, 4, inf),
            ("the second factor is negative infinity", last + 4, 4, f(f32::NEG_INFINITY)),
        ];
        wrong(full().encoded(encoding, Originals::F16), "CODES", CODES, &cases);
        wrong(full().encoded(encoding, Originals::None), "CODES", CODES, &cases);
    }
    for (encoding, dimension, bit) in [
        (Encoding::Int4, 1, 4),
        (Encoding::Int4, 33, 7),
        (Encoding::Bits1, 1, 1),
        (Encoding::Bits1, 7, 7),
        (Encoding::Bits1, 33, 1),
        (Encoding::Bits1, 127, 7),
        (Encoding::Bits1, 385, 4),
    ] {
        let sample = Sample::new(9, dimension, Metric::L2, IndexKind::Flat, false, 1);
        let sample = sample.encoded(encoding, Originals::None);
        let at = 8 * sample.meta.stride as usize + sample.meta.stride as usize - 9;
        let byte = u64::from(sample.codes[at]) | 1 << bit;
        wrong(sample, "CODES", CODES, &[("a bit behind the last component", at, 1, byte)]);
    }
}

/// Where no bit is left over every value of the last byte is a code; fingerprints may be any numbers.
#[test]
fn whole_bytes_of_codes_and_fingerprints_may_be_anything() {
    for (encoding, dimension) in [(Encoding::Int8, 1), (Encoding::Int4, 2), (Encoding::Bits1, 8)] {
        let sample = Sample::new(2, dimension, Metric::L2, IndexKind::Flat, false, 1);
        let bytes = sample.encoded(encoding, Originals::None).bytes();
        let map = Map::of(&bytes);
        for value in 0..=255 {
            open_and_verify(&map.patched(&bytes, map.section(CODES).0, 1, value)).unwrap();
            open_and_verify(&map.patched(&bytes, map.section(FINGERPRINTS).0, 1, value)).unwrap();
        }
    }
}

#[test]
fn tombstones_behind_the_last_row_are_refused_by_verify() {
    let bytes = Sample::full(1).bytes();
    let map = Map::of(&bytes);
    let (last, meta) = (map.section(TOMBSTONES).0 + 8, map.section(META).0);
    let mut damaged = bytes.clone();
    damaged[last] |= 0x80;
    put(&mut damaged, meta + 16, 8, get(&bytes, meta + 16, 8) + 1);
    map.reseal(&mut damaged);
    assert!(matches!(open_and_verify(&damaged), Err(Error::Corrupt { section: "TOMBSTONES", .. })));
}

/// The writer cannot know all of a graph; verify can.
#[test]
fn levels_that_do_not_nest_and_lists_that_stop_short_are_refused_by_verify() {
    let mut sample = Sample::full(1);
    sample.upper[1] = vec![(0, vec![26]), (26, vec![0])];
    sample.meta.graph.as_mut().unwrap().entry = Some(26);
    let levels = &mut sample.meta.graph.as_mut().unwrap().levels;
    (levels[1].nodes, levels[1].links) = (2, 2);
    let bytes = sample.bytes();
    assert!(matches!(open_and_verify(&bytes), Err(Error::Corrupt { section: "UPPER", .. })));

    sample.upper[1] = vec![(0, vec![25]), (25, vec![0])];
    sample.meta.graph.as_mut().unwrap().entry = Some(25);
    let bytes = sample.bytes();
    open_and_verify(&bytes).unwrap();
    let map = Map::of(&bytes);
    let (from, len) = map.section(UPPER);
    let last_offset = from + len - 4 * 3;
    assert_eq!(get(&bytes, last_offset, 4), 2);
    let short = map.patched(&bytes, last_offset, 4, 1);
    assert!(matches!(open_and_verify(&short), Err(Error::Corrupt { section: "UPPER", .. })));
}

#[test]
fn a_list_above_its_limit_of_links_is_cut() {
    let sample = Sample::full(1);
    let bytes = sample.bytes();
    let map = Map::of(&bytes);
    let offsets = map.section(LINK_OFFSETS).0;
    let mut damaged = bytes.clone();
    for row in 1..64 {
        put(&mut damaged, offsets + 8 + 2 * row, 2, 100);
    }
    map.reseal(&mut damaged);
    let segment = open(&damaged).unwrap();
    let mut list = Vec::new();
    segment.links().unwrap().list(0, 0, &mut list);
    assert_eq!(list.len(), 2 * M);
    walk(&segment);
    assert!(matches!(segment.verify(), Err(Error::Corrupt { section: "LINK_OFFSETS", .. })));
}

#[test]
fn random_damage_with_right_checksums_never_panics() {
    let mut random = Random(2024);
    let [plain, quantized, half] = full_samples();
    let samples = [plain, Sample::new(65, 2, Metric::L2, IndexKind::Hnsw, false, 6), quantized, half];
    let mut opened = 0;
    for round in 0..3000 {
        let bytes = samples[round % samples.len()].bytes();
        let map = Map::of(&bytes);
        let mut damaged = bytes.clone();
        for _ in 0..=random.below(8) {
            // Mostly in what open does not judge, sometimes anywhere.
            let (from, len) = match random.below(8) {
                0 => (8, bytes.len() - 16),
                i => {
                    let (_, from, len) = map.sections[i % (map.sections.len() - 1) + 1];
                    (from, len)
                }
            };
            let width = [1, 2, 4, 8][random.below(4)].min(len);
            let at = from + random.below(len - width + 1);
            let value = match random.below(3) {
                0 => random.next(),
                1 => random.next() % 70,
                _ => u64::MAX << random.below(33),
            };
            put(&mut damaged, at, width, value);
        }
        map.reseal(&mut damaged);
        if let Ok(segment) = open(&damaged) {
            walk(&segment);
            opened += 1;
        }
        if let Ok(segment) = Segment::open(Arc::new(CopyingStorage::new(damaged))) {
            walk(&segment);
        }
    }
    assert!(opened > 1500, "only {opened} of 3000 got past open");
}

/// Two saves of segments that differ in nothing but their contents.
#[test]
fn parts_of_two_files_do_not_mix() {
    let (a, mut b) = (Sample::full(1), Sample::full(1));
    b.keys.iter_mut().for_each(|key| *key ^= 0xFF << 40);
    b.codes.iter_mut().for_each(|byte| *byte ^= 1);
    b.factors.iter_mut().for_each(|x| *x += 1.0);
    b.removed.rotate_left(1);
    b.keys.rotate_left(1);
    b.lists.reverse();
    let mirrored = b.lists.iter_mut().flatten();
    mirrored.for_each(|id| *id = 66 - *id);
    let (a, b) = (a.bytes(), b.bytes());
    let map = Map::of(&a);
    open_and_verify(&b).unwrap();
    assert_eq!(a[..64], b[..64]);

    let mut mixed = 0;
    for &(tag, offset, len) in &map.sections {
        let mut spliced = a.clone();
        spliced[offset..offset + len].copy_from_slice(&b[offset..offset + len]);
        if spliced != a {
            assert!(open_and_verify(&spliced).is_err(), "section {tag}");
            mixed += 1;
        }
    }
    assert!(mixed >= 6, "{mixed}");
    for cut in (0..a.len()).step_by(16) {
        let spliced = [&a[..cut], &b[cut..]].concat();
        if spliced != a && spliced != b {
            assert!(open_and_verify(&spliced).is_err(), "cut at {cut}");
        }
    }
}

#[test]
fn a_head_of_one_file_and_the_tail_of_another_are_refused_at_open() {
    let (a, b) = (
        Sample::new(9, 3, Metric::L2, IndexKind::Flat, false, 1),
        Sample::new(9, 3, Metric::L2, IndexKind::Flat, false, 2),
    );
    let b = Sample { meta: twindex::segment::Meta { metric: Metric::InnerProduct, ..b.meta.clone() }, ..b };
    let (a, b) = (a.bytes(), b.bytes());
    let map = Map::of(&a);
    assert_eq!(a.len(), b.len());
    for cut in [64 + 128, map.section(CODES).0, map.section(CHECKSUMS).0, map.table, a.len() - 8] {
        for spliced in [[&a[..cut], &b[cut..]].concat(), [&b[..cut], &a[cut..]].concat()] {
            assert!(matches!(open(&spliced), Err(Error::ChecksumMismatch { .. })), "cut at {cut}");
        }
    }
}

/// A source that gives up after some reads.
struct Failing {
    bytes: Vec<u8>,
    left: AtomicUsize,
}

impl Storage for Failing {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let less = |left: usize| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        left.map_err(|_| Error::Storage { reason: "gone".into() })?;
        Storage::read_into(&self.bytes, offset, out)
    }
}

#[test]
fn a_source_that_fails_is_an_error_of_its_own() {
    let bytes = Sample::full(1).encoded(Encoding::Int8, Originals::F16).bytes();
    let storage = |left| Arc::new(Failing { bytes: bytes.clone(), left: AtomicUsize::new(left) });
    let enough = (0..100).find(|&left| Segment::open(storage(left)).is_ok()).unwrap();
    assert!((4..20).contains(&enough), "{enough} reads to open");
    for left in 0..enough {
        assert!(matches!(Segment::open(storage(left)), Err(Error::Storage { .. })), "after {left} reads");
    }
    let segment = Segment::open(storage(enough)).unwrap();
    assert!(matches!(segment.verify(), Err(Error::Storage { .. })));
    assert!(matches!(segment.centre(), Err(Error::Storage { .. })));
}
