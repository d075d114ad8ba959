//! Bytes that JavaScript owns, behind [`Storage`].
//!
//! WebAssembly addresses its linear memory only. An ArrayBuffer, a file descriptor of Node.js, an OPFS access handle
//! or any other object is reached through one function, `readInto(offset, buffer)`, which fills the whole buffer or
//! throws.

use crate::error::{Error, Result};
use crate::storage::Storage;
use wasm_bindgen::prelude::*;

/// 2^53: lengths and offsets cross as `f64`, which holds every integer up to here.
const MAX_LENGTH: f64 = 9_007_199_254_740_992.0;

#[wasm_bindgen]
extern "C" {
    /// A JavaScript object with `readInto(offset, buffer)`.
    #[wasm_bindgen(typescript_type = "{ readInto(offset: number, buffer: Uint8Array): void }")]
    #[derive(Debug, Clone)]
    pub type JsSource;

    /// `buffer` is a view of linear memory: the source fills it during the call and keeps no hold of it.
    #[wasm_bindgen(method, catch, js_name = readInto)]
    fn read_into(this: &JsSource, offset: f64, buffer: &mut [u8]) -> std::result::Result<(), JsValue>;
}

/// A [`Storage`] over a length and a `readInto(offset, buffer)` given by JavaScript. Never resident.
///
/// A source that throws (a detached ArrayBuffer, a closed file) gives [`Error::Storage`] with what it said.
#[derive(Debug)]
pub struct JsStorage {
    source: JsSource,
    length: u64,
}

impl JsStorage {
    /// Storage of `length` bytes over `source`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] where `length` is not an integer of 0 ..= 2^53.
    pub fn new(source: JsSource, length: f64) -> Result<Self> {
        if !(0.0..=MAX_LENGTH).contains(&length) || length.fract() != 0.0 {
            // Printed as an integer: printing floats would be another 20 KiB in the module.
            let got = format!("about {}", length as i64);
            return Err(Error::InvalidParameter { name: "length", expected: "an integer of 0 to 2^53", got });
        }
        Ok(JsStorage { source, length: length as u64 })
    }
}

impl Storage for JsStorage {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(out.len() as u64);
        if end > self.length {
            return Err(Error::Truncated { expected: end, got: self.length });
        }
        if out.is_empty() {
            return Ok(());
        }
        // Exact: offset <= length <= 2^53.
        self.source.read_into(offset as f64, out).map_err(|e| Error::Storage { reason: reason(&e) })
    }
}

/// What a thrown value says: its `message` where it is an Error, else itself where it is a string.
pub(super) fn reason(thrown: &JsValue) -> String {
    let message = match thrown.dyn_ref::<js_sys::Error>() {
        Some(error) => error.message().as_string(),
        None => thrown.as_string(),
    };
    message.unwrap_or_else(|| "something that is not an Error was thrown".to_owned())
}
