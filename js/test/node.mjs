// Runs the suites in Node.js: node test/node.mjs [part of a test's name]
//
// With AGAIN in the environment it leaves out what does not depend on the engine: see node-relaxed.mjs.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { test as nodeTest } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { equal, place, same, tests } from './harness.mjs';
import { cases } from './init-cases.mjs';
import { cases as memoryCases } from './memory-cases.mjs';
import { RELAXED_FLAG, relaxedRuns } from './node-relaxed.mjs';
import { RUST_BUILDS, native, prepare } from './prepare.mjs';
import { checkTypes } from './types/check.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../..');
const js = resolve(here, '..');
const only = process.argv[2] ?? '';
const test = (name, body) => (name.includes(only) ? nodeTest(name, body) : undefined);
const once = (name, body) => (process.env.AGAIN ? undefined : test(name, body));

place.name = 'node';
place.simd = relaxedRuns() ? 'relaxed-simd' : 'simd128';
const fixtures = prepare('node');
place.fixture = async (name) => readFileSync(join(fixtures, name));

await import('./suites/api.mjs');
await import('./suites/values.mjs');
await import('./suites/files.mjs');
await import('./suites/quantized.mjs');
await import('./suites/parity.mjs');
await import('./suites/fuzz.mjs');
for (const { name, body } of tests) test(name, body);

// The reverse direction: a file saved here, searched natively.
test('a file written here is read natively', async () => {
  const { Index } = await import('twindex');
  const { linesOf } = await import('./suites/parity.mjs');
  const { randomVectors } = await import('./harness.mjs');
  const { mkdtempSync, rmSync, writeFileSync } = await import('node:fs');
  const { tmpdir } = await import('node:os');
  const folder = mkdtempSync(join(tmpdir(), 'twindex-'));
  const dimension = 21;
  const index = await Index.create({ dimension, metric: 'cosine', m: 5, efConstruction: 30 });
  const vectors = randomVectors(700, dimension, 8);
  for (let i = 0; i < 700; i++) index.add(2n ** 60n + BigInt(i), vectors.subarray(i * dimension, (i + 1) * dimension));
  for (let i = 0; i < 700; i += 9) index.remove(2n ** 60n + BigInt(i));
  writeFileSync(join(folder, 'a.twx'), index.save());
  const queries = randomVectors(30, dimension, 9);
  writeFileSync(join(folder, 'q.f32'), new Uint8Array(queries.buffer));
  const lines = native('search', join(folder, 'a.twx'), join(folder, 'q.f32'), 12, 50, false).trim().split('\n');
  same(lines, linesOf(index, queries, dimension, { k: 12, ef: 50 }));
  rmSync(folder, { recursive: true });
});

function inWorker(file, name) {
  return async () => {
    const worker = new Worker(new URL(file, import.meta.url), { workerData: { name, simd: place.simd } });
    const outcome = await new Promise((done, fail) => {
      worker.once('message', done);
      worker.once('error', fail);
    });
    await worker.terminate();
    equal(outcome, 'ok');
  };
}

for (const name of Object.keys(cases)) test(`init: ${name}`, inWorker('./init-worker.mjs', name));
for (const name of Object.keys(memoryCases)) test(`memory: ${name}`, inWorker('./memory-worker.mjs', name));

test('originals fetched by ranges over HTTP', async () => {
  const { createServer } = await import('node:http');
  const { Index } = await import('twindex');
  const { filled } = await import('./harness.mjs');
  const { npyOf } = await import('./suites/quantized.mjs');
  const { index, vectors, row } = await filled(Index, { encoding: 'int4', count: 1200 });
  const { index: kept } = await filled(Index, { encoding: 'int4', originals: 'f32', count: 1200 });
  const npy = npyOf(vectors, index.dimension);
  const server = createServer((request, response) => {
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range).map(Number);
    response.writeHead(206, { 'content-range': `bytes ${from}-${to}/${npy.length}` }).end(npy.subarray(from, to + 1));
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  const url = `http://127.0.0.1:${server.address().port}/vectors.npy`;
  // The example of `candidates`.
  const options = { k: 10, rerank: 4 };
  const found = index.candidates(row(5), options);
  const rows = await Promise.all(
    Array.from(found.ids, async (id) => {
      const from = 128 + id * 4 * index.dimension;
      const range = `bytes=${from}-${from + 4 * index.dimension - 1}`;
      return new Float32Array(await (await fetch(url, { headers: { range } })).arrayBuffer());
    }),
  );
  const hits = index.rescore(row(5), found, rows, options);
  server.close();
  server.closeAllConnections();
  const expected = kept.search(row(5), options);
  same([hits.keys, hits.distances], [expected.keys, expected.distances]);
});

test('the CommonJS build is the same package', async () => {
  const { createRequire } = await import('node:module');
  const { Index, init, TwindexError, SearchResult } = createRequire(import.meta.url)('twindex');
  await init();
  const index = await Index.create({ dimension: 2, metric: 'cosine' });
  index.add(1, [3, 4]);
  equal(index.search([3, 4]) instanceof SearchResult, true);
  try {
    index.add(1, [3, 4]);
  } catch (error) {
    equal(error instanceof TwindexError && error.code, 'DUPLICATE_KEY');
  }
});

test('`using` frees', async () => {
  const { Index } = await import('twindex');
  const ts = (await import('typescript')).default;
  const source = 'globalThis.ran = (async (Index) => { using index = await Index.create({ dimension: 1, metric: "l2" }); return index; })';
  const { outputText } = ts.transpileModule(source, { compilerOptions: { target: ts.ScriptTarget.ES2022 } });
  await import(`data:text/javascript,${encodeURIComponent(outputText)}`);
  const index = await globalThis.ran(Index);
  let code;
  try {
    index.search([1]);
  } catch (error) {
    code = error.code;
  }
  equal(code, 'DISPOSED');
});

for (const file of ['twindex.wasm', 'twindex-relaxed-simd.wasm']) {
  once(`the file is small: ${file}`, () => {
    const { gzipSync } = process.getBuiltinModule('node:zlib');
    const gzip = gzipSync(readFileSync(join(js, 'dist', file)), { level: 9 }).length;
    equal(gzip <= 144 * 1024, true, `${gzip} bytes gzipped`);
  });
}

test('no memory is imported', () => {
  const file = place.simd === 'simd128' ? 'twindex.wasm' : `twindex-${place.simd}.wasm`;
  const module = new WebAssembly.Module(readFileSync(join(js, 'dist', file)));
  same(WebAssembly.Module.imports(module).filter(({ kind }) => kind === 'memory'), []);
});

once('no eval in what is shipped (B155)', async () => {
  const { readdirSync } = await import('node:fs');
  for (const folder of ['dist', 'dist/cjs']) {
    for (const name of readdirSync(join(js, folder))) {
      if (!name.endsWith('.js')) continue;
      const text = readFileSync(join(js, folder, name), 'utf8');
      equal(/\beval\s*\(|new Function\b|\bFunction\s*\(/.test(text), false, `${folder}/${name}`);
      if (folder === 'dist') equal(/\bimport\s*\(/.test(text), false, `dynamic import in ${name} (B153)`);
    }
  }
});

once('types: strict, skipLibCheck off, with and without the DOM', () => checkTypes());

for (const [level, forLevel] of Object.entries(RUST_BUILDS)) {
  once(`Rust suites in WebAssembly, ${level}: storage conformance, kernel parity`, () => {
    const script = join(root, 'scripts', 'with');
    const cargo = ['cargo', 'test', ...forLevel, '--no-default-features', '--target', 'wasm32-unknown-unknown', '--test', 'wasm'];
    const [command, ...args] = existsSync(script) ? [script, 'wasm-node', ...cargo] : cargo;
    const env = { ...process.env, NODE_ARGS: relaxedRuns() ? '' : RELAXED_FLAG };
    const output = execFileSync(command, args, { cwd: root, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
    equal(/test result: ok\. [1-9]/.test(output), true, output);
  });
}
