// The index as users see it.

import {
  allocate,
  checkBoolean,
  checkCount,
  checkInteger,
  checkName,
  checkOptions,
  checkRadius,
  checkU64,
  optionalInteger,
  toKeys,
  toVector,
  toVectors,
} from './arguments.js';
import type { Key, KeysLike, VectorLike, VectorsLike } from './arguments.js';
import { TwindexError, describe, invalid } from './errors.js';
import { RawIndex } from './glue.js';
import { engine } from './load.js';
import { SearchResult, toKey } from './result.js';
import { openSource } from './source.js';
import type { IndexSource } from './source.js';

declare global {
  // Merges with the platform's own declaration; named here so that projects compiled for an older `lib` can use the
  // types of this package.
  interface SymbolConstructor {
    readonly dispose: unique symbol;
  }
}

/**
 * How distance is measured. Smaller is always closer.
 *
 * | metric | distance |
 * |---|---|
 * | `'l2'` | the squared Euclidean distance |
 * | `'ip'` | the negated inner product |
 * | `'cosine'` | 1 - cos of the angle, 0 to 2; zero vectors are refused |
 *
 * @example
 * ```ts
 * const index = await Index.create({ dimension: 384, metric: 'cosine' });
 * ```
 */
export type Metric = 'l2' | 'ip' | 'cosine';

/**
 * How rows are searched: `'hnsw'` along a graph (fast, nearly always right), `'flat'` one by one (always right).
 *
 * @example
 * ```ts
 * const small = await Index.create({ dimension: 384, metric: 'ip', kind: 'flat' });
 * ```
 */
export type IndexKind = 'flat' | 'hnsw';

/**
 * What an index is made with.
 *
 * @example
 * ```ts
 * const index = await Index.create({ dimension: 384, metric: 'cosine', m: 32, efConstruction: 400 });
 * ```
 */
export interface CreateOptions {
  /** Components of a vector. */
  dimension: number;
  metric: Metric;
  /** `'hnsw'` unless said otherwise. */
  kind?: IndexKind;
  /** Links of a row: 2 to 256, default 16. More find better and take more memory. */
  m?: number;
  /** Candidates looked at while a row is linked in: 1 to 2^20, default 200. More build slower and find better. */
  efConstruction?: number;
  /** Candidates of a search that doesn't say: 1 to 2^20, default 64. */
  ef?: number;
  /** The same input and seed give the same file. Default 0. */
  seed?: number | bigint;
}

/**
 * How a saved index is opened. `dimension`, `metric` and `kind` are expectations: the file has its own, and if they
 * differ that is an error (`MISMATCH`).
 *
 * @example
 * ```ts
 * const index = await Index.open(bytes, { readOnly: true, dimension: 384, metric: 'cosine' });
 * ```
 */
export interface OpenOptions {
  /**
   * Take less memory, and refuse changes. By default an opened index can be changed. `save` then gives the bytes of the
   * source, which must be there and unchanged.
   */
  readOnly?: boolean;
  /** Check every byte and link first: a damaged file is refused. Without it only what the file says of itself is. */
  verify?: boolean;
  dimension?: number;
  metric?: Metric;
  kind?: IndexKind;
}

/**
 * How to search.
 *
 * @example
 * ```ts
 * index.search(query, { k: 20, ef: 200 });
 * index.search(query, { exact: true, filter: (key) => colours.get(key) === 'red' });
 * ```
 */
export interface SearchOptions {
  /** How many hits: any non-negative integer, default 10. There are as many as there are rows to find. */
  k?: number;
  /** Candidates looked at: 1 or more; at least `k` are. More find better and take longer. */
  ef?: number;
  /** Look at every row instead of following the graph. */
  exact?: boolean;
  /** Only hits at most this far, in the metric's own terms. */
  radius?: number;
  /** Only these keys; or a predicate, which is asked once for every key before the search begins. */
  filter?: KeysLike | ((key: Key) => boolean);
}

/**
 * What an index is made of.
 *
 * @example
 * ```ts
 * const { live, tombstones } = index.stats();
 * if (tombstones > live) index.compact();
 * ```
 */
export interface IndexStats {
  /** Rows there are, removed ones included. */
  rows: number;
  /** Rows that can be found. */
  live: number;
  /** Rows that were removed or replaced and still take memory: {@link Index.compact} drops them. */
  tombstones: number;
  /** Live rows that no path of the graph leads to. */
  unreachable: number;
  /** Bytes the index holds in memory. */
  residentBytes: number;
  /** Bytes of WebAssembly memory, of all indexes together. It grows and never shrinks. */
  memoryBytes: number;
  /** Bytes of each section of the file. */
  sections: Record<string, number>;
  /** `levels[i]`: rows whose highest level in the graph is `i`. */
  levels: number[];
  /** `degrees[d]`: live rows with `d` links at the lowest level. */
  degrees: number[];
}

const METRICS: readonly Metric[] = ['l2', 'ip', 'cosine'];
const KINDS: readonly IndexKind[] = ['flat', 'hnsw'];
const CREATE_OPTIONS = ['dimension', 'metric', 'kind', 'm', 'efConstruction', 'ef', 'seed'] as const;
const OPEN_OPTIONS = ['readOnly', 'verify', 'dimension', 'metric', 'kind'] as const;
const SEARCH_OPTIONS = ['k', 'ef', 'exact', 'radius', 'filter'] as const;

/** Objects whose call never came back: kept, so that nobody frees what is in an unknown state. */
const lost: RawIndex[] = [];

/**
 * A set of vectors under keys, and the search over them. Make one with {@link Index.create} or {@link Index.open};
 * from then on every call is synchronous.
 *
 * @example
 * ```ts
 * using index = await Index.create({ dimension: 384, metric: 'cosine' });
 * index.addBatch(keys, vectors);
 * for (const { key, distance } of index.search(query, { k: 5 })) console.log(key, distance);
 * ```
 */
export class Index {
  #raw: RawIndex | undefined;
  #gone = 'the index was freed; make or open another one';
  readonly #memory: WebAssembly.Memory;
  readonly #dimension: number;
  readonly #metric: Metric;
  readonly #kind: IndexKind;

  private constructor(raw: RawIndex, memory: WebAssembly.Memory) {
    if (!(raw instanceof RawIndex)) {
      throw invalid('an Index is not made with new: use await Index.create({ dimension, metric }) or await Index.open(source)');
    }
    this.#raw = raw;
    this.#memory = memory;
    this.#dimension = raw.dimension;
    this.#metric = METRICS[raw.metric ?? -1]!;
    this.#kind = KINDS[raw.kind ?? -1]!;
  }

  /**
   * An empty index that grows as vectors are added: no size is given beforehand.
   *
   * @example
   * ```ts
   * const index = await Index.create({ dimension: 384, metric: 'cosine' });
   * ```
   */
  static async create(options: CreateOptions): Promise<Index> {
    if (options === undefined) throw invalid('Index.create: options { dimension, metric } are needed');
    const given = checkOptions(options, 'Index.create', CREATE_OPTIONS);
    const dimension = checkInteger(given.dimension, 'dimension');
    const metric = checkName(given.metric, 'metric', METRICS);
    const kind = given.kind === undefined ? KINDS.indexOf('hnsw') : checkName(given.kind, 'kind', KINDS);
    const m = optionalInteger(given.m, 'm');
    const efConstruction = optionalInteger(given.efConstruction, 'efConstruction');
    const ef = optionalInteger(given.ef, 'ef');
    const seed = given.seed === undefined ? 0n : checkU64(given.seed, 'seed');
    const memory = await engine();
    try {
      return new Index(RawIndex.create(dimension, metric, kind, m, efConstruction, ef, seed), memory);
    } catch (error) {
      throw translated(error);
    }
  }

  /**
   * Opens a saved index, written here or natively. The bytes are copied into WebAssembly memory, piece by piece; after
   * that the source is not needed any more (except by `save` of a read-only index, which copies it once again).
   *
   * @example
   * ```ts
   * const index = await Index.open(await (await fetch('/a.twx')).arrayBuffer());
   * const local = await Index.open('a.twx'); // Node.js
   * ```
   */
  static async open(source: IndexSource, options?: OpenOptions): Promise<Index> {
    const given = checkOptions(options, 'Index.open', OPEN_OPTIONS);
    const readOnly = checkBoolean(given.readOnly, 'readOnly');
    const verify = checkBoolean(given.verify, 'verify');
    const dimension = optionalInteger(given.dimension, 'dimension');
    const metric = given.metric === undefined ? undefined : checkName(given.metric, 'metric', METRICS);
    const kind = given.kind === undefined ? undefined : checkName(given.kind, 'kind', KINDS);
    const memory = await engine();
    const opened = openSource(source);
    let cause: unknown;
    const reader = {
      readInto(offset: number, view: Uint8Array) {
        try {
          opened.readInto(offset, view);
        } catch (error) {
          cause = error;
          throw error;
        }
      },
    };
    try {
      return new Index(RawIndex.open(reader, opened.byteLength, readOnly, verify, dimension, metric, kind), memory);
    } catch (error) {
      throw translated(error, cause);
    } finally {
      opened.close();
    }
  }

  /** How many vectors there are. */
  get size(): number {
    return this.#alive().size;
  }

  /** Components of a vector. */
  get dimension(): number {
    this.#alive();
    return this.#dimension;
  }

  /** How distance is measured. */
  get metric(): Metric {
    this.#alive();
    return this.#metric;
  }

  /** Whether there is a graph. */
  get kind(): IndexKind {
    this.#alive();
    return this.#kind;
  }

  /** Whether changes are refused. */
  get readOnly(): boolean {
    return this.#alive().read_only;
  }

  /** The SIMD instructions in use: `'simd128'` or `'relaxed-simd'`. */
  get simd(): string {
    return this.#alive().level;
  }

  /** Bytes of WebAssembly memory, of all indexes together. It grows and never shrinks. */
  get memory(): number {
    this.#alive();
    return this.#memory.buffer.byteLength;
  }

  /**
   * Adds a vector under a new key; a key that is there already is an error (`DUPLICATE_KEY`).
   *
   * @example
   * ```ts
   * index.add(7, [0.1, 0.2, 0.3]);
   * ```
   */
  add(key: Key, vector: VectorLike): void {
    const k = checkU64(key, 'key');
    const v = toVector(vector, 'vector');
    this.#call((raw) => raw.add(k, v));
  }

  /**
   * Adds vectors under new keys: all of them, or none where any is refused. They are copied into WebAssembly memory
   * once more while this runs; a very large set is better added some thousands at a time.
   *
   * @example
   * ```ts
   * index.addBatch([1, 2], [[1, 0, 0], [0, 1, 0]]);
   * index.addBatch(keys, new Float32Array(keys.length * index.dimension));
   * ```
   */
  addBatch(keys: KeysLike, vectors: VectorsLike): void {
    const list = toKeys(keys, 'keys');
    const flat = toVectors(vectors, this.dimension, 'vectors');
    this.#call((raw) => raw.add_batch(list, flat));
  }

  /**
   * Replaces the vector of a key; a key that isn't there is an error (`KEY_NOT_FOUND`).
   *
   * @example
   * ```ts
   * index.update(7, [0.3, 0.2, 0.1]);
   * ```
   */
  update(key: Key, vector: VectorLike): void {
    const k = checkU64(key, 'key');
    const v = toVector(vector, 'vector');
    this.#call((raw) => raw.update(k, v));
  }

  /**
   * Removes a key. False where it wasn't there.
   *
   * @example
   * ```ts
   * if (index.remove(7)) console.log('gone');
   * ```
   */
  remove(key: Key): boolean {
    const k = checkU64(key, 'key');
    return this.#call((raw) => raw.remove(k));
  }

  /**
   * The vector of a key as it was added, narrowed to 32-bit floats; a copy. Undefined where the key isn't there.
   *
   * @example
   * ```ts
   * const vector = index.get(7);
   * ```
   */
  get(key: Key): Float32Array | undefined {
    const k = checkU64(key, 'key');
    return this.#call((raw) => raw.get(k));
  }

  /**
   * Whether a key is there.
   *
   * @example
   * ```ts
   * if (!index.has(7)) index.add(7, vector);
   * ```
   */
  has(key: Key): boolean {
    const k = checkU64(key, 'key');
    return this.#call((raw) => raw.has(k));
  }

  /**
   * All keys, in order of insertion; a copy.
   *
   * @example
   * ```ts
   * for (const key of index.keys()) console.log(key); // bigints
   * ```
   */
  keys(): BigUint64Array {
    return this.#call((raw) => raw.keys());
  }

  /**
   * The nearest vectors to a query.
   *
   * @example
   * ```ts
   * const hits = index.search(query, { k: 5, filter: [1, 2, 3] });
   * for (const { key, distance } of hits) console.log(key, distance);
   * ```
   */
  search(query: VectorLike, options?: SearchOptions): SearchResult {
    const q = toVector(query, 'query');
    const { k, ef, exact, radius, filter } = this.#searchOptions('search', options);
    return this.#call((raw) => {
      raw.search(q, false, k, ef, exact, radius, filter);
      return SearchResult.of(raw.take_keys(), raw.take_distances());
    });
  }

  /**
   * The nearest vectors to each of several queries. A predicate is asked once for all of them.
   *
   * @example
   * ```ts
   * const [first, second] = index.searchBatch([[1, 0, 0], [0, 1, 0]], { k: 5 });
   * ```
   */
  searchBatch(queries: VectorsLike, options?: SearchOptions): SearchResult[] {
    const q = toVectors(queries, this.dimension, 'queries');
    const { k, ef, exact, radius, filter } = this.#searchOptions('searchBatch', options);
    return this.#call((raw) => {
      raw.search(q, true, k, ef, exact, radius, filter);
      const lengths = raw.take_lengths();
      const keys = raw.take_keys();
      const distances = raw.take_distances();
      let at = 0;
      return Array.from(lengths, (length) => {
        const from = at;
        at += length;
        return SearchResult.of(keys.slice(from, at), distances.slice(from, at));
      });
    });
  }

  /**
   * The index as the bytes of a file, which {@link Index.open} and the native library open.
   *
   * @example
   * ```ts
   * await writeFile('a.twx', index.save());
   * ```
   */
  save(): Uint8Array {
    const chunks: Uint8Array[] = [];
    let length = 0;
    this.#call((raw) =>
      raw.save({
        write(bytes: Uint8Array) {
          chunks.push(bytes.slice());
          length += bytes.length;
        },
      }),
    );
    const file = allocate(Uint8Array, length);
    let at = 0;
    for (const chunk of chunks) {
      file.set(chunk, at);
      at += chunk.length;
    }
    return file;
  }

  /**
   * What the index is made of. It looks at every row.
   *
   * @example
   * ```ts
   * console.log(index.stats().tombstones);
   * ```
   */
  stats(): IndexStats {
    const stats = this.#call((raw) => raw.stats()) as Omit<IndexStats, 'memoryBytes'>;
    return { ...stats, memoryBytes: this.#memory.buffer.byteLength };
  }

  /**
   * Rebuilds without the removed rows, and gives their memory to new ones.
   *
   * @example
   * ```ts
   * index.compact();
   * ```
   */
  compact(): void {
    this.#call((raw) => raw.compact());
  }

  /**
   * Removes everything.
   *
   * @example
   * ```ts
   * index.clear();
   * ```
   */
  clear(): void {
    this.#call((raw) => raw.clear());
  }

  /**
   * Gives the memory of the index back, for other indexes to use. Any later call throws (`DISPOSED`), except this one,
   * which does nothing.
   *
   * @example
   * ```ts
   * index.free();
   * ```
   */
  free(): void {
    const raw = this.#raw;
    this.#raw = undefined;
    raw?.free();
  }

  /**
   * The same as {@link Index.free}, for `using`.
   *
   * @example
   * ```ts
   * using index = await Index.create({ dimension: 3, metric: 'l2' });
   * ```
   */
  [Symbol.dispose](): void {
    this.free();
  }

  #alive(): RawIndex {
    if (this.#raw === undefined) throw new TwindexError('DISPOSED', this.#gone);
    return this.#raw;
  }

  /** Enters the engine. Nothing of the user's runs in there, and all arguments are checked. */
  #call<T>(work: (raw: RawIndex) => T): T {
    const raw = this.#alive();
    try {
      return work(raw);
    } catch (error) {
      const known = translated(error);
      if (known.code === 'INTERNAL') {
        lost.push(raw);
        this.#raw = undefined;
        this.#gone = 'an earlier call on this index did not come back, so its state is unknown; open it again';
      }
      throw known;
    }
  }

  #searchOptions(call: string, options: SearchOptions | undefined) {
    const given = checkOptions(options, call, SEARCH_OPTIONS);
    return {
      k: given.k === undefined ? 10 : checkCount(given.k, 'k', 0),
      ef: given.ef === undefined ? undefined : checkCount(given.ef, 'ef', 1),
      exact: checkBoolean(given.exact, 'exact'),
      radius: checkRadius(given.radius),
      filter: this.#filter(given.filter),
    };
  }

  #filter(filter: unknown): BigUint64Array | undefined {
    if (filter === undefined) return undefined;
    if (typeof filter !== 'function') return toKeys(filter, 'filter');
    const keys = this.keys();
    let kept = 0;
    for (const key of keys) {
      const keep: unknown = filter(toKey(key));
      if (typeof (keep as PromiseLike<unknown> | null | undefined)?.then === 'function') {
        throw invalid(`filter must answer true or false at once, it answered ${describe(keep)}`);
      }
      if (keep) keys[kept++] = key;
    }
    return keys.subarray(0, kept);
  }
}

/** What came out of the engine, as an error of this package. */
function translated(error: unknown, cause?: unknown): TwindexError {
  if (error instanceof TwindexError) return error;
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (typeof code === 'string') {
    return new TwindexError(code, String(message), cause === undefined ? undefined : { cause });
  }
  return new TwindexError('INTERNAL', `the engine stopped in the middle of a call: ${String(message ?? error)}`, {
    cause: error,
  });
}
