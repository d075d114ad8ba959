// Fetching, compiling and starting the WebAssembly module: once, whoever asks, and again after a failure.

import { TwindexError, describe, invalid } from './errors.js';
import start from './glue.js';
import { defaultLocation } from './location.js';
import { nodeFs } from './node.js';

declare global {
  // Merges with the platform's own declaration where there is one; without it, projects that use neither the DOM's
  // types nor Node's could not name the class.
  namespace WebAssembly {
    interface Module {}
  }
}

/**
 * A `Response` of `fetch`, or anything like it.
 *
 * @example
 * ```ts
 * await init(fetch('/assets/twindex.wasm'));
 * ```
 */
export interface ResponseLike {
  readonly ok: boolean;
  readonly status: number;
  readonly url: string;
  readonly headers: { get(name: string): string | null };
  arrayBuffer(): Promise<ArrayBuffer>;
}

/**
 * Where the WebAssembly module comes from: a URL (in Node.js also a path), its bytes, a `Response`, or a module that is
 * compiled already; or a promise of one of these.
 *
 * @example
 * ```ts
 * await init('https://cdn.example/twindex.wasm');
 * await init(bytes);
 * worker.postMessage(module); // there: await init(event.data)
 * ```
 */
export type WasmSource =
  | string
  | { readonly href: string }
  | ArrayBuffer
  | ArrayBufferView
  | ResponseLike
  | (WebAssembly.Module & object);

/** A module with one SIMD instruction: an engine that refuses it has none. */
const SIMD_PROBE = Uint8Array.of(
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11,
);

/** A module with one relaxed SIMD instruction, the one that the better of the two builds is made for. */
const RELAXED_SIMD_PROBE = Uint8Array.of(
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0,
  10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253, 146, 2, 11,
);

let ready: Promise<WebAssembly.Memory> | undefined;

/**
 * Loads the WebAssembly module. {@link Index.create} and {@link Index.open} call it by themselves, without `source`:
 * then one of the two files beside this one is read: the one with relaxed SIMD instructions where the engine has them,
 * else the one without. Their answers are the same. Call `init` to say where a file is, or to have it loaded early.
 *
 * It may be called any number of times, at the same time too: the first call that succeeds decides, later ones change
 * nothing. After a failure the next call tries again.
 *
 * @example
 * ```ts
 * await init('/assets/twindex.wasm');
 * const index = await Index.create({ dimension: 384, metric: 'cosine' });
 * ```
 */
export async function init(source?: WasmSource | PromiseLike<WasmSource>): Promise<void> {
  await engine(source);
}

/** @internal The running module's memory. */
export function engine(source?: unknown): Promise<WebAssembly.Memory> {
  ready ??= load(source).catch((error) => {
    ready = undefined;
    throw error;
  });
  return ready;
}

async function load(source: unknown): Promise<WebAssembly.Memory> {
  if (typeof WebAssembly !== 'object' || typeof WebAssembly.instantiate !== 'function') {
    throw new TwindexError('UNSUPPORTED_ENGINE', 'this JavaScript engine has no WebAssembly (or it is switched off)');
  }
  if (!WebAssembly.validate(SIMD_PROBE)) {
    throw new TwindexError(
      'UNSUPPORTED_ENGINE',
      'this JavaScript engine has no WebAssembly SIMD; Chrome 91, Firefox 89, Safari 16.4 and Node.js 16.4 have it',
    );
  }
  let given: unknown;
  try {
    given = source === undefined ? defaultLocation(WebAssembly.validate(RELAXED_SIMD_PROBE)) : await source;
  } catch (cause) {
    throw failed('the promise given', 'it was rejected', cause);
  }
  const module = await compiled(given);
  const other = 'it is not the .wasm file of this version of twindex';
  // The glue believes what it is given, for good: look before.
  if (!WebAssembly.Module.exports(module).some(({ name }) => name === 'rawindex_create')) {
    throw failed('the module given', other);
  }
  try {
    return (await start({ module_or_path: module })).memory;
  } catch (cause) {
    throw failed('the module given', other, cause);
  }
}

async function compiled(source: unknown): Promise<WebAssembly.Module> {
  const tag = Object.prototype.toString.call(source);
  if (tag === '[object WebAssembly.Module]') return source as WebAssembly.Module;
  if (ArrayBuffer.isView(source) || tag === '[object ArrayBuffer]') {
    return compileBytes('the bytes', source as BufferSource, '');
  }
  if (typeof source === 'object' && source !== null) {
    if (typeof (source as ResponseLike).arrayBuffer === 'function' && 'status' in source) {
      return compileResponse('the response', source as ResponseLike);
    }
    if (typeof (source as URL).href === 'string') return compileUrl((source as URL).href);
  }
  if (typeof source === 'string') return compileUrl(source);
  throw invalid(
    `init: source must be a URL, bytes, a Response or a WebAssembly.Module, got ${describe(source)}`,
  );
}

async function compileUrl(url: string): Promise<WebAssembly.Module> {
  const fs = nodeFs();
  // A letter and a colon is a drive, not a scheme.
  if (fs && !/^(?!file:)[a-z][a-z0-9+.-]+:/i.test(url)) {
    let bytes: Uint8Array;
    try {
      bytes = await fs.promises.readFile(/^file:/i.test(url) ? new URL(url) : url);
    } catch (cause) {
      throw failed(url, 'it cannot be read', cause);
    }
    return compileBytes(url, bytes as BufferSource, '');
  }
  let response: Response;
  try {
    response = await fetch(url);
  } catch (cause) {
    throw failed(url, 'it cannot be fetched', cause);
  }
  return compileResponse(url, response);
}

async function compileResponse(name: string, response: ResponseLike): Promise<WebAssembly.Module> {
  const what = response.url || name;
  if (!response.ok) throw failed(what, `the server answered ${response.status}`);
  const type = response.headers.get('content-type') ?? '';
  // Streaming needs this type and nothing else; whatever the server calls it otherwise, the bytes decide.
  if (
    /^application\/wasm\s*$/i.test(type) &&
    Object.prototype.toString.call(response) === '[object Response]' &&
    typeof WebAssembly.compileStreaming === 'function'
  ) {
    try {
      return await WebAssembly.compileStreaming(response as unknown as Response);
    } catch (cause) {
      throw failed(what, 'it does not compile', cause);
    }
  }
  let bytes: ArrayBuffer;
  try {
    bytes = await response.arrayBuffer();
  } catch (cause) {
    throw failed(what, 'it cannot be fetched', cause);
  }
  return compileBytes(what, bytes, type && ` (the server calls it ${type})`);
}

async function compileBytes(what: string, bytes: BufferSource, hint: string): Promise<WebAssembly.Module> {
  try {
    return await WebAssembly.compile(bytes);
  } catch (cause) {
    throw failed(what, `it is not a WebAssembly module${hint}`, cause);
  }
}

function failed(what: string, why: string, cause?: unknown): TwindexError {
  const detail = cause instanceof Error ? `: ${cause.message}` : '';
  return new TwindexError('LOAD_FAILED', `the WebAssembly file could not be loaded from ${what}: ${why}${detail}`, {
    cause,
  });
}
