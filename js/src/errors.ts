// One error class for everything that is refused or fails.

/**
 * The values of {@link TwindexError.code}. Those of the core are the same in the Rust crate:
 *
 * | code | meaning |
 * |---|---|
 * | `INVALID_ARGUMENT` | an argument has the wrong type or form; the message names it |
 * | `INVALID_PARAMETER` | an option is outside its documented range |
 * | `DISPOSED` | the index was freed |
 * | `BUSY` | a source called the index that was reading from it |
 * | `UNSUPPORTED_ENGINE` | no WebAssembly, or none with SIMD |
 * | `LOAD_FAILED` | the `.wasm` file could not be fetched, read or compiled |
 * | `INTERNAL` | the engine stopped in the middle of a call; that index is lost, others are not |
 * | `DIMENSION_MISMATCH`, `LENGTH_MISMATCH` | a vector, or a flat list of them, has the wrong length |
 * | `NOT_FINITE`, `ZERO_VECTOR`, `NORM_TOO_LARGE` | a vector that cannot be compared under the metric |
 * | `OUT_OF_RANGE` | a component beyond what the encoding holds |
 * | `DUPLICATE_KEY`, `KEY_NOT_FOUND` | `add` of a key that is there, `update` of one that isn't |
 * | `READ_ONLY` | a change to an index that was opened with `readOnly` |
 * | `TOO_LARGE`, `OUT_OF_MEMORY` | beyond what the format or this platform holds |
 * | `NOT_A_SEGMENT`, `UNSUPPORTED_VERSION`, `UNSUPPORTED_FEATURES` | bytes that this version cannot read |
 * | `TRUNCATED`, `CORRUPT`, `CHECKSUM_MISMATCH` | a damaged file |
 * | `MISMATCH` | a file that contradicts what `open` was told to expect |
 * | `NO_ORIGINALS` | reranking, and there is nothing to rerank against |
 * | `FINGERPRINT_MISMATCH` | originals that are other vectors than those the index was built from |
 * | `DATASET` | a file of vectors that cannot be read |
 * | `STORAGE`, `IO` | the source of the bytes failed |
 *
 * @example
 * ```ts
 * try {
 *   index.add(7, vector);
 * } catch (error) {
 *   if (error instanceof TwindexError && error.code === 'DUPLICATE_KEY') index.update(7, vector);
 *   else throw error;
 * }
 * ```
 */
export type TwindexErrorCode =
  | 'INVALID_ARGUMENT'
  | 'INVALID_PARAMETER'
  | 'DISPOSED'
  | 'BUSY'
  | 'UNSUPPORTED_ENGINE'
  | 'LOAD_FAILED'
  | 'INTERNAL'
  | 'DIMENSION_MISMATCH'
  | 'LENGTH_MISMATCH'
  | 'NOT_FINITE'
  | 'ZERO_VECTOR'
  | 'NORM_TOO_LARGE'
  | 'OUT_OF_RANGE'
  | 'DUPLICATE_KEY'
  | 'KEY_NOT_FOUND'
  | 'READ_ONLY'
  | 'TOO_LARGE'
  | 'OUT_OF_MEMORY'
  | 'NOT_A_SEGMENT'
  | 'UNSUPPORTED_VERSION'
  | 'UNSUPPORTED_FEATURES'
  | 'TRUNCATED'
  | 'CORRUPT'
  | 'CHECKSUM_MISMATCH'
  | 'MISMATCH'
  | 'NO_ORIGINALS'
  | 'FINGERPRINT_MISMATCH'
  | 'DATASET'
  | 'STORAGE'
  | 'IO'
  // Codes of later versions, without giving up completion for those above.
  | (string & {});

/**
 * What every function of this package throws (or rejects with). After an error an index is as it was before the call
 * and goes on working.
 *
 * @example
 * ```ts
 * try {
 *   index.search([1, 2], { k: 10 });
 * } catch (error) {
 *   console.log((error as TwindexError).code); // 'DIMENSION_MISMATCH'
 * }
 * ```
 */
export class TwindexError extends Error {
  /** A stable identifier of what went wrong. */
  readonly code: TwindexErrorCode;

  constructor(code: TwindexErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }

  /** @internal */
  static {
    Object.defineProperty(this.prototype, 'name', { value: 'TwindexError', configurable: true, writable: true });
  }
}

/** @internal The error for an argument of the wrong type or form. */
export function invalid(message: string): TwindexError {
  return new TwindexError('INVALID_ARGUMENT', message);
}

/** @internal What a value is, in a few words, for the message that refuses it. */
export function describe(value: unknown): string {
  if (value === null) return 'null';
  switch (typeof value) {
    case 'undefined':
      return 'undefined';
    case 'number':
      return Object.is(value, -0) ? '-0' : String(value);
    case 'bigint':
      return `${value}n`;
    case 'string':
      return value.length <= 40 ? `the string ${JSON.stringify(value)}` : 'a string';
    case 'boolean':
      return String(value);
    case 'symbol':
      return 'a symbol';
    case 'function':
      return 'a function';
    default:
      return described(value as object);
  }
}

function described(value: object): string {
  if (Array.isArray(value)) return `an array of length ${value.length}`;
  const tag = Object.prototype.toString.call(value).slice(8, -1);
  if (tag === 'Promise') return 'a Promise (await it first)';
  if (tag === 'Object') return 'a plain object';
  return /^[AEIOU]/.test(tag) ? `an ${tag}` : `a ${tag}`;
}
