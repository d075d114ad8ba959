// The suites in Node.js once more, where it has relaxed SIMD behind a flag only: node test/node-relaxed.mjs [part of a name]
//
// Without the flag they ran on the build without relaxed SIMD; now they run on the other.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const RELAXED_FLAG = '--experimental-wasm-relaxed-simd';

const here = dirname(fileURLToPath(import.meta.url));

/** Whether this process takes the build with relaxed SIMD: judged by that build itself. */
export function relaxedRuns() {
  return WebAssembly.validate(readFileSync(join(here, '..', 'dist', 'twindex-relaxed-simd.wasm')));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (relaxedRuns()) {
    console.log('relaxed SIMD needs no flag here: the suites have had it');
  } else {
    const args = [RELAXED_FLAG, join(here, 'node.mjs'), ...process.argv.slice(2)];
    const { status } = spawnSync(process.execPath, args, { stdio: 'inherit', env: { ...process.env, AGAIN: '1' } });
    process.exitCode = status ?? 1;
  }
}
