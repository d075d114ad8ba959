// The little that a test needs, the same in Node.js and in a browser: suites register tests here and a runner for
// either place runs them.

/** @type {{ name: string, body: () => unknown }[]} */
export const tests = [];

/** Where the suites run: the runner fills it in. */
export const place = {
  /** 'node' or 'browser' */
  name: '',
  /** The level that an index reports there. */
  simd: '',
  /** @type {(name: string) => Promise<Uint8Array>} bytes of a fixture made natively */
  fixture: async (name) => {
    throw new Error(`no fixtures here: ${name}`);
  },
};

export function test(name, body) {
  tests.push({ name, body });
}

export class AssertionError extends Error {}

function fail(message) {
  throw new AssertionError(message);
}

export function show(value) {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'bigint') return `${value}n`;
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
    const list = Array.from(/** @type {any} */ (value).subarray(0, 20), String).join(', ');
    return `${value.constructor.name}(${/** @type {any} */ (value).length})[${list}]`;
  }
  if (Array.isArray(value)) return `[${value.slice(0, 20).map(show).join(', ')}]`;
  if (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype) {
    return `{${Object.entries(value).map(([k, v]) => `${k}: ${show(v)}`)}}`;
  }
  return Object.is(value, -0) ? '-0' : String(value);
}

export function ok(value, message = 'expected it to hold') {
  if (!value) fail(message);
}

export function equal(got, expected, message = '') {
  if (!Object.is(got, expected)) fail(`${message} expected ${show(expected)}, got ${show(got)}`);
}

export function same(got, expected, message = '') {
  const isList = (v) => Array.isArray(v) || (ArrayBuffer.isView(v) && !(v instanceof DataView));
  const plain = (v) => typeof v === 'object' && v !== null && Object.getPrototypeOf(v) === Object.prototype;
  if (isList(got) && isList(expected)) {
    if (got.length !== expected.length) fail(`${message} expected ${show(expected)}, got ${show(got)}`);
    for (let i = 0; i < got.length; i++) {
      if (isList(expected[i]) || plain(expected[i])) same(got[i], expected[i], `${message}[${i}]`);
      else if (!Object.is(got[i], expected[i])) {
        fail(`${message}[${i}] expected ${show(expected[i])}, got ${show(got[i])} in ${show(got)}`);
      }
    }
    return;
  }
  if (plain(got) && plain(expected)) {
    same(Object.keys(got), Object.keys(expected), `${message} keys:`);
    for (const key of Object.keys(expected)) same(got[key], expected[key], `${message}.${key}`);
    return;
  }
  equal(got, expected, message);
}

/** That `body` throws or rejects with a TwindexError of this code whose message has all the `words`. */
export async function refuses(body, code, ...words) {
  let error;
  try {
    await body();
  } catch (e) {
    error = e;
  }
  if (error === undefined) fail(`expected ${code}, nothing was thrown by ${body}`);
  const codes = Array.isArray(code) ? code : [code];
  if (error.name !== 'TwindexError' || !(error instanceof Error) || !codes.includes(error.code)) {
    fail(`expected a TwindexError ${codes.join(' or ')}, got ${error.name} ${error.code}: ${error.message} by ${body}`);
  }
  for (const word of words) ok(error.message.includes(word), `"${error.message}" doesn't mention "${word}"`);
  return error;
}

/** Whole numbers of 0 to 2^32 - 1, the same everywhere (mulberry32). */
export function randomizer(seed) {
  let state = seed >>> 0;
  return function next() {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return (t ^ (t >>> 14)) >>> 0;
  };
}

/** `count` × `dimension` components in [-1, 1), exact in f32. */
export function randomVectors(count, dimension, seed) {
  const next = randomizer(seed);
  return Float32Array.from({ length: count * dimension }, () => (next() >>> 8) / 2 ** 23 - 1);
}

/** The documented formulas, in f64. */
export function distance(metric, a, b) {
  let product = 0;
  let squared = 0;
  let aa = 0;
  let bb = 0;
  for (let i = 0; i < a.length; i++) {
    product += a[i] * b[i];
    squared += (a[i] - b[i]) ** 2;
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  if (metric === 'l2') return squared;
  return metric === 'ip' ? -product : 1 - product / Math.sqrt(aa) / Math.sqrt(bb);
}

export const METRICS = ['l2', 'ip', 'cosine'];
export const KINDS = ['flat', 'hnsw'];
export const ENCODINGS = ['f32', 'f16', 'int8', 'int4', 'bits1'];

/** Some rows under keys 0.. in a new index. */
export async function filled(Index, { count = 200, dimension = 8, metric = 'l2', kind = 'hnsw', ...more } = {}) {
  const index = await Index.create({ dimension, metric, kind, ...more });
  const vectors = randomVectors(count, dimension, 1);
  index.addBatch(Array.from({ length: count }, (_, i) => i), vectors);
  const row = (i) => vectors.subarray(i * dimension, (i + 1) * dimension);
  return { index, vectors, row };
}

export function hitsOf(result) {
  return Array.from(result, ({ key, distance }) => [key, distance]);
}
