//! Kernel parity under the native test harness; the suite itself is shared with the one for WebAssembly.

#[path = "suites/kernel_parity.rs"]
mod kernel_parity;

kernel_parity::stamp!(test);
