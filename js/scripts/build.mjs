// Builds the package into dist/:
//
//   cargo (profile `wasm`) → wasm-bindgen → wasm-opt      dist/twindex.wasm, dist/twindex-relaxed-simd.wasm
//                                 └ glue → src/glue.js    dist/glue.js, one for both; the same for CommonJS
//   tsc over src/                                         dist/*.js, *.d.ts
//   each of those modules, transpiled                     dist/cjs/*.js, *.d.ts
//
//   node scripts/build.mjs [--no-wasm]     --no-wasm keeps the modules that were built last
import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import ts from 'typescript';

const js = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const root = resolve(js, '..');
const src = join(js, 'src');
const dist = join(js, 'dist');
const cjs = join(dist, 'cjs');
const target = resolve(root, process.env.CARGO_TARGET_DIR ?? 'target');
const kept = join(target, 'npm');

// Instructions that every engine with SIMD has.
const WASM_FEATURES = [
  '--enable-simd',
  '--enable-bulk-memory',
  '--enable-nontrapping-float-to-int',
  '--enable-sign-ext',
  '--enable-mutable-globals',
  '--enable-reference-types',
  '--enable-multivalue',
];

/** The modules, and what each may use beyond that. An engine loads one: src/load.ts. */
const BUILDS = [
  { file: 'twindex.wasm', rustFlags: [], features: [] },
  {
    file: 'twindex-relaxed-simd.wasm',
    rustFlags: ['-C', 'target-feature=+relaxed-simd'],
    features: ['--enable-relaxed-simd'],
  },
];

function run(command, args, cwd = root) {
  execFileSync(command, args, { cwd, stdio: 'inherit' });
}

/** A command with the Rust that builds for WebAssembly and the tools of the locked versions on the path. */
function withWasm(command, args) {
  const script = join(root, 'scripts', 'with');
  if (existsSync(script)) run(script, ['wasm', command, ...args]);
  else run(command, args);
}

/** Panic messages name source files: as they are called anywhere, not where this machine has them. */
function pathFlags() {
  const cargo = process.env.CARGO_HOME ?? join(homedir(), '.cargo');
  return [`--remap-path-prefix=${cargo}/registry/src=`, `--remap-path-prefix=${root}/=`];
}

/** Functions are inlined where they are small only: the module is a twentieth smaller for it, and no slower. */
const INLINING = ['-C', 'llvm-args=-inline-threshold=40'];

function buildWasm({ file, rustFlags, features }) {
  const flags = `target.wasm32-unknown-unknown.rustflags=${JSON.stringify([...pathFlags(), ...INLINING, ...rustFlags])}`;
  withWasm('cargo', [
    ...['--config', flags],
    ...['build', '--profile', 'wasm', '--lib', '--no-default-features', '--target', 'wasm32-unknown-unknown'],
  ]);
  const out = join(kept, basename(file, '.wasm'));
  mkdirSync(out, { recursive: true });
  const built = join(target, 'wasm32-unknown-unknown', 'wasm', 'twindex.wasm');
  withWasm('wasm-bindgen', [
    ...['--target', 'web', '--omit-default-module-path', '--out-name', 'glue', '--out-dir', out, built],
  ]);
  const optimise = join(js, 'node_modules', 'binaryen', 'bin', 'wasm-opt');
  const optimised = ['-o', join(kept, file)];
  run(process.execPath, [optimise, '-O4', ...WASM_FEATURES, ...features, join(out, 'glue_bg.wasm'), ...optimised]);
}

/** One glue starts either module. */
function keepGlue() {
  for (const name of ['glue.js', 'glue.d.ts']) {
    const [glue, ...others] = BUILDS.map(({ file }) => readFileSync(join(kept, basename(file, '.wasm'), name)));
    if (!others.every((other) => other.equals(glue))) throw new Error(`the builds differ in ${name}`);
    writeFileSync(join(kept, name), glue);
  }
}

function buildTypeScript() {
  rmSync(dist, { recursive: true, force: true });
  copyFileSync(join(kept, 'glue.js'), join(src, 'glue.js'));
  copyFileSync(join(kept, 'glue.d.ts'), join(src, 'glue.d.ts'));
  run(process.execPath, [join(js, 'node_modules', 'typescript', 'bin', 'tsc'), '-p', js]);
  copyFileSync(join(kept, 'glue.js'), join(dist, 'glue.js'));
  for (const { file } of BUILDS) copyFileSync(join(kept, file), join(dist, file));
}

function buildCommonJs() {
  mkdirSync(cjs);
  writeFileSync(join(cjs, 'package.json'), '{ "type": "commonjs" }\n');
  for (const name of readdirSync(dist)) {
    if (name.endsWith('.d.ts')) copyFileSync(join(dist, name), join(cjs, name));
    if (!name.endsWith('.js')) continue;
    const { outputText } = ts.transpileModule(readFileSync(join(dist, name), 'utf8'), {
      compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.CommonJS },
      fileName: name,
    });
    writeFileSync(join(cjs, name), outputText);
  }
  copyFileSync(join(js, 'scripts', 'location.cjs'), join(cjs, 'location.js'));
}

/** The types of internal modules (`glue` above all) are no part of the package. */
function dropInternalTypes() {
  const kept = new Set();
  const visit = (name) => {
    if (kept.has(name)) return;
    kept.add(name);
    for (const [, next] of readFileSync(join(dist, name), 'utf8').matchAll(/from '\.\/(.+?)\.js'/g)) visit(`${next}.d.ts`);
  };
  visit('index.d.ts');
  for (const name of readdirSync(dist)) if (name.endsWith('.d.ts') && !kept.has(name)) rmSync(join(dist, name));
}

function report() {
  const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
  for (const { file } of BUILDS) {
    const wasm = readFileSync(join(dist, file));
    const gzip = gzipSync(wasm, { level: 9 }).length;
    console.log(`${file}: ${kib(wasm.length)}, gzip ${kib(gzip)}, brotli ${kib(brotliCompressSync(wasm).length)}`);
  }
}

if (!process.argv.includes('--no-wasm')) {
  BUILDS.forEach(buildWasm);
  keepGlue();
}
buildTypeScript();
dropInternalTypes();
buildCommonJs();
for (const name of readdirSync(root)) if (name.startsWith('LICENSE')) copyFileSync(join(root, name), join(js, name));
report();
