// What the package promises, call by call.
import { Index, SearchResult, TwindexError } from 'twindex';
import {
  ENCODINGS, KINDS, METRICS, distance, equal, filled, hitsOf, ok, place, randomVectors, refuses, same, test,
} from '../harness.mjs';

test('the example of the front page', async () => {
  const index = await Index.create({ dimension: 3, metric: 'cosine' });
  index.add(7, [0.1, 0.2, 0.3]);
  const [hit] = index.search([0.1, 0.2, 0.3], { k: 1 });
  same(hit, { key: 7, distance: hit.distance, reranked: false });
  ok(hit.distance >= 0 && hit.distance < 1e-6);
  index.free();
});

test('an index tells what it is', async () => {
  for (const metric of METRICS) {
    for (const kind of KINDS) {
      const index = await Index.create({ dimension: 5, metric, kind });
      same([index.dimension, index.metric, index.kind, index.size, index.readOnly], [5, metric, kind, 0, false]);
      equal(index.simd, place.simd);
      ok(index.memory > 0 && index.memory % 65536 === 0);
      index.free();
    }
  }
  const byDefault = await Index.create({ dimension: 1, metric: 'l2' });
  equal(byDefault.kind, 'hnsw');
});

test('rows are added, read, replaced and removed', async () => {
  for (const kind of KINDS) {
    const index = await Index.create({ dimension: 2, metric: 'l2', kind });
    index.add(1, [1, 0]);
    index.add(2n, [0, 1]);
    index.addBatch([3, 4], [[2, 0], [0, 2]]);
    index.addBatch(new Set([5]), Float32Array.of(5, 5));
    equal(index.size, 5);
    same(index.keys(), BigUint64Array.of(1n, 2n, 3n, 4n, 5n));
    same(index.get(2), Float32Array.of(0, 1));
    equal(index.get(9), undefined);
    equal(index.has(3n), true);
    equal(index.has(9), false);
    index.update(1, [9, 9]);
    same(index.get(1), Float32Array.of(9, 9));
    equal(index.size, 5);
    same(hitsOf(index.search([9, 9], { k: 1 })), [[1, 0]]);
    equal(index.remove(3), true);
    equal(index.remove(3), false);
    equal(index.size, 4);
    equal(index.get(3), undefined);
    index.add(3, [7, 7]);
    same(hitsOf(index.search([7, 7], { k: 1 })), [[3, 0]]);
    index.compact();
    equal(index.size, 5);
    equal(index.stats().tombstones, 0);
    same(hitsOf(index.search([7, 7], { k: 1 })), [[3, 0]]);
    index.clear();
    equal(index.size, 0);
    equal(index.search([1, 1]).length, 0);
    index.add(1, [1, 1]);
    equal(index.size, 1);
  }
});

test('nearest first, by the documented formula, under every metric (B19, B20)', async () => {
  for (const metric of METRICS) {
    for (const kind of KINDS) {
      const { index, row } = await filled(Index, { metric, kind, dimension: 12 });
      const queries = randomVectors(20, 12, 99);
      for (let q = 0; q < 20; q++) {
        const query = queries.subarray(q * 12, (q + 1) * 12);
        const truth = Array.from({ length: 200 }, (_, i) => ({ key: i, d: distance(metric, query, row(i)) }));
        truth.sort((a, b) => a.d - b.d || a.key - b.key);
        const exact = index.search(query, { k: 10, exact: true });
        same(Array.from(exact.keys, Number), truth.slice(0, 10).map((t) => t.key), `${metric} ${kind}`);
        for (const [i, { key, distance: d }] of Array.from(exact).entries()) {
          ok(Math.abs(d - truth[i].d) < 1e-5, `${metric} ${kind} ${d} for ${truth[i].d}`);
          equal(index.search(query, { k: 200, ef: 200 }).distances[i], d, `${metric} ${kind} graph and scan, key ${key}`);
        }
      }
    }
  }
});

test('a result is typed arrays and iterates as { key, distance }', async () => {
  const { index, row } = await filled(Index);
  const result = index.search(row(3), { k: 4 });
  ok(result instanceof SearchResult && result.keys instanceof BigUint64Array);
  ok(result.distances instanceof Float32Array);
  equal(result.length, 4);
  equal(Array.from(result).length, 4);
  equal(typeof Array.from(result)[0].key, 'number');
  same([result.keys[0], result.distances[0]], [3n, 0]);
  const before = result.keys.slice();
  for (let i = 0; i < 50; i++) index.search(row(i));
  index.clear();
  index.free();
  same(result.keys, before);
});

test('keys on the borders of 64 bits (B59)', async () => {
  const index = await Index.create({ dimension: 1, metric: 'l2' });
  const keys = [0, 1, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n];
  keys.forEach((key, i) => index.add(key, [i]));
  keys.forEach((key, i) => {
    const [hit] = index.search([i], { k: 1 });
    same(hit, { key, distance: 0, reranked: false });
    ok(index.has(hit.key) && index.get(hit.key)[0] === i);
  });
  same(index.keys(), BigUint64Array.from(keys, BigInt));
  same(index.search([0], { k: 9, filter: [2n ** 64n - 1n, 0] }).keys, BigUint64Array.of(0n, 2n ** 64n - 1n));
  for (const bad of [-1, -1n, 2n ** 64n, 1.5, 2 ** 53, NaN, Infinity, '5', true, null, undefined, {}, [5], Symbol('5')]) {
    for (const call of [
      () => index.add(bad, [0]),
      () => index.update(bad, [0]),
      () => index.remove(bad),
      () => index.get(bad),
      () => index.has(bad),
      () => index.addBatch([bad], [[0]]),
      () => index.search([0], { filter: [bad] }),
    ]) {
      await refuses(call, 'INVALID_ARGUMENT', call.toString().includes('filter') ? 'filter[0]' : 'key');
    }
  }
  for (const key of keys) equal(index.remove(key), true);
  equal(index.size, 0);
});

test('what a result gives, the next call takes; 5 and 5n are one key (B58)', async () => {
  const { index, row } = await filled(Index);
  for (const { key } of index.search(row(0), { k: 5 })) {
    ok(index.get(key) && index.has(BigInt(key)));
    equal(index.remove(key), true);
  }
  equal(index.size, 195);
  const wanted = [10, 20, 30];
  const found = (filter) => index.search(row(0), { k: 3, filter }).keys.slice().sort();
  const expected = found(wanted);
  equal(expected.length, 3);
  for (const filter of [
    new Set(wanted),
    new Set([10n, 20, 30n]),
    BigUint64Array.of(10n, 20n, 30n),
    BigInt64Array.of(10n, 20n, 30n),
    Uint32Array.from(wanted),
    Uint8Array.from(wanted),
    Float64Array.from(wanted),
    [30, 20n, 10, 10, 999],
    (key) => wanted.includes(key),
  ]) {
    same(found(filter), expected);
  }
  await refuses(() => found(BigInt64Array.of(-1n)), 'INVALID_ARGUMENT', 'filter[0]', '-1n');
  await refuses(() => found(Float64Array.of(1.5)), 'INVALID_ARGUMENT', 'filter[0]', '1.5');
});

test('a key that is there already; a batch is all or nothing (B62)', async () => {
  for (const kind of KINDS) {
    const index = await Index.create({ dimension: 1, metric: 'l2', kind });
    index.add(7, [1]);
    await refuses(() => index.add(7, [2]), 'DUPLICATE_KEY', '7');
    await refuses(() => index.addBatch([1, 2, 1], [[1], [2], [3]]), 'DUPLICATE_KEY', '1');
    await refuses(() => index.addBatch([3, 7], [[1], [2]]), 'DUPLICATE_KEY', '7');
    await refuses(() => index.update(8, [2]), 'KEY_NOT_FOUND', '8');
    same([index.size, index.get(7)[0]], [1, 1]);
    same(index.keys(), BigUint64Array.of(7n));
  }
});

test('a filter that leaves few or none still gives all it can', async () => {
  const { index, row } = await filled(Index, { count: 2000, dimension: 16 });
  for (const exact of [false, true]) {
    equal(index.search(row(0), { filter: [], exact }).length, 0);
    equal(index.search(row(0), { filter: () => false, exact }).length, 0);
    const few = index.search(row(0), { k: 10, filter: (key) => Number(key) % 400 === 0, exact });
    same(Array.from(few.keys).map(Number).sort((a, b) => a - b), [0, 400, 800, 1200, 1600]);
    equal(index.search(row(0), { k: 10, filter: (key) => key !== 0, exact }).keys.includes(0n), false);
  }
  let asked = 0;
  index.searchBatch([row(1), row(2), row(3)], { filter: () => ++asked });
  equal(asked, 2000, 'a predicate is asked once for every key');
});

test("a predicate's own error comes through, a Promise is refused", async () => {
  const { index, row } = await filled(Index);
  const own = new Error('mine');
  let got;
  try {
    index.search(row(0), { filter: () => { throw own; } });
  } catch (error) {
    got = error;
  }
  equal(got, own);
  await refuses(() => index.search(row(0), { filter: async () => true }), 'INVALID_ARGUMENT', 'filter', 'Promise');
  equal(index.search(row(0), { k: 1 }).keys[0], 0n);
  const { index: other } = await filled(Index);
  await refuses(() => other.search(row(0), { filter: () => other.free() }), 'DISPOSED');
});

test('min(k, rows) hits, each once, whatever k (B22, B23, B26, B29)', async () => {
  for (const kind of KINDS) {
    for (const count of [0, 1, 2, 3, 17]) {
      const { index } = await filled(Index, { count, dimension: 4, kind });
      const query = [0.1, 0.2, 0.3, 0.4];
      for (const k of [0, 1, count, count + 1, 10 * count + 5, 2 ** 31, 2 ** 32, 2 ** 32 + 1, 2 ** 53, 1e300]) {
        for (const result of [
          index.search(query, { k }),
          index.search(query, { k, exact: true }),
          index.search(query, { k, filter: () => true }),
          ...index.searchBatch([query, query], { k }),
        ]) {
          equal(result.length, Math.min(k, count), `${kind}, ${count} rows, k ${k}`);
          equal(result.distances.length, result.length);
          equal(new Set(result.keys).size, result.length);
        }
      }
      for (const k of [-1, 1.5, NaN, Infinity]) await refuses(() => index.search(query, { k }), 'INVALID_PARAMETER', 'k');
      for (const ef of [0, -1, 1.5, NaN, Infinity]) {
        await refuses(() => index.search(query, { ef, k: 0 }), 'INVALID_PARAMETER', 'ef');
      }
      const { memory } = index;
      for (const ef of [1, 2 ** 20, 2 ** 31, 2 ** 32 + 1, 2 ** 53]) {
        equal(index.search(query, { ef, k: 5 }).length, Math.min(5, count));
        equal(index.searchBatch([query], { ef, k: 2 ** 53 })[0].length, count);
      }
      ok(index.memory - memory < 10e6, 'memory is for what is found, not for what was asked');
    }
  }
  const { index, row } = await filled(Index, { count: 5000, dimension: 32 });
  equal(index.search(row(0), { ef: 5, k: 50 }).length, 50);
  equal(index.search(row(0), { ef: 1, k: 1 }).length, 1);
});

test('k = n finds every row (B27)', async () => {
  for (const [count, dimension] of [[101, 16], [1000, 256], [3000, 4]]) {
    for (const m of [8, 16]) {
      const { index, row } = await filled(Index, { count, dimension, m, efConstruction: 50 });
      const { keys } = index.search(row(5), { k: count, ef: count });
      same(keys.slice().sort(), BigUint64Array.from({ length: count }, (_, i) => BigInt(i)));
    }
  }
});

test('radius is inclusive, in scan and graph alike (B21)', async () => {
  const index = await Index.create({ dimension: 2, metric: 'l2' });
  let key = 0;
  for (let x = 0; x < 20; x++) for (let y = 0; y < 20; y++) index.add(key++, [x, y]);
  const all = index.search([10, 10], { k: 400, exact: true });
  const within = all.distances.filter((d) => d <= 25).length;
  const below = all.distances.filter((d) => d < 25).length;
  ok(within > below);
  equal(index.search([10, 10], { k: 400, exact: true, radius: 25 }).length, within);
  equal(index.search([10, 10], { k: 400, exact: true, radius: 24.999998 }).length, below);
  const exact = new Set(index.search([10, 10], { k: 400, exact: true, radius: 25 }).keys);
  for (const k of index.search([10, 10], { k: 400, radius: 25 }).keys) ok(exact.has(k));
  equal(index.search([0.5, 0.5], { radius: 0 }).length, 0);
  await refuses(() => index.search([0, 0], { radius: NaN }), 'INVALID_PARAMETER', 'radius');
});

test('equal distances come by key (B30)', async () => {
  const index = await Index.create({ dimension: 3, metric: 'l2' });
  const keys = [];
  const grid = [];
  for (let i = 0; i < 1000; i++) {
    keys.push((i * 7919) % 1000);
    grid.push([keys[i] % 10, Math.floor(keys[i] / 10) % 10, Math.floor(keys[i] / 100)]);
  }
  index.addBatch(keys, grid);
  for (const query of [[5, 5, 5], [4.5, 4.5, 4.5], [0, 9, 3]]) {
    for (const exact of [true, false]) {
      const hits = hitsOf(index.search(query, { k: 30, ef: 200, exact }));
      for (let i = 1; i < hits.length; i++) {
        ok(hits[i - 1][1] < hits[i][1] || (hits[i - 1][1] === hits[i][1] && hits[i - 1][0] < hits[i][0]));
      }
    }
  }
});

test('searchBatch is search, query by query', async () => {
  const { index, vectors } = await filled(Index);
  for (const queries of [vectors.subarray(0, 40), Array.from(vectors.subarray(0, 40)), [0, 1, 2, 3, 4].map((i) => vectors.subarray(i * 8, i * 8 + 8))]) {
    const results = index.searchBatch(queries, { k: 3 });
    equal(results.length, 5);
    results.forEach((result, i) => {
      const alone = index.search(vectors.subarray(i * 8, i * 8 + 8), { k: 3 });
      same([result.keys, result.distances], [alone.keys, alone.distances]);
    });
  }
  same(index.searchBatch([]), []);
  same(index.searchBatch([], { filter: [1] }), []);
  await refuses(() => index.searchBatch(new Float32Array(9)), 'LENGTH_MISMATCH');
});

test('vectors of every type, by value (B163)', async () => {
  const index = await Index.create({ dimension: 3, metric: 'l2' });
  index.add(1, [3, 2, 1]);
  const large = Float32Array.of(9, 9, 9, 3, 2, 1, 9, 9);
  for (const vector of [
    [3, 2, 1],
    Float32Array.of(3, 2, 1),
    Float64Array.of(3, 2, 1),
    Int8Array.of(3, 2, 1),
    Uint8Array.of(3, 2, 1),
    Uint8ClampedArray.of(3, 2, 1),
    Int16Array.of(3, 2, 1),
    Uint16Array.of(3, 2, 1),
    Int32Array.of(3, 2, 1),
    Uint32Array.of(3, 2, 1),
    large.subarray(3, 6),
  ]) {
    const name = vector.constructor.name;
    same(hitsOf(index.search(vector)), [[1, 0]], name);
    index.update(1, vector);
    same(index.get(1), Float32Array.of(3, 2, 1), name);
    same(hitsOf(index.searchBatch([vector])[0]), [[1, 0]], name);
  }
  if (typeof SharedArrayBuffer === 'function') {
    const shared = new Float32Array(new SharedArrayBuffer(12));
    shared.set([3, 2, 1]);
    same(hitsOf(index.search(shared)), [[1, 0]]);
  }
  if (typeof Buffer === 'function') {
    const bytes = Buffer.from(Float32Array.of(3, 2, 1).buffer);
    await refuses(() => index.search(bytes), 'INVALID_ARGUMENT', 'query', 'Buffer');
  }
  for (const bad of [new DataView(new ArrayBuffer(12)), new ArrayBuffer(12), BigInt64Array.of(3n, 2n, 1n), '3,2,1', { 0: 3, 1: 2, 2: 1, length: 3 }]) {
    await refuses(() => index.search(bad), 'INVALID_ARGUMENT', 'query');
  }
});

test("a caller's arrays are left alone (B18)", async () => {
  const index = await Index.create({ dimension: 2, metric: 'cosine' });
  const vectors = Float32Array.of(3, 4, 4, 3);
  index.addBatch([0, 1], vectors);
  const query = Float32Array.of(3, 4);
  const result = index.search(query, { k: 2 });
  same([vectors, query], [Float32Array.of(3, 4, 4, 3), Float32Array.of(3, 4)]);
  ok(result.distances[0] >= 0 && result.distances[0] < 1e-6 && Math.abs(result.distances[1] - 0.04) < 1e-6);
  const alone = await Index.create({ dimension: 2, metric: 'cosine' });
  alone.add(5, [3, 4]);
  ok(alone.search([3, 4]).distances[0] < 1e-6);
  same(alone.get(5), Float32Array.of(3, 4));
});

test('stats count what is there', async () => {
  const { index } = await filled(Index, { count: 300 });
  for (let key = 0; key < 30; key++) index.remove(key);
  const stats = index.stats();
  same([stats.rows, stats.live, stats.tombstones], [300, 270, 30]);
  equal(stats.levels.reduce((a, b) => a + b, 0), 300);
  equal(stats.degrees.reduce((a, b) => a + b, 0), 270);
  ok(stats.residentBytes >= 300 * 8 * 4 && stats.memoryBytes === index.memory);
  const names = Object.keys(stats.sections);
  ok(names.length > 3 && names.every((name) => stats.sections[name] >= 0), names.join());
  equal(stats.unreachable, 0);
});

test('kind is what it says: a graph looks at few rows (B164)', async () => {
  const { index } = await filled(Index, { count: 3000, dimension: 4, m: 8, efConstruction: 40 });
  const { levels, degrees } = index.stats();
  ok(levels.length > 1 && degrees.length > 2, 'a graph has levels and links');
  const flat = await filled(Index, { count: 100, kind: 'flat' });
  ok(flat.index.stats().degrees.slice(1).every((n) => n === 0), 'flat has no links');
});

test('the class has the members of its types and no others (B159)', () => {
  const members = [
    'constructor', 'size', 'dimension', 'metric', 'kind', 'encoding', 'originals', 'readOnly', 'simd', 'memory', 'add',
    'addBatch', 'update', 'remove', 'get', 'getWithSource', 'has', 'keys', 'search', 'searchBatch', 'candidates',
    'rescore', 'attachOriginals', 'save', 'stats', 'compact', 'retrain', 'clear', 'free',
  ];
  same(Object.getOwnPropertyNames(Index.prototype).filter((n) => n !== 'undefined').sort(), members.sort());
  same(Object.getOwnPropertyNames(Index).filter((n) => !['length', 'name', 'prototype'].includes(n)).sort(), ['create', 'open']);
  ok(new TwindexError('IO', 'x') instanceof Error);
  equal(new TwindexError('IO', 'x').toString(), 'TwindexError: x');
});

test('free, twice, and use after it (B05, B160)', async () => {
  const { index, row } = await filled(Index);
  const { index: other } = await filled(Index);
  index.free();
  index.free();
  index[Symbol.dispose]?.();
  for (const use of [
    () => index.size,
    () => index.dimension,
    () => index.metric,
    () => index.kind,
    () => index.encoding,
    () => index.originals,
    () => index.readOnly,
    () => index.simd,
    () => index.memory,
    () => index.add(1000, row(0)),
    () => index.addBatch([1000], row(0)),
    () => index.update(1, row(0)),
    () => index.remove(1),
    () => index.get(1),
    () => index.getWithSource(1),
    () => index.has(1),
    () => index.keys(),
    () => index.search(row(0)),
    () => index.searchBatch([row(0)]),
    () => index.candidates(row(0)),
    () => index.rescore(row(0), { ids: Uint32Array.of(0), keys: BigUint64Array.of(0n) }, row(0)),
    () => index.attachOriginals(row(0)),
    () => index.retrain(),
    () => index.save(),
    () => index.stats(),
    () => index.compact(),
    () => index.clear(),
  ]) {
    await refuses(use, 'DISPOSED', 'freed');
  }
  equal(other.search(row(0), { k: 1 }).keys[0], 0n);
  await refuses(() => new Index(), 'INVALID_ARGUMENT', 'Index.create');
  await refuses(() => Index.open(index), 'INVALID_ARGUMENT', 'source');
});

test('a search that is warm takes no more memory', async () => {
  for (const encoding of ENCODINGS) {
    for (const kind of KINDS) {
      const originals = encoding === 'f32' ? 'none' : 'f32';
      const { index, row, vectors } = await filled(Index, { encoding, originals, kind, count: 1500, dimension: 40 });
      const file = index.save();
      const all = [index];
      for (const options of [{ readOnly: true }, { residency: 'on-demand' }]) all.push(await Index.open(file, options));
      for (const one of all) {
        const round = () => {
          for (const options of [{ k: 10 }, { k: 10, rerank: 5 }, { k: 5, exact: true }, { filter: [1, 2, 3] }, { radius: 3 }]) {
            one.search(row(3), options);
          }
          one.searchBatch(vectors.subarray(0, 400), { rerank: 2 });
          const found = one.candidates(row(1));
          one.rescore(row(1), found, Array.from(found.keys, (key) => row(Number(key))));
          one.getWithSource(4);
        };
        for (let i = 0; i < 3; i++) round();
        const { memory } = one;
        for (let i = 0; i < 100; i++) round();
        equal(one.memory, memory, `${encoding} ${kind}`);
      }
      all.forEach((one) => one.free());
    }
  }
});

test('keys are listed once each, and lists end (B128)', async () => {
  for (const count of [0, 1, 10000]) {
    const { index, row } = await filled(Index, { count, dimension: 2, kind: 'flat' });
    const expected = [];
    for (let key = 0; key < count; key++) {
      if (key % 10 < 3) index.remove(key);
      else expected.push(BigInt(key));
    }
    const opened = [index];
    for (const options of [{}, { readOnly: true }, { residency: 'on-demand' }]) opened.push(await Index.open(index.save(), options));
    for (const one of opened) {
      same(Array.from(one.keys()), expected);
      equal(one.keys().length, one.size);
      const hits = one.search(count ? row(0) : [0, 0], { k: 20 });
      equal([...hits].length, Math.min(20, expected.length));
      let seen = 0;
      for (const { key } of hits) {
        ok(one.has(key));
        if (++seen === 3) break;
      }
      equal(seen, Math.min(3, expected.length));
      equal([...hits].length, hits.length, 'a second time');
    }
  }
});

test('memory of freed indexes serves the next ones', async () => {
  const cycle = async () => {
    const { index } = await filled(Index, { count: 1000, dimension: 64, kind: 'flat' });
    (await Index.open(index.save())).free();
    const { memory } = index;
    index.free();
    return memory;
  };
  for (let i = 0; i < 5; i++) await cycle();
  const settled = await cycle();
  for (let i = 0; i < 40; i++) equal(await cycle(), settled);
});
