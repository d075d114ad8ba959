//! Vector search written once: exact and HNSW search over one file format, natively and in WebAssembly, with the same
//! answers to the last bit.
//!
//! ```
//! use twindex::{Index, Metric, SearchParams};
//!
//! let index = Index::builder(4, Metric::Cosine).build()?;
//! index.add(1, &[0.9, 0.1, 0.0, 0.0])?;
//! index.add(2, &[0.0, 0.8, 0.2, 0.0])?;
//! index.add(3, &[0.0, 0.0, 0.1, 0.9])?;
//!
//! for hit in index.search(&[0.0, 1.0, 0.0, 0.0], &SearchParams::new(2))? {
//!     println!("{} at {}", hit.key, hit.distance);
//! }
//! # let file = tempfile::tempdir()?;
//! # let path = file.path().join("animals.twx");
//! index.save(&path)?;              // one file; JavaScript opens it too
//! let index = Index::open(&path)?; // memory-mapped, read-only, in constant time
//! assert_eq!(index.len(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What an index is
//!
//! A **segment**: rows of fixed stride, a key for each, tombstones, and (HNSW) links between rows. Everything is a
//! section of one file. Two ways to search it are not two containers: an exact scan is always possible, walking the
//! graph is possible where there are links, and no vector is held twice because of that. Growing and frozen are two
//! states of it: a growing index holds rows and links in chunks that never move, a frozen one reads the sections where
//! they lie. A search does not know which.
//!
//! | word | meaning |
//! |---|---|
//! | distance | smaller is closer, for every [`Metric`] |
//! | key, id | the user's `u64`; the internal, dense `u32` |
//! | level 0, upper levels | all rows; the few through which a search descends |
//! | `m`, `ef_construction`, `ef` | links a row; candidates while building; candidates while searching |
//! | tombstone | a row removed or replaced, still in place until [`Index::compact`] |
//! | resident | bytes that can be borrowed, as opposed to copied out of a storage |
//!
//! # Encodings
//!
//! What search touches of a vector, its *code*, may be smaller than the vector. Distances are then estimates, and the
//! best of them are made exact again by *reranking* against the originals, which lie in the index
//! ([`IndexBuilder::originals`]), in a file of their own ([`Index::attach_originals`]), or with the caller
//! ([`Index::candidates`], [`Index::rescore`]).
//!
//! ```
//! use twindex::{Encoding, Index, Metric, Originals, SearchParams};
//!
//! let index = Index::builder(64, Metric::Cosine).encoding(Encoding::Int4).originals(Originals::F16).build()?;
//! # let vector = |i: u64| (0..64u64).map(|j| ((i * 37 + j * 11) % 101) as f32 - 50.0).collect::<Vec<_>>();
//! # for i in 0..2000 { index.add(i, &vector(i))?; }
//! # let query = vector(7);
//! let hits = index.search(&query, &SearchParams::new(10).rerank(2.0))?;
//! assert!(hits.iter().all(|hit| hit.reranked));
//! # Ok::<(), twindex::Error>(())
//! ```
//!
//! | [`Encoding`] | bytes a row, d components | recall@100 of a scan: by codes | reranked, oversample 1.2 | 10 |
//! |---|---|---|---|---|
//! | `F32` | 4·d | 1 | | |
//! | `F16` | 2·d | 1.000, 1.000 | | |
//! | `Int8` | d + 8 | 0.996, 0.997 | 1.000, 1.000 | |
//! | `Int4` | ⌈d/2⌉ + 8 | 0.955, 0.964 | 0.996, 0.998 | 1.000, 1.000 |
//! | `Bits1` | ⌈d/8⌉ + 8 | 0.690, 0.756 | 0.754, 0.820 | 0.996, 1.000 |
//!
//! (100,000 real sentence embeddings under inner product, 1,000 queries; 384 and 768 dimensions.) How the codes come
//! about, and how large the error of an estimate is, says [`codec::quantized`].
//!
//! **The graph** of an index with codes is built on the codes alone: the distances that lead a search chose the links
//! too. Measured on those embeddings (m 16, `ef_construction` 200, `ef` 64, reranking twofold; 384 and 768 dimensions),
//! a search finds of the 10 nearest: with `F32` 0.971 and 0.967; `Int8` 0.971 and 0.967; `Int4` 0.969 and 0.970;
//! `Bits1` 0.850 and 0.904. Building took 0.63 and 0.54 of the time it takes on floats with `Int8`, 0.54 and 0.41 with
//! `Int4`. So originals need not be in memory for the graph's sake. (`benches/encodings` measures it; `benches/results`
//! has more.)
//!
//! # The map
//!
//! ```text
//! error, metric ← kernel ← codec ┐
//!                                ├ scorer ┐
//! error ← storage ───────────────┘        ├ index ← lib ← wasm, the command line
//! metric, storage ← segment ──────────────┤
//! error ← dataset ────────────────────────┘
//! ```
//!
//! Each module knows only what stands to its left. (An index asks `dataset` for one thing: where the vectors lie in a
//! file that is attached to it.)
//!
//! | module | job | knows nothing of |
//! |---|---|---|
//! | [`kernel`] | SIMD distances, the same bits at every level | storage |
//! | [`codec`] | a vector as the bytes of a row, a query against such a row | where rows live |
//! | [`storage`] | where bytes live: memory, a map, JavaScript; rows that grow | vectors |
//! | [`segment`] | the file, byte by byte; opening, checking, writing it | search |
//! | [`scorer`] | ids in, distances out | the graph |
//! | [`index`] | the public face; graph, scan, changes, persistence | bytes of vectors |
//! | [`dataset`] | readers of vector files | the index |
//! | `wasm` | the only place that names JavaScript | |
//!
//! # The seams
//!
//! - [`storage::Storage`]: immutable bytes; a length, `read_into`, and a slice where they are resident. Without `Send`,
//!   for a JavaScript handle has none; the native [`Index`] asks for it.
//! - [`storage::Rows`]: fixed-stride rows by id; borrowed if resident (hot), fetched sorted and coalesced if not
//!   (cold).
//! - [`codec::Codec`]: static, below the scorer.
//! - [`scorer::Scorer`]: one virtual call for a list of ids. The graph code exists once, whatever the encoding.
//! - [`index::hnsw::Graph`]: entry point and neighbour lists; growing and frozen graphs look alike.
//!
//! # The same bits everywhere
//!
//! Float kernels sum in one order (16 lanes, multiply and add kept apart, one reduction tree) at every level; rows'
//! levels are drawn by comparing integers; ties are broken by id and key. So the same input, seed and one thread (or,
//! built [deterministically](IndexBuilder#method.deterministic), any number of threads) give the same file, and the
//! same file and query give the same keys and distance bits, on x86, on ARM and in a browser.
//!
//! # Reading while writing
//!
//! Searches wait for no change. A row carries the version in which it was born and the one in which it died; a search
//! takes the version when it starts and sees the rows alive in it, so an update is seen whole or not at all, and a
//! batch likewise. Link lists are atomics, published after the rows they lead to. (A lock is taken for a moment to
//! borrow buffers, and one of 256 to look up each key of a filter by keys.) Saving holds up writers, never readers.
//!
//! # Where unsafe lives
//!
//! In `kernel` (loads, and calls into functions compiled for a level), in `storage::chunked` (rows written beyond the
//! published count while others are read) and in `storage::mmap` (the map). It is denied everywhere else, and every
//! block carries its proof.
//!
//! # Features
//!
//! | feature | default | what for |
//! |---|---|---|
//! | `mmap` | yes | files by path, memory maps, huge pages |
//! | `parallel` | yes | `add_batch` and `search_batch` on all cores |
//! | `crc32fast` | yes | checksums by the CPU's own instructions; without it by tables, which make a smaller program |
//! | `cli` | no | the command line `twindex` |
//!
//! Without them the crate needs no clock, threads, files or randomness.

pub mod codec;
pub mod dataset;
pub mod error;
pub mod index;
pub mod kernel;
pub mod metric;
mod mix;
pub mod scorer;
pub mod segment;
pub mod storage;
#[cfg(target_arch = "wasm32")]
pub mod wasm;

pub use error::{Error, Result};
pub use index::{
    Candidate, Filter, Hit, Index, IndexBuilder, MAX_ROWS, OpenOptions, Residency, SearchParams, SectionBytes, Source,
    Stats, Stored, VectorFile,
};
pub use kernel::{Kernels, Level};
pub use metric::{MAX_DIMENSION, Metric};
pub use segment::{Encoding, IndexKind, MAX_EF, MAX_M, Originals};

/// The README's examples run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
