// The index as users see it.

import {
  allocate,
  checkBoolean,
  checkCount,
  checkInteger,
  checkName,
  checkOptions,
  checkU64,
  optionalInteger,
  optionalName,
  optionalNumber,
  toIds,
  toKeys,
  toVector,
  toVectors,
  typedArrayName,
} from './arguments.js';
import type { Key, KeysLike, VectorLike, VectorsLike } from './arguments.js';
import { TwindexError, describe, invalid } from './errors.js';
import { RawIndex } from './glue.js';
import { engine } from './load.js';
import { SearchResult, toKey } from './result.js';
import type { Candidates } from './result.js';
import { Reader } from './source.js';
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
 * What a search looks at: the vectors themselves, or codes that take less memory.
 *
 * | encoding | bytes a row | distances |
 * |---|---|---|
 * | `'f32'` | 4 × dimension | exact |
 * | `'f16'` | 2 × dimension | exact for the rounded vector |
 * | `'int8'` | dimension + 8 | estimates; they find nearly the same neighbours |
 * | `'int4'` | dimension / 2 + 8 | estimates; worth a `rerank` |
 * | `'bits1'` | dimension / 8 + 8 | rough estimates, to be reranked |
 *
 * @example
 * ```ts
 * const index = await Index.create({ dimension: 384, metric: 'cosine', encoding: 'int8', originals: 'f32' });
 * ```
 */
export type Encoding = 'f32' | 'f16' | 'int8' | 'int4' | 'bits1';

/**
 * What is kept of the vectors besides their codes, for {@link SearchOptions.rerank} and {@link Index.get}. With encoding
 * `'f32'` the codes are the originals, and nothing else is kept.
 *
 * @example
 * ```ts
 * const index = await Index.create({ dimension: 384, metric: 'cosine', encoding: 'int4', originals: 'f16' });
 * ```
 */
export type Originals = 'none' | 'f16' | 'f32';

/**
 * What of a read-only index lies in WebAssembly memory. Originals never do: they are read from the source.
 *
 * | residency | in memory | read from the source |
 * |---|---|---|
 * | `'resident'` | keys, graph, codes | originals, to rerank |
 * | `'on-demand'` | keys, graph | codes too, about 1 MiB at a time: slower, for files larger than memory |
 *
 * @example
 * ```ts
 * const index = await Index.open('large.twx', { residency: 'on-demand' }); // Node.js
 * ```
 */
export type Residency = 'resident' | 'on-demand';

/**
 * What a file of vectors is: an array of NumPy (`'npy'`), rows and dimension in front of 32-bit floats (`'fbin'`), or
 * little-endian floats alone (`'f32'`, `'f16'`).
 *
 * @example
 * ```ts
 * index.attachOriginals(floats.buffer, { format: 'f32' });
 * ```
 */
export type VectorFormat = 'npy' | 'fbin' | 'f32' | 'f16';

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
  /** What a search looks at: `'f32'` unless said otherwise. */
  encoding?: Encoding;
  /**
   * What is kept besides, where the encoding is another than `'f32'`, and not `'f16'` where that is the encoding:
   * `'none'` unless said otherwise.
   */
  originals?: Originals;
  /** Whether vectors are rotated at random before `'int8'`, `'int4'` or `'bits1'` rounds them. Default `true`. */
  rotate?: boolean;
  /**
   * Whether the mean of the first rows is taken off before `'int8'`, `'int4'` or `'bits1'` rounds them. Default `true`.
   * {@link Index.retrain} learns it anew.
   */
  centre?: boolean;
}

/**
 * How a saved index is opened. `dimension`, `metric`, `kind` and `encoding` are expectations: the file has its own, and
 * if they differ that is an error (`MISMATCH`).
 *
 * @example
 * ```ts
 * const index = await Index.open(bytes, { readOnly: true, dimension: 384, metric: 'cosine' });
 * ```
 */
export interface OpenOptions {
  /**
   * Take less memory, and refuse changes. By default an opened index can be changed, and has everything in memory,
   * originals too. A read-only one leaves originals in the source, and `save` gives the bytes of the source, which must
   * be there and unchanged.
   */
  readOnly?: boolean;
  /** Where the codes of a read-only index lie: `'resident'` unless said otherwise. Either implies `readOnly`. */
  residency?: Residency;
  /** Check every byte and link first: a damaged file is refused. Without it only what the file says of itself is. */
  verify?: boolean;
  dimension?: number;
  metric?: Metric;
  kind?: IndexKind;
  encoding?: Encoding;
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
  /** Only hits at most this far, in the metric's own terms; with `rerank`, by their exact distances. */
  radius?: number;
  /**
   * Find `rerank × k` rows by their codes, compute their exact distances from the originals, and keep the best `k`. 1 to
   * 1,000,000. Where there are no originals that is an error (`NO_ORIGINALS`).
   */
  rerank?: number;
  /** Only these keys; or a predicate, which is asked once for every key before the search begins. */
  filter?: KeysLike | ((key: Key) => boolean);
}

/**
 * How originals are attached.
 *
 * @example
 * ```ts
 * index.attachOriginals(bytes, { format: 'fbin' });
 * ```
 */
export interface AttachOptions {
  /** Needed unless the bytes begin as an `.npy` file does, or the source is a `Float32Array` or `Float16Array`. */
  format?: VectorFormat;
}

/**
 * A vector and where it comes from: `'original'` is what was added, at the precision at which originals are kept;
 * `'code'` is what the code stands for.
 *
 * @example
 * ```ts
 * const { vector, source } = index.getWithSource(7)!;
 * ```
 */
export interface StoredVector {
  readonly vector: Float32Array;
  readonly source: 'original' | 'code';
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
const ENCODINGS: readonly Encoding[] = ['f32', 'f16', 'int8', 'int4', 'bits1'];
const ORIGINALS: readonly Originals[] = ['none', 'f16', 'f32'];
const RESIDENCIES: readonly Residency[] = ['resident', 'on-demand'];
const FORMATS: readonly VectorFormat[] = ['npy', 'fbin', 'f32', 'f16'];
const NPY_MAGIC = '\x93NUMPY';

const CREATE_OPTIONS = [
  ...['dimension', 'metric', 'kind', 'm', 'efConstruction', 'ef', 'seed', 'encoding', 'originals', 'rotate', 'centre'],
];
const OPEN_OPTIONS = ['readOnly', 'residency', 'verify', 'dimension', 'metric', 'kind', 'encoding'];
const SEARCH_OPTIONS = ['k', 'ef', 'exact', 'radius', 'rerank', 'filter'];
const ATTACH_OPTIONS = ['format'];

/** How {@link RawIndex.search} is asked. */
const ONE = 0;
const BATCH = 1;
const CANDIDATES = 2;

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
  readonly #encoding: Encoding;
  readonly #originals: Originals;
  /** Where a read-only index reads from. */
  readonly #file: Reader | undefined;
  /** The originals attached. */
  #attached: Reader | undefined;
  #isBusy = false;

  private constructor(raw: RawIndex, memory: WebAssembly.Memory, file?: Reader) {
    if (!(raw instanceof RawIndex)) {
      throw invalid('an Index is not made with new: use await Index.create({ dimension, metric }) or await Index.open(source)');
    }
    this.#raw = raw;
    this.#memory = memory;
    this.#dimension = raw.dimension;
    this.#metric = METRICS[raw.metric ?? -1]!;
    this.#kind = KINDS[raw.kind ?? -1]!;
    this.#encoding = ENCODINGS[raw.encoding ?? -1]!;
    this.#originals = ORIGINALS[raw.originals ?? -1]!;
    this.#file = file;
    file?.closeAfter(this);
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
    const kind = optionalName(given.kind, 'kind', KINDS) ?? KINDS.indexOf('hnsw');
    const m = optionalInteger(given.m, 'm');
    const efConstruction = optionalInteger(given.efConstruction, 'efConstruction');
    const ef = optionalInteger(given.ef, 'ef');
    const seed = given.seed === undefined ? 0n : checkU64(given.seed, 'seed');
    const encoding = optionalName(given.encoding, 'encoding', ENCODINGS) ?? 0;
    const originals = optionalName(given.originals, 'originals', ORIGINALS) ?? 0;
    const rotate = checkBoolean(given.rotate, 'rotate', true);
    const centre = checkBoolean(given.centre, 'centre', true);
    const memory = await engine();
    try {
      const quantizer = [encoding, originals, rotate, centre] as const;
      return new Index(RawIndex.create(dimension, metric, kind, m, efConstruction, ef, seed, ...quantizer), memory);
    } catch (error) {
      throw translated(error);
    }
  }

  /**
   * Opens a saved index, written here or natively. The bytes are copied into WebAssembly memory, piece by piece, and
   * then the source is not needed any more. Only a read-only index goes on reading from it: originals, with
   * `residency: 'on-demand'` the codes, and all of it for `save`. What was opened by its path stays open until `free`.
   *
   * @example
   * ```ts
   * const index = await Index.open(await (await fetch('/a.twx')).arrayBuffer());
   * const local = await Index.open('a.twx'); // Node.js
   * const large = await Index.open('large.twx', { residency: 'on-demand' });
   * ```
   */
  static async open(source: IndexSource, options?: OpenOptions): Promise<Index> {
    const given = checkOptions(options, 'Index.open', OPEN_OPTIONS);
    const chosen = optionalName(given.residency, 'residency', RESIDENCIES);
    const readOnly = checkBoolean(given.readOnly, 'readOnly', chosen !== undefined);
    if (chosen !== undefined && !readOnly) {
      throw invalid('readOnly: false contradicts residency, which is that of a read-only index');
    }
    const verify = checkBoolean(given.verify, 'verify');
    const dimension = optionalInteger(given.dimension, 'dimension');
    const metric = optionalName(given.metric, 'metric', METRICS);
    const kind = optionalName(given.kind, 'kind', KINDS);
    const encoding = optionalName(given.encoding, 'encoding', ENCODINGS);
    const memory = await engine();
    const reader = new Reader(source);
    try {
      const residency = chosen === 1 ? 2 : Number(readOnly);
      const expected = [dimension, metric, kind, encoding] as const;
      const raw = RawIndex.open(reader, reader.byteLength, residency, verify, ...expected);
      if (readOnly) return new Index(raw, memory, reader);
      reader.close();
      return new Index(raw, memory);
    } catch (error) {
      reader.close();
      throw translated(error, reader.takeThrown());
    }
  }

  /** How many vectors there are. */
  get size(): number {
    return this.#idle().size;
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

  /** What a search looks at. */
  get encoding(): Encoding {
    this.#alive();
    return this.#encoding;
  }

  /** What the index keeps of the vectors besides their codes. */
  get originals(): Originals {
    this.#alive();
    return this.#originals;
  }

  /** Whether changes are refused. */
  get readOnly(): boolean {
    return this.#idle().read_only;
  }

  /** The SIMD instructions in use: `'simd128'` or `'relaxed-simd'`. */
  get simd(): string {
    return this.#idle().level;
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
   * The vector of a key, a copy: as it was added (narrowed to 32-bit floats) where the index has it, that is with encoding
   * `'f32'` or with originals, kept or attached; otherwise what its code stands for, which {@link Index.getWithSource}
   * tells apart. Undefined where the key isn't there.
   *
   * Under the cosine metric a code, and an original in f16, stand for the normalised vector.
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
   * The vector of a key, as {@link Index.get} gives it, and whether it is the original or what the code stands for.
   *
   * @example
   * ```ts
   * const { vector, source } = index.getWithSource(7)!;
   * if (source === 'code') console.log('about', vector);
   * ```
   */
  getWithSource(key: Key): StoredVector | undefined {
    const k = checkU64(key, 'key');
    return this.#call((raw) => {
      const vector = raw.get(k);
      return vector && { vector, source: raw.original ? 'original' : 'code' };
    });
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
    const { k, ef, exact, radius, rerank, filter } = this.#searchOptions('search', options);
    return this.#call((raw) => {
      raw.search(q, ONE, k, ef, exact, radius, rerank, filter);
      return SearchResult.of(raw.take_keys(), raw.take_distances(), raw.reranked);
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
    const { k, ef, exact, radius, rerank, filter } = this.#searchOptions('searchBatch', options);
    return this.#call((raw) => {
      raw.search(q, BATCH, k, ef, exact, radius, rerank, filter);
      const lengths = raw.take_lengths();
      const keys = raw.take_keys();
      const distances = raw.take_distances();
      const { reranked } = raw;
      let at = 0;
      return Array.from(lengths, (length) => {
        const from = at;
        at += length;
        return SearchResult.of(keys.slice(from, at), distances.slice(from, at), reranked);
      });
    });
  }

  /**
   * The first half of a search with `rerank`, for originals that can only be had asynchronously: the `rerank × k` rows
   * nearest by their codes. Fetch their vectors, and give both to {@link Index.rescore}. `radius` waits until then.
   *
   * @example
   * ```ts
   * // The index was built from vectors.npy: row i of the array is id i. Its header here takes 128 bytes.
   * const options = { k: 10, rerank: 4 };
   * const found = index.candidates(query, options);
   * const vectors = await Promise.all(
   *   Array.from(found.ids, async (id) => {
   *     const from = 128 + id * 4 * index.dimension;
   *     const range = `bytes=${from}-${from + 4 * index.dimension - 1}`;
   *     return new Float32Array(await (await fetch('/vectors.npy', { headers: { range } })).arrayBuffer());
   *   }),
   * );
   * const hits = index.rescore(query, found, vectors, options);
   * ```
   */
  candidates(query: VectorLike, options?: SearchOptions): Candidates {
    const q = toVector(query, 'query');
    const { k, ef, exact, radius, rerank, filter } = this.#searchOptions('candidates', options);
    return this.#call((raw) => {
      raw.search(q, CANDIDATES, k, ef, exact, radius, rerank, filter);
      return { ids: raw.take_ids(), keys: raw.take_keys(), distances: raw.take_distances() };
    });
  }

  /**
   * The second half: the best `k` of the candidates by the exact distances of their vectors, of which there is one for
   * each candidate. Where the index has no originals of its own, they are held against its fingerprints: another vector
   * than was added is an error (`FINGERPRINT_MISMATCH`). Of the options, `k`, `radius` and `filter` apply.
   *
   * @example
   * ```ts
   * const hits = index.rescore(query, found, vectors, { k: 10 });
   * ```
   */
  rescore(
    query: VectorLike,
    candidates: Pick<Candidates, 'ids' | 'keys'>,
    vectors: VectorsLike,
    options?: SearchOptions,
  ): SearchResult {
    const q = toVector(query, 'query');
    if (typeof candidates !== 'object' || candidates === null) {
      throw invalid(`candidates must be what index.candidates() gave, got ${describe(candidates)}`);
    }
    const ids = toIds(candidates.ids, 'candidates.ids');
    const keys = toKeys(candidates.keys, 'candidates.keys');
    const v = toVectors(vectors, this.dimension, 'vectors');
    const { k, radius, filter } = this.#searchOptions('rescore', options);
    return this.#call((raw) => {
      raw.rescore(q, ids, keys, v, k, radius, filter);
      return SearchResult.of(raw.take_keys(), raw.take_distances(), raw.reranked);
    });
  }

  /**
   * Gives an index that keeps no originals the vectors it was built from, to rerank against: row `i` of them is the
   * `i`-th vector that was added (updates count as additions; `compact` numbers anew). They stay where they are; the
   * rows needed are read, and held against the fingerprints in the index. What was opened by its path stays open until
   * `free`, or until others are attached.
   *
   * @example
   * ```ts
   * index.attachOriginals('vectors.npy'); // Node.js
   * index.attachOriginals(new Float32Array(buffer));
   * index.attachOriginals(await (await fetch('/vectors.fbin')).arrayBuffer(), { format: 'fbin' });
   * const hits = index.search(query, { rerank: 4 });
   * ```
   */
  attachOriginals(source: IndexSource, options?: AttachOptions): void {
    const given = checkOptions(options, 'attachOriginals', ATTACH_OPTIONS);
    let format = optionalName(given.format, 'format', FORMATS);
    this.#idle();
    const reader = new Reader(source);
    try {
      format ??= formatOf(source, reader);
      this.#call((raw) => raw.attach_originals(reader, reader.byteLength, format!), reader);
    } catch (error) {
      reader.close();
      throw translated(error, reader.takeThrown());
    }
    this.#attached?.close();
    this.#attached = reader;
    reader.closeAfter(this);
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
   * Rebuilds without the removed rows, and gives their memory to new ones. Originals that were attached are let go where
   * rows move: attach a file in the new order, which is that of `keys()`.
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
   * Learns anew what `'int8'`, `'int4'` and `'bits1'` vectors are centred on, from all of them, and encodes them again:
   * worth it where the vectors added first were not like the rest. Where the index keeps no originals, that rounds a
   * second time.
   *
   * @example
   * ```ts
   * index.retrain();
   * ```
   */
  retrain(): void {
    this.#call((raw) => raw.retrain());
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
    if (this.#raw === undefined) return;
    const raw = this.#idle();
    this.#raw = undefined;
    raw.free();
    this.#file?.close();
    this.#attached?.close();
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

  /** The engine's part, unless it is the one that called. */
  #idle(): RawIndex {
    const raw = this.#alive();
    if (this.#isBusy) throw new TwindexError('BUSY', 'the index is reading from a source, which must not call it');
    return raw;
  }

  /** Enters the engine, where sources are all that runs of the user's, and all arguments are checked. */
  #call<T>(work: (raw: RawIndex) => T, source?: Reader): T {
    const raw = this.#idle();
    this.#isBusy = true;
    try {
      return work(raw);
    } catch (error) {
      const thrown = [source, this.#attached, this.#file].map((reader) => reader?.takeThrown());
      const known = translated(error, thrown.find((cause) => cause !== undefined));
      if (known.code === 'INTERNAL') {
        lost.push(raw);
        this.#raw = undefined;
        this.#gone = 'an earlier call on this index did not come back, so its state is unknown; open it again';
      }
      throw known;
    } finally {
      this.#isBusy = false;
    }
  }

  #searchOptions(call: string, options: SearchOptions | undefined) {
    const given = checkOptions(options, call, SEARCH_OPTIONS);
    return {
      k: given.k === undefined ? 10 : checkCount(given.k, 'k', 0),
      ef: given.ef === undefined ? undefined : checkCount(given.ef, 'ef', 1),
      exact: checkBoolean(given.exact, 'exact'),
      radius: optionalNumber(given.radius, 'radius'),
      rerank: optionalNumber(given.rerank, 'rerank'),
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

/** What the bytes say they are, or what holds them does. */
function formatOf(source: unknown, reader: Reader): number {
  const name = typedArrayName(source);
  if (name === 'Float32Array') return FORMATS.indexOf('f32');
  if (name === 'Float16Array') return FORMATS.indexOf('f16');
  const start = new Uint8Array(Math.min(NPY_MAGIC.length, reader.byteLength));
  try {
    if (start.length > 0) reader.readInto(0, start);
  } catch (cause) {
    throw new TwindexError('STORAGE', `reading from storage failed: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
  if (String.fromCharCode(...start) === NPY_MAGIC) return FORMATS.indexOf('npy');
  throw invalid("format must be given, 'fbin', 'f32' or 'f16': the source is no .npy file");
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
