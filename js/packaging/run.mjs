// Packs the package and installs the tarball into throw-away projects, as its users have them.
//
//   node packaging/run.mjs [part of a name]
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch, serve } from '../test/chromium.mjs';
import { RELAXED_FLAG, relaxedRuns } from '../test/node-relaxed.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const js = resolve(here, '..');
const only = process.argv[2] ?? '';
// A path with a space in it, as users have.
const work = mkdtempSync(join(tmpdir(), 'twindex packaging '));
let passed = 0;
let failed = 0;

async function check(name, body) {
  if (!name.includes(only)) return;
  const began = Date.now();
  try {
    await body();
    passed++;
    console.log(`✔ ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    failed++;
    console.log(`✖ ${name}\n    ${[error.message, error.stdout, error.stderr].filter(Boolean).join('\n').replaceAll('\n', '\n    ')}`);
  }
}

function run(command, args, cwd, env = {}) {
  return execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
}

function equal(got, expected) {
  if (got !== expected) throw new Error(`expected ${expected}\n     got ${got}`);
}

const found = (simd) => `found 2 with ${simd}`;
const FILES = { simd128: 'twindex.wasm', 'relaxed-simd': 'twindex-relaxed-simd.wasm' };
// Node.js, with and without the flag that versions before 22 want; and the browser.
const IN_NODE = relaxedRuns() ? 'relaxed-simd' : 'simd128';
const IN_BROWSER = 'relaxed-simd';
const FLAGS = relaxedRuns() ? [] : [RELAXED_FLAG];
const [{ filename, files }] = JSON.parse(run('npm', ['pack', '--json', '--pack-destination', work], js));
const tarball = join(work, filename);

/** A fixture with the tarball installed, away from this repository, without scripts, from the tarball alone. */
function project(name) {
  const folder = join(work, name);
  cpSync(join(here, 'fixtures', name), folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name, private: true, type: 'module' }));
  run('npm', ['install', '--ignore-scripts', '--offline', '--no-audit', '--no-fund', '--no-package-lock', tarball], folder);
  return folder;
}

/** Names of the .wasm files that were asked for, and were there. */
function wasmFetched({ requests }) {
  const fetched = requests.filter(({ pathname }) => pathname.endsWith('.wasm'));
  equal(fetched.every(({ status }) => status === 200), true);
  return fetched.map(({ pathname }) => pathname.replace(/.*\//, ''));
}

function equalOnly(names, expected) {
  if (names.length === 0 || !names.every((name) => expected.test(name))) throw new Error(`expected only ${expected}, got ${names}`);
}

let browser;
async function outcomeOf(url) {
  browser ??= await launch();
  const page = await browser.context.newPage();
  const problems = [];
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
  try {
    await page.goto(url);
    await page.waitForFunction(() => globalThis.outcome, null, { timeout: 30_000, polling: 50 });
    return await page.evaluate(() => globalThis.outcome);
  } catch (error) {
    throw new Error([error.message, ...problems].join('\n'));
  } finally {
    await page.close();
  }
}

await check('the tarball has every file its package.json names, and nothing else (B148)', () => {
  const packed = new Set(files.map(({ path }) => path));
  const { exports, main, module, types } = JSON.parse(readFileSync(join(js, 'package.json'), 'utf8'));
  const named = [main, module, types];
  const collect = (value) => (typeof value === 'string' ? named.push(value) : Object.values(value).forEach(collect));
  collect(exports);
  for (const path of named) if (!packed.has(path.replace('./', ''))) throw new Error(`${path} is missing`);
  for (const path of packed) {
    if (!/^(dist\/|package\.json$|README\.md$|LICENSE)/.test(path)) throw new Error(`${path} has no business in there`);
  }
  for (const path of ['README.md', 'LICENSE-MIT', 'LICENSE-APACHE']) if (!packed.has(path)) throw new Error(`no ${path}`);
});

await check('the packed modules are those that were built', () => {
  run('tar', ['-xzf', tarball, '-C', work], work);
  const hash = (file) => createHash('sha256').update(readFileSync(file)).digest('hex');
  for (const file of Object.values(FILES)) equal(hash(join(work, 'package', 'dist', file)), hash(join(js, 'dist', file)));
});

await check('Node.js, ES modules', () => {
  const folder = project('node-esm');
  equal(run(process.execPath, ['index.mjs'], folder).trim(), found(IN_NODE));
  equal(run(process.execPath, [...FLAGS, 'index.mjs'], folder).trim(), found('relaxed-simd'));
  equal(run(process.execPath, [join(folder, 'index.mjs')], tmpdir()).trim(), found(IN_NODE));
  equal(run(process.execPath, ['--input-type=module', '-e', "import 'twindex'"], folder), '');
});

await check('Node.js, CommonJS', () => {
  const folder = project('node-cjs');
  equal(run(process.execPath, ['index.cjs'], folder).trim(), found(IN_NODE));
  equal(run(process.execPath, [...FLAGS, 'index.cjs'], folder).trim(), found('relaxed-simd'));
  equal(run(process.execPath, [join(folder, 'index.cjs')], tmpdir()).trim(), found(IN_NODE));
  equal(run(process.execPath, ['-e', "require('twindex')"], folder), '');
});

await check('types resolve in every way of resolving', async () => {
  const folder = project('types');
  const tsc = join(js, 'node_modules', 'typescript', 'bin', 'tsc');
  for (const [module, moduleResolution] of [
    ['nodenext', 'nodenext'],
    ['node16', 'node16'],
    ['esnext', 'bundler'],
    ['es2022', 'node10'],
  ]) {
    const compilerOptions = { strict: true, noEmit: true, target: 'es2022', lib: ['es2022'], types: [], module, moduleResolution };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['index.ts'] }));
    run(process.execPath, [tsc, '-p', folder], folder);
  }
});

for (const base of ['/', '/sub/']) {
  await check(`Vite, built, under ${base}`, async () => {
    const folder = existsSync(join(work, 'vite')) ? join(work, 'vite') : project('vite');
    const { build } = await import('vite');
    const outDir = join(work, `vite-built${base.replaceAll('/', '-')}`);
    await build({ root: folder, base, logLevel: 'error', configFile: false, build: { outDir: join(outDir, base), emptyOutDir: true } });
    const server = await serve(outDir);
    try {
      equal(await outcomeOf(`${server.url}${base}`), `${found(IN_BROWSER)} / ${found(IN_BROWSER)}`);
      equalOnly(wasmFetched(server), /^twindex-relaxed-simd(-[\w-]+)?\.wasm$/);
    } finally {
      await server.close();
    }
  });
}

await check('Vite, development server', async () => {
  const folder = existsSync(join(work, 'vite')) ? join(work, 'vite') : project('vite');
  const { createServer } = await import('vite');
  const server = await createServer({ root: folder, logLevel: 'error', configFile: false, server: { host: '127.0.0.1', port: 0 } });
  await server.listen();
  try {
    equal(await outcomeOf(server.resolvedUrls.local[0]), `${found(IN_BROWSER)} / ${found(IN_BROWSER)}`);
  } finally {
    await server.close();
  }
});

// The page of `worker` compiles the module itself, the one that runs anywhere.
for (const [name, simd] of [['no-bundler', IN_BROWSER], ['worker', 'simd128']]) {
  await check(`${name}, served as it is`, async () => {
    const server = await serve(project(name));
    try {
      equal(await outcomeOf(`${server.url}/`), found(simd));
      equalOnly(wasmFetched(server), new RegExp(`^${FILES[simd]}$`));
    } finally {
      await server.close();
    }
  });
}

await browser?.close();
rmSync(work, { recursive: true, force: true });
console.log(`\n${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
