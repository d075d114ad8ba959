// Twindex in WebAssembly beside hnswlib-wasm and beside itself built natively: the same vectors, queries and settings,
// in turn A B A B, by CPU time, in Node and in headless Chromium.
//
//   node benches/peers/js/run.mjs DATA [--rows 20000] [--file-rows all] [--rounds 5] [--csv FILE]
//
// DATA holds base.f16.npy (or base.npy) and queries likewise; the metric is the inner product. What is compared:
//
//   peers   each contender builds an index of the first --rows rows and searches it; queries per CPU second at a recall
//           are interpolated between the `ef` on either side (log-linear), as in ../run.py
//   file    the command line builds an index of --file-rows rows; it is searched natively on one thread, and opened in
//           Node and Chromium, read-only and to be changed: hits to the last bit, speed, linear memory
//
// Every turn is a process, or a browser, of its own, and medians over rounds are compared, so that a machine busy with
// other things does the ratios little harm. It builds the command line and the package (js/README.md says with what);
// the peers are installed into target/peers/js.
import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';

const here = dirname(fileURLToPath(import.meta.url));
const ROOT = resolve(here, '../../..');
const WORK = join(ROOT, 'target', 'peers', 'js');
const BINARY = join(resolve(ROOT, process.env.CARGO_TARGET_DIR ?? 'target'), 'release', 'twindex');

const [M, EF_CONSTRUCTION, K, EF] = [16, 200, 10, 64];
const PEER_EFS = [10, 16, 24, 32, 48, 64, 96, 128, 192];
const FILE_EFS = [32, 64, 128];
const RECALLS = [0.95, 0.98];

const { positionals, values: args } = parseArgs({
  allowPositionals: true,
  options: {
    rows: { type: 'string', default: '20000' },
    'file-rows': { type: 'string', default: 'all' },
    rounds: { type: 'string', default: '5' },
    csv: { type: 'string' },
  },
});
const DATA = positionals[0];
if (!DATA) throw new Error('which folder holds base.f16.npy and queries.f16.npy?');
const ROUNDS = Number(args.rounds);

// ---- Getting ready

function run(command, list, cwd = ROOT) {
  execFileSync(command, list, { cwd, stdio: 'inherit' });
}

function prepare() {
  mkdirSync(WORK, { recursive: true });
  copyFileSync(join(here, 'package.json'), join(WORK, 'package.json'));
  run('npm', ['install', '--no-audit', '--no-fund', '--loglevel=error'], WORK);
  run('cargo', ['build', '--release', '--features', 'cli']);
  if (!existsSync(join(ROOT, 'js', 'node_modules'))) run('npm', ['ci', '--no-audit', '--no-fund'], join(ROOT, 'js'));
  run('npm', ['run', '--silent', 'build'], join(ROOT, 'js'));
}

/** The first `rows` rows of an .npy file of f16 or f32 as f32, in one block. */
function readRows(name, rows) {
  const file = [`${name}.npy`, `${name}.f16.npy`].map((file) => join(DATA, file)).find(existsSync);
  if (!file) throw new Error(`${DATA}: no ${name}.npy`);
  const bytes = readFileSync(file);
  const start = bytes[6] === 1 ? 10 + bytes.readUInt16LE(8) : 12 + bytes.readUInt32LE(8);
  const header = bytes.toString('latin1', 0, start);
  const [, type, count, columns] = /'descr': '<f([24])'.*'shape': \((\d+), (\d+)\)/.exec(header).map(Number);
  const length = Math.min(rows, count) * columns;
  const values = new Float32Array(length);
  for (let i = 0; i < length; i++) {
    values[i] = type === 2 ? half(bytes.readUInt16LE(start + 2 * i)) : bytes.readFloatLE(start + 4 * i);
  }
  return { values, columns };
}

function half(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const size = exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? NaN : (1024 + fraction) * 2 ** (exponent - 25);
  return bits >> 15 ? -size : size;
}

/** Writes an .npy file whose header takes 128 bytes, which tasks.mjs relies on. */
function writeRows(name, values, columns) {
  const type = values instanceof Float32Array ? '<f4' : '<i4';
  const shape = `(${values.length / columns}, ${columns})`;
  const header = `{'descr': '${type}', 'fortran_order': False, 'shape': ${shape}, }`.padEnd(117);
  const magic = Buffer.from([0x93, ...Buffer.from('NUMPY'), 1, 0, 118, 0]);
  writeFileSync(join(WORK, name), Buffer.concat([magic, Buffer.from(`${header}\n`), new Uint8Array(values.buffer)]));
}

function twindex(...list) {
  return execFileSync(BINARY, list.map(String), { cwd: WORK, encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'inherit'] });
}

function hits(index, ...options) {
  const lines = twindex('search', index, '--queries', 'queries.npy', '--k', K, ...options, '--json').trim().split('\n');
  return lines.map((line) => JSON.parse(line).hits);
}

/** Rows, the native index of them and the exact answers, as files named after `name`. */
function makeSet(name, rows) {
  const { values, columns } = readRows('base', rows);
  const set = { base: `${name}.npy`, file: `${name}.twx`, truth: `${name}.truth.npy`, queries: 'queries.npy', dimension: columns };
  writeRows(set.base, values, columns);
  const options = ['--metric', 'ip', '--m', M, '--ef-construction', EF_CONSTRUCTION, '--threads', 1];
  twindex('build', '--input', set.base, '--output', set.file, ...options);
  const exact = hits(set.file, '--exact').flatMap((found) => found.map(({ key }) => key));
  writeRows(set.truth, Int32Array.from(exact), K);
  return { ...set, rows: values.length / columns, k: K, m: M, efConstruction: EF_CONSTRUCTION };
}

// ---- One task in a process of its own

async function inNode(task, options) {
  const list = [join(here, 'node.mjs'), WORK, task, JSON.stringify(options)];
  const output = execFileSync(process.execPath, list, { encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'inherit'] });
  return JSON.parse(output.trim().split('\n').at(-1));
}

/** CPU time is that of the renderer processes, as the browser itself has it from the operating system. */
async function inChromium(task, options) {
  const { serve, findChromium } = await import('../../../js/test/chromium.mjs');
  const { chromium } = createRequire(join(WORK, 'package.json'))('playwright-core');
  const server = await serve(ROOT);
  const root = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  const browser = await chromium.launch({ executablePath: findChromium(), args: ['--disable-gpu', '--disable-quic', ...root] });
  try {
    const system = await browser.newBrowserCDPSession();
    const page = await browser.newPage();
    await page.exposeFunction('cpu', async () => {
      const { processInfo } = await system.send('SystemInfo.getProcessInfo');
      return processInfo.filter(({ type }) => type === 'renderer').reduce((sum, { cpuTime }) => sum + cpuTime, 0);
    });
    await page.goto(`${server.url}/${relative(ROOT, here)}/page.html?work=/${relative(ROOT, WORK)}`);
    await page.waitForFunction(() => globalThis.run);
    return await page.evaluate(([task, options]) => globalThis.run(task, options), [task, options]);
  } finally {
    await browser.close();
    await server.close();
  }
}

const HOSTS = { node: inNode, chromium: inChromium };

function natively(set, residency) {
  const list = ['--queries', set.queries, '--truth', set.truth, '--k', K, '--ef', FILE_EFS.join(), '--rounds', 1];
  return JSON.parse(twindex('bench', set.file, ...list, residency, '--json', '-'));
}

// ---- The comparison

const rows = [];

function note(part, host, contender, round, { cpu_seconds, memory, results }) {
  const common = { part, host, contender, round };
  if (cpu_seconds !== undefined) rows.push({ ...common, figure: 'build_cpu_s', value: cpu_seconds });
  if (memory !== undefined) rows.push({ ...common, figure: 'memory_bytes', value: memory });
  for (const { ef, recall, cpu_qps } of results) rows.push({ ...common, figure: 'cpu_qps', ef, recall, value: cpu_qps });
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Queries per CPU second at `recall`, between the two settings around it. */
function atRecall(results, recall) {
  const points = results.map((result) => [result.recall, Math.log(result.value)]).sort(([a], [b]) => a - b);
  for (let i = 1; i < points.length; i++) {
    const [[r0, q0], [r1, q1]] = [points[i - 1], points[i]];
    if (r0 < recall && recall <= r1) return Math.exp(q0 + ((recall - r0) / (r1 - r0)) * (q1 - q0));
  }
  return NaN;
}

const select = (wanted) => rows.filter((row) => Object.entries(wanted).every(([name, value]) => row[name] === value));
const middle = (wanted) => median(select(wanted).map(({ value }) => value));
const cell = (value, digits = 0) => value.toFixed(digits).padStart(10);

async function comparePeers() {
  const set = makeSet('peers', Number(args.rows));
  const contenders = ['twindex', 'hnswlib-wasm'];
  for (let round = 0; round < ROUNDS; round++) {
    for (const [host, task] of Object.entries(HOSTS)) {
      for (const contender of contenders) {
        note('peers', host, contender, round, await task('build', { ...set, contender, efs: PEER_EFS }));
      }
    }
  }
  console.log(`\n${set.rows} rows × ${set.dimension}, medians of ${ROUNDS}    ${[...contenders, 'ratio'].map((name) => name.padStart(12)).join(' ')}`);
  const line = (name, a, b, digits, ratio) => console.log(`  ${name.padEnd(36)}${cell(a, digits)}   ${cell(b, digits)}   ${cell(ratio, 2)}`);
  for (const host of Object.keys(HOSTS)) {
    const [a, b] = contenders.map((contender) => middle({ part: 'peers', host, contender, figure: 'build_cpu_s' }));
    line(`${host}: build, CPU seconds`, a, b, 1, b / a);
    for (const recall of RECALLS) {
      const [a, b] = contenders.map((contender) => {
        const sweeps = Array.from({ length: ROUNDS }, (_, round) => select({ part: 'peers', host, contender, round, figure: 'cpu_qps' }));
        return median(sweeps.map((results) => atRecall(results, recall)));
      });
      line(`${host}: queries / CPU s at recall ${recall}`, a, b, 0, a / b);
    }
  }
}

async function compareFile() {
  const set = makeSet('file', args['file-rows'] === 'all' ? Infinity : Number(args['file-rows']));
  const expected = hits(set.file, '--ef', EF);
  const { sections } = JSON.parse(twindex('info', set.file, '--json'));
  const needed = sections.filter(({ name }) => name === 'CODES' || name === 'LINKS').reduce((sum, { bytes }) => sum + bytes, 0);
  const identical = {};
  for (let round = 0; round < ROUNDS; round++) {
    for (const residency of ['resident', 'mmap']) {
      note('file', 'native', residency, round, natively(set, `--${residency}`));
    }
    for (const [host, task] of Object.entries(HOSTS)) {
      for (const [mode, readOnly] of [['read-only', true], ['owned', false]]) {
        const opened = await task('open', { ...set, readOnly, ef: EF, efs: FILE_EFS });
        note('file', host, mode, round, opened);
        identical[`${host} ${mode}`] = expected.filter((found, i) => {
          const bits = new Uint32Array(Float32Array.from(found, ({ distance }) => distance).buffer);
          return String(found.map(({ key }) => key)) === String(opened.keys[i]) && String(bits) === String(opened.bits[i]);
        }).length;
      }
    }
  }
  console.log(`\nthe same file, ${set.rows} rows × ${set.dimension}: queries / CPU s (÷ native, resident), medians of ${ROUNDS}`);
  console.log(`  ${''.padEnd(20)}${FILE_EFS.map((ef) => `ef ${ef}`.padStart(18)).join('')}   identical queries   memory ÷ (codes + links)`);
  const contenders = new Map(select({ part: 'file' }).map(({ host, contender }) => [`${host} ${contender}`, { host, contender }]));
  for (const [name, who] of contenders) {
    const speeds = FILE_EFS.map((ef) => {
      const [value, native] = [who, { host: 'native', contender: 'resident' }].map((of) => middle({ part: 'file', ...of, ef }));
      return `${cell(value)} (${(value / native).toFixed(3)})`;
    });
    const rest = name in identical ? `   ${`${identical[name]} of ${expected.length}`.padStart(17)}   ${cell(middle({ ...who, figure: 'memory_bytes' }) / needed, 4)}` : '';
    console.log(`  ${name.padEnd(20)}${speeds.join('')}${rest}`);
  }
  for (const { ef, recall } of select({ part: 'file', host: 'native', contender: 'resident', round: 0 })) {
    console.log(`  recall@${K} at ef ${ef}: ${recall.toFixed(4)}`);
  }
}

function writeCsv() {
  const columns = ['part', 'host', 'contender', 'round', 'figure', 'ef', 'recall', 'value'];
  const lines = [columns, ...rows.map((row) => columns.map((name) => row[name] ?? ''))].map((fields) => fields.join());
  writeFileSync(args.csv, `${lines.join('\n')}\n`);
}

prepare();
const queries = readRows('queries', Infinity);
writeRows('queries.npy', queries.values, queries.columns);
const module = readFileSync(join(ROOT, 'js', 'dist', 'twindex.wasm'));
await comparePeers();
await compareFile();
console.log(`\ntwindex.wasm: ${module.length} bytes, gzip ${gzipSync(module, { level: 9 }).length}`);
if (args.csv) writeCsv();
