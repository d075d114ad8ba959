// Where the bytes of a saved index may come from, all brought to one form: a length and `readInto`.

import { isDetached, typedArrayName } from './arguments.js';
import { TwindexError, describe, invalid } from './errors.js';
import { nodeFs } from './node.js';

/**
 * Bytes behind a function: anything of known length that can be read synchronously at an offset.
 *
 * @example
 * ```ts
 * const source: ByteSource = {
 *   byteLength: file.size,
 *   readInto(offset, buffer) {
 *     buffer.set(new Uint8Array(reader.readAsArrayBuffer(file.slice(offset, offset + buffer.length))));
 *   },
 * };
 * const index = await Index.open(source);
 * ```
 */
export interface ByteSource {
  /** Bytes there are. */
  readonly byteLength: number;
  /**
   * Fills the whole of `buffer` with the bytes from `offset` on, or throws. It may return how many bytes it filled;
   * fewer than `buffer.length` is an error. `buffer` is good during the call only.
   */
  readInto(offset: number, buffer: Uint8Array): number | void;
}

/**
 * A synchronous access handle of the origin private file system (in a worker).
 *
 * @example
 * ```ts
 * const root = await navigator.storage.getDirectory();
 * const handle = await (await root.getFileHandle('a.twx')).createSyncAccessHandle();
 * const index = await Index.open(handle);
 * handle.close();
 * ```
 */
export interface SyncAccessHandle {
  getSize(): number;
  read(buffer: Uint8Array, options: { at: number }): number;
}

/**
 * What {@link Index.open} and {@link Index.attachOriginals} read: bytes (a view's own range of them), in Node.js the path of a file or a file
 * descriptor, or anything with a length and `readInto`.
 *
 * @example
 * ```ts
 * await Index.open(await (await fetch('/a.twx')).arrayBuffer());
 * await Index.open('a.twx'); // Node.js
 * ```
 */
export type IndexSource = ArrayBufferLike | ArrayBufferView | string | number | ByteSource | SyncAccessHandle;

/** @internal `readInto` fills a view of linear memory, or throws; `close` gives back what was opened here. */
export interface OpenedSource {
  readonly byteLength: number;
  readInto(offset: number, view: Uint8Array): void;
  close(): void;
}

/** Bytes that are read through a buffer of JavaScript's own, so that no view of linear memory leaves this package. */
const WINDOW = 1 << 20;

/** @internal */
export function openSource(source: unknown): OpenedSource {
  if (typeof source === 'string') return openPath(source);
  if (typeof source === 'number') return openDescriptor(source);
  if (ArrayBuffer.isView(source)) {
    if (typedArrayName(source) !== undefined && source.byteLength === 0 && isDetached(source.buffer)) {
      throw invalid('source is detached: its buffer was transferred elsewhere');
    }
    return overBytes(new Uint8Array(source.buffer, source.byteOffset, source.byteLength));
  }
  const tag = Object.prototype.toString.call(source);
  if (tag === '[object ArrayBuffer]' || tag === '[object SharedArrayBuffer]') {
    const buffer = source as ArrayBufferLike;
    if (isDetached(buffer)) throw invalid('source is detached: its buffer was transferred elsewhere');
    return overBytes(new Uint8Array(buffer));
  }
  if (typeof source === 'object' && source !== null) {
    const object = source as Partial<ByteSource> & Partial<SyncAccessHandle>;
    if (typeof object.readInto === 'function') return overFunction(object as ByteSource);
    if (typeof object.getSize === 'function' && typeof object.read === 'function') {
      return overHandle(object as SyncAccessHandle);
    }
  }
  const way =
    tag === '[object Blob]' || tag === '[object File]' || tag === '[object Response]'
      ? '; pass await source.arrayBuffer()'
      : '';
  throw invalid(
    'source must be an ArrayBuffer, a typed array, a { byteLength, readInto } object, or in Node.js a path or a file ' +
      `descriptor, got ${describe(source)}${way}`,
  );
}

function overBytes(bytes: Uint8Array): OpenedSource {
  const { byteLength } = bytes;
  return {
    byteLength,
    readInto(offset, view) {
      if (bytes.byteLength !== byteLength) throw new Error('the ArrayBuffer was detached or resized while it was read');
      view.set(bytes.subarray(offset, offset + view.length));
    },
    close() {},
  };
}

function openPath(path: string): OpenedSource {
  const fs = nodeFs();
  if (!fs) {
    throw invalid('source is a string, which is a path and needs Node.js; here pass the bytes: await (await fetch(url)).arrayBuffer()');
  }
  let descriptor: number;
  try {
    descriptor = fs.openSync(path, 'r');
  } catch (cause) {
    throw new TwindexError('IO', `${path} cannot be opened: ${message(cause)}`, { cause });
  }
  try {
    const opened = openDescriptor(descriptor);
    return { ...opened, close: () => fs.closeSync(descriptor) };
  } catch (error) {
    fs.closeSync(descriptor);
    throw error;
  }
}

function openDescriptor(descriptor: number): OpenedSource {
  const fs = nodeFs();
  if (!fs) throw invalid(`source is the number ${descriptor}; file descriptors need Node.js`);
  if (!Number.isSafeInteger(descriptor) || descriptor < 0 || descriptor > 0x7fff_ffff) {
    throw invalid(`source must be a file descriptor, a non-negative integer, got ${descriptor}`);
  }
  let byteLength: number;
  try {
    const stat = fs.fstatSync(descriptor);
    if (!stat.isFile()) throw new Error('it is not a regular file');
    byteLength = stat.size;
  } catch (cause) {
    throw new TwindexError('IO', `the file cannot be read: ${message(cause)}`, { cause });
  }
  return {
    byteLength,
    readInto(offset, view) {
      for (let done = 0; done < view.length; ) {
        const got = fs.readSync(descriptor, view, done, view.length - done, offset + done);
        if (got === 0) throw new Error('the file became shorter while it was read');
        done += got;
      }
    },
    close() {},
  };
}

function overHandle(handle: SyncAccessHandle): OpenedSource {
  return overFunction({
    byteLength: handle.getSize(),
    readInto: (offset, buffer) => handle.read(buffer, { at: offset }),
  });
}

function overFunction(source: ByteSource): OpenedSource {
  const { byteLength } = source;
  if (!Number.isSafeInteger(byteLength) || byteLength < 0) {
    throw invalid(`source.byteLength must be a non-negative integer, got ${describe(byteLength)}`);
  }
  const window = new Uint8Array(Math.min(WINDOW, byteLength));
  return {
    byteLength,
    readInto(offset, view) {
      for (let done = 0; done < view.length; done += window.length) {
        const part = window.subarray(0, Math.min(window.length, view.length - done));
        const got: unknown = source.readInto(offset + done, part);
        if (got !== undefined && got !== part.length) {
          const what = typeof got === 'number' ? `${got} of ${part.length} bytes` : describe(got);
          throw new Error(`readInto must fill the buffer synchronously and return nothing or its length, it returned ${what}`);
        }
        // Meanwhile the memory may have grown, with another index, and left the view behind.
        if (view.length === 0) throw new Error('readInto must not make indexes larger');
        view.set(part, done);
      }
    },
    close() {},
  };
}

function message(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

/** @internal A source as the engine reads it. What it threw is kept, for the error that comes of it. */
export class Reader {
  readonly byteLength: number;
  readonly #opened: OpenedSource;
  #thrown: unknown;

  constructor(source: unknown) {
    this.#opened = openSource(source);
    this.byteLength = this.#opened.byteLength;
  }

  readInto(offset: number, view: Uint8Array): void {
    try {
      this.#opened.readInto(offset, view);
    } catch (error) {
      this.#thrown = error;
      throw error;
    }
  }

  /** What the source threw since the last time this was asked. */
  takeThrown(): unknown {
    const thrown = this.#thrown;
    this.#thrown = undefined;
    return thrown;
  }

  /** Gives back what was opened here. */
  close(): void {
    abandoned.unregister(this);
    this.#opened.close();
  }

  /** Closes by itself once nobody can reach `owner` any more. */
  closeAfter(owner: object): void {
    abandoned.register(owner, this.#opened, this);
  }
}

const abandoned = new FinalizationRegistry((opened: OpenedSource) => opened.close());
