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

  private constructor(keys: BigUint64Array, distances: Float32Array) {
    this.keys = keys;
    this.distances = distances;
  }

  /** @internal */
  static of(keys: BigUint64Array, distances: Float32Array): SearchResult {
    return new SearchResult(keys, distances);
  }

  /** How many hits there are: `k`, or as many as there were. */
  get length(): number {
    return this.keys.length;
  }

  /** The hits as `{ key, distance }`, for `JSON.stringify`; a key that no number holds exactly is a string of digits. */
  toJSON(): { key: number | string; distance: number }[] {
    return Array.from(this, ({ key, distance }) => ({ key: typeof key === 'bigint' ? String(key) : key, distance }));
  }

  /** The hits as `{ key, distance }`. */
  *[Symbol.iterator](): Generator<Hit, void, undefined> {
    const { keys, distances } = this;
    for (let i = 0; i < keys.length; i++) yield { key: toKey(keys[i]!), distance: distances[i]! };
  }
}

/** @internal A key as a user sees it: a number where it is safe. */
export function toKey(key: bigint): Key {
  return key <= 9007199254740991n ? Number(key) : key;
}
