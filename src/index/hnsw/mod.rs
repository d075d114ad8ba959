//! Hierarchical navigable small world graphs (Malkov & Yashunin 2018): the graph knows ids and a scorer, never vectors.
//!
//! | module | job |
//! |---|---|
//! | `params` | parameters, and the level a row is drawn |
//! | `links` | the growing graph: slots of atomics, lock-free to read |
//! | `search` | descent, and the search of one level (Algorithms 2 and 5) |
//! | `build` | insertion and the choice of neighbours (Algorithms 1 and 4), repair |
//! | `round` | insertion on many threads whose outcome does not depend on them |

pub(crate) mod build;
pub(crate) mod links;
pub(crate) mod params;
#[cfg(feature = "parallel")]
pub(crate) mod round;
pub(crate) mod search;

/// What a search needs of a graph: growing or frozen, it does not know which.
pub trait Graph {
    /// Where searches begin, and on which level; `None` while the graph is empty.
    fn entry(&self) -> Option<(u32, u8)>;

    /// Replaces `out` with the neighbours of row `id` on `level`; empty where it has none there.
    fn links(&self, id: u32, level: u8, out: &mut Vec<u32>);

    /// Hints that the neighbours of row `id` on level 0 will be asked for soon.
    fn prefetch(&self, id: u32);
}
