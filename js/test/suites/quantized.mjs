// Codes, what is kept besides them, and reranking.
import { Index } from 'twindex';
import {
  ENCODINGS, KINDS, METRICS, distance, equal, filled, hitsOf, ok, randomVectors, refuses, same, test,
} from '../harness.mjs';

const CODED = ENCODINGS.filter((encoding) => encoding !== 'f32');
const bits = ({ keys, distances }) => [Array.from(keys), Array.from(new Uint32Array(distances.slice().buffer))];

/** An .npy file of `<f4` rows. */
export function npyOf(vectors, dimension) {
  const dictionary = `{'descr': '<f4', 'fortran_order': False, 'shape': (${vectors.length / dimension}, ${dimension}), }`;
  const header = `\x93NUMPY\x01\x00\x76\x00${dictionary.padEnd(117)}\n`;
  const bytes = new Uint8Array(128 + vectors.length * 4);
  for (let i = 0; i < 128; i++) bytes[i] = header.charCodeAt(i);
  bytes.set(new Uint8Array(vectors.slice().buffer), 128);
  return bytes;
}

function truth(metric, query, row, count, k) {
  const all = Array.from({ length: count }, (_, key) => ({ key, d: distance(metric, query, row(key)) }));
  return all.sort((a, b) => a.d - b.d || a.key - b.key).slice(0, k).map(({ key }) => BigInt(key));
}

test('every encoding finds what it should, by codes and reranked', async () => {
  const dimension = 24;
  const [count, k] = [1500, 10];
  const queries = randomVectors(25, dimension, 77);
  // Of the true neighbours, by codes alone: what 16, 8, 4 and 1 bits of uniform noise leave.
  const least = { f16: 0.99, int8: 0.97, int4: 0.8, bits1: 0.2 };
  for (const encoding of CODED) {
    for (const metric of METRICS) {
      for (const kind of KINDS) {
        const { index, row } = await filled(Index, { encoding, originals: 'f32', metric, kind, dimension, count });
        let [plain, better] = [0, 0];
        for (let q = 0; q < 25; q++) {
          const query = queries.subarray(q * dimension, (q + 1) * dimension);
          const right = truth(metric, query, row, count, k);
          const found = index.search(query, { k, ef: 200 });
          equal(found.reranked, false);
          plain += right.filter((key) => found.keys.includes(key)).length;
          const reranked = index.search(query, { k, ef: 200, rerank: 20 });
          ok(reranked.reranked && Array.from(reranked).every((hit) => hit.reranked));
          better += right.filter((key) => reranked.keys.includes(key)).length;
          for (const { key, distance: d } of reranked) {
            ok(Math.abs(d - distance(metric, query, row(key))) < 1e-5, `${encoding} ${metric}: ${d} of key ${key}`);
          }
        }
        const of = 25 * k;
        ok(plain >= least[encoding] * of, `${encoding} ${metric} ${kind}: ${plain} of ${of} by codes`);
        ok(better >= (encoding === 'bits1' ? 0.9 : 0.99) * of, `${encoding} ${metric} ${kind}: ${better} of ${of} reranked`);
        index.free();
      }
    }
  }
});

test('an index says how it is encoded and what it keeps', async () => {
  for (const encoding of ENCODINGS) {
    for (const originals of { f32: ['none'], f16: ['none', 'f32'] }[encoding] ?? ['none', 'f16', 'f32']) {
      const index = await Index.create({ dimension: 5, metric: 'l2', encoding, originals });
      same([index.encoding, index.originals], [encoding, originals]);
      const opened = await Index.open(index.save(), { encoding });
      same([opened.encoding, opened.originals], [encoding, originals]);
      for (const other of ENCODINGS.filter((name) => name !== encoding)) {
        await refuses(() => Index.open(index.save(), { encoding: other }), 'MISMATCH', encoding, other);
      }
    }
  }
  const byDefault = await Index.create({ dimension: 1, metric: 'l2' });
  same([byDefault.encoding, byDefault.originals], ['f32', 'none']);
  const base = { dimension: 1, metric: 'l2' };
  for (const originals of ['f16', 'f32']) {
    await refuses(() => Index.create({ ...base, originals }), 'INVALID_PARAMETER', 'originals', 'f32');
  }
  await refuses(() => Index.create({ ...base, encoding: 'f16', originals: 'f16' }), 'INVALID_PARAMETER', 'originals', 'f16');
  for (const name of ['encoding', 'originals']) {
    for (const bad of ['F32', 'int16', 8, null, true]) {
      await refuses(() => Index.create({ ...base, [name]: bad }), 'INVALID_ARGUMENT', name);
    }
  }
  for (const name of ['rotate', 'centre']) {
    for (const bad of ['yes', 1, null]) await refuses(() => Index.create({ ...base, [name]: bad }), 'INVALID_ARGUMENT', name);
  }
});

test('rotate and centre are settings of the file, and say yes where nothing is said', async () => {
  const saved = async (options) => (await filled(Index, { encoding: 'int8', kind: 'flat', ...options })).index.save();
  const plain = await saved({});
  same(await saved({ rotate: true, centre: true }), plain);
  for (const options of [{ rotate: false }, { centre: false }, { rotate: false, centre: false }, { seed: 5 }]) {
    const other = await saved(options);
    ok(other.length !== plain.length || other.some((byte, i) => byte !== plain[i]), JSON.stringify(options));
    const opened = await Index.open(other, { verify: true });
    same(opened.save(), other);
  }
});

test('get gives the original where there is one, and says so', async () => {
  for (const metric of ['l2', 'ip']) {
    for (const encoding of CODED) {
      for (const originals of encoding === 'f16' ? ['none', 'f32'] : ['none', 'f16', 'f32']) {
        const made = await filled(Index, { encoding, originals, metric, kind: 'flat', count: 1100, dimension: 17 });
        const { index, row } = made;
        const opened = [index];
        for (const options of [{}, { readOnly: true }, { residency: 'on-demand' }]) {
          opened.push(await Index.open(index.save(), options));
        }
        for (const one of opened) {
          const { vector, source } = one.getWithSource(7);
          equal(source, originals === 'none' ? 'code' : 'original', `${encoding} ${originals}`);
          same(one.get(7), vector);
          const off = Math.max(...vector.map((x, i) => Math.abs(x - row(7)[i])));
          const allowed = originals === 'f32' ? 0 : originals === 'f16' || encoding === 'f16' ? 5e-4 : { int8: 0.05, int4: 0.3, bits1: 2 }[encoding];
          ok(off <= allowed, `${encoding} ${originals}: off by ${off}`);
          if (allowed > 0) ok(off > 0, 'a code is not the vector itself');
          equal(one.getWithSource(99999), undefined);
          one.free();
        }
      }
    }
  }
  const { index, row } = await filled(Index);
  same(index.getWithSource(7), { vector: row(7), source: 'original' });
});

test('rerank needs originals, and a number of 1 to 1,000,000', async () => {
  const { index, row } = await filled(Index, { encoding: 'int8', count: 1200 });
  await refuses(() => index.search(row(1), { rerank: 2 }), 'NO_ORIGINALS', 'attach');
  await refuses(() => index.searchBatch(row(1), { rerank: 2 }), 'NO_ORIGINALS');
  for (const { index, row } of [await filled(Index), await filled(Index, { encoding: 'int4', originals: 'f16' })]) {
    for (const rerank of [0, 0.99, -1, 1000001, Infinity, NaN]) {
      await refuses(() => index.search(row(1), { rerank }), 'INVALID_PARAMETER', 'rerank');
      await refuses(() => index.candidates(row(1), { rerank }), 'INVALID_PARAMETER', 'rerank');
    }
    for (const rerank of [null, '2', 2n, true, [], {}]) {
      await refuses(() => index.search(row(1), { rerank }), 'INVALID_ARGUMENT', 'rerank');
    }
    for (const rerank of [1, 1.2, 1e6]) equal(index.search(row(1), { k: 5, rerank }).length, 5);
    equal(index.search(row(1), { k: 2 ** 40, rerank: 1e6 }).length, 200);
  }
  const exact = await filled(Index);
  same(bits(exact.index.search(row(1), { rerank: 3 })), bits(exact.index.search(row(1))));
  equal(exact.index.search(row(1), { rerank: 3 }).reranked, true);
});

test('batches rerank as single searches do; radius and filter hold for exact distances', async () => {
  for (const kind of KINDS) {
    const made = await filled(Index, { encoding: 'int4', originals: 'f32', kind, count: 1500, dimension: 10 });
    const { index, vectors, row } = made;
    const options = { k: 20, rerank: 4, filter: (key) => key % 2 === 0, radius: 2.5 };
    const results = index.searchBatch(vectors.subarray(0, 50), options);
    results.forEach((result, i) => {
      same(bits(result), bits(index.search(row(i), options)));
      equal(result.reranked, true);
      ok(result.length > 0 && result.distances.every((d) => d <= 2.5));
      ok(result.keys.every((key) => key % 2n === 0n));
      for (const { key, distance: d } of result) ok(Math.abs(d - distance('l2', row(i), row(key))) < 1e-5);
    });
    const all = index.search(row(0), { ...options, radius: undefined });
    const within = all.distances.filter((d) => d <= all.distances[4]).length;
    equal(index.search(row(0), { ...options, radius: all.distances[4] }).length, within, 'the radius is inclusive');
  }
});

test('a result tells of reranking, in hits and as JSON', async () => {
  const { index, row } = await filled(Index, { encoding: 'f16', originals: 'f32', count: 50 });
  for (const rerank of [undefined, 2]) {
    const result = index.search(row(3), { k: 1, rerank });
    same(Array.from(result), [{ key: 3, distance: result.distances[0], reranked: rerank !== undefined }]);
    same(JSON.parse(JSON.stringify(result)), [{ key: 3, distance: result.distances[0], reranked: rerank !== undefined }]);
  }
});

test('originals are attached in every format and wrapping, and checked', async () => {
  const dimension = 9;
  const count = 1300;
  for (const metric of METRICS) {
    const { index, vectors, row } = await filled(Index, { encoding: 'int8', kind: 'flat', metric, count, dimension });
    const kept = await filled(Index, { encoding: 'int8', originals: 'f32', kind: 'flat', metric, count, dimension });
    const raw = new Uint8Array(vectors.slice().buffer);
    const npy = npyOf(vectors, dimension);
    const fbin = new Uint8Array(8 + raw.length);
    new Uint32Array(fbin.buffer, 0, 2).set([count, dimension]);
    fbin.set(raw, 8);
    const bytes = (of) => ({ byteLength: of.length, readInto: (at, b) => void b.set(of.subarray(at, at + b.length)) });
    const sources = [
      [vectors], [vectors, { format: 'f32' }], [raw, { format: 'f32' }], [raw.buffer, { format: 'f32' }],
      [npy], [npy, { format: 'npy' }], [npy.buffer], [bytes(npy)], [bytes(raw), { format: 'f32' }],
      [fbin, { format: 'fbin' }], [fbin.buffer, { format: 'fbin' }],
      [{ getSize: () => npy.length, read: (b, { at }) => (b.set(npy.subarray(at, at + b.length)), b.length) }],
    ];
    const expected = bits(kept.index.search(row(5), { rerank: 3 }));
    for (const options of [undefined, {}, { readOnly: true }, { residency: 'on-demand' }]) {
      const opened = options ? await Index.open(index.save(), options) : index;
      for (const [source, format] of sources) {
        opened.attachOriginals(source, format);
        same(bits(opened.search(row(5), { rerank: 3 })), expected);
        same(opened.getWithSource(8), { vector: row(8), source: 'original' });
      }
    }
    const fresh = async () => Index.open(index.save(), { readOnly: true });
    const other = await fresh();
    const changed = vectors.slice();
    changed[7 * dimension + 2] += 0.001;
    other.attachOriginals(changed);
    await refuses(() => other.search(row(7), { rerank: 2 }), 'FINGERPRINT_MISMATCH', 'row 7');
    await refuses(() => other.get(7), 'FINGERPRINT_MISMATCH', 'row 7');
    same(other.get(8), row(8));
    equal(other.search(row(7), { k: 1 }).keys[0], 7n);
    other.attachOriginals(vectors);
    same(bits(other.search(row(5), { rerank: 3 })), expected);
    other.free();
  }
});

test('originals that do not fit are refused, and the index goes on', async () => {
  const { index, vectors, row } = await filled(Index, { encoding: 'int4', kind: 'flat', count: 1200 });
  const npy = npyOf(vectors, 8);
  const cases = [
    ['LENGTH_MISMATCH', [vectors.subarray(8)], 'originals'],
    ['LENGTH_MISMATCH', [vectors.subarray(3)], 'bytes'],
    ['DIMENSION_MISMATCH', [npyOf(vectors, 16)]],
    ['INVALID_ARGUMENT', [new Uint8Array(vectors.buffer)], 'format'],
    ['INVALID_ARGUMENT', [new Uint8Array(0)], 'format'],
    ['INVALID_ARGUMENT', [vectors, { format: 'f64' }], 'format'],
    ['INVALID_ARGUMENT', [vectors, { kind: 'f32' }], '"kind"', 'format'],
    ['INVALID_ARGUMENT', [vectors, 'f32'], 'options'],
    ['INVALID_ARGUMENT', [{}], 'source'],
    ['INVALID_ARGUMENT', [undefined], 'source'],
    ['DATASET', [new Uint8Array(100), { format: 'npy' }]],
    ['DATASET', [npy.subarray(0, 50)]],
    ['TRUNCATED', [npy.subarray(0, 5000)]],
    [['DATASET', 'TRUNCATED', 'DIMENSION_MISMATCH'], [new Uint8Array(5).fill(1), { format: 'fbin' }]],
    ['STORAGE', [{ byteLength: npy.length, readInto() { throw new Error('no cable'); } }], 'no cable'],
  ];
  for (const [code, args, ...words] of cases) {
    await refuses(() => index.attachOriginals(...args), code, ...words);
    await refuses(() => index.search(row(1), { rerank: 2 }), 'NO_ORIGINALS');
    equal(index.search(row(1)).length, 10);
  }
  for (const options of [{}, { encoding: 'int8', originals: 'f16' }]) {
    const has = await filled(Index, options);
    await refuses(() => has.index.attachOriginals(has.vectors), 'INVALID_PARAMETER', 'originals');
  }
  index.free();
  await refuses(() => index.attachOriginals(vectors), 'DISPOSED');
});

test('attached originals are rows: an update counts as an addition', async () => {
  const { index, vectors, row } = await filled(Index, { encoding: 'int8', kind: 'flat', count: 1200 });
  index.update(3, row(10));
  index.remove(4);
  await refuses(() => index.attachOriginals(vectors), 'LENGTH_MISMATCH');
  index.attachOriginals(Float32Array.of(...vectors, ...row(10)));
  same(index.getWithSource(3), { vector: row(10), source: 'original' });
  const [first, second] = index.search(row(10), { k: 2, rerank: 5 });
  same([first, second], [{ key: 3, distance: 0, reranked: true }, { key: 10, distance: 0, reranked: true }]);
});

test('a source that fails while it reranks is an error with its cause', async () => {
  const { index, vectors, row } = await filled(Index, { encoding: 'int8', kind: 'flat', count: 1200 });
  const own = new Error('the cable was pulled');
  const raw = new Uint8Array(vectors.buffer);
  let works = true;
  const source = {
    byteLength: raw.length,
    readInto(at, buffer) {
      if (!works) throw own;
      buffer.set(raw.subarray(at, at + buffer.length));
    },
  };
  const file = index.save();
  const codes = { byteLength: file.length, readInto(at, b) { if (!works) throw own; b.set(file.subarray(at, at + b.length)); } };
  index.attachOriginals(source, { format: 'f32' });
  const opened = await Index.open(codes, { residency: 'on-demand' });
  opened.attachOriginals(vectors);
  for (const [one, calls] of [
    [index, [() => index.search(row(1), { rerank: 2 }), () => index.get(1)]],
    [opened, [() => opened.search(row(1)), () => opened.search(row(1), { rerank: 2 }), () => opened.save()]],
  ]) {
    works = true;
    const before = bits(one.search(row(1), { rerank: 2 }));
    works = false;
    for (const call of calls) equal((await refuses(call, 'STORAGE', 'the cable was pulled')).cause, own);
    works = true;
    same(bits(one.search(row(1), { rerank: 2 })), before);
  }
});

test('a source must not call the index that reads it; others it may', async () => {
  const { index, vectors, row } = await filled(Index, { encoding: 'int8', kind: 'flat', count: 1200 });
  const { index: other } = await filled(Index);
  const raw = new Uint8Array(vectors.buffer);
  let during = () => {};
  const source = {
    byteLength: raw.length,
    readInto(at, buffer) {
      during();
      buffer.set(raw.subarray(at, at + buffer.length));
    },
  };
  index.attachOriginals(source, { format: 'f32' });
  const expected = bits(index.search(row(1), { rerank: 2 }));
  for (const call of [
    () => index.search(row(2)), () => index.free(), () => index.size, () => index.readOnly, () => index.simd, () => index.save(),
    () => index.attachOriginals(vectors),
  ]) {
    during = call;
    const { cause } = await refuses(() => index.search(row(1), { rerank: 2 }), 'STORAGE', 'source');
    equal(cause.code, 'BUSY');
  }
  during = () => other.search(row(5)).length + index.dimension;
  same(bits(index.search(row(1), { rerank: 2 })), expected);
});

test('the two halves of a reranked search are the whole', async () => {
  for (const metric of METRICS) {
    for (const kind of KINDS) {
      const settings = { metric, kind, count: 1300, dimension: 12 };
      const { index, vectors, row } = await filled(Index, { encoding: 'bits1', ...settings });
      const { index: kept } = await filled(Index, { encoding: 'bits1', originals: 'f32', ...settings });
      const npy = npyOf(vectors, 12);
      // As a server would answer requests of ranges, one by one and out of order.
      const fetched = async (id) => {
        await new Promise((later) => setTimeout(later, id % 3));
        const from = 128 + id * 4 * 12;
        return new Float32Array(npy.slice(from, from + 4 * 12).buffer);
      };
      for (const options of [{ k: 5, rerank: 8 }, { k: 3, rerank: 20, filter: (key) => key % 3 === 0, radius: 100 }]) {
        const query = row(17);
        const found = index.candidates(query, options);
        ok(found.ids instanceof Uint32Array && found.keys instanceof BigUint64Array && found.distances instanceof Float32Array);
        same([found.ids.length, found.keys.length, found.distances.length], new Array(3).fill(options.k * options.rerank));
        same(Array.from(found.ids, BigInt), Array.from(found.keys), 'no updates, so that key i is row i');
        ok(found.distances.every((d, i) => i === 0 || found.distances[i - 1] <= d), 'nearest first');
        const rows = await Promise.all(Array.from(found.ids, fetched));
        const hits = index.rescore(query, found, rows, options);
        equal(hits.reranked, true);
        same(bits(hits), bits(kept.search(query, options)), `${metric} ${kind}`);
        const narrow = { ...options, radius: hits.distances[1] };
        same(bits(index.rescore(query, found, rows, narrow)), bits(kept.search(query, narrow)));
      }
      equal(index.candidates(row(1)).ids.length, 10, 'as many as k, where nothing is said');
    }
  }
});

test('rescore refuses what does not belong together', async () => {
  const { index, row } = await filled(Index, { encoding: 'int8', kind: 'flat', count: 1200 });
  const query = row(3);
  const found = index.candidates(query, { k: 4, rerank: 2 });
  const rows = Array.from(found.ids, row);
  equal(index.rescore(query, found, rows).length, 8);
  const cases = [
    ['FINGERPRINT_MISMATCH', [query, found, [...rows.slice(1), rows[0]]], 'row'],
    ['LENGTH_MISMATCH', [query, found, rows.slice(1)], 'vectors'],
    ['LENGTH_MISMATCH', [query, { ids: found.ids, keys: found.keys.slice(1) }, rows], 'keys'],
    ['DIMENSION_MISMATCH', [query, found, rows.map((r) => r.slice(1))]],
    ['INVALID_PARAMETER', [query, { ids: found.ids.map(() => 5000), keys: found.keys }, rows], 'row 5000'],
    ['NOT_FINITE', [query.map(() => NaN), found, rows]],
    ['DIMENSION_MISMATCH', [query.slice(1), found, rows]],
    ['INVALID_ARGUMENT', [query, undefined, rows], 'candidates'],
    ['INVALID_ARGUMENT', [query, 5, rows], 'candidates'],
    ['INVALID_ARGUMENT', [query, { keys: found.keys }, rows], 'candidates.ids'],
    ['INVALID_ARGUMENT', [query, { ids: found.ids }, rows], 'candidates.keys'],
    ['INVALID_ARGUMENT', [query, { ids: Array.from(found.ids), keys: found.keys }, rows], 'candidates.ids'],
    ['INVALID_ARGUMENT', [query, found, undefined], 'vectors'],
    ['INVALID_ARGUMENT', [query, found, rows, { limit: 5 }], '"limit"', 'radius'],
    ['INVALID_ARGUMENT', ['query', found, rows], 'query'],
  ];
  for (const [code, args, ...words] of cases) await refuses(() => index.rescore(...args), code, ...words);
  const none = { ids: new Uint32Array(0), keys: new BigUint64Array(0) };
  equal(index.rescore(query, none, []).length, 0);
  equal(index.rescore(query, { ids: Uint32Array.of(9), keys: BigUint64Array.of(9n) }, [row(9)]).keys[0], 9n);
});

test('retrain learns a centre anew', async () => {
  const dimension = 16;
  const index = await Index.create({ dimension, metric: 'l2', kind: 'flat', encoding: 'int4', originals: 'f32' });
  const near = randomVectors(1024, dimension, 1);
  const far = randomVectors(3000, dimension, 2).map((x) => x + 40);
  index.addBatch(Array.from({ length: 1024 }, (_, i) => i), near);
  index.addBatch(Array.from({ length: 3000 }, (_, i) => 5000 + i), far);
  const error = () => {
    let sum = 0;
    for (let i = 0; i < 100; i++) {
      const query = far.subarray(i * dimension, (i + 1) * dimension);
      const { keys, distances } = index.search(query, { k: 10 });
      keys.forEach((key, at) => {
        const row = key < 5000n ? near.subarray(Number(key) * dimension) : far.subarray((Number(key) - 5000) * dimension);
        sum += Math.abs(distances[at] - distance('l2', query, row.subarray(0, dimension)));
      });
    }
    return sum;
  };
  const before = error();
  index.retrain();
  const after = error();
  ok(after < before * 0.6, `errors add up to ${before} before, ${after} after`);
  const opened = await Index.open(index.save(), { readOnly: true });
  await refuses(() => opened.retrain(), 'READ_ONLY');
  const plain = await filled(Index);
  const bytes = plain.index.save();
  plain.index.retrain();
  same(plain.index.save(), bytes, 'nothing to learn in f32');
});

test('values that an encoding cannot hold', async () => {
  for (const kind of KINDS) {
    const half = await Index.create({ dimension: 2, metric: 'l2', kind, encoding: 'f16' });
    half.add(1, [65504, -65504]);
    await refuses(() => half.add(2, [0, 65520]), 'OUT_OF_RANGE', 'component 1', '6.55');
    await refuses(() => half.addBatch([2, 3], [[0, 1], [1e6, 0]]), 'OUT_OF_RANGE', 'vector 1');
    same([half.size, half.getWithSource(1)], [1, { vector: Float32Array.of(65504, -65504), source: 'code' }]);
    for (const encoding of CODED) {
      const index = await Index.create({ dimension: 2, metric: 'cosine', kind, encoding });
      await refuses(() => index.add(1, [0, 0]), 'ZERO_VECTOR');
      await refuses(() => index.add(1, [NaN, 0]), 'NOT_FINITE');
      index.add(1, [3e30, 4e30]);
      const [hit] = index.search([3, 4]);
      ok(hit.key === 1 && hit.distance >= 0 && hit.distance < 0.01, `${encoding} ${hit.distance}`);
    }
  }
});

test('odd dimensions, few rows, none (B115)', async () => {
  for (const encoding of CODED) {
    for (const kind of KINDS) {
      for (const dimension of [1, 2, 3, 7, 15, 17, 33]) {
        for (const count of [0, 1, 2, 5]) {
          const { index, row } = await filled(Index, { encoding, originals: 'f32', kind, dimension, count });
          const bytes = index.save();
          for (const options of [{}, { readOnly: true, verify: true }, { residency: 'on-demand' }]) {
            const opened = await Index.open(bytes, options);
            for (let i = 0; i < count; i++) {
              same(hitsOf(opened.search(row(i), { k: 1, rerank: 5 })), [[i, 0]], `${encoding} ${kind} ${dimension}`);
              same(bits(opened.search(row(i), { k: 9 })), bits(index.search(row(i), { k: 9 })));
            }
            equal(opened.search(new Float32Array(dimension).fill(1), { k: 9 }).length, count);
            opened.free();
          }
          index.free();
        }
      }
    }
  }
});
