// One file, two worlds: what native.rs built and found, built and found here, to the byte and to the bit (B65).
import { Index } from 'twindex';
import { KINDS, METRICS, equal, ok, place, same, test } from '../harness.mjs';

const floats = (bytes) => new Float32Array(bytes.slice().buffer);
const text = (bytes) => new TextDecoder().decode(bytes);

export function linesOf(index, queries, dimension, options) {
  const lines = [];
  for (let at = 0; at < queries.length; at += dimension) {
    const { keys, distances } = index.search(queries.subarray(at, at + dimension), options);
    const hex = new Uint32Array(distances.buffer, distances.byteOffset, distances.length);
    lines.push(Array.from(keys, (key, i) => `${key}:${hex[i].toString(16).padStart(8, '0')}`).join(' '));
  }
  return lines;
}

for (const metric of METRICS) {
  for (const kind of KINDS) {
    test(`${kind} under ${metric}: the same bytes and bits as natively`, async () => {
      const { dimension, count, m, efConstruction, seed, searches } = JSON.parse(text(await place.fixture('case.json')));
      const name = `${metric}-${kind}`;
      const native = await place.fixture(`${name}.twx`);
      const vectors = floats(await place.fixture('vectors.f32'));
      const queries = floats(await place.fixture('queries.f32'));
      equal(vectors.length, count * dimension);

      const own = await Index.create({ dimension, metric, kind, m, efConstruction, seed });
      const keys = BigUint64Array.from({ length: count }, (_, i) => BigInt(i) * 3n + 5n);
      own.addBatch(keys, vectors);
      for (let i = 0; i < count; i += 10) equal(own.remove(keys[i]), true);
      own.update(keys[1], vectors.subarray(0, dimension));
      same(own.save(), native, 'built here:');

      for (const readOnly of [false, true]) {
        const opened = await Index.open(native, { readOnly, metric, kind, dimension });
        same(opened.save(), native, 'opened and saved again:');
        for (const index of [own, opened]) {
          for (const { k, ef, exact } of searches) {
            const expected = text(await place.fixture(`${name}-k${k}-ef${ef}-${exact}.hits`)).trim().split('\n');
            ok(expected.length === queries.length / dimension && expected[0].split(' ').length === k);
            same(linesOf(index, queries, dimension, { k, ef, exact }), expected, `k ${k}, ef ${ef}, exact ${exact}:`);
          }
        }
        opened.free();
      }
      own.free();
    });
  }
}
