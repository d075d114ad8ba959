// One case of init-cases.mjs in a fresh module graph: a thread of Node.js or a worker of the browser.
import * as twindex from 'twindex';
import { cases } from './init-cases.mjs';

async function run(name, context, answer) {
  try {
    await cases[name](twindex, context);
    answer('ok');
  } catch (error) {
    answer(String(error?.stack ?? error));
  }
}

if (typeof process === 'object') {
  const { parentPort, workerData } = process.getBuiltinModule('node:worker_threads');
  const { promises } = process.getBuiltinModule('node:fs');
  const { readFile } = promises;
  const wasm = new URL('../dist/twindex.wasm', import.meta.url).href;
  const bytes = async () => new Uint8Array(await readFile(new URL(wasm)));
  const names = [];
  promises.readFile = (path, ...more) => {
    names.push(String(path).replace(/.*\//, ''));
    return readFile(path, ...more);
  };
  const { name, simd } = workerData;
  run(name, { wasm, bytes, simd, read: () => names }, (outcome) => parentPort.postMessage(outcome));
} else {
  const wasm = new URL('/dist/twindex.wasm', import.meta.url).href;
  const bytes = async () => new Uint8Array(await (await fetch(wasm)).arrayBuffer());
  const read = () => performance.getEntriesByType('resource').map(({ name }) => name.replace(/.*\//, '')).filter((name) => name.endsWith('.wasm'));
  onmessage = ({ data: { name, simd } }) => run(name, { wasm, bytes, simd, read }, (outcome) => postMessage(outcome));
}
