//! The segment file: what is written is what is read, and what is damaged or hostile is refused or harmless.

mod hostile;
#[cfg(feature = "mmap")]
mod large;
mod roundtrip;
mod sample;
#[cfg(feature = "mmap")]
mod save;
