// What callers may pass, and the errors that name what they may not. Everything is checked here, before the engine is
// entered, so that a wrong argument can neither trap it nor be coerced into something else.

import { TwindexError, describe, invalid } from './errors.js';

/**
 * A key: an integer of 0 to 2^64 - 1. A `number` must be a safe integer (up to 2^53 - 1); `7` and `7n` are the same key.
 *
 * @example
 * ```ts
 * index.add(7, vector);
 * index.has(7n); // true
 * ```
 */
export type Key = number | bigint;

/**
 * Typed arrays whose elements are taken **by value**: `Int8Array.of(1, 2)` is the vector (1, 2). Values are narrowed to
 * 32-bit floats. A Node.js `Buffer` is refused, since it usually holds the *bytes* of floats.
 *
 * @example
 * ```ts
 * index.add(1, new Float64Array([0.25, 0.5, 1]));
 * ```
 */
export type NumericArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Uint8Array
  | Uint8ClampedArray
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array;

/**
 * A vector: `Float32Array` (no conversion), an array of numbers, or any other numeric typed array, by value.
 *
 * @example
 * ```ts
 * index.add(1, [0.25, 0.5, 1]);
 * index.add(2, new Float32Array([0.25, 0.5, 1]));
 * index.add(3, all.subarray(3 * dimension, 4 * dimension));
 * ```
 */
export type VectorLike = NumericArray | readonly number[];

/**
 * Several vectors: one flat list (row after row) or an array of vectors.
 *
 * @example
 * ```ts
 * index.addBatch([1, 2], new Float32Array(2 * index.dimension).fill(1));
 * index.addBatch([3, 4], [[1, 0, 0], [0, 1, 0]]);
 * ```
 */
export type VectorsLike = VectorLike | readonly VectorLike[];

/**
 * Several keys: an array, a `Set`, a `BigUint64Array` (no conversion) or any other integer typed array.
 *
 * @example
 * ```ts
 * index.search(query, { filter: new Set([1, 2, 3]) });
 * index.search(query, { filter: BigUint64Array.of(1n, 2n, 3n) });
 * ```
 */
export type KeysLike = readonly Key[] | ReadonlySet<Key> | NumericArray | BigUint64Array | BigInt64Array;

const MAX_KEY = 2n ** 64n - 1n;
const U32_MAX = 0xffff_ffff;

const tagOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag)!
  .get as (this: unknown) => string | undefined;

const NUMERIC = new Set([
  'Float32Array',
  'Float64Array',
  'Float16Array',
  'Int8Array',
  'Uint8Array',
  'Uint8ClampedArray',
  'Int16Array',
  'Uint16Array',
  'Int32Array',
  'Uint32Array',
]);

/** @internal The name of a typed array's class, whatever realm it comes from; undefined for anything else. */
export function typedArrayName(value: unknown): string | undefined {
  return tagOf.call(value);
}

/** @internal Whether the bytes of a buffer were transferred away. */
export function isDetached(buffer: ArrayBufferLike): boolean {
  if (buffer.byteLength !== 0) return false;
  try {
    new Uint8Array(buffer);
    return false;
  } catch {
    return true;
  }
}

// Memory that another thread may grow or write in the middle of a call: copied before it is looked at.
function isShared(view: ArrayBufferView): boolean {
  return Object.prototype.toString.call(view.buffer) === '[object SharedArrayBuffer]';
}

function isNodeBuffer(value: unknown): boolean {
  const Buffer = (globalThis as { Buffer?: { isBuffer?(value: unknown): boolean } }).Buffer;
  return typeof Buffer?.isBuffer === 'function' && Buffer.isBuffer(value);
}

/** @internal Options as a plain object with known names only. */
export function checkOptions(value: unknown, call: string, known: readonly string[]): Record<string, unknown> {
  if (value === undefined) return {};
  if (Object.prototype.toString.call(value) !== '[object Object]') {
    throw invalid(`${call}: options must be an object { ${known.join(', ')} }, got ${describe(value)}`);
  }
  for (const name of Object.keys(value as object)) {
    if (!known.includes(name)) {
      throw invalid(`${call}: unknown option ${JSON.stringify(name)}; the options are ${known.join(', ')}`);
    }
  }
  return value as Record<string, unknown>;
}

/** @internal An integer that fits 32 bits; the core checks the range proper and says what it is. */
export function checkInteger(value: unknown, name: string): number {
  if (typeof value !== 'number') throw invalid(`${name} must be an integer, got ${describe(value)}`);
  if (!Number.isInteger(value) || value < 0 || value > U32_MAX) {
    throw new TwindexError('INVALID_PARAMETER', `${name} must be an integer of 0 to 2^32 - 1, got ${value}`);
  }
  return value;
}

/** @internal */
export function optionalInteger(value: unknown, name: string): number | undefined {
  return value === undefined ? undefined : checkInteger(value, name);
}

/** @internal A number of rows to find or look at, `least` or more; beyond 2^32 - 1 there are none. */
export function checkCount(value: unknown, name: string, least: number): number {
  if (typeof value !== 'number') throw invalid(`${name} must be an integer, got ${describe(value)}`);
  if (!Number.isInteger(value) || value < least) {
    throw new TwindexError('INVALID_PARAMETER', `${name} must be an integer of ${least} or more, got ${value}`);
  }
  return Math.min(value, U32_MAX);
}

/** @internal */
export function checkBoolean(value: unknown, name: string, otherwise = false): boolean {
  if (value === undefined) return otherwise;
  if (typeof value !== 'boolean') throw invalid(`${name} must be true or false, got ${describe(value)}`);
  return value;
}

/** @internal A number; undefined where none is given. */
export function optionalNumber(value: unknown, name: string): number | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== 'number') throw invalid(`${name} must be a number, got ${describe(value)}`);
  if (Number.isNaN(value)) throw new TwindexError('INVALID_PARAMETER', `${name} must be a number, got NaN`);
  return value;
}

/** @internal */
export function optionalName(value: unknown, name: string, names: readonly string[]): number | undefined {
  return value === undefined ? undefined : checkName(value, name, names);
}

/** @internal One of some names, as its position among them. */
export function checkName(value: unknown, name: string, names: readonly string[]): number {
  const at = typeof value === 'string' ? names.indexOf(value) : -1;
  if (at < 0) {
    throw invalid(`${name} must be ${names.map((n) => `'${n}'`).join(' or ')}, got ${describe(value)}`);
  }
  return at;
}

/** @internal An unsigned 64-bit integer given as a number or a bigint. */
export function checkU64(value: unknown, name: string): bigint {
  if (typeof value === 'bigint') {
    if (value >= 0n && value <= MAX_KEY) return value;
  } else if (typeof value === 'number') {
    if (Number.isSafeInteger(value) && value >= 0) return BigInt(value);
  }
  throw invalid(
    `${name} must be an integer of 0 to 2^53 - 1, or a bigint of 0n to 2n ** 64n - 1n, got ${describe(value)}`,
  );
}

/** @internal */
export function toKeys(value: unknown, name: string): BigUint64Array {
  const kind = typedArrayName(value);
  if (kind !== undefined) return typedKeys(value as ArrayBufferView, kind, name);
  let list: readonly unknown[];
  if (Array.isArray(value)) list = value;
  else if (Object.prototype.toString.call(value) === '[object Set]') list = Array.from(value as Set<unknown>);
  else throw invalid(`${name} must be an array, a typed array or a Set of keys, got ${describe(value)}`);
  const keys = allocate(BigUint64Array, list.length);
  for (let i = 0; i < list.length; i++) keys[i] = checkU64(list[i], `${name}[${i}]`);
  return keys;
}

function typedKeys(value: ArrayBufferView, kind: string, name: string): BigUint64Array {
  refuseDetached(value, name);
  if (kind === 'BigUint64Array' && !isShared(value)) return value as BigUint64Array;
  if (isNodeBuffer(value)) {
    throw invalid(`${name} is a Buffer, which holds bytes; pass an array or a typed array of keys`);
  }
  const list = value as unknown as ArrayLike<number | bigint>;
  const keys = allocate(BigUint64Array, list.length);
  for (let i = 0; i < list.length; i++) keys[i] = checkU64(list[i], `${name}[${i}]`);
  return keys;
}

/** @internal Rows, as a search for candidates gave them. */
export function toIds(value: unknown, name: string): Uint32Array {
  if (typedArrayName(value) !== 'Uint32Array') throw invalid(`${name} must be a Uint32Array, got ${describe(value)}`);
  refuseDetached(value as ArrayBufferView, name);
  return isShared(value as ArrayBufferView) ? new Uint32Array(value as Uint32Array) : (value as Uint32Array);
}

/** @internal */
export function toVector(value: unknown, name: string): Float32Array {
  const kind = typedArrayName(value);
  if (kind !== undefined) return typedVector(value as ArrayBufferView, kind, name);
  if (!Array.isArray(value)) {
    throw invalid(`${name} must be a Float32Array, an array of numbers or a numeric typed array, got ${describe(value)}`);
  }
  const vector = allocate(Float32Array, value.length);
  copyNumbers(value, vector, 0, name);
  return vector;
}

/** @internal Vectors as one flat list, each of `dimension` components where they come one by one. */
export function toVectors(value: unknown, dimension: number, name: string): Float32Array {
  if (!Array.isArray(value)) return toVector(value, name);
  if (value.length === 0) return new Float32Array(0);
  if (typeof value[0] === 'number') return toVector(value, name);
  const flat = allocate(Float32Array, value.length * dimension);
  for (let row = 0; row < value.length; row++) {
    const rowName = `${name}[${row}]`;
    const vector = value[row];
    const kind = typedArrayName(vector);
    if (kind === undefined && !Array.isArray(vector)) {
      throw invalid(`${rowName} must be a vector (or ${name} one flat list of numbers), got ${describe(vector)}`);
    }
    const length = (vector as ArrayLike<number>).length;
    if (length !== dimension) {
      if (kind !== undefined) refuseDetached(vector, rowName);
      throw new TwindexError(
        'DIMENSION_MISMATCH',
        `${rowName}: the index holds vectors of dimension ${dimension}, this one has ${length} components`,
      );
    }
    if (kind !== undefined) flat.set(typedVector(vector, kind, rowName), row * dimension);
    else copyNumbers(vector, flat, row * dimension, rowName);
  }
  return flat;
}

function typedVector(value: ArrayBufferView, kind: string, name: string): Float32Array {
  refuseDetached(value, name);
  if (kind === 'Float32Array' && !isShared(value)) return value as Float32Array;
  if (!NUMERIC.has(kind)) throw invalid(`${name} must hold numbers, got ${describe(value)}`);
  if (isNodeBuffer(value)) {
    throw invalid(
      `${name} is a Buffer, which holds bytes; for the floats in it pass ` +
        'new Float32Array(b.buffer, b.byteOffset, b.length / 4)',
    );
  }
  const numbers = value as unknown as ArrayLike<number>;
  const vector = allocate(Float32Array, numbers.length);
  vector.set(numbers);
  return vector;
}

function copyNumbers(from: readonly unknown[], to: Float32Array, at: number, name: string): void {
  for (let i = 0; i < from.length; i++) {
    const component = from[i];
    if (typeof component !== 'number') throw invalid(`${name}[${i}] must be a number, got ${describe(component)}`);
    to[at + i] = component;
  }
}

function refuseDetached(value: ArrayBufferView, name: string): void {
  if (value.byteLength === 0 && isDetached(value.buffer)) {
    throw invalid(`${name} is detached: its buffer was transferred elsewhere`);
  }
}

/** @internal A typed array, or an error that can be caught by its code where the engine has no memory for it. */
export function allocate<T>(Type: { new (length: number): T; BYTES_PER_ELEMENT: number }, length: number): T {
  try {
    return new Type(length);
  } catch (cause) {
    const bytes = length * Type.BYTES_PER_ELEMENT;
    throw new TwindexError('OUT_OF_MEMORY', `out of memory: ${bytes} bytes were refused`, { cause });
  }
}
