// Builds the page into dist/:
//
//   ../js, packed and installed          node_modules/twindex     scripts/package.mjs
//   ../tests/data/wordnet, indexed       public/data/             scripts/data.mjs
//   src/ checked and bundled             dist/
//
//   node scripts/build.mjs [--only-data]     --only-data stops before the bundle: what the dev server needs
import { execFileSync } from 'node:child_process';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { installPackage } from './package.mjs';

const www = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const run = (...path) => (...args) =>
  execFileSync(process.execPath, [join(www, 'node_modules', ...path), ...args], { cwd: www, stdio: 'inherit' });

installPackage(www);
const { buildData } = await import('./data.mjs');
await buildData(www);
if (!process.argv.includes('--only-data')) {
  run('typescript', 'bin', 'tsc')();
  run('vite', 'bin', 'vite.js')('build');
}
