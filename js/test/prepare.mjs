// Makes what the parity suite compares with: an index of each encoding, metric and kind, built and searched natively; and
// files that are larger than the memory they are opened in.
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ENCODINGS, KINDS, METRICS, randomVectors } from './harness.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../..');

const CASE = {
  dimension: 33, // one past two rounds of 16 lanes
  count: 1500, // more than the 1,024 rows that a centre is learned from
  m: 6,
  efConstruction: 40,
  seed: 20,
  searches: [
    { k: 10, ef: 40, exact: false },
    { k: 1, ef: 1, exact: false },
    { k: 25, ef: 100, exact: true },
    { k: 10, ef: 20, exact: false, rerank: 3 },
    { k: 7, ef: 1, exact: true, rerank: 1.5 },
  ],
  // Where none are kept, they are attached.
  originals: {
    ...{ l2: 'f32', ip: 'f16', cosine: 'none' },
    f32: { l2: 'none', ip: 'none', cosine: 'none' },
    f16: { l2: 'f32', ip: 'f32', cosine: 'none' },
  },
};

/** Two files of 20 MiB of f32 each: as codes, and as originals beside codes of a quarter. */
const LARGE = { dimension: 128, count: 40960, k: 10, rerank: 2 };

/** What cargo is told for each of the two builds. */
export const RUST_BUILDS = {
  simd128: [],
  'relaxed-simd': ['--config', 'target.wasm32-unknown-unknown.rustflags=["-C","target-feature=+relaxed-simd"]'],
};

/** Runs native.rs and gives what it prints. */
export function native(...args) {
  const binary = join(resolve(root, process.env.CARGO_TARGET_DIR ?? 'target'), 'debug', 'examples', 'npm_parity');
  return execFileSync(binary, args.map(String), { encoding: 'utf8', maxBuffer: 1 << 26 });
}

/** Makes the fixtures for one runner and gives their folder. */
export function prepare(runner) {
  const fixtures = join(here, '.fixtures', runner);
  execFileSync('cargo', ['build', '--example', 'npm_parity'], { cwd: root, stdio: 'inherit' });
  rmSync(fixtures, { recursive: true, force: true });
  mkdirSync(fixtures, { recursive: true });
  const file = (name) => join(fixtures, name);
  const { dimension, count, m, efConstruction, seed, searches, originals } = CASE;
  writeFileSync(file('case.json'), JSON.stringify(CASE));
  const vectors = randomVectors(count, dimension, 1);
  writeFileSync(file('vectors.f32'), new Uint8Array(vectors.buffer));
  writeFileSync(file('queries.f32'), new Uint8Array(randomVectors(40, dimension, 2).buffer));
  // Row by row what was added: the last is an update.
  const rows = Float32Array.of(...vectors, ...vectors.subarray(0, dimension));
  writeFileSync(file('rows.f32'), new Uint8Array(rows.buffer));
  for (const encoding of ENCODINGS) {
    for (const metric of METRICS) {
      const kept = originals[encoding]?.[metric] ?? originals[metric];
      const attached = encoding !== 'f32' && kept === 'none' ? [file('rows.f32')] : [];
      for (const kind of KINDS) {
        const name = `${encoding}-${metric}-${kind}`;
        const out = file(`${name}.twx`);
        native('build', file('vectors.f32'), dimension, metric, kind, m, efConstruction, seed, encoding, kept, out);
        searches.forEach(({ k, ef, exact, rerank = 0 }, i) => {
          const hits = native('search', out, file('queries.f32'), k, ef, exact, rerank, ...attached);
          writeFileSync(file(`${name}-${i}.hits`), hits);
        });
      }
    }
  }
  prepareLarge(file);
  return fixtures;
}

function prepareLarge(file) {
  const { dimension, count, k, rerank } = LARGE;
  writeFileSync(file('large.json'), JSON.stringify(LARGE));
  writeFileSync(file('large.f32'), new Uint8Array(randomVectors(count, dimension, 3).buffer));
  writeFileSync(file('large-queries.f32'), new Uint8Array(randomVectors(5, dimension, 4).buffer));
  for (const [name, encoding, originals] of [['large-codes', 'f32', 'none'], ['large-originals', 'int8', 'f32']]) {
    const out = file(`${name}.twx`);
    native('flat', file('large.f32'), dimension, encoding, originals, out);
    writeFileSync(file(`${name}.hits`), native('search', out, file('large-queries.f32'), k, 1, true, rerank));
  }
}
