// Where the WebAssembly file is when nobody says. Bundlers know this form of URL and bring the file along.
// (The CommonJS build has a file of its own in this one's place: scripts/location.cjs.)

/** @internal */
export function defaultLocation(): URL {
  return new URL('./twindex.wasm', import.meta.url);
}
