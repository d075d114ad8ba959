//! Files and answers on record, encoding by encoding: the same bytes, keys and distance bits at every level and on
//! every platform. Plain functions, which a harness stamps as tests: the native one, and the one for WebAssembly.

use std::sync::Arc;
use twindex::storage::CopyingStorage;
use twindex::{Encoding, Index, IndexKind, Level, Metric, OpenOptions, Originals, Residency, SearchParams};

/// Stamps every test of the suite with a harness's attribute.
macro_rules! stamp {
    ($attribute:meta) => {
        on_record::stamp!($attribute: f16_is_on_record, int8_is_on_record, int4_is_on_record, bits1_is_on_record);
    };
    ($attribute:meta: $($test:ident),*) => {$(
        #[$attribute]
        fn $test() {
            on_record::$test();
        }
    )*};
}
pub(crate) use stamp;

const D: usize = 37;
/// Behind the border from which rows are encoded.
const ROWS: usize = 1100;

/// CRC-32 of a file, and of the keys and distance bits of its answers: for L2, inner product and cosine.
type OnRecord = [(u32, u32); 3];

pub fn f16_is_on_record() {
    check(Encoding::F16, Originals::None, F16);
}

pub fn int8_is_on_record() {
    check(Encoding::Int8, Originals::F32, INT8);
}

pub fn int4_is_on_record() {
    check(Encoding::Int4, Originals::F16, INT4);
}

pub fn bits1_is_on_record() {
    check(Encoding::Bits1, Originals::F32, BITS1);
}

const F16: OnRecord = [(3_184_322_334, 2_218_253_551), (320_060_777, 4_060_188_715), (3_947_057_310, 945_484_066)];
const INT8: OnRecord = [(2_309_916_381, 3_103_285_092), (766_125_323, 840_131_840), (2_055_882_287, 2_738_489_320)];
const INT4: OnRecord = [(698_497_079, 2_288_487_774), (2_484_658_175, 3_715_730_292), (3_942_184_685, 3_799_498_875)];
const BITS1: OnRecord = [(1_735_038_979, 1_211_684_578), (3_754_807_538, 3_566_342_221), (544_453_701, 2_094_721_799)];

/// Uniform in [−1, 1), all 24 bits in use: SplitMix64.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    (0..n).map(|_| (next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn build(encoding: Encoding, originals: Originals, metric: Metric, level: Level) -> Index {
    let index = Index::builder(D, metric).kind(IndexKind::Hnsw).m(6).ef_construction(24).seed(7).threads(1);
    let mut index = index.encoding(encoding).originals(originals).level(level).build().unwrap();
    // Shifted, so that the centre is none too small; not as far as to be all there is.
    let rows: Vec<f32> = numbers(65, ROWS * D).iter().map(|x| x + 0.25).collect();
    index.add_batch(&(0..ROWS as u64).collect::<Vec<_>>(), &rows).unwrap();
    for key in 0..20 {
        index.update(key * 7, &rows[(key as usize + 300) * D..][..D]).unwrap();
        assert!(index.remove(key * 7 + 1).unwrap());
    }
    if metric == Metric::Cosine {
        index.retrain().unwrap();
    }
    index
}

fn answers<S: twindex::storage::Storage + Send + Sync + ?Sized>(index: &Index<S>, rerank: bool) -> u32 {
    let mut params = vec![SearchParams::new(10), SearchParams::new(10).exact(true)];
    if rerank {
        params.push(SearchParams::new(10).rerank(3.0));
    }
    let mut bytes = Vec::new();
    for query in numbers(66, 10 * D).chunks(D) {
        for params in &params {
            for hit in index.search(query, params).unwrap() {
                bytes.extend(hit.key.to_le_bytes());
                bytes.extend(hit.distance.to_bits().to_le_bytes());
            }
        }
    }
    for key in [2, 500, 1099] {
        bytes.extend(index.get(key).unwrap().unwrap().vector.iter().flat_map(|x| x.to_le_bytes()));
    }
    crc32fast::hash(&bytes)
}

fn check(encoding: Encoding, originals: Originals, expected: OnRecord) {
    let mut got = Vec::new();
    for metric in Metric::ALL {
        let rerank = originals != Originals::None;
        let mut seen = Vec::new();
        for level in Level::available() {
            let growing = build(encoding, originals, metric, level);
            let bytes = growing.to_bytes().unwrap();
            let file = crc32fast::hash(&bytes);
            seen.push((level, file, answers(&growing, rerank)));
            let mapped = OpenOptions::new().level(level).from_bytes(bytes.clone()).unwrap();
            seen.push((level, file, answers(&mapped, rerank)));
            let storage = Arc::new(CopyingStorage::new(bytes));
            let options = OpenOptions::new().level(level).residency(Residency::Mapped);
            seen.push((level, file, answers(&options.from_storage(storage).unwrap(), rerank)));
        }
        let (_, file, hits) = seen[0];
        assert!(seen.iter().all(|&(_, f, h)| (f, h) == (file, hits)), "{encoding} {metric}: {seen:?}");
        got.push((file, hits));
    }
    assert_eq!(got, expected, "{encoding}: if encoding or the building of graphs changed on purpose, record this");
}
