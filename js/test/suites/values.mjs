// Values that cannot be compared, or hardly (K2, K3), and arguments of every wrong kind (K1).
import { Index } from 'twindex';
import { KINDS, METRICS, distance, equal, filled, hitsOf, ok, randomVectors, randomizer, refuses, same, test } from '../harness.mjs';

test('parameters out of range are refused, those within give a working index (B06)', async () => {
  const base = { dimension: 8, metric: 'l2' };
  for (const dimension of [0, -1, 1.5, NaN, 2 ** 31, 2 ** 32 + 8, 2 ** 53, Infinity]) {
    await refuses(() => Index.create({ ...base, dimension }), 'INVALID_PARAMETER', 'dimension');
  }
  for (const dimension of ['8', undefined, null, 8n, [8], {}]) {
    await refuses(() => Index.create({ ...base, dimension }), 'INVALID_ARGUMENT', 'dimension');
  }
  for (const [name, bad] of [
    ['m', [0, 1, 257, 4096, 2 ** 40, -1, NaN]],
    ['efConstruction', [0, 2 ** 20 + 1, 2 ** 40, 0.5]],
    ['ef', [0, 2 ** 20 + 1, 2 ** 40, -3]],
  ]) {
    for (const value of bad) {
      const words = name === 'efConstruction' ? [] : [name];
      await refuses(() => Index.create({ ...base, [name]: value }), 'INVALID_PARAMETER', ...words);
    }
    for (const value of ['16', null, {}, 16n]) {
      await refuses(() => Index.create({ ...base, [name]: value }), 'INVALID_ARGUMENT', name);
    }
  }
  for (const seed of [-1, 1.5, 2 ** 53, '1', 2n ** 64n]) {
    await refuses(() => Index.create({ ...base, seed }), 'INVALID_ARGUMENT', 'seed');
  }
  for (const metric of ['L2', 'euclidean', '', 0, undefined, null, ['l2']]) {
    await refuses(() => Index.create({ ...base, metric }), 'INVALID_ARGUMENT', 'metric');
  }
  for (const kind of ['HNSW', 1, null]) await refuses(() => Index.create({ ...base, kind }), 'INVALID_ARGUMENT', 'kind');
  await refuses(() => Index.create({ ...base, M: 16 }), 'INVALID_ARGUMENT', '"M"', 'efConstruction');
  for (const options of [undefined, null, 5, 'l2', [], Promise.resolve(base)]) {
    await refuses(() => Index.create(options), 'INVALID_ARGUMENT');
  }
  for (const options of [{ m: 2 }, { m: 100 }, { m: 256 }, { efConstruction: 1 }, { ef: 1 }, { seed: 2n ** 64n - 1n }, { m: undefined }]) {
    const { index, row } = await filled(Index, { count: 500, ...options });
    equal(index.search(row(77), { k: 1, ef: 64 }).keys[0], 77n, JSON.stringify(options, String));
    index.free();
  }
});

test('a failed call leaves no trace (B02)', async () => {
  for (const kind of KINDS) {
    const { index } = await filled(Index, { count: 10, kind });
    const before = index.save();
    const good = new Array(8).fill(0.5);
    for (const [code, call] of [
      ['DIMENSION_MISMATCH', () => index.add(99, [1, 2, 3])],
      ['NOT_FINITE', () => index.add(99, [NaN, ...good.slice(1)])],
      ['DIMENSION_MISMATCH', () => index.addBatch([98, 99], [good, [1]])],
      ['LENGTH_MISMATCH', () => index.addBatch([98, 99], new Float32Array(15))],
      ['NOT_FINITE', () => index.addBatch([98, 99], [good, good.with?.(3, Infinity) ?? [1, 1, 1, Infinity, 1, 1, 1, 1]])],
      ['DIMENSION_MISMATCH', () => index.update(1, [1])],
      ['NOT_FINITE', () => index.update(1, new Array(8).fill(-Infinity))],
      ['DIMENSION_MISMATCH', () => index.add(99, [1, 2, 3])],
    ]) {
      await refuses(call, code);
      same([index.has(98), index.has(99), index.size], [false, false, 10]);
      same(index.save(), before);
    }
  }
});

test('NaN and infinity are refused at every door (B10, B13)', async () => {
  for (const kind of KINDS) {
    const { index, vectors, row } = await filled(Index, { count: 1000, dimension: 16, kind });
    for (const value of [NaN, Infinity, -Infinity, 1e39, -1e400]) {
      for (const at of [0, 7, 15]) {
        const bad = Float64Array.from(row(0));
        bad[at] = value;
        for (const options of [{}, { exact: true }, { filter: [1, 2] }, { radius: 5 }]) {
          await refuses(() => index.search(bad, options), 'NOT_FINITE', `component ${at}`);
        }
        await refuses(() => index.add(5000, bad), 'NOT_FINITE', `component ${at}`);
        await refuses(() => index.add(5000, Array.from(bad)), 'NOT_FINITE');
        await refuses(() => index.update(0, bad), 'NOT_FINITE');
        await refuses(() => index.searchBatch([row(1), row(2), bad]), 'NOT_FINITE', 'vector 2');
        const flat = Float64Array.from(vectors.subarray(0, 48));
        flat[32 + at] = value;
        await refuses(() => index.addBatch([5000, 5001, 5002], flat), 'NOT_FINITE', 'vector 2');
      }
    }
    await refuses(() => index.search(new Float32Array(16).fill(NaN)), 'NOT_FINITE');
    equal(index.size, 1000);
    equal(index.search(row(5), { k: 1 }).keys[0], 5n);
  }
});

test('large and small values: refused, or in the right order (B12)', async () => {
  const scales = [1e-30, 1e-10, 1, 1e10, 1e18, 2e18, 1e19, 1e30, 3e38];
  for (const metric of METRICS) {
    const index = await Index.create({ dimension: 8, metric, kind: 'flat' });
    const rows = new Map();
    scales.forEach((scale, key) => {
      const vector = new Float32Array(8);
      vector[0] = scale;
      try {
        index.add(key, vector);
        rows.set(key, vector);
      } catch (error) {
        ok(metric !== 'cosine' && error.code === 'NORM_TOO_LARGE' && scale > 1e18, `${metric} ${scale} ${error}`);
      }
    });
    ok(rows.size >= 5, `${metric}: ${rows.size}`);
    for (const [, query] of rows) {
      const hits = Array.from(index.search(query, { k: 20 }));
      equal(hits.length, rows.size);
      for (const { key, distance: d } of hits) {
        ok(Number.isFinite(d));
        if (metric === 'cosine') ok(d >= 0 && d < 1e-5, `parallel: ${d}`);
        else ok(Math.abs(d - distance(metric, query, rows.get(key))) <= 1e-5 * Math.abs(d) + 1e-37, `${metric} ${d}`);
      }
    }
  }
});

test('copies at any scale: cosine stays within 0 and 2 (B17)', async () => {
  const next = randomizer(5);
  const prototypes = randomVectors(20, 48, 5);
  const index = await Index.create({ dimension: 48, metric: 'cosine', m: 8, efConstruction: 40 });
  const rows = Array.from({ length: 800 }, (_, i) => {
    const scale = 0.001 + (next() / 2 ** 32) * 1000;
    return prototypes.subarray((i % 20) * 48, (i % 20) * 48 + 48).map((x) => x * scale);
  });
  index.addBatch(rows.map((_, i) => i), rows);
  equal(index.size, 800);
  for (let i = 0; i < 800; i += 7) {
    const { distances } = index.search(rows[i], { k: 50 });
    ok(distances.every((d) => d >= 0 && d <= 2) && distances[0] < 1e-5);
  }
  const opposite = index.search(rows[0].map((x) => -x), { k: 800, exact: true }).distances;
  ok(opposite.every((d) => d >= 0 && d <= 2) && Math.abs(opposite.at(-1) - 2) < 1e-5);
});

test('the zero vector: refused under cosine, welcome elsewhere (B19)', async () => {
  const cosine = await Index.create({ dimension: 2, metric: 'cosine' });
  await refuses(() => cosine.add(1, [0, 0]), 'ZERO_VECTOR');
  await refuses(() => cosine.addBatch([1, 2], [[1, 0], [0, -0]]), 'ZERO_VECTOR', 'vector 1');
  equal(cosine.size, 0);
  cosine.add(1, [1, 0]);
  await refuses(() => cosine.search([0, 0]), 'ZERO_VECTOR');
  for (const metric of ['l2', 'ip']) {
    for (const kind of KINDS) {
      const index = await Index.create({ dimension: 2, metric, kind });
      index.addBatch([1, 2, 3], [[1, 0], [0, 1], [0, 0]]);
      same(hitsOf(index.search([1, 0]))[0], [1, metric === 'l2' ? 0 : -1]);
    }
  }
});

/** Values that are right nowhere, or only where the name says. */
async function oddValues() {
  const detached = new Float32Array(8);
  structuredClone(detached.buffer, { transfer: [detached.buffer] });
  return {
    undefined: undefined,
    null: null,
    word: 'abc',
    digits: '5',
    object: {},
    array: [],
    nan: NaN,
    promise: Promise.resolve(1),
    detached,
    boolean: true,
    symbol: Symbol('odd'),
    function: () => 5,
    date: new Date(0),
    map: new Map(),
    view: new DataView(new ArrayBuffer(32)),
    bytes: new ArrayBuffer(32),
    holes: new Array(8),
    strings: new Array(8).fill('1'),
    nested: [[[1]]],
    shortVector: [1, 2, 3],
    negative: -1,
    fraction: 0.5,
  };
}

test('every wrong argument is refused by name, and the index goes on (B07, B79)', async () => {
  const { index, row, vectors } = await filled(Index);
  const query = row(11).slice();
  const expected = hitsOf(index.search(query, { k: 5 }));
  const before = index.save();
  const good = row(12);
  const found = index.candidates(query, { k: 3 });
  const rows = Array.from(found.ids, row);
  const { index: coded } = await filled(Index, { encoding: 'int8' });
  const odd = await oddValues();
  // argument: [the call, odd values that are right there]
  const calls = {
    'add key': [(x) => index.add(x, good), []],
    'add vector': [(x) => index.add(900, x), []],
    'addBatch keys': [(x) => index.addBatch(x, good), []],
    'addBatch vectors': [(x) => index.addBatch([900], x), []],
    'update key': [(x) => index.update(x, good), []],
    'update vector': [(x) => index.update(1, x), []],
    'remove key': [(x) => index.remove(x), []],
    'get key': [(x) => index.get(x), []],
    'has key': [(x) => index.has(x), []],
    'search query': [(x) => index.search(x), []],
    'search options': [(x) => index.search(query, x), ['undefined', 'object']],
    'search k': [(x) => index.search(query, { k: x }), ['undefined']],
    'search ef': [(x) => index.search(query, { ef: x }), ['undefined']],
    'search exact': [(x) => index.search(query, { exact: x }), ['undefined', 'boolean']],
    'search radius': [(x) => index.search(query, { radius: x }), ['undefined', 'negative', 'fraction']],
    'search rerank': [(x) => index.search(query, { rerank: x }), ['undefined']],
    'candidates query': [(x) => index.candidates(x), []],
    'candidates options': [(x) => index.candidates(query, x), ['undefined', 'object']],
    'rescore query': [(x) => index.rescore(x, found, rows), []],
    'rescore candidates': [(x) => index.rescore(query, x, rows), []],
    'rescore vectors': [(x) => index.rescore(query, found, x), []],
    'rescore options': [(x) => index.rescore(query, found, rows, x), ['undefined', 'object']],
    'attachOriginals source': [(x) => coded.attachOriginals(x), []],
    'attachOriginals options': [(x) => coded.attachOriginals(vectors, x), ['undefined', 'object']],
    'getWithSource key': [(x) => index.getWithSource(x), []],
    'search filter': [(x) => index.search(query, { filter: x }), ['undefined', 'array', 'function', 'shortVector']],
    'searchBatch queries': [(x) => index.searchBatch(x), ['array']],
    'searchBatch options': [(x) => index.searchBatch([query], x), ['undefined', 'object']],
    'open source': [(x) => Index.open(x), []],
    'open options': [(x) => Index.open(before, x), ['undefined', 'object']],
    'open readOnly': [(x) => Index.open(before, { readOnly: x }), ['undefined', 'boolean']],
    'open residency': [(x) => Index.open(before, { residency: x }), ['undefined']],
    'open encoding': [(x) => Index.open(before, { encoding: x }), ['undefined']],
    'open verify': [(x) => Index.open(before, { verify: x }), ['undefined', 'boolean']],
  };
  for (const [name, [call, fine]] of Object.entries(calls)) {
    for (const [kind, value] of Object.entries(odd)) {
      if (fine.includes(kind)) {
        await call(value);
      } else {
        const error = await refuses(
          async () => {
            await call(value);
            throw new Error(`${name} took ${kind}`);
          },
          ['INVALID_ARGUMENT', 'INVALID_PARAMETER', 'DIMENSION_MISMATCH', 'LENGTH_MISMATCH', 'NOT_A_SEGMENT', 'TRUNCATED', 'IO'],
        );
        const argument = name.split(' ')[1];
        if (error.code === 'INVALID_ARGUMENT') {
          ok(error.message.includes(argument), `${name}, ${kind}: "${error.message}" doesn't name ${argument}`);
        }
      }
      same(hitsOf(index.search(query, { k: 5 })), expected, `after ${name} ${kind}`);
    }
  }
  same(index.save(), before);
});

test('unknown options are refused, with the known ones named', async () => {
  const { index, row } = await filled(Index);
  await refuses(() => index.search(row(0), { efSearch: 50 }), 'INVALID_ARGUMENT', '"efSearch"', 'ef', 'radius');
  await refuses(() => index.searchBatch([row(0)], { limit: 5 }), 'INVALID_ARGUMENT', '"limit"');
  await refuses(() => Index.open(index.save(), { mmap: true }), 'INVALID_ARGUMENT', '"mmap"', 'readOnly');
  await refuses(() => index.search(row(0), 10), 'INVALID_ARGUMENT', 'options', '10');
});
