//! The three metrics, as distances: smaller is closer.

use crate::error::{Error, Result};

/// The largest number of components a vector may have. Integer kernels cannot overflow up to here.
pub const MAX_DIMENSION: usize = 65_536;

/// How two vectors are compared. Distances are always "smaller is closer".
///
/// | metric | distance |
/// |---|---|
/// | [`L2`](Metric::L2) | Σ(qᵢ − xᵢ)², the *squared* Euclidean distance |
/// | [`InnerProduct`](Metric::InnerProduct) | −⟨q, x⟩ |
/// | [`Cosine`](Metric::Cosine) | 1 − ⟨q, x⟩ / (‖q‖·‖x‖), clamped to [0, 2] |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Metric {
    /// Squared Euclidean distance.
    L2,
    /// Negated inner product.
    InnerProduct,
    /// One minus the cosine of the angle.
    Cosine,
}

impl Metric {
    /// All metrics, in the order of their tags.
    pub const ALL: [Metric; 3] = [Metric::L2, Metric::InnerProduct, Metric::Cosine];

    /// The name used by the command line, JavaScript and in messages: `l2`, `ip` or `cosine`.
    pub fn name(self) -> &'static str {
        match self {
            Metric::L2 => "l2",
            Metric::InnerProduct => "ip",
            Metric::Cosine => "cosine",
        }
    }

    /// The byte that stands for this metric in a file.
    pub(crate) fn tag(self) -> u8 {
        match self {
            Metric::L2 => 0,
            Metric::InnerProduct => 1,
            Metric::Cosine => 2,
        }
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        Metric::ALL.into_iter().find(|m| m.tag() == tag)
    }
}

impl std::fmt::Display for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Metric {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Metric::ALL.into_iter().find(|m| m.name() == s).ok_or_else(|| Error::InvalidParameter {
            name: "metric",
            expected: "l2, ip or cosine",
            got: format!("{s:?}"),
        })
    }
}
