// 20,000 random calls with odd arguments, beside a plain Map that does the same (B162).
import { Index } from 'twindex';
import { equal, ok, randomizer, same, test } from '../harness.mjs';

for (const kind of ['flat', 'hnsw']) {
  test(`${kind}: ten thousand random calls`, async () => {
    const next = randomizer(kind.length);
    const pick = (list) => list[next() % list.length];
    const dimension = 5;
    const number = () => pick([0, 1, -1, 0.5, next() / 2 ** 31, -3, 1e-40, 7, 2, 0.1]);
    const vector = () => {
      const numbers = Array.from({ length: dimension }, number);
      return pick([(v) => v, Float32Array.from.bind(Float32Array), Float64Array.from.bind(Float64Array)])(numbers);
    };
    const oddities = [
      undefined, null, NaN, -1, 1.5, 2 ** 53, Infinity, 'x', '', '5', {}, [], [[]], true, Symbol('s'), () => 1, -5n, 2n ** 64n,
      new Float32Array(4), new Float32Array(5).fill(NaN), new DataView(new ArrayBuffer(20)), [1, 2, 3, 4, 1e39],
      [1, 2, '3', 4, 5], new Date(), Promise.resolve(), new Map(), 'é'.repeat(50), Object.create(null), new Array(5),
      { k: -1 }, { ef: 0 }, { bogus: 1 }, { filter: 5 }, new Float32Array(2 ** 16),
    ];
    const key = () => pick([next() % 60, BigInt(next() % 60), 2n ** 64n - 1n, 2 ** 53 - 1]);
    const sometimes = (value) => (next() % 4 === 0 ? pick(oddities) : value);
    const options = () =>
      pick([
        undefined, {}, { k: next() % 80 }, { ef: 1 + (next() % 100) }, { exact: true }, { radius: next() % 10 },
        { filter: [key(), key()] }, { filter: new Set([1, 2, 3]) }, { filter: (k) => Number(k) % 2 === 0 },
        { k: 2 ** 32 + 1, exact: true },
      ]);
    let index = await Index.create({ dimension, metric: 'l2', kind, m: 4, efConstruction: 16 });
    const model = new Map();
    let refused = 0;
    for (let step = 0; step < 10000; step++) {
      const call = next() % 100;
      const k = sometimes(key());
      const v = sometimes(vector());
      try {
        if (call < 25) {
          index.add(k, v);
          model.set(BigInt(k), Float32Array.from(v));
        } else if (call < 35) {
          index.update(k, v);
          model.set(BigInt(k), Float32Array.from(v));
        } else if (call < 50) {
          equal(index.remove(k), model.delete(BigInt(k)));
        } else if (call < 58) {
          const keys = [key(), k];
          const vectors = sometimes([vector(), v]);
          index.addBatch(keys, vectors);
          const list = Array.isArray(vectors) ? vectors : [vectors];
          keys.forEach((kk, i) => model.set(BigInt(kk), Float32Array.from(list[i])));
        } else if (call < 64) {
          const got = index.get(k);
          const expected = model.get(BigInt(k));
          if (expected) same(got, expected);
          else equal(got, undefined);
        } else if (call < 70) equal(index.has(k), model.has(BigInt(k)));
        else if (call < 90) {
          const result = index.search(v, sometimes(options()));
          for (const hit of result) ok(model.has(BigInt(hit.key)) && Number.isFinite(hit.distance));
          equal(new Set(result.keys).size, result.length);
        } else if (call < 95) index.searchBatch(sometimes([vector(), v]), sometimes(options()));
        else if (call < 97) index.stats();
        else if (call === 97) index.compact();
        else if (call === 98) {
          const opened = await Index.open(index.save());
          if (next() % 2) {
            index.free();
            index = opened;
          } else opened.free();
        } else if (next() % 10 === 0) {
          index.clear();
          model.clear();
        }
      } catch (error) {
        refused++;
        ok(error.name === 'TwindexError' && error.code !== 'INTERNAL', `step ${step}: ${error.stack}`);
      }
      equal(index.size, model.size, `step ${step}, call ${call}:`);
    }
    ok(refused > 1000, `only ${refused} calls were refused`);
    same(Array.from(index.keys()).sort(), [...model.keys()].sort());
    for (const [modelKey, vector] of model) same(index.get(modelKey), vector);
    const found = index.search(new Float32Array(dimension), { k: 1000, exact: true });
    equal(found.length, model.size);
    const fresh = await Index.create({ dimension: 1, metric: 'ip' });
    fresh.add(1, [1]);
    equal(fresh.search([1]).length, 1);
  });
}
