//! What every [`Storage`](super::Storage) and every [`Rows`](super::Rows) must do, written once for all of them.
