//! Random histories, each step compared with a map from keys to vectors.
//!
//! The vectors are small integers, so under L2 and inner product every distance is exact, and so is the order of hits.
//! `PROPTEST_CASES` asks for more cases. Encodings whose distances are estimates keep their originals here, and every
//! row is reranked: what is found then is what an index of `f32` finds.

use crate::common::oracle::{assert_well_formed, distance, nearest};
use crate::common::stored;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use std::collections::BTreeMap;
use twindex::{
    Encoding, Error, Filter, Hit, Index, IndexKind, Metric, OpenOptions, Originals, Residency, SearchParams,
};

/// Components in −2 ..= 2: in few dimensions most vectors coincide with others.
type Seed = u64;

#[derive(Debug, Clone)]
enum Step {
    Add(u64, Seed),
    /// As many keys from this one on, and how many of them share a vector.
    AddBatch(u64, usize, usize, Seed),
    Update(u64, Seed),
    Remove(u64),
    /// All keys with this remainder by 3.
    RemoveMany(u64),
    RemoveAll,
    Compact,
    Retrain,
    Clear,
    Reopen(Residency),
    Search(Query),
}

#[derive(Debug, Clone)]
struct Query {
    seed: Seed,
    k: usize,
    ef: Option<usize>,
    exact: bool,
    /// 0: none, 1: keys that 3 divides, 2: the same as a list of keys, 3: a list with one live key at most.
    filter: u8,
    /// The distance of this live row, by order of key.
    radius: Option<usize>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..60u64;
    let k = prop_oneof![0..4usize, Just(10), Just(100), Just(usize::MAX)];
    let ef = prop_oneof![Just(None), (1..12usize).prop_map(Some), Just(Some(usize::MAX))];
    let radius = prop_oneof![2 => Just(None), 1 => (0..200usize).prop_map(Some)];
    let query = (any::<Seed>(), k, ef, any::<bool>(), 0..4u8, radius)
        .prop_map(|(seed, k, ef, exact, filter, radius)| Query { seed, k, ef, exact, filter, radius });
    let residency = prop_oneof![Just(Residency::Mapped), Just(Residency::Resident), Just(Residency::Owned)];
    let step = prop_oneof![
        6 => (key.clone(), any::<Seed>()).prop_map(|(key, seed)| Step::Add(key, seed)),
        4 => (0..400u64, 0..90usize, 1..120usize, any::<Seed>())
            .prop_map(|(key, n, copies, seed)| Step::AddBatch(key, n, copies, seed)),
        5 => (key.clone(), any::<Seed>()).prop_map(|(key, seed)| Step::Update(key, seed)),
        4 => key.prop_map(Step::Remove),
        1 => (0..3u64).prop_map(Step::RemoveMany),
        1 => Just(Step::RemoveAll),
        2 => Just(Step::Compact),
        1 => Just(Step::Retrain),
        1 => Just(Step::Clear),
        2 => residency.prop_map(Step::Reopen),
        12 => query.prop_map(Step::Search),
    ];
    prop::collection::vec(step, 1..60)
}

struct Twin {
    index: Index,
    model: BTreeMap<u64, Vec<f32>>,
    dimension: usize,
    metric: Metric,
}

impl Twin {
    fn vector(&self, seed: Seed) -> Vec<f32> {
        let mut random = crate::common::random::Random::new(seed);
        let mut vector: Vec<f32> = (0..self.dimension).map(|_| random.below(5) as f32 - 2.0).collect();
        if self.metric == Metric::Cosine && vector.iter().all(|&x| x == 0.0) {
            vector[0] = 1.0;
        }
        vector
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Add(key, seed) => {
                let vector = self.vector(seed);
                match self.index.add(key, &vector) {
                    Ok(()) => assert!(self.model.insert(key, vector).is_none(), "{key} was there"),
                    Err(Error::DuplicateKey { key: named }) => {
                        assert!(named == key && self.model.contains_key(&key));
                    }
                    Err(e) => panic!("{e}"),
                }
            }
            Step::AddBatch(first, n, copies, seed) => {
                let keys: Vec<u64> = (first..first + n as u64).collect();
                let rows: Vec<Vec<f32>> = (0..n).map(|i| self.vector(seed ^ (i / copies) as u64)).collect();
                match self.index.add_batch(&keys, &rows.concat()) {
                    Ok(()) => {
                        assert!(keys.iter().all(|key| !self.model.contains_key(key)));
                        self.model.extend(keys.into_iter().zip(rows));
                    }
                    Err(Error::DuplicateKey { key }) => assert!(keys.contains(&key) && self.model.contains_key(&key)),
                    Err(e) => panic!("{e}"),
                }
            }
            Step::Update(key, seed) => {
                let vector = self.vector(seed);
                match self.index.update(key, &vector) {
                    Ok(()) => assert!(self.model.insert(key, vector).is_some(), "{key} was not there"),
                    Err(Error::KeyNotFound { key: named }) => {
                        assert!(named == key && !self.model.contains_key(&key));
                    }
                    Err(e) => panic!("{e}"),
                }
            }
            Step::Remove(key) => assert_eq!(self.index.remove(key).unwrap(), self.model.remove(&key).is_some()),
            Step::RemoveMany(remainder) => self.remove_if(|key| key % 3 == remainder),
            Step::RemoveAll => self.remove_if(|_| true),
            Step::Compact => {
                self.index.compact().unwrap();
                let stats = self.index.stats().unwrap();
                assert_eq!((stats.rows, stats.tombstones), (self.model.len() as u64, 0));
            }
            Step::Retrain => self.index.retrain().unwrap(),
            Step::Clear => {
                self.index.clear().unwrap();
                self.model.clear();
            }
            Step::Reopen(residency) => self.reopen(residency),
            Step::Search(ref query) => self.search(&self.index, query),
        }
        assert_eq!(self.index.len(), self.model.len());
    }

    fn remove_if(&mut self, gone: impl Fn(u64) -> bool) {
        for key in self.model.keys().copied().filter(|&key| gone(key)).collect::<Vec<_>>() {
            assert!(self.index.remove(key).unwrap());
            self.model.remove(&key);
        }
    }

    fn reopen(&mut self, residency: Residency) {
        let bytes = self.index.to_bytes().unwrap();
        let opened = OpenOptions::new().threads(1).residency(residency).from_bytes(bytes.clone()).unwrap();
        opened.verify().unwrap();
        assert!(opened.to_bytes().unwrap() == bytes, "opened and saved, the bytes change");
        assert_eq!(opened.keys(), self.index.keys());
        self.contents(&opened);
        let query = Query { seed: 1, k: 10, ef: Some(1), exact: false, filter: 0, radius: None };
        self.search(&opened, &query);
        self.search(&opened, &Query { k: usize::MAX, ..query });
        if residency == Residency::Owned {
            self.index = opened;
        }
    }

    fn contents(&self, index: &Index) {
        let mut keys = index.keys();
        keys.sort_unstable();
        assert!(keys.iter().eq(self.model.keys()));
        for (&key, vector) in &self.model {
            assert!(index.contains(key));
            assert_eq!(stored(index, key).as_ref(), Some(vector));
        }
        assert!(!index.contains(1000) && index.get(1000).unwrap().is_none());
    }

    fn search(&self, index: &Index, asked: &Query) {
        let query = self.vector(asked.seed);
        let thirds = |key: u64| key.is_multiple_of(3);
        let listed: Vec<u64> = match asked.filter {
            2 => (0..500).rev().filter(|&key| thirds(key)).chain([0, 3, 3]).collect(),
            _ => vec![asked.seed % 60, 1000],
        };
        let matches = |key: u64| match asked.filter {
            0 => true,
            1 | 2 => thirds(key),
            _ => listed.contains(&key),
        };
        let mut params = SearchParams::new(asked.k).exact(asked.exact);
        if let Some(ef) = asked.ef {
            params = params.ef(ef);
        }
        let reranked = index.encoding() != Encoding::F32;
        if reranked {
            params = params.rerank(1e6);
        }
        match asked.filter {
            0 => {}
            1 => params = params.filter(Filter::by(&thirds)),
            _ => params = params.filter(Filter::keys(&listed)),
        }
        let rows = || self.model.iter().filter(|&(&key, _)| matches(key)).map(|(&key, row)| (key, &row[..]));
        let mut expected = nearest(self.metric, &query, rows(), asked.k);
        let limit = asked.radius.and_then(|i| Some(self.model.values().nth(i % self.model.len().max(1))?.as_slice()));
        let limit = limit.map(|row| distance(self.metric, &query, row) as f32);
        let unlimited = index.search(&query, &params).unwrap();
        assert_eq!(unlimited.len(), expected.len(), "min(k, live matching)");
        self.right(&query, &unlimited, matches);
        let graph = index.kind() == IndexKind::Hnsw && !asked.exact && asked.ef != Some(usize::MAX) && !reranked;
        if !graph {
            self.same(&unlimited, &expected);
        }
        if let Some(limit) = limit {
            let hits = index.search(&query, &params.radius(limit)).unwrap();
            let within = unlimited.iter().take_while(|hit| hit.distance <= limit).count();
            assert_eq!(hits, unlimited[..within], "the radius cuts the k nearest");
            if !graph && self.metric != Metric::Cosine {
                expected.retain(|&(d, _)| d <= f64::from(limit));
                self.same(&hits, &expected);
            }
        }
    }

    /// Each hit is a live matching row at its right distance.
    fn right(&self, query: &[f32], hits: &[Hit], matches: impl Fn(u64) -> bool) {
        assert_well_formed(hits);
        for hit in hits {
            assert!(matches(hit.key), "{hit:?} does not match");
            let vector = self.model.get(&hit.key).expect("a live key");
            let off = (distance(self.metric, query, vector) - f64::from(hit.distance)).abs();
            assert!(if self.metric == Metric::Cosine { off < 1e-5 } else { off == 0.0 }, "{hit:?} is off by {off}");
        }
    }

    fn same(&self, hits: &[Hit], expected: &[(f64, u64)]) {
        assert_eq!(hits.len(), expected.len());
        for (hit, &(distance, key)) in hits.iter().zip(expected) {
            let off = (f64::from(hit.distance) - distance).abs();
            match self.metric {
                Metric::Cosine => assert!(off < 1e-5, "{hit:?} where {distance} is expected"),
                _ => assert_eq!((hit.distance.into(), hit.key), (distance, key)),
            }
        }
    }
}

#[test]
fn every_history_ends_as_the_model_says() {
    run(400, vec![Encoding::F32]);
}

#[test]
fn every_history_ends_as_the_model_says_in_other_encodings() {
    run(400, vec![Encoding::F16, Encoding::Int8, Encoding::Int4, Encoding::Bits1]);
}

fn run(cases: u32, encodings: Vec<Encoding>) {
    let kind = prop_oneof![1 => Just(IndexKind::Flat), 3 => Just(IndexKind::Hnsw)];
    let metric = prop::sample::select(Metric::ALL.to_vec());
    let dimension = prop::sample::select(vec![1usize, 3, 17]);
    let strategy = (kind, metric, dimension, 2..6usize, prop::sample::select(encodings), steps());
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(cases);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let outcome = runner.run(&strategy, |(kind, metric, dimension, m, encoding, steps)| {
        let builder = Index::builder(dimension, metric).kind(kind).m(m).ef_construction(8).ef(4).threads(1);
        let originals = if encoding == Encoding::F32 { Originals::None } else { Originals::F32 };
        let index = builder.encoding(encoding).originals(originals).build().unwrap();
        let mut twin = Twin { index, model: BTreeMap::new(), dimension, metric };
        for step in &steps {
            twin.take(step);
        }
        twin.contents(&twin.index);
        twin.index.verify().unwrap();
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, history)) => panic!("{reason}\n{history:#?}"),
        Err(e) => panic!("{e}"),
    }
}
