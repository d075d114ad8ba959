//! The suites of the seams inside a JavaScript engine, Node.js or a browser: kernel parity at the levels WebAssembly
//! has, and the storage contract over bytes that JavaScript owns. Native builds leave this file out.
#![cfg(target_arch = "wasm32")]

use std::sync::Arc;
use twindex::Error;
use twindex::storage::Storage;
use twindex::storage::conformance::{rows_suite, sample_bytes, storage_suite};
use twindex::storage::{CopyingStorage, Section, SectionRows};
use twindex::wasm::{JsSource, JsStorage};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::{console_log, wasm_bindgen_test};

#[path = "suites/kernel_parity.rs"]
mod kernel_parity;

kernel_parity::stamp!(wasm_bindgen_test);

#[path = "suites/far_offsets.rs"]
mod far_offsets;

far_offsets::stamp!(wasm_bindgen_test);

#[path = "suites/on_record.rs"]
mod on_record;

on_record::stamp!(wasm_bindgen_test);

#[wasm_bindgen(inline_js = r#"
    export function over(bytes) {
        const copy = bytes.slice();
        return { readInto: (offset, buffer) => void buffer.set(copy.subarray(offset, offset + buffer.length)) };
    }
    export function detaching(bytes) {
        const copy = bytes.slice();
        let reads = 0;
        return {
            readInto(offset, buffer) {
                if (reads++ === 1) structuredClone(copy.buffer, { transfer: [copy.buffer] });
                if (copy.length === 0) throw new Error('the ArrayBuffer was detached');
                buffer.set(copy.subarray(offset, offset + buffer.length));
            },
        };
    }
    export function throwing(what) {
        return { readInto() { throw what; } };
    }
    export function without() {
        return {};
    }
"#)]
extern "C" {
    fn over(bytes: &[u8]) -> JsSource;
    fn detaching(bytes: &[u8]) -> JsSource;
    fn throwing(what: JsValue) -> JsSource;
    fn without() -> JsSource;
}

fn storage(bytes: &[u8]) -> JsStorage {
    JsStorage::new(over(bytes), bytes.len() as f64).unwrap()
}

#[wasm_bindgen_test]
fn js_storage_conforms() {
    console_log!("{}", storage_suite("JsStorage", storage));
    console_log!("{}", storage_suite("copying", |bytes: &[u8]| CopyingStorage::new(bytes.to_vec())));
    console_log!("{}", storage_suite("vec", |bytes: &[u8]| bytes.to_vec()));
}

fn rows(stride: usize, bytes: &[u8]) -> SectionRows<JsStorage> {
    let section = Section::new(Arc::new(storage(bytes)), 0, bytes.len() as u64).unwrap();
    SectionRows::new(section, stride).unwrap()
}

#[wasm_bindgen_test]
fn rows_in_js_storage_conform() {
    console_log!("{}", rows_suite("rows in JsStorage", &[682, 5000], rows));
    let made_resident = rows_suite("rows copied out of JsStorage", &[1024], |stride, bytes| {
        let mut rows = rows(stride, bytes);
        rows.make_resident().unwrap();
        rows
    });
    console_log!("{made_resident}");
}

fn reason(outcome: Result<(), Error>) -> String {
    match outcome {
        Err(Error::Storage { reason }) => reason,
        other => panic!("expected Error::Storage, got {other:?}"),
    }
}

#[wasm_bindgen_test]
fn a_failing_source_is_an_error_with_its_reason() {
    let mut out = [0; 8];
    let read = |source: JsSource| JsStorage::new(source, 8.0).unwrap().read_into(0, &mut [0; 8]);
    assert_eq!(reason(read(throwing(js_sys::Error::new("pulled").into()))), "pulled");
    assert_eq!(reason(read(throwing("a string".into()))), "a string");
    assert!(reason(read(throwing(JsValue::NULL))).contains("not an Error"));
    assert!(!reason(read(without())).is_empty());

    let storage = JsStorage::new(detaching(&sample_bytes(8)), 8.0).unwrap();
    storage.read_into(0, &mut out).unwrap();
    assert_eq!(out[..], sample_bytes(8));
    assert!(reason(storage.read_into(0, &mut out)).contains("detached"));
    assert!(reason(storage.read_into(0, &mut out)).contains("detached"));
}

#[wasm_bindgen_test]
fn lengths_are_integers_up_to_two_to_the_53() {
    for length in [-1.0, 0.5, f64::NAN, f64::INFINITY, 9_007_199_254_740_994.0, 1e300] {
        let refused = JsStorage::new(without(), length);
        assert!(matches!(refused, Err(Error::InvalidParameter { name: "length", .. })), "{length}: {refused:?}");
    }
    let vast = JsStorage::new(throwing("reached".into()), 9_007_199_254_740_992.0).unwrap();
    assert_eq!(vast.len(), 1 << 53);
    assert_eq!(reason(vast.read_into((1 << 53) - 1, &mut [0])), "reached");
    assert!(matches!(vast.read_into(1 << 53, &mut [0]), Err(Error::Truncated { .. })));
}
