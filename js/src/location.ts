// Where the WebAssembly file is when nobody says. Bundlers know this form of URL and bring both files along; a page
// fetches one.
// (The CommonJS build has a file of its own in this one's place: scripts/location.cjs.)

/** @internal */
export function defaultLocation(relaxedSimd: boolean): URL {
  return relaxedSimd
    ? new URL('./twindex-relaxed-simd.wasm', import.meta.url)
    : new URL('./twindex.wasm', import.meta.url);
}
