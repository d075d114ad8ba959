//! Exact distances for the best candidates: from originals in the index, attached to it, or in the caller's hands.

use crate::common::oracle::{assert_well_formed, bits, nearest, recall};
use crate::common::random::Random;
use crate::common::{CODED, builder, clustered, kinds_and_metrics, top};
use half::f16;
use std::sync::Arc;
use twindex::storage::{CopyingStorage, GAP_BYTES, Storage};
use twindex::{
    Candidate, Encoding, Error, Filter, Hit, Index, IndexKind, Level, Metric, OpenOptions, Originals, Residency,
    SearchParams, Source, VectorFile,
};

type Shared = dyn Storage + Send + Sync;

const D: usize = 24;
const ROWS: usize = 1400;

fn filled(kind: IndexKind, metric: Metric, encoding: Encoding, originals: Originals, rows: &[f32]) -> Index {
    let index = builder(kind, metric, D).m(6).ef_construction(20).encoding(encoding).originals(originals);
    let index = index.build().unwrap();
    index.add_batch(&(0..(rows.len() / D) as u64).collect::<Vec<_>>(), rows).unwrap();
    index
}

/// Rows that half precision holds as they are.
fn halves(seed: u64, rows: usize) -> Vec<f32> {
    clustered(seed, rows, D).iter().map(|&x| f16::from_f32(x).to_f32()).collect()
}

/// The ways a file of vectors may come in, as bytes: name, and how to read it.
type Format = (
    &'static str,
    fn(&[f32]) -> Vec<u8>,
    fn(Arc<Shared>) -> VectorFile<Shared>,
    fn(Arc<CopyingStorage>) -> VectorFile<CopyingStorage>,
);

fn f32_bytes(rows: &[f32]) -> Vec<u8> {
    rows.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn f16_bytes(rows: &[f32]) -> Vec<u8> {
    rows.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect()
}

fn npy(descr: &str, rows: usize, body: Vec<u8>) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {D}), }}");
    let padding = (10 + header.len() + 1).next_multiple_of(64) - 10 - header.len() - 1;
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &body].concat()
}

fn fbin(rows: &[f32]) -> Vec<u8> {
    let counts = [(rows.len() / D) as u32, D as u32];
    [counts.map(u32::to_le_bytes).concat(), f32_bytes(rows)].concat()
}

const FORMATS: [Format; 5] = [
    (
        "npy f4",
        |rows| npy("<f4", rows.len() / D, f32_bytes(rows)),
        |s| VectorFile::npy(s).unwrap(),
        |s| VectorFile::npy(s).unwrap(),
    ),
    (
        "npy f2",
        |rows| npy("<f2", rows.len() / D, f16_bytes(rows)),
        |s| VectorFile::npy(s).unwrap(),
        |s| VectorFile::npy(s).unwrap(),
    ),
    ("fbin", fbin, |s| VectorFile::fbin(s).unwrap(), |s| VectorFile::fbin(s).unwrap()),
    (
        "raw f32",
        f32_bytes,
        |s| VectorFile::raw(s, Encoding::F32, D).unwrap(),
        |s| VectorFile::raw(s, Encoding::F32, D).unwrap(),
    ),
    (
        "raw f16",
        f16_bytes,
        |s| VectorFile::raw(s, Encoding::F16, D).unwrap(),
        |s| VectorFile::raw(s, Encoding::F16, D).unwrap(),
    ),
];

fn code<T: std::fmt::Debug>(result: twindex::Result<T>) -> &'static str {
    result.expect_err("this was to be refused").code()
}

/// Searches with reranking whose candidates are all rows, so that nothing depends on codes.
fn assert_same_as<S: Storage + Send + Sync + ?Sized>(at: &str, index: &Index<S>, floats: &Index, queries: &[f32]) {
    let odd = |key: u64| key % 2 == 1;
    let some: Vec<u64> = (0..ROWS as u64).step_by(3).collect();
    for query in queries.chunks(D) {
        let radius = floats.search(query, &top(40).exact(true)).unwrap()[20].distance;
        let all = |params: SearchParams<'static>| params.rerank(1e6);
        for params in [top(10), top(10).exact(true), top(40).exact(true).radius(radius), top(ROWS)] {
            let expected = floats.search(query, &params.exact(true)).unwrap();
            let hits = index.search(query, &all(params)).unwrap();
            assert_eq!(bits(&hits), bits(&expected), "{at} {params:?}");
            assert!(hits.iter().all(|hit| hit.reranked), "{at}");
        }
        for filter in [Filter::by(&odd), Filter::keys(&some)] {
            let expected = floats.search(query, &top(10).exact(true).filter(filter)).unwrap();
            let hits = index.search(query, &top(10).rerank(1e6).filter(filter)).unwrap();
            assert_eq!(bits(&hits), bits(&expected), "{at} {filter:?}");
        }
        let plain = index.search(query, &top(10)).unwrap();
        assert!(plain.iter().all(|hit| !hit.reranked), "{at}");
        // A few candidates: exact distances of those that codes chose.
        let exact = floats.search(query, &top(usize::MAX).exact(true)).unwrap();
        for params in [top(10).exact(true).rerank(1.0), top(7).ef(30).rerank(2.5)] {
            let hits = index.search(query, &params).unwrap();
            assert_well_formed(&hits);
            for hit in hits {
                let expected = exact.iter().find(|other| other.key == hit.key).unwrap();
                assert_eq!(hit.distance.to_bits(), expected.distance.to_bits(), "{at} {params:?}");
            }
        }
        let batch = index.search_batch(queries, &top(5).rerank(4.0)).unwrap();
        for (query, hits) in queries.chunks(D).zip(batch) {
            assert_eq!(bits(&hits), bits(&index.search(query, &top(5).rerank(4.0)).unwrap()), "{at}");
        }
    }
}

#[test]
fn reranked_distances_have_the_bits_of_an_index_of_originals() {
    let (rows, queries) = (clustered(1, ROWS, D), clustered(2, 3, D));
    for metric in Metric::ALL {
        for (originals, floats) in [(Originals::F32, Encoding::F32), (Originals::F16, Encoding::F16)] {
            let floats = filled(IndexKind::Flat, metric, floats, Originals::None, &rows);
            for encoding in CODED.into_iter().filter(|&encoding| originals.suits(encoding)) {
                for kind in IndexKind::ALL {
                    let at = |state: &str| format!("{encoding} {kind} {metric} {originals} {state}");
                    let index = filled(kind, metric, encoding, originals, &rows);
                    assert_same_as(&at("growing"), &index, &floats, &queries);
                    let bytes = index.to_bytes().unwrap();
                    let storage = Arc::new(CopyingStorage::new(bytes.clone()));
                    for residency in [Residency::Mapped, Residency::Resident, Residency::Owned] {
                        let options = OpenOptions::new().threads(1).residency(residency);
                        let opened = options.from_bytes(bytes.clone()).unwrap();
                        assert_same_as(&at("opened"), &opened, &floats, &queries[..D]);
                        let copied = options.from_storage(storage.clone()).unwrap();
                        assert_same_as(&at("copied"), &copied, &floats, &queries[..D]);
                    }
                }
            }
        }
    }
}

/// While rows are still as they came, their distances are exact; so are those of an index of f32, reranked or not.
#[test]
fn where_distances_are_exact_reranking_changes_nothing_but_the_word() {
    let (rows, queries) = (clustered(3, 200, D), clustered(4, 4, D));
    for (kind, metric) in kinds_and_metrics() {
        let floats = filled(kind, metric, Encoding::F32, Originals::None, &rows);
        let staged = [Encoding::Int8, Encoding::Int4, Encoding::Bits1]
            .map(|encoding| filled(kind, metric, encoding, Originals::F32, &rows));
        for query in queries.chunks(D) {
            let expected = floats.search(query, &top(10)).unwrap();
            for index in staged.iter().chain([&floats]) {
                let (plain, reranked) =
                    (index.search(query, &top(10)).unwrap(), index.search(query, &top(10).rerank(2.0)).unwrap());
                assert_eq!((bits(&plain), bits(&reranked)), (bits(&expected), bits(&expected)), "{kind} {metric}");
                assert!(plain.iter().all(|hit| !hit.reranked) && reranked.iter().all(|hit| hit.reranked));
            }
        }
    }
}

#[test]
fn oversample_has_bounds() {
    for encoding in Encoding::ALL {
        let originals = if encoding == Encoding::F32 { Originals::None } else { Originals::F32 };
        let index = filled(IndexKind::Flat, Metric::L2, encoding, originals, &clustered(5, 20, D));
        let query = [0.5; D];
        for wrong in [0.999, 0.0, -0.0, -1.0, f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 1_000_001.0, 1e30] {
            let params = top(3).rerank(wrong);
            let refused = [
                index.search(&query, &params).err(),
                index.search_batch(&query, &params).err(),
                index.candidates(&query, &params).err(),
                index.rescore(&query, &[], &[], &params).err(),
                index.search(&query, &top(0).rerank(wrong)).err(),
            ];
            for error in refused {
                assert!(matches!(error, Some(Error::InvalidParameter { name: "rerank", .. })), "{wrong}: {error:?}");
            }
        }
        for right in [1.0, 1.000_000_1, 2.5, 1e6] {
            assert_eq!(index.search(&query, &top(3).rerank(right)).unwrap().len(), 3);
            assert_eq!(index.search(&query, &top(usize::MAX).rerank(right)).unwrap().len(), 20);
            assert_eq!(index.search(&query, &top(0).rerank(right)).unwrap().len(), 0);
        }
    }
}

#[test]
fn as_many_candidates_as_asked_for_whatever_ef() {
    let rows = clustered(6, 4000, D);
    let query = &clustered(7, 1, D)[..];
    for encoding in CODED {
        let index = filled(IndexKind::Hnsw, Metric::Cosine, encoding, Originals::None, &rows);
        // ⌈oversample · k⌉ by the decimal number that was meant.
        for (k, oversample, expected) in
            [(10, 1.0, 10), (10, 1.2, 12), (10, 1.21, 13), (5, 2.1, 11), (7, 3.0, 21), (100, 1.1, 110), (3, 40.0, 120)]
        {
            let candidates = index.candidates(query, &top(k).ef(1).rerank(oversample)).unwrap();
            assert_eq!(candidates.len(), expected, "{encoding}: {k} at {oversample}");
            let mut seen = candidates.iter().map(|candidate| (candidate.distance, candidate.key));
            assert!(candidates.windows(2).all(|w| (w[0].distance, w[0].key) < (w[1].distance, w[1].key)));
            assert!(seen.all(|(distance, _)| distance.is_finite()));
        }
        assert_eq!(index.candidates(query, &top(10)).unwrap().len(), 10, "without rerank k, as in a search");
        // An `ef` below the candidates is raised to them; one above stays: more is found.
        let exact = index.candidates(query, &top(10).exact(true).rerank(3.0)).unwrap();
        let found = |ef: usize| {
            let walked = index.candidates(query, &top(10).ef(ef).rerank(3.0)).unwrap();
            walked.iter().filter(|candidate| exact.contains(candidate)).count()
        };
        assert_eq!(found(1), found(30));
        assert!(found(300) >= found(1) && found(300) >= 28, "{encoding}: {} and {}", found(1), found(300));
    }
}

#[test]
fn recall_grows_with_the_oversample() {
    let (rows, queries) = (clustered(8, 3000, D), clustered(9, 60, D));
    let numbered = || (0..).zip(rows.chunks(D));
    let truth: Vec<_> = queries.chunks(D).map(|query| nearest(Metric::L2, query, numbered(), 10)).collect();
    for kind in IndexKind::ALL {
        for (encoding, first) in [(Encoding::Bits1, 0.6), (Encoding::Int4, 0.97)] {
            let index = filled(kind, Metric::L2, encoding, Originals::F32, &rows);
            let recalls = [1.0, 3.0, 10.0, 40.0, 300.0].map(|oversample| {
                let lists = index.search_batch(&queries, &top(10).ef(100).rerank(oversample)).unwrap();
                lists.iter().zip(&truth).map(|(hits, truth)| recall(hits, truth)).sum::<f64>() / truth.len() as f64
            });
            eprintln!("{kind} {encoding}: {recalls:?}");
            assert!(recalls.is_sorted(), "{kind} {encoding}: {recalls:?}");
            assert!(recalls[0] <= first && recalls[4] == 1.0, "{kind} {encoding}: {recalls:?}");
        }
    }
}

/// What the codes put outside the radius may lie within it, and the other way round: exact distances decide.
#[test]
fn the_radius_cuts_exact_distances() {
    let (rows, queries) = (clustered(10, ROWS, D), clustered(11, 10, D));
    for metric in Metric::ALL {
        let floats = filled(IndexKind::Flat, metric, Encoding::F32, Originals::None, &rows);
        let index = filled(IndexKind::Flat, metric, Encoding::Bits1, Originals::F32, &rows);
        let mut crossed = 0;
        for query in queries.chunks(D) {
            let exact = floats.search(query, &top(30)).unwrap();
            let radius = exact[15].distance;
            let by_code = index.search(query, &top(usize::MAX)).unwrap();
            crossed += exact[..16]
                .iter()
                .filter(|hit| by_code.iter().any(|code| code.key == hit.key && code.distance > radius))
                .count();
            let hits = index.search(query, &top(200).rerank(7.0).radius(radius)).unwrap();
            assert_eq!(bits(&hits), bits(&exact[..16]), "{metric}");
            // Candidates are not cut yet.
            let params = top(20).rerank(2.0).radius(radius);
            assert_eq!(index.candidates(query, &params).unwrap().len(), 40, "{metric}");
        }
        assert!(crossed > 0, "{metric}: no code misjudged its row, so this shows nothing");
    }
}

#[test]
fn without_originals_reranking_is_refused() {
    let rows = clustered(12, ROWS, D);
    for encoding in CODED {
        let index = filled(IndexKind::Hnsw, Metric::L2, encoding, Originals::None, &rows);
        let mapped = Index::from_bytes(index.to_bytes().unwrap()).unwrap();
        for index in [&index, &mapped] {
            let params = top(3).rerank(2.0);
            assert!(!index.has_originals());
            assert!(matches!(index.search(&rows[..D], &params), Err(Error::NoOriginals)));
            assert!(matches!(index.search_batch(&rows[..2 * D], &params), Err(Error::NoOriginals)));
            assert_eq!(index.search(&rows[..D], &top(3)).unwrap().len(), 3);
            assert_eq!(index.candidates(&rows[..D], &params).unwrap().len(), 6);
        }
    }
}

#[test]
fn get_says_what_it_gives() {
    let rows = halves(13, ROWS);
    for (kind, metric) in kinds_and_metrics() {
        for encoding in Encoding::ALL {
            for originals in Originals::ALL {
                if !originals.suits(encoding) {
                    continue;
                }
                let index = filled(kind, metric, encoding, originals, &rows);
                let at = format!("{encoding} {kind} {metric} {originals}");
                let mapped = Index::from_bytes(index.to_bytes().unwrap()).unwrap();
                let storage = Arc::new(CopyingStorage::new(index.to_bytes().unwrap()));
                let copied = OpenOptions::new().from_storage(storage).unwrap();
                for key in [0, 1, 700, ROWS as u64 - 1] {
                    let row = &rows[key as usize * D..][..D];
                    let got = index.get(key).unwrap().unwrap();
                    assert_eq!(Some(&got), mapped.get(key).unwrap().as_ref(), "{at}");
                    assert_eq!(Some(&got), copied.get(key).unwrap().as_ref(), "{at}");
                    let kept = encoding == Encoding::F32 || originals != Originals::None;
                    assert_eq!(got.source, if kept { Source::Original } else { Source::Code }, "{at}");
                    let is_half = originals == Originals::F16 || (!kept && encoding == Encoding::F16);
                    let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
                    let of = |x: &[f32], by: f32| x.iter().map(|x| x / by).collect::<Vec<f32>>();
                    let near = |a: &[f32], b: &[f32]| {
                        a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt()
                            / b.iter().map(|b| b * b).sum::<f32>().sqrt()
                    };
                    let scaled = of(row, if metric == Metric::Cosine && (is_half || !kept) { norm } else { 1.0 });
                    let off = near(&got.vector, &scaled);
                    let most = match (kept || is_half, encoding) {
                        (true, _) if is_half && metric == Metric::Cosine => 1e-3,
                        (true, _) => 0.0,
                        (_, Encoding::Int8) => 0.02,
                        (_, Encoding::Int4) => 0.15,
                        _ => 0.8,
                    };
                    assert!(off <= most, "{at}: {off}");
                }
                assert!(index.get(9999).unwrap().is_none() && mapped.get(9999).unwrap().is_none());
            }
        }
    }
}

#[test]
fn attached_originals_serve_as_kept_ones_do() {
    let (rows, queries) = (halves(14, ROWS), clustered(15, 2, D));
    let directory = tempfile::tempdir().unwrap();
    for metric in Metric::ALL {
        let floats = filled(IndexKind::Flat, metric, Encoding::F32, Originals::None, &rows);
        for (i, encoding) in CODED.into_iter().enumerate() {
            let kind = IndexKind::ALL[i % 2];
            let built = filled(kind, metric, encoding, Originals::None, &rows);
            let bytes = built.to_bytes().unwrap();
            for (name, write, read, copied) in FORMATS {
                let file = write(&rows);
                let check = |at: &str, index: &mut Index, storage: Arc<Shared>| {
                    let at = format!("{encoding} {kind} {metric} {name} {at}");
                    let vectors = read(storage);
                    assert_eq!((vectors.rows(), vectors.dimension()), (ROWS as u32, D), "{at}");
                    index.attach_originals(vectors).unwrap();
                    assert!(index.has_originals(), "{at}");
                    assert_same_as(&at, index, &floats, &queries);
                    let got = index.get(77).unwrap().unwrap();
                    assert_eq!((got.source, &got.vector[..]), (Source::Original, &rows[77 * D..78 * D]), "{at}");
                };
                let in_memory = || Arc::new(file.clone()) as Arc<Shared>;
                check("mapped", &mut Index::from_bytes(bytes.clone()).unwrap(), in_memory());
                let owned = OpenOptions::new().threads(1).residency(Residency::Owned);
                check("owned", &mut owned.from_bytes(bytes.clone()).unwrap(), in_memory());
                let storage = Arc::new(CopyingStorage::new(bytes.clone()));
                let mut index = OpenOptions::new().from_storage(storage).unwrap();
                let originals = Arc::new(CopyingStorage::new(file.clone()));
                index.attach_originals(copied(originals.clone())).unwrap();
                assert_same_as(&format!("{encoding} {metric} {name} copied"), &index, &floats, &queries);
                #[cfg(feature = "mmap")]
                {
                    let path = directory.path().join("vectors");
                    std::fs::write(&path, &file).unwrap();
                    let map = || Arc::new(twindex::storage::MmapStorage::open(&path).unwrap()) as Arc<Shared>;
                    check("mapped file", &mut Index::from_bytes(bytes.clone()).unwrap(), map());
                }
                let _ = &directory;
            }
        }
    }
}

/// Half precision's smallest numbers, which an index of f16 would not keep: in a file they are what they are.
#[test]
fn tiny_components_of_attached_halves_count() {
    let mut random = Random::new(16);
    let rows: Vec<f32> = (0..ROWS * D).map(|_| f16::from_bits((random.next() & 0x83FF) as u16).to_f32()).collect();
    assert!(rows.iter().all(|x| x.abs() < 6.2e-5));
    let query: Vec<f32> = random.normals(D);
    for metric in Metric::ALL {
        let floats = filled(IndexKind::Flat, metric, Encoding::F32, Originals::None, &rows);
        let expected = bits(&floats.search(&query, &top(50)).unwrap());
        let bytes = filled(IndexKind::Flat, metric, Encoding::Int8, Originals::None, &rows).to_bytes().unwrap();
        for level in Level::available() {
            let mut index = OpenOptions::new().level(level).from_bytes(bytes.clone()).unwrap();
            let file: Arc<Shared> = Arc::new(f16_bytes(&rows));
            index.attach_originals(VectorFile::raw(file, Encoding::F16, D).unwrap()).unwrap();
            let hits = index.search(&query, &top(50).rerank(1e6)).unwrap();
            assert_eq!(bits(&hits), expected, "{metric} {level}");
        }
    }
}

/// The rows of a query's candidates are read once each, sorted, and together where they lie close.
#[test]
fn reads_of_originals_are_few() {
    let rows = clustered(17, ROWS, D);
    let query = &clustered(18, 1, D)[..];
    let built = filled(IndexKind::Flat, Metric::L2, Encoding::Int8, Originals::None, &rows);
    let (bytes, file) = (built.to_bytes().unwrap(), f32_bytes(&rows));
    let kept = filled(IndexKind::Flat, Metric::L2, Encoding::Int8, Originals::F32, &rows);
    let kept = Arc::new(CopyingStorage::new(kept.to_bytes().unwrap()));
    let inside = OpenOptions::new().residency(Residency::Resident).from_storage(kept.clone()).unwrap();
    let index = Arc::new(CopyingStorage::new(bytes));
    let originals = Arc::new(CopyingStorage::new(file));
    let mut outside = OpenOptions::new().residency(Residency::Resident).from_storage(index.clone()).unwrap();
    outside.attach_originals(VectorFile::raw(originals.clone(), Encoding::F32, D).unwrap()).unwrap();
    for (k, oversample) in [(1, 1.0), (10, 1.0), (10, 5.0), (100, 14.0)] {
        let params = top(k).rerank(oversample);
        let mut ids: Vec<u64> =
            inside.candidates(query, &params).unwrap().iter().map(|found| found.id.into()).collect();
        ids.sort_unstable();
        let stride = 4 * D as u64;
        let gaps = ids.windows(2).filter(|w| (w[1] - w[0] - 1) * stride > GAP_BYTES as u64).count() as u64;
        let span = (ids[ids.len() - 1] - ids[0] + 1) * stride;
        for (name, index, read) in [("kept", &inside, &kept), ("attached", &outside, &originals)] {
            read.reset_counts();
            let hits = index.search(query, &params).unwrap();
            assert_eq!(hits.len(), k);
            assert_eq!(read.reads(), gaps + 1, "{name}: {k} at {oversample}, ids {ids:?}");
            assert!((ids.len() as u64 * stride..=span).contains(&read.bytes_read()), "{name}: {k} at {oversample}");
        }
        // Without reranking none is read.
        kept.reset_counts();
        originals.reset_counts();
        inside.search(query, &top(k)).unwrap();
        outside.search(query, &top(k)).unwrap();
        assert_eq!((kept.reads(), originals.reads()), (0, 0));
    }
}

#[test]
fn other_vectors_than_those_added_are_refused_where_they_are_used() {
    let (rows, query) = (halves(19, ROWS), clustered(20, 1, D));
    for encoding in CODED {
        let built = filled(IndexKind::Flat, Metric::L2, encoding, Originals::None, &rows);
        let bytes = built.to_bytes().unwrap();
        let best = built.candidates(&query, &top(10).rerank(3.0)).unwrap();
        let (used, unused) = (best[4].id, (0..ROWS as u32).find(|&id| best.iter().all(|best| best.id != id)).unwrap());
        for (name, write, read, copied) in FORMATS {
            // The last bit of one component of a row; the sign of a zero is a difference, too.
            let other = |row: u32| {
                let mut rows = rows.clone();
                let x = &mut rows[row as usize * D + D - 1];
                *x = f16::from_bits(f16::from_f32(*x).to_bits() ^ 1).to_f32();
                write(&rows)
            };
            for residency in [Residency::Mapped, Residency::Owned] {
                let open = |file: Vec<u8>| {
                    let options = OpenOptions::new().threads(1).residency(residency);
                    let mut index = options.from_bytes(bytes.clone()).unwrap();
                    index.attach_originals(read(Arc::new(file))).unwrap();
                    index
                };
                let at = format!("{encoding} {name} {residency:?}");
                let params = top(10).rerank(3.0);
                let right = bits(&open(write(&rows)).search(&query, &params).unwrap());
                let index = open(other(unused));
                assert_eq!(bits(&index.search(&query, &params).unwrap()), right, "{at}");
                assert_eq!(code(index.get(unused.into())), "FINGERPRINT_MISMATCH", "{at}");
                let index = open(other(used));
                for refused in [index.search(&query, &params).err(), index.get(used.into()).err()] {
                    match refused {
                        Some(Error::FingerprintMismatch { row, expected, got }) => {
                            assert!(row == used && expected != got, "{at}: {row}");
                        }
                        other => panic!("{at}: {other:?}"),
                    }
                }
                // By codes it searches as before, and with what is right again it reranks as before.
                assert_eq!(index.search(&query, &top(10)).unwrap().len(), 10);
                let mut index = index;
                index.attach_originals(read(Arc::new(write(&rows)))).unwrap();
                assert_eq!(bits(&index.search(&query, &params).unwrap()), right, "{at}");
            }
            let storage = Arc::new(CopyingStorage::new(bytes.clone()));
            let mut index = OpenOptions::new().from_storage(storage).unwrap();
            index.attach_originals(copied(Arc::new(CopyingStorage::new(other(used))))).unwrap();
            assert_eq!(code(index.search(&query, &top(10).rerank(3.0))), "FINGERPRINT_MISMATCH", "{encoding} {name}");
        }
    }
}

#[test]
fn only_fitting_files_are_attached() {
    let rows = clustered(21, 300, D);
    let file =
        |rows: &[f32], d: usize| VectorFile::raw(Arc::new(f32_bytes(rows)) as Arc<Shared>, Encoding::F32, d).unwrap();
    let mut index = filled(IndexKind::Flat, Metric::L2, Encoding::Int4, Originals::None, &rows);
    assert_eq!(code(index.attach_originals(file(&rows, D / 2))), "DIMENSION_MISMATCH");
    assert!(matches!(
        index.attach_originals(file(&rows[D..], D)),
        Err(Error::LengthMismatch { expected: 300, got: 299, .. })
    ));
    assert!(!index.has_originals());
    index.attach_originals(file(&[&rows[..], &rows[..D]].concat(), D)).unwrap();
    assert!(index.has_originals());
    for (encoding, originals) in [(Encoding::F32, Originals::None), (Encoding::Int4, Originals::F16)] {
        let mut index = filled(IndexKind::Flat, Metric::L2, encoding, originals, &rows);
        assert_eq!(code(index.attach_originals(file(&rows, D))), "INVALID_PARAMETER");
    }
    let raw = |len: usize, encoding, d| VectorFile::raw(Arc::new(vec![0u8; len]) as Arc<Shared>, encoding, d);
    for encoding in [Encoding::Int8, Encoding::Int4, Encoding::Bits1] {
        assert_eq!(code(raw(96, encoding, D)), "INVALID_PARAMETER");
    }
    assert_eq!(code(raw(96, Encoding::F32, 0)), "INVALID_PARAMETER");
    assert_eq!(code(raw(97, Encoding::F32, D)), "LENGTH_MISMATCH");
    assert_eq!(raw(0, Encoding::F32, D).unwrap().rows(), 0);
    assert!(raw(96, Encoding::F32, usize::MAX).is_err() && raw(96, Encoding::F16, usize::MAX / 2 + 1).is_err());
    // Headers that promise more than there is, or something else.
    let good = fbin(&rows);
    let npy_of = |bytes: Vec<u8>| VectorFile::npy(Arc::new(bytes) as Arc<Shared>);
    let fbin_of = |bytes: Vec<u8>| VectorFile::fbin(Arc::new(bytes) as Arc<Shared>);
    assert!(fbin_of(good[..good.len() - 1].to_vec()).is_err() && fbin_of(vec![]).is_err());
    assert!(fbin_of([&[255; 8][..], &good[8..]].concat()).is_err());
    for descr in [">f4", "<f8", "<i4"] {
        assert!(npy_of(npy(descr, 300, f32_bytes(&rows))).is_err(), "{descr}");
    }
    assert!(npy_of(npy("<f4", 301, f32_bytes(&rows))).is_err());
    assert!(npy_of(good).is_err() && npy_of(vec![]).is_err());
}

/// Row i of what is attached is the i-th vector that was added, updates and removals included.
#[test]
fn attached_rows_are_those_of_all_additions() {
    let rows = clustered(22, ROWS + 10, D);
    for encoding in CODED {
        let index = filled(IndexKind::Flat, Metric::Cosine, encoding, Originals::None, &rows[..ROWS * D]);
        for key in 0..10 {
            index.update(key * 100, &rows[(ROWS + key as usize) * D..][..D]).unwrap();
        }
        index.remove(50).unwrap();
        let mut opened = Index::from_bytes(index.to_bytes().unwrap()).unwrap();
        let file: Arc<Shared> = Arc::new(f32_bytes(&rows));
        opened.attach_originals(VectorFile::raw(file, Encoding::F32, D).unwrap()).unwrap();
        for key in 0..10 {
            let row = &rows[(ROWS + key as usize) * D..][..D];
            assert_eq!(opened.get(key * 100).unwrap().unwrap().vector, row);
            let hits = opened.search(row, &top(3).rerank(10.0)).unwrap();
            assert_eq!(hits[0].key, key * 100, "{encoding}");
            assert!(hits[0].distance < 1e-6);
        }
    }
}

/// An index that grows beyond its attached file: rows within it are as before; the others have no original yet.
#[test]
fn rows_added_behind_an_attached_file() {
    let rows = clustered(23, ROWS + 1, D);
    let (old, new) = (&rows[..ROWS * D], &rows[ROWS * D..]);
    for encoding in CODED {
        let mut index = filled(IndexKind::Flat, Metric::L2, encoding, Originals::None, old);
        let file = |rows: &[f32]| VectorFile::raw(Arc::new(f32_bytes(rows)) as Arc<Shared>, Encoding::F32, D).unwrap();
        index.attach_originals(file(old)).unwrap();
        index.add(5000, new).unwrap();
        let all = top(3).rerank(1e6);
        let refused = index.search(new, &all);
        assert!(refused.is_err(), "{encoding}: {refused:?}");
        let within = |key: u64| key < 5000;
        assert_eq!(index.search(new, &all.filter(Filter::by(&within))).unwrap().len(), 3, "{encoding}");
        index.attach_originals(file(&rows)).unwrap();
        let hits = index.search(new, &all).unwrap();
        assert_eq!((hits[0].key, hits[0].distance), (5000, 0.0), "{encoding}");
    }
}

fn vectors_of(candidates: &[Candidate], rows: &[f32]) -> Vec<f32> {
    candidates.iter().flat_map(|candidate| rows[candidate.id as usize * D..][..D].to_vec()).collect()
}

#[test]
fn candidates_and_rescoring_are_a_search_in_two_halves() {
    let (rows, queries) = (clustered(24, ROWS, D), clustered(25, 3, D));
    let odd = |key: u64| key % 2 == 1;
    let some: Vec<u64> = (0..ROWS as u64).rev().step_by(3).collect();
    for (kind, metric) in kinds_and_metrics() {
        for encoding in Encoding::ALL {
            let originals = if encoding == Encoding::F32 { Originals::None } else { Originals::F32 };
            let whole = filled(kind, metric, encoding, originals, &rows);
            let without = filled(kind, metric, encoding, Originals::None, &rows);
            let mapped = Index::from_bytes(without.to_bytes().unwrap()).unwrap();
            let storage = Arc::new(CopyingStorage::new(without.to_bytes().unwrap()));
            let copied = OpenOptions::new().from_storage(storage).unwrap();
            for query in queries.chunks(D) {
                let radius = whole.search(query, &top(20).exact(true).rerank(20.0)).unwrap()[9].distance;
                for params in [
                    top(10).rerank(3.0),
                    top(10).exact(true).rerank(1.0),
                    top(20).rerank(4.0).radius(radius),
                    top(10).rerank(2.0).filter(Filter::by(&odd)),
                    top(10).rerank(2.0).filter(Filter::keys(&some)),
                    top(0).rerank(2.0),
                ] {
                    let at = format!("{encoding} {kind} {metric} {params:?}");
                    let expected = whole.search(query, &params).unwrap();
                    let candidates = whole.candidates(query, &params).unwrap();
                    let vectors = vectors_of(&candidates, &rows);
                    let halves: [Vec<Hit>; 4] = [
                        whole.rescore(query, &candidates, &vectors, &params).unwrap(),
                        without
                            .rescore(query, &without.candidates(query, &params).unwrap(), &vectors, &params)
                            .unwrap(),
                        mapped.rescore(query, &mapped.candidates(query, &params).unwrap(), &vectors, &params).unwrap(),
                        copied.rescore(query, &copied.candidates(query, &params).unwrap(), &vectors, &params).unwrap(),
                    ];
                    for hits in halves {
                        assert_eq!(hits, expected, "{at}");
                    }
                    // Made up from ids and keys, in another order: the same.
                    let mut turned: Vec<Candidate> = candidates.iter().map(|c| Candidate::new(c.id, c.key)).collect();
                    turned.reverse();
                    let vectors = vectors_of(&turned, &rows);
                    assert_eq!(without.rescore(query, &turned, &vectors, &params).unwrap(), expected, "{at}");
                }
            }
        }
    }
}

#[test]
fn originals_that_add_nothing_to_the_codes_are_refused() {
    for (encoding, originals) in
        [(Encoding::F32, Originals::F32), (Encoding::F32, Originals::F16), (Encoding::F16, Originals::F16)]
    {
        let refused = Index::builder(D, Metric::L2).encoding(encoding).originals(originals).build();
        assert!(matches!(refused, Err(Error::InvalidParameter { name: "originals", .. })), "{encoding} {originals}");
    }
}

#[test]
fn rows_removed_or_replaced_between_the_two_halves_are_no_hits() {
    let (rows, query) = (clustered(28, ROWS, D), clustered(29, 1, D));
    let params = top(5).rerank(2.0);
    for encoding in Encoding::ALL {
        let index = filled(IndexKind::Flat, Metric::L2, encoding, Originals::None, &rows);
        let candidates = index.candidates(&query, &params).unwrap();
        let vectors = vectors_of(&candidates, &rows);
        index.remove(candidates[0].key).unwrap();
        index.update(candidates[1].key, &rows[..D]).unwrap();
        let gone = [candidates[0].key, candidates[1].key];
        let frozen = Index::from_bytes(index.to_bytes().unwrap()).unwrap();
        for index in [&index, &frozen] {
            let hits = index.rescore(&query, &candidates, &vectors, &params).unwrap();
            assert_eq!(hits.len(), 5, "{encoding}");
            assert!(hits.iter().all(|hit| !gone.contains(&hit.key)), "{encoding}: {hits:?}");
        }
    }
}

#[test]
fn what_rescoring_cannot_use_it_refuses() {
    let (rows, query) = (clustered(26, ROWS, D), clustered(27, 1, D));
    let params = top(5).rerank(2.0);
    for metric in Metric::ALL {
        for encoding in CODED {
            let growing = filled(IndexKind::Flat, metric, encoding, Originals::None, &rows);
            let mapped = Index::from_bytes(growing.to_bytes().unwrap()).unwrap();
            let kept = filled(IndexKind::Flat, metric, encoding, Originals::F32, &rows);
            for (name, index) in [("growing", &growing), ("mapped", &mapped), ("kept", &kept)] {
                let at = format!("{encoding} {metric} {name}");
                let candidates = index.candidates(&query, &params).unwrap();
                let vectors = vectors_of(&candidates, &rows);
                let rescore =
                    |candidates: &[Candidate], vectors: &[f32]| index.rescore(&query, candidates, vectors, &params);
                for wrong in [&vectors[1..], &vectors[D..], &[&vectors[..], &rows[..D]].concat(), &[]] {
                    assert_eq!(code(rescore(&candidates, wrong)), "LENGTH_MISMATCH", "{at}");
                }
                assert!(rescore(&[], &[]).unwrap().is_empty(), "{at}");
                // Another row's vector, or the right one with a bit changed: what the index can know by fingerprints.
                if name != "kept" {
                    let mut swapped = vectors.clone();
                    swapped[3 * D..4 * D].copy_from_slice(&vectors[5 * D..6 * D]);
                    let mut bent = vectors.clone();
                    bent[3 * D] = f32::from_bits(bent[3 * D].to_bits() ^ 1);
                    for wrong in [&swapped, &bent] {
                        match rescore(&candidates, wrong) {
                            Err(Error::FingerprintMismatch { row, .. }) => assert_eq!(row, candidates[3].id, "{at}"),
                            other => panic!("{at}: {other:?}"),
                        }
                    }
                }
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut vectors = vectors.clone();
                    vectors[2 * D + 7] = bad;
                    let code = code(rescore(&candidates, &vectors));
                    assert!(["NOT_FINITE", "FINGERPRINT_MISMATCH"].contains(&code), "{at}: {code}");
                    if name == "kept" {
                        let refused = rescore(&candidates, &vectors);
                        assert!(matches!(refused, Err(Error::NotFinite { row: 2, component: 7 })), "{at}: {refused:?}");
                    }
                    let mut query = query.clone();
                    query[3] = bad;
                    let refused = index.rescore(&query, &candidates, &vectors_of(&candidates, &rows), &params);
                    assert!(matches!(refused, Err(Error::NotFinite { component: 3, .. })), "{at}: {refused:?}");
                }
                let short = index.rescore(&query[1..], &candidates, &vectors, &params);
                assert!(matches!(short, Err(Error::DimensionMismatch { expected: D, .. })), "{at}: {short:?}");
                // Ids that are no rows, and rows that have another key: after `compact` there are such.
                for (id, key) in [(ROWS as u32, 1), (u32::MAX, 1), (0, 1), (5, u64::MAX)] {
                    let refused = rescore(&[Candidate::new(id, key)], &rows[..D]);
                    let is_refused = matches!(refused, Err(Error::InvalidParameter { name: "candidates", .. }));
                    assert!(is_refused, "{at}: row {id} with key {key}: {refused:?}");
                }
                // The same candidate twice is one hit.
                let twice = [&candidates[..], &candidates[..3]].concat();
                let hits = rescore(&twice, &vectors_of(&twice, &rows)).unwrap();
                assert_eq!(hits, rescore(&candidates, &vectors).unwrap(), "{at}: a candidate twice");
            }
        }
    }
}
