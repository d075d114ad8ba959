// The index and what the page asks of it: nearest entries two ways, how long each takes, how well they agree.

import { Index } from 'twindex';
import type { DataSet, Manifest } from './data.js';

/** Hits shown for a query. */
export const K = 10;

/** What is searched for: a sample sentence or an entry of the index, by its number. */
export interface Subject {
  kind: 'query' | 'entry';
  id: number;
}

export interface Hit {
  key: number;
  distance: number;
  /** Whether the graph search came upon it. */
  inGraph: boolean;
}

export interface Answer {
  /** What the way of searching that was asked for gives. */
  hits: Hit[];
  /** How many of the exact hits the graph search found. */
  found: number;
  /** How many exact hits there are. */
  of: number;
}

export interface Sweep {
  /** Share of the exact hits that the graph search found, over all sample sentences. */
  recall: number;
  /** Milliseconds a query, by the graph: the median of the slices it was done in. */
  graph: number;
  /** The same, by the exact scan. */
  exact: number;
}

interface Found {
  keys: number[];
  distances: Float32Array;
}

/** Rounds of a measurement; the median counts. */
const ROUNDS = 5;

/** Milliseconds of a round at least: browsers' clocks tick as coarsely as once a millisecond. */
const ROUND = 6;

/** Milliseconds of work before the page gets a turn. */
const SLICE = 8;

export class Searcher {
  readonly #index: Index;
  readonly #queries: Float32Array;
  readonly #sweeps = new Map<number, Sweep>();
  readonly #truth: Found[] = [];
  readonly #truthTimes: number[] = [];

  private constructor(index: Index, queries: Float32Array) {
    this.#index = index;
    this.#queries = queries;
  }

  static async open({ manifest, index, queryVectors }: DataSet): Promise<Searcher> {
    const { dimension, metric } = manifest;
    return new Searcher(await Index.open(index, { readOnly: true, dimension, metric }), queryVectors);
  }

  get size(): number {
    return this.#index.size;
  }

  get dimension(): number {
    return this.#index.dimension;
  }

  get metric(): Manifest['metric'] {
    return this.#index.metric;
  }

  get simd(): string {
    return this.#index.simd;
  }

  /** Bytes of WebAssembly memory. */
  get memory(): number {
    return this.#index.memory;
  }

  get #sampleCount(): number {
    return this.#queries.length / this.dimension;
  }

  /** The nearest entries; an entry is not among its own. */
  answer(subject: Subject, ef: number, exact: boolean): Answer {
    const truth = this.#find(subject, ef, true);
    const graph = this.#find(subject, ef, false);
    const inGraph = new Set(graph.keys);
    const { keys, distances } = exact ? truth : graph;
    return {
      hits: keys.map((key, i) => ({ key, distance: distances[i]!, inGraph: inGraph.has(key) })),
      found: agreement(graph, truth),
      of: truth.keys.length,
    };
  }

  /** Milliseconds of one search: the median of several rounds, each of as many searches as the clock needs. */
  time(subject: Subject, ef: number, exact: boolean): number {
    const vector = this.#vector(subject);
    const options = { k: this.#k(subject), ef, exact };
    const rounds = Array.from({ length: ROUNDS }, () => {
      const began = performance.now();
      let runs = 0;
      let passed: number;
      do {
        this.#index.search(vector, options);
        runs += 1;
        passed = performance.now() - began;
      } while (passed < ROUND);
      return passed / runs;
    });
    return median(rounds);
  }

  /** All sample sentences, a slice at a time. Undefined where `signal` ended it. */
  async sweep(ef: number, signal: AbortSignal): Promise<Sweep | undefined> {
    const known = this.#sweeps.get(ef);
    if (known) return known;
    const count = this.#sampleCount;
    const query = (id: number): Subject => ({ kind: 'query', id });
    while (this.#truth.length < count) {
      const time = slice(() => {
        this.#truth.push(this.#find(query(this.#truth.length), ef, true));
        return this.#truth.length < count;
      });
      this.#truthTimes.push(time);
      if (!(await turn(signal))) return undefined;
    }
    let found = 0;
    let of = 0;
    let id = 0;
    const times: number[] = [];
    while (id < count) {
      const time = slice(() => {
        const truth = this.#truth[id]!;
        found += agreement(this.#find(query(id), ef, false), truth);
        of += truth.keys.length;
        return ++id < count;
      });
      times.push(time);
      if (!(await turn(signal))) return undefined;
    }
    const sweep = { recall: found / of, graph: median(times), exact: median(this.#truthTimes) };
    this.#sweeps.set(ef, sweep);
    return sweep;
  }

  #find(subject: Subject, ef: number, exact: boolean): Found {
    const result = this.#index.search(this.#vector(subject), { k: this.#k(subject), ef, exact });
    const hits = [...result].filter(({ key }) => subject.kind !== 'entry' || key !== subject.id).slice(0, K);
    return { keys: hits.map(({ key }) => Number(key)), distances: Float32Array.from(hits, ({ distance }) => distance) };
  }

  /** An entry finds itself too, which is one more than is shown. */
  #k(subject: Subject): number {
    return subject.kind === 'entry' ? K + 1 : K;
  }

  #vector({ kind, id }: Subject): Float32Array {
    if (kind === 'query') return this.#queries.subarray(id * this.dimension, (id + 1) * this.dimension);
    const vector = this.#index.get(id);
    if (!vector) throw new RangeError(`there is no entry ${id}`);
    return vector;
  }
}

/** How many of the exact hits were found; at the same distance as the last of them, one is as good as another. */
function agreement(graph: Found, truth: Found): number {
  const last = truth.distances[truth.distances.length - 1];
  if (last === undefined) return 0;
  return Math.min(truth.keys.length, graph.distances.filter((distance) => distance <= last).length);
}

/** Works for a slice of time, or until `step` says that it was the last one. Milliseconds a step. */
function slice(step: () => boolean): number {
  const began = performance.now();
  let steps = 1;
  while (step() && performance.now() < began + SLICE) steps += 1;
  return (performance.now() - began) / steps;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1]!;
}

/** Lets the page do what it has to. False where `signal` says to stop. */
async function turn(signal: AbortSignal): Promise<boolean> {
  await new Promise((next) => setTimeout(next));
  return !signal.aborted;
}
