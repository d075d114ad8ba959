// What the page loads, made from the bundled set (tests/data/wordnet):
//
//   demo.twx         the index; its bytes are those of
//                    twindex build --input tests/data/wordnet/base.f16.npy --metric ip --threads 1
//   queries.f32      the vectors of the sample sentences, little-endian, one after the other
//   texts.txt        line i: the entry of key i
//   queries.txt      line i: sample sentence i
//   manifest.json    names, sizes and settings of all that; see Manifest in src/data.ts
//   LICENSE.txt      WordNet's, which accompanies the texts
//
// It is made again only when the set, the package or these settings have changed.
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Index } from 'twindex';
import { readNpy } from './npy.mjs';

const METRIC = 'ip';
const M = 16;
const EF_CONSTRUCTION = 200;

/** Rows added at a time: bounds the copy that `addBatch` makes. */
const BATCH = 2000;

const digest = (parts) => parts.reduce((hash, part) => hash.update(part), createHash('sha256')).digest('hex');

const lines = (path) => readFileSync(path, 'utf8').replace(/\n$/, '').split('\n').length;

async function buildIndex({ rows, columns, data }) {
  const index = await Index.create({ dimension: columns, metric: METRIC, m: M, efConstruction: EF_CONSTRUCTION });
  for (let from = 0; from < rows; from += BATCH) {
    const to = Math.min(rows, from + BATCH);
    const keys = Array.from({ length: to - from }, (_, i) => from + i);
    index.addBatch(keys, data.subarray(from * columns, to * columns));
  }
  const bytes = index.save();
  index.free();
  return bytes;
}

export async function buildData(www) {
  const set = resolve(www, '..', 'tests', 'data', 'wordnet');
  const out = join(www, 'public', 'data');
  const manifestPath = join(out, 'manifest.json');
  const made = digest([
    ...['base.f16.npy', 'queries.f16.npy', 'texts.txt', 'queries.txt'].map((name) => readFileSync(join(set, name))),
    readFileSync(join(www, 'node_modules', 'twindex', 'dist', 'twindex.wasm')),
    readFileSync(join(www, 'node_modules', 'twindex', 'dist', 'twindex-relaxed-simd.wasm')),
    readFileSync(new URL(import.meta.url)),
  ]);
  try {
    if (JSON.parse(readFileSync(manifestPath, 'utf8')).made === made) return;
  } catch {
    // None there, or not a whole one: it is made below.
  }

  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  const base = readNpy(join(set, 'base.f16.npy'));
  const queries = readNpy(join(set, 'queries.f16.npy'));
  if (lines(join(set, 'texts.txt')) !== base.rows || lines(join(set, 'queries.txt')) !== queries.rows) {
    throw new Error(`${set}: there must be one line of text for each row and for each query`);
  }

  const began = performance.now();
  writeFileSync(join(out, 'demo.twx'), await buildIndex(base));
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  writeFileSync(join(out, 'queries.f32'), queries.data);
  for (const name of ['texts.txt', 'queries.txt']) copyFileSync(join(set, name), join(out, name));
  copyFileSync(join(set, 'LICENSE'), join(out, 'LICENSE.txt'));

  const file = (name) => ({ name, bytes: statSync(join(out, name)).size });
  const manifest = {
    made,
    rows: base.rows,
    dimension: base.columns,
    metric: METRIC,
    m: M,
    efConstruction: EF_CONSTRUCTION,
    queries: queries.rows,
    files: {
      index: file('demo.twx'),
      queryVectors: file('queries.f32'),
      texts: file('texts.txt'),
      queryTexts: file('queries.txt'),
    },
  };
  writeFileSync(manifestPath, `${JSON.stringify(manifest, null, 2)}\n`);
  console.log(`demo.twx: ${base.rows} rows, ${manifest.files.index.bytes} bytes, in ${seconds} s`);
}
