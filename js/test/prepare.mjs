// Makes what the parity suite compares with: an index of each metric and kind, built and searched natively.
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { KINDS, METRICS, randomVectors } from './harness.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../..');

const CASE = {
  dimension: 33, // one past two rounds of 16 lanes
  count: 1500,
  m: 6,
  efConstruction: 40,
  seed: 20,
  searches: [
    { k: 10, ef: 40, exact: false },
    { k: 1, ef: 1, exact: false },
    { k: 25, ef: 100, exact: true },
  ],
};

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
  const { dimension, count, m, efConstruction, seed, searches } = CASE;
  writeFileSync(file('case.json'), JSON.stringify(CASE));
  writeFileSync(file('vectors.f32'), new Uint8Array(randomVectors(count, dimension, 1).buffer));
  writeFileSync(file('queries.f32'), new Uint8Array(randomVectors(40, dimension, 2).buffer));
  for (const metric of METRICS) {
    for (const kind of KINDS) {
      const out = file(`${metric}-${kind}.twx`);
      native('build', file('vectors.f32'), dimension, metric, kind, m, efConstruction, seed, out);
      for (const { k, ef, exact } of searches) {
        const hits = native('search', out, file('queries.f32'), k, ef, exact);
        writeFileSync(file(`${metric}-${kind}-k${k}-ef${ef}-${exact}.hits`), hits);
      }
    }
  }
  return fixtures;
}
