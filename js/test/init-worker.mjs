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
  const { readFile } = process.getBuiltinModule('node:fs/promises');
  const wasm = new URL('../dist/twindex.wasm', import.meta.url).href;
  const bytes = async () => new Uint8Array(await readFile(new URL(wasm)));
  run(workerData, { wasm, bytes }, (outcome) => parentPort.postMessage(outcome));
} else {
  const wasm = new URL('/dist/twindex.wasm', import.meta.url).href;
  const bytes = async () => new Uint8Array(await (await fetch(wasm)).arrayBuffer());
  onmessage = ({ data }) => run(data, { wasm, bytes }, (outcome) => postMessage(outcome));
}
