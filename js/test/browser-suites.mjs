// Runs every registered test and reports each.
import { place, tests } from './harness.mjs';
import './suites/api.mjs';
import './suites/values.mjs';
import './suites/files.mjs';
import './suites/quantized.mjs';
import './suites/parity.mjs';
import './suites/fuzz.mjs';

place.name = 'browser';
place.simd = 'relaxed-simd';
place.fixture = async (name) => {
  const response = await fetch(new URL(`./.fixtures/browser/${name}`, import.meta.url));
  if (!response.ok) throw new Error(`fixture ${name}: ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
};

export async function runSuites(only, where, report) {
  for (const { name, body } of tests) {
    if (!name.includes(only)) continue;
    const began = performance.now();
    let error = '';
    try {
      await body();
    } catch (e) {
      error = String(e?.stack ?? e);
    }
    await report({ name: `${where}: ${name}`, error, milliseconds: performance.now() - began });
  }
}
