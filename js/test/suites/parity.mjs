// One file, two worlds: what native.rs built and found, built and found here, to the byte and to the bit (B65).
import { Index } from 'twindex';
import { ENCODINGS, KINDS, METRICS, equal, ok, place, same, test } from '../harness.mjs';

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

for (const encoding of ENCODINGS) {
  for (const metric of METRICS) {
    for (const kind of KINDS) {
      test(`${encoding}, ${kind} under ${metric}: the same bytes and bits as natively`, async () => {
        const fixed = JSON.parse(text(await place.fixture('case.json')));
        const { dimension, count, m, efConstruction, seed, searches } = fixed;
        const originals = fixed.originals[encoding]?.[metric] ?? fixed.originals[metric];
        const name = `${encoding}-${metric}-${kind}`;
        const native = await place.fixture(`${name}.twx`);
        const vectors = floats(await place.fixture('vectors.f32'));
        const queries = floats(await place.fixture('queries.f32'));
        equal(vectors.length, count * dimension);

        const own = await Index.create({ dimension, metric, kind, m, efConstruction, seed, encoding, originals });
        const keys = BigUint64Array.from({ length: count }, (_, i) => BigInt(i) * 3n + 5n);
        own.addBatch(keys, vectors);
        for (let i = 0; i < count; i += 10) equal(own.remove(keys[i]), true);
        own.update(keys[1], vectors.subarray(0, dimension));
        same(own.save(), native, 'built here:');

        const expected = { metric, kind, dimension, encoding };
        for (const options of [{}, { readOnly: true }, { residency: 'on-demand' }]) {
          const opened = await Index.open(native, { ...options, ...expected });
          same([opened.encoding, opened.originals, opened.readOnly], [encoding, originals, 'readOnly' in options || 'residency' in options]);
          same(opened.save(), native, 'opened and saved again:');
          for (const index of [own, opened]) {
            if (encoding !== 'f32' && originals === 'none') index.attachOriginals(floats(await place.fixture('rows.f32')));
            for (const [i, search] of searches.entries()) {
              const expected = text(await place.fixture(`${name}-${i}.hits`)).trim().split('\n');
              ok(expected.length === queries.length / dimension && expected[0].split(' ').length === search.k);
              same(linesOf(index, queries, dimension, search), expected, `${JSON.stringify(search)}:`);
            }
          }
          opened.free();
        }
        own.free();
      });
    }
  }
}
