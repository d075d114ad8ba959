//! Files of an index: what they say goes, damage is an error or harmless, and a save is there as a whole or not at all.

use crate::common::mutate::{CODES, FACTORS, KEYS, LINK_OFFSETS, LINKS, META, Patient, TOMBSTONES, UPPER};
use crate::common::oracle::bits;
use crate::common::random::Random;
use crate::common::{builder, kinds_and_metrics, normal_index, top};
use std::sync::Arc;
use std::time::{Duration, Instant};
use twindex::storage::{CopyingStorage, Storage};
use twindex::{
    Encoding, Error, Filter, Hit, Index, IndexKind, Metric, OpenOptions, Originals, Residency, Result, SearchParams,
};

const RESIDENCIES: [Residency; 3] = [Residency::Mapped, Residency::Resident, Residency::Owned];

/// An index with something in every section the kind and metric have: tombstones, factors, upper levels.
fn sample(kind: IndexKind, metric: Metric) -> Index {
    let (index, rows) = normal_index(kind, metric, 600, 6, 64);
    for key in (0..600).step_by(11) {
        index.remove(key).unwrap();
    }
    index.update(7, &rows[..6]).unwrap();
    index
}

/// Opens the bytes in every way.
fn open_all(bytes: &[u8]) -> Vec<Result<()>> {
    let storage = Arc::new(CopyingStorage::new(bytes.to_vec()));
    RESIDENCIES
        .into_iter()
        .flat_map(|residency| {
            let options = OpenOptions::new().threads(1).residency(residency);
            [options.from_bytes(bytes.to_vec()).map(drop), options.from_storage(storage.clone()).map(drop)]
        })
        .collect()
}

fn assert_refused(bytes: &[u8], what: &str, right: impl Fn(&Error) -> bool) {
    for opened in open_all(bytes) {
        match opened {
            Err(e) => assert!(right(&e), "{what}: {e}"),
            Ok(()) => panic!("{what}: was opened"),
        }
    }
}

/// Opens the bytes of a damaged file and uses whatever opens: each search ends in time, with hits that hold what is
/// promised of all hits. Returns the verdict of `verify` and whether an owned copy was to be had.
fn use_damaged(bytes: &[u8], what: &str) -> (Result<()>, Result<()>) {
    let dimension = 6;
    let mut verdict = Ok(());
    let mut owned = Ok(());
    for residency in RESIDENCIES {
        let index = match OpenOptions::new().threads(1).residency(residency).from_bytes(bytes.to_vec()) {
            Ok(index) => index,
            Err(e) => {
                assert!(residency == Residency::Owned || e.code() != "OUT_OF_MEMORY", "{what}: {e}");
                match residency {
                    Residency::Owned => owned = Err(e),
                    _ => verdict = Err(e),
                }
                continue;
            }
        };
        let even = |key: u64| key.is_multiple_of(2);
        for query in Random::new(1).normals(3 * dimension).chunks(dimension) {
            for params in [top(10).ef(16), top(10).exact(true), top(1000), top(5).ef(16).filter(Filter::by(&even))] {
                let start = Instant::now();
                let hits = index.search(query, &params).unwrap_or_default();
                assert!(start.elapsed() < Duration::from_secs(1), "{what}: took {:?}", start.elapsed());
                assert!(hits.iter().all(|hit| hit.distance.is_finite()), "{what}: {hits:?}");
                assert!(hits.len() <= 601, "{what}: {} hits", hits.len());
            }
        }
        let keys = index.keys();
        for &key in keys.iter().take(20) {
            let _ = (index.contains(key), index.get(key).is_ok());
        }
        let _ = (index.stats().is_ok(), index.contains(3), index.len());
        if residency == Residency::Mapped {
            verdict = index.verify();
        }
        if residency == Residency::Owned {
            // What comes in is mended: a copy of it is sound, whatever is added.
            index.verify().unwrap_or_else(|e| panic!("{what}: the owned copy is not sound: {e}"));
            index.add(1 << 50, &[0.25; 6]).unwrap();
            index.verify().unwrap_or_else(|e| panic!("{what}: after an addition: {e}"));
            let added = index.search(&[0.25; 6], &top(1).filter(Filter::keys(&[1 << 50]))).unwrap();
            assert_eq!(added.len(), 1, "{what}: what was added is not found");
        }
    }
    (verdict, owned)
}

// B64
#[test]
fn expectations_that_the_file_contradicts_are_errors_naming_both() {
    let all: Vec<(IndexKind, Metric)> = kinds_and_metrics().collect();
    for &(kind, metric) in &all {
        let index = sample(kind, metric);
        let bytes = index.to_bytes().unwrap();
        for &(other_kind, other_metric) in &all {
            for dimension in [5, 6] {
                let options =
                    OpenOptions::new().expect_kind(other_kind).expect_metric(other_metric).expect_dimension(dimension);
                let fits = (other_kind, other_metric, dimension) == (kind, metric, 6);
                match options.from_bytes(bytes.clone()) {
                    Ok(opened) => assert!(fits && opened.len() == index.len()),
                    Err(Error::Mismatch { what, expected, got }) => {
                        assert!(!fits);
                        let (named, theirs, ours) = match what {
                            "dimension" => (true, "5".into(), "6".into()),
                            "metric" => (true, other_metric.to_string(), metric.to_string()),
                            _ => (what == "kind", other_kind.to_string(), kind.to_string()),
                        };
                        assert!(named && expected == theirs && got == ours, "{what}: {expected}, {got}");
                    }
                    Err(e) => panic!("{e}"),
                }
            }
        }
        let opened = Index::from_bytes(bytes).unwrap();
        assert_eq!(
            (opened.kind(), opened.metric(), opened.dimension(), opened.m(), opened.ef_construction(), opened.seed()),
            (kind, metric, 6, index.m(), index.ef_construction(), index.seed())
        );
    }
}

#[test]
fn every_setting_is_kept_in_the_file() {
    let index = Index::builder(3, Metric::InnerProduct).m(5).ef_construction(33).ef(77).seed(1 << 60).build().unwrap();
    for rows in [0, 40] {
        for key in 0..rows {
            index.add(key, &[key as f32, 1.0, 2.0]).unwrap();
        }
        for residency in RESIDENCIES {
            let opened = OpenOptions::new().residency(residency).from_bytes(index.to_bytes().unwrap()).unwrap();
            assert_eq!((opened.m(), opened.ef_construction(), opened.ef(), opened.seed()), (5, 33, 77, 1 << 60));
            assert_eq!(opened.is_read_only(), residency != Residency::Owned);
            assert_eq!(opened.keys(), index.keys());
        }
    }
}

// B66
#[test]
fn other_versions_and_unknown_features_are_told_apart() {
    for (kind, metric) in kinds_and_metrics() {
        let patient = Patient::new(sample(kind, metric).to_bytes().unwrap());
        for version in [2, 3, 0xFFFF, u32::MAX] {
            let mut unsealed = patient.clone();
            unsealed.put(8, 4, version.into());
            for bytes in [patient.patched(8, 4, version.into()), unsealed.bytes] {
                assert_refused(&bytes, "version", |e| {
                    matches!(e, Error::UnsupportedVersion { supported: 1, got } if *got == version)
                        && e.to_string().contains(&version.to_string())
                });
            }
        }
        assert_refused(&patient.patched(8, 4, 0), "version 0", |e| matches!(e, Error::Corrupt { .. }));
        // Bit 0 says that rows are not f32, which META contradicts.
        assert_refused(&patient.patched(12, 4, 1), "flag", |e| matches!(e, Error::Corrupt { section: "HEADER", .. }));
        for bit in 1..32 {
            let bytes = patient.patched(12, 4, 1 << bit);
            assert_refused(&bytes, "flag", |e| matches!(e, Error::UnsupportedFeatures { flags } if *flags == 1 << bit));
        }
    }
}

// B74, B75
#[test]
fn bad_links_are_refused_or_harmless() {
    let patient = Patient::new(sample(IndexKind::Hnsw, Metric::L2).to_bytes().unwrap());
    let rows = 601;
    let (meta, offsets, links) = (patient.section(META), patient.section(LINK_OFFSETS), patient.section(LINKS));
    let upper = patient.section(UPPER);
    let caught = |bytes: Vec<u8>, what: &str| {
        let (verdict, _) = use_damaged(&bytes, what);
        assert!(verdict.is_err(), "{what}: verify found nothing");
    };
    // A link out of range; on level 0 and above.
    for to in [rows, rows + 1, 1 << 31, u64::from(u32::MAX)] {
        for at in [links.start, links.start + 400, links.end - 4, upper.end - 4] {
            caught(patient.patched(at, 4, to), &format!("link to {to} at {at}"));
        }
    }
    // Entry points out of range are refused at open; another row on level 0 only is found by verify.
    for entry in [rows, rows + 1, 1 << 31, u64::from(u32::MAX)] {
        let bytes = patient.patched(meta.start + 48, 4, entry);
        assert_refused(&bytes, "entry", |e| matches!(e, Error::Corrupt { section: "META", .. }));
    }
    // List bounds: backwards, far beyond, longer than a list may be.
    for value in [0xFFFF, 0, 200] {
        caught(patient.patched(offsets.start + 8 + 2 * 5, 2, value), &format!("offset {value}"));
    }
    for value in [1 << 20, u64::MAX, u64::MAX - 3] {
        caught(patient.patched(offsets.start + 136, 8, value), &format!("group base {value}"));
        caught(patient.patched(offsets.end - 8, 8, value), &format!("last offset {value}"));
    }
    // Levels: more of them than there may be, nodes out of order or out of range.
    for levels in [0u64, 64, 255] {
        let bytes = patient.patched(meta.start + 7, 1, levels);
        assert_refused(&bytes, "levels", |e| matches!(e, Error::Corrupt { .. }));
    }
    for node in [rows, u64::from(u32::MAX)] {
        caught(patient.patched(upper.start, 4, node), &format!("upper node {node}"));
    }
    // All links to one row: itself, the next, the first.
    for target in [0, 1, 300] {
        let mut all = patient.clone();
        links.clone().step_by(4).for_each(|at| all.put(at, 4, target));
        caught(all.reseal(), &format!("all links to {target}"));
    }
    // Links at random, on all levels: any mixture of loops, repeats and dead ends.
    let mut random = Random::new(75);
    for round in 0..20 {
        let mut noise = patient.clone();
        for at in links.clone().step_by(4).chain(upper.clone().step_by(4)) {
            if random.below(3) > 0 {
                noise.put(at, 4, random.next() % 700);
            }
        }
        caught(noise.reseal(), &format!("noise {round}"));
    }
}

// B75
#[test]
fn two_rows_of_one_key_are_found_out() {
    for (kind, metric) in kinds_and_metrics() {
        let patient = Patient::new(sample(kind, metric).to_bytes().unwrap());
        let keys = patient.section(KEYS);
        // Row 1 is live under key 1; row 2 shall be too.
        let bytes = patient.patched(keys.start + 16, 8, 1);
        let (verdict, owned) = use_damaged(&bytes, "a key twice");
        assert!(matches!(verdict, Err(Error::Corrupt { .. })), "{verdict:?}");
        assert!(matches!(owned, Err(Error::Corrupt { section: "KEYS", .. })), "{owned:?}");
    }
}

// B76
#[test]
fn truncated_files_are_refused_as_truncated() {
    for (kind, metric) in kinds_and_metrics() {
        let bytes = sample(kind, metric).to_bytes().unwrap();
        let steps = (0..500).map(|i| i * (bytes.len() - 1) / 499);
        for len in (0..=512).chain(steps) {
            let opened = Index::from_bytes(&bytes[..len]);
            match opened {
                Err(Error::Truncated { got, .. }) => assert_eq!(got, len as u64),
                other => panic!("cut at {len}: {other:?}"),
            }
        }
        assert_refused(&bytes[..bytes.len() - 1], "cut", |e| matches!(e, Error::Truncated { .. }));
        assert_refused(&[bytes, vec![0]].concat(), "one more byte", |e| matches!(e, Error::Corrupt { .. }));
    }
}

// B78
#[test]
fn counts_whose_product_wraps_are_refused() {
    for (kind, metric) in kinds_and_metrics() {
        let patient = Patient::new(sample(kind, metric).to_bytes().unwrap());
        let meta = patient.section(META).start;
        for (rows, dimension) in [
            (1u64 << 30, 4u64),
            ((1 << 31) + 1, 2),
            (1 << 62, 4),
            (1 << 61, 8),
            (u64::MAX, 1),
            ((1 << 32) + 601, 6),
            (601, 65_536),
            (601, 65_537),
            (601, u32::MAX.into()),
            (601, 0),
        ] {
            let mut hostile = patient.clone();
            hostile.put(meta, 4, dimension);
            hostile.put(meta + 8, 8, rows);
            hostile.put(meta + 24, 4, (dimension * 4) & 0xFFFF_FFFF);
            assert_refused(&hostile.reseal(), &format!("{rows} x {dimension}"), |e| {
                matches!(e, Error::Corrupt { .. } | Error::TooLarge { .. })
            });
        }
        for tombstones in [602u64, 1 << 32, u64::MAX] {
            let bytes = patient.patched(meta + 16, 8, tombstones);
            assert_refused(&bytes, "tombstones", |e| matches!(e, Error::Corrupt { section: "META", .. }));
        }
        for links in [1u64 << 40, u64::MAX] {
            let bytes = patient.patched(meta + 56, 8, links);
            assert_refused(&bytes, "links", |e| matches!(e, Error::Corrupt { .. } | Error::TooLarge { .. }));
        }
    }
}

// B79
#[test]
fn values_that_mean_nothing_are_refused() {
    for (kind, metric) in kinds_and_metrics() {
        let patient = Patient::new(sample(kind, metric).to_bytes().unwrap());
        let meta = patient.section(META).start;
        for at in [4, 5, 6] {
            let right = patient.get(meta + at, 1);
            for tag in (0..=255).filter(|&tag| tag != right) {
                let bytes = patient.patched(meta + at, 1, tag);
                // Metrics without factors lie in the file alike: the tag alone tells them apart.
                let twins = at == 4 && metric != Metric::Cosine && tag < 2;
                assert_eq!(Index::from_bytes(bytes).is_ok(), twins, "{kind} {metric}: tag {tag} at {at}");
            }
        }
        for (at, values) in [(28, [0, (1 << 20) + 1, u64::from(u32::MAX)]), (32, [1, 257, u64::from(u32::MAX)])] {
            for value in values {
                let opened = Index::from_bytes(patient.patched(meta + at, 4, value));
                assert!(matches!(opened, Err(Error::Corrupt { section: "META", .. })), "{value} at {at}: {opened:?}");
            }
        }
    }
    let patient = Patient::new(sample(IndexKind::Hnsw, Metric::Cosine).to_bytes().unwrap());
    let factors = patient.section(FACTORS).start;
    for factor in [0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0] {
        let bytes = patient.patched(factors + 4 * 100, 4, factor.to_bits().into());
        let (verdict, owned) = use_damaged(&bytes, &format!("factor {factor}"));
        assert!(matches!(verdict, Err(Error::Corrupt { section: "FACTORS", .. })), "{factor}: {verdict:?}");
        assert!(matches!(owned, Err(Error::Corrupt { section: "FACTORS", .. })), "{factor}: {owned:?}");
    }
    // Not what the row's norm asks for, if a number.
    for factor in [1e-40f32, 1e30] {
        let bytes = patient.patched(factors + 4 * 100, 4, factor.to_bits().into());
        let (_, owned) = use_damaged(&bytes, &format!("factor {factor}"));
        assert!(matches!(owned, Err(Error::Corrupt { section: "FACTORS", .. })), "{factor}: {owned:?}");
    }
    let bits = patient.section(TOMBSTONES);
    let (verdict, _) = use_damaged(&patient.patched(bits.start, 1, 0xFF), "tombstones");
    assert!(matches!(verdict, Err(Error::Corrupt { section: "TOMBSTONES", .. })), "{verdict:?}");
}

// B79: any byte of the file, with and without its checksums put right.
#[test]
fn random_damage_never_panics_and_does_not_go_unnoticed() {
    for (kind, metric) in kinds_and_metrics() {
        let patient = Patient::new(sample(kind, metric).to_bytes().unwrap());
        let mut random = Random::new(79);
        for _ in 0..40 {
            let mut damaged = patient.clone();
            let at = random.below(damaged.bytes.len());
            let flip = 1 + random.below(255) as u8;
            damaged.bytes[at] ^= flip;
            let what = format!("{kind} {metric}: byte {at} ^ {flip:#x}");
            let (verdict, _) = use_damaged(&damaged.bytes, &what);
            assert!(verdict.is_err(), "{what}");
            let body = patient.section(META).start..patient.section(CODES).end;
            if body.contains(&at) {
                // Whatever it is now: harmless.
                let _ = use_damaged(&damaged.reseal(), &what);
            }
        }
    }
}

// B68
#[test]
fn halves_of_two_saves_do_not_make_a_file() {
    for (kind, metric) in kinds_and_metrics() {
        let (older, _) = normal_index(kind, metric, 300, 6, 1);
        let (newer, _) = normal_index(kind, metric, 300, 6, 2);
        let (older, newer) = (older.to_bytes().unwrap(), newer.to_bytes().unwrap());
        for cut in [200, older.len() / 4, older.len() / 2, older.len() * 3 / 4] {
            let spliced = [&older[..cut], &newer[cut.min(newer.len())..]].concat();
            if spliced == newer {
                continue;
            }
            let verdict = Index::from_bytes(spliced).and_then(|index| index.verify());
            assert!(verdict.is_err(), "{kind} {metric}: spliced at {cut}");
        }
    }
}

/// Takes `left` bytes, then fails.
struct Full {
    left: usize,
}

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.left);
        self.left -= taken;
        match taken {
            0 if !bytes.is_empty() => Err(std::io::ErrorKind::StorageFull.into()),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

// B67
#[test]
fn a_writer_that_fails_is_an_error_and_the_index_goes_on() {
    for (kind, metric) in kinds_and_metrics() {
        let index = sample(kind, metric);
        let bytes = index.to_bytes().unwrap();
        for left in [0, 1, 100, bytes.len() / 2, bytes.len() * 99 / 100, bytes.len() - 1] {
            let frozen = Index::from_bytes(bytes.clone()).unwrap();
            for index in [&index, &frozen] {
                let failed = index.write_to(&mut Full { left });
                assert!(
                    matches!(&failed, Err(Error::Io(e)) if e.kind() == std::io::ErrorKind::StorageFull),
                    "{failed:?}"
                );
            }
        }
        let mut out = Vec::new();
        assert_eq!(index.write_to(&mut out).unwrap(), bytes.len() as u64);
        assert!(out == bytes);
        index.add(9999, &[1.0; 6]).unwrap();
    }
}

// B44
#[test]
fn compaction_gives_the_space_back_and_keeps_the_answers() {
    for (kind, metric) in kinds_and_metrics() {
        let (mut index, _) = normal_index(kind, metric, 3000, 16, 44);
        let full = index.to_bytes().unwrap().len();
        for key in 0..2850 {
            index.remove(key).unwrap();
        }
        let query = [0.5; 16];
        let before = bits(&index.search(&query, &top(150).exact(true)).unwrap());
        index.compact().unwrap();
        let small = index.to_bytes().unwrap();
        assert!(small.len() * 100 <= full * 8, "{kind} {metric}: {} of {full} bytes", small.len());
        let opened = Index::from_bytes(small).unwrap();
        for index in [&index, &opened] {
            assert_eq!(bits(&index.search(&query, &top(150).exact(true)).unwrap()), before);
            assert_eq!(index.keys(), (2850..3000).collect::<Vec<_>>());
            assert_eq!(index.stats().unwrap().tombstones, 0);
        }
    }
}

#[cfg(feature = "mmap")]
mod files {
    use super::*;
    use crate::common::builder;
    use crate::common::oracle::assert_well_formed;
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_saved_file_is_the_bytes_and_opens_in_every_way() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.twx");
        for (kind, metric) in kinds_and_metrics() {
            let index = sample(kind, metric);
            index.save(&path).unwrap();
            assert!(fs::read(&path).unwrap() == index.to_bytes().unwrap());
            let query = [0.3; 6];
            let expected = bits(&index.search(&query, &top(10)).unwrap());
            for residency in RESIDENCIES {
                let opened = OpenOptions::new().residency(residency).open(&path).unwrap();
                opened.verify().unwrap();
                assert_eq!(bits(&opened.search(&query, &top(10)).unwrap()), expected);
                assert_well_formed(&opened.search(&query, &top(1000)).unwrap());
                // B87: over the file it is reading from.
                opened.save(&path).unwrap();
                assert_eq!(bits(&opened.search(&query, &top(10)).unwrap()), expected);
            }
            assert!(fs::read(&path).unwrap() == index.to_bytes().unwrap());
            assert_eq!(names(directory.path()), ["x.twx"]);
        }
    }

    // B67
    #[test]
    fn a_save_that_fails_leaves_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let index = sample(IndexKind::Hnsw, Metric::L2);
        assert!(matches!(index.save(directory.path().join("not/there.twx")), Err(Error::Io(_))));
        assert!(matches!(index.save(directory.path()), Err(Error::Io(_))));
        assert!(names(directory.path()).is_empty());
        let path = directory.path().join("x.twx");
        index.save(&path).unwrap();
        // What the old file is mapped for goes on while it is replaced, and after.
        let old = Index::open(&path).unwrap();
        builder(IndexKind::Flat, Metric::Cosine, 2).build().unwrap().save(&path).unwrap();
        old.verify().unwrap();
        assert_eq!(Index::open(&path).unwrap().len(), 0);
        assert_eq!(old.len(), index.len());
    }

    // B76
    #[test]
    fn truncated_and_missing_files_are_errors_when_mapped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.twx");
        assert!(matches!(Index::open(&path), Err(Error::Io(_))));
        let bytes = sample(IndexKind::Hnsw, Metric::Cosine).to_bytes().unwrap();
        for len in [0, 1, 7, 8, 63, 64, 100, 512, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&path, &bytes[..len]).unwrap();
            for residency in RESIDENCIES {
                let opened = OpenOptions::new().residency(residency).open(&path);
                assert!(matches!(opened, Err(Error::Truncated { got, .. }) if got == len as u64), "{len}: {opened:?}");
            }
        }
        fs::write(&path, b"hello, I am a text file, and a rather long one at that: more than 64 bytes").unwrap();
        assert!(matches!(Index::open(&path), Err(Error::NotASegment)));
    }

    // B74 where the bytes are mapped
    #[test]
    fn bad_links_are_harmless_when_mapped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.twx");
        let mut patient = Patient::new(sample(IndexKind::Hnsw, Metric::Cosine).to_bytes().unwrap());
        let mut random = Random::new(74);
        for at in patient.section(LINKS).step_by(4) {
            patient.put(at, 4, random.next() >> 33);
        }
        fs::write(&path, patient.reseal()).unwrap();
        let index = Index::open(&path).unwrap();
        for query in Random::new(1).normals(60).chunks(6) {
            let hits = index.search(query, &top(10).ef(16)).unwrap();
            assert_eq!(hits.len(), 10);
            assert_well_formed(&hits);
        }
        assert!(matches!(index.verify(), Err(Error::Corrupt { .. })));
    }

    // B87
    #[test]
    fn readers_of_a_file_that_is_saved_again_and_again_see_whole_versions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.twx");
        let index = builder(IndexKind::Hnsw, Metric::L2, 4).build().unwrap();
        index.save(&path).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut largest = 0;
                        while !done.load(Ordering::Relaxed) {
                            let opened = Index::open(&path).unwrap();
                            opened.verify().unwrap();
                            assert_eq!(opened.keys(), (0..opened.len() as u64).collect::<Vec<_>>());
                            assert!(opened.len() >= largest);
                            largest = opened.len();
                        }
                        largest
                    })
                })
                .collect();
            for (key, row) in (0..150).zip(Random::new(87).normals(600).chunks(4)) {
                index.add(key, row).unwrap();
                index.save(&path).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            assert!(readers.into_iter().any(|reader| reader.join().unwrap() > 0));
        });
        assert_eq!(names(directory.path()), ["x.twx"]);
    }
}

// B13, B77. Damage that opening does not see, since it does not look; `verify` does.
#[test]
fn a_file_opened_with_verify_is_whole_or_refused() {
    for (kind, metric) in kinds_and_metrics() {
        let (index, rows) = normal_index(kind, metric, 200, 5, 3);
        let bytes = index.to_bytes().unwrap();
        for residency in [Residency::Mapped, Residency::Resident, Residency::Owned] {
            let options = OpenOptions::new().residency(residency).verify(true);
            let whole = options.from_bytes(bytes.clone()).unwrap();
            assert_eq!(whole.search(&rows[..5], &top(1)).unwrap(), index.search(&rows[..5], &top(1)).unwrap());
            for at in (0..bytes.len()).step_by(97) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 4;
                assert!(options.from_bytes(damaged).is_err(), "{kind} {metric} {residency:?}: byte {at}");
            }
        }
    }
}

/// What lies behind the first bytes of another storage, at whatever address.
struct Behind<S>(S, usize);

impl<S: Storage> Storage for Behind<S> {
    fn len(&self) -> u64 {
        self.0.len() - self.1 as u64
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.0.read_into(offset + self.1 as u64, out)
    }

    fn as_slice(&self) -> Option<&[u8]> {
        self.0.as_slice()?.get(self.1..)
    }
}

// B134. No byte of a file needs an address of its own: behind 0 to 63 others, in memory and mapped, it answers the same.
#[test]
fn files_at_any_address_answer_the_same() {
    // Odd, so that rows of one, two and half a byte a component lie at all sorts of places too.
    let d = 37;
    let queries = Random::new(135).normals(3 * d);
    #[cfg(feature = "mmap")]
    let folder = tempfile::tempdir().unwrap();
    for encoding in Encoding::ALL {
        let originals = if encoding == Encoding::F32 { Originals::None } else { Originals::F32 };
        let built =
            builder(IndexKind::Hnsw, Metric::Cosine, d).encoding(encoding).originals(originals).build().unwrap();
        built.add_batch(&(0..300).collect::<Vec<_>>(), &Random::new(134).normals(300 * d)).unwrap();
        built.remove(7).unwrap();
        let file = built.to_bytes().unwrap();
        let mut paths = vec![top(10), top(10).exact(true)];
        if encoding != Encoding::F32 {
            paths.push(top(10).rerank(3.0));
        }
        let answers = |search: &dyn Fn(&[f32], &SearchParams<'_>) -> Vec<Hit>| -> Vec<_> {
            let all = paths.iter().flat_map(|params| queries.chunks(d).map(move |query| search(query, params)));
            all.map(|hits| bits(&hits)).collect()
        };
        let expected = answers(&|query, params| built.search(query, params).unwrap());
        for shift in 0..64 {
            let shifted = [vec![0xFF; shift], file.clone()].concat();
            let options = OpenOptions::new().threads(1);
            for residency in RESIDENCIES {
                let options = options.clone().residency(residency);
                let index = options.from_storage(Arc::new(Behind(shifted.clone(), shift))).unwrap();
                index.verify().unwrap();
                let got = answers(&|query, params| index.search(query, params).unwrap());
                assert_eq!(got, expected, "{encoding}, {shift} bytes on, {residency:?}");
                assert_eq!(index.get(299).unwrap(), built.get(299).unwrap());
            }
            #[cfg(feature = "mmap")]
            {
                let path = folder.path().join("shifted");
                std::fs::write(&path, &shifted).unwrap();
                let mapped = twindex::storage::MmapStorage::open(&path).unwrap();
                let index = options.from_storage(Arc::new(Behind(mapped, shift))).unwrap();
                let got = answers(&|query, params| index.search(query, params).unwrap());
                assert_eq!(got, expected, "{encoding}, {shift} bytes on, mapped");
            }
        }
    }
}
