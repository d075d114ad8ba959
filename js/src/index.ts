/**
 * Vector search in WebAssembly SIMD: exact and HNSW, over the same file format as the native library, with the same
 * keys and the same distance bits.
 *
 * @example
 * ```ts
 * import { Index } from 'twindex';
 *
 * const index = await Index.create({ dimension: 3, metric: 'cosine' });
 * index.add(7, [0.1, 0.2, 0.3]);
 * const [hit] = index.search([0.1, 0.2, 0.3], { k: 1 });
 * console.log(hit.key, hit.distance); // 7 0
 * ```
 *
 * @packageDocumentation
 */

export { Index } from './api.js';
export type {
  AttachOptions,
  CreateOptions,
  Encoding,
  IndexKind,
  IndexStats,
  Metric,
  OpenOptions,
  Originals,
  Residency,
  SearchOptions,
  StoredVector,
  VectorFormat,
} from './api.js';
export type { Key, KeysLike, NumericArray, VectorLike, VectorsLike } from './arguments.js';
export { TwindexError } from './errors.js';
export type { TwindexErrorCode } from './errors.js';
export { init } from './load.js';
export type { ResponseLike, WasmSource } from './load.js';
export { SearchResult } from './result.js';
export type { Candidates, Hit } from './result.js';
export type { ByteSource, IndexSource, SyncAccessHandle } from './source.js';
