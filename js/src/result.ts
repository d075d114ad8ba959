// What a search gives back.

import type { Key } from './arguments.js';

/**
 * One hit: a key and its distance from the query. The key is a `number` where that is exact, else a `bigint`.
 *
 * @example
 * ```ts
 * for (const { key, distance } of index.search(query)) console.log(key, distance);
 * ```
 */
export interface Hit {
  readonly key: Key;
  /** Smaller is closer: squared for `'l2'`, the negated product for `'ip'`, 1 - cos for `'cosine'`. */
  readonly distance: number;
  /** Whether the distance was computed from the original vector, because the search said `rerank`. */
  readonly reranked: boolean;
}

/**
 * The hits of one query, nearest first, equal distances by ascending key. The typed arrays are the result's own: they
 * stay as they are whatever becomes of the index.
 *
 * @example
 * ```ts
 * const hits = index.search(query, { k: 10 });
 * hits.keys;       // BigUint64Array
 * hits.distances;  // Float32Array
 * const [nearest] = hits;
 * index.get(nearest.key);
 * ```
 */
export class SearchResult implements Iterable<Hit> {
  /** The keys found, nearest first. */
  readonly keys: BigUint64Array;
  /** The distance of each. */
  readonly distances: Float32Array;
  /** Whether these are the distances of original vectors, because the search said `rerank`. */
  readonly reranked: boolean;

  private constructor(keys: BigUint64Array, distances: Float32Array, reranked: boolean) {
    this.keys = keys;
    this.distances = distances;
    this.reranked = reranked;
  }

  /** @internal */
  static of(keys: BigUint64Array, distances: Float32Array, reranked: boolean): SearchResult {
    return new SearchResult(keys, distances, reranked);
  }

  /** How many hits there are: `k`, or as many as there were. */
  get length(): number {
    return this.keys.length;
  }

  /** The hits, for `JSON.stringify`; a key that no number holds exactly is a string of digits. */
  toJSON(): { key: number | string; distance: number; reranked: boolean }[] {
    return Array.from(this, ({ key, ...rest }) => ({ key: typeof key === 'bigint' ? String(key) : key, ...rest }));
  }

  /** The hits as `{ key, distance, reranked }`. */
  *[Symbol.iterator](): Generator<Hit, void, undefined> {
    const { keys, distances, reranked } = this;
    for (let i = 0; i < keys.length; i++) yield { key: toKey(keys[i]!), distance: distances[i]!, reranked };
  }
}

/**
 * Rows that may be hits, found by their codes, nearest first: what {@link Index.candidates} gives and
 * {@link Index.rescore} takes. The typed arrays are the caller's own.
 *
 * @example
 * ```ts
 * const { ids, keys, distances } = index.candidates(query, { k: 10, rerank: 4 });
 * ```
 */
export interface Candidates {
  /**
   * The rows, by their numbers in the order of addition, from 0: row `i` of the file the index was built from is id `i`.
   * An update counts as an addition; `compact` numbers rows anew.
   */
  readonly ids: Uint32Array;
  /** The key of each. */
  readonly keys: BigUint64Array;
  /** The distance of each, by its code. */
  readonly distances: Float32Array;
}

/** @internal A key as a user sees it: a number where it is safe. */
export function toKey(key: bigint): Key {
  return key <= 9007199254740991n ? Number(key) : key;
}
