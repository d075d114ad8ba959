//! The index from outside: arguments, keys, files, recall, concurrency, determinism, and a model to compare with.
//!
//! `B27` and the like in comments name the reports of users of other libraries that a test comes from.

mod arguments;
mod batch;
#[path = "../common/mod.rs"]
mod common;
mod concurrency;
mod connectivity;
mod determinism;
mod distances;
mod encodings;
mod keys;
mod limits;
mod model;
mod persistence;
mod quantization;
mod recall;
mod rerank;
#[cfg(feature = "parallel")]
mod rounds;
