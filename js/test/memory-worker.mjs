// One case of memory-cases.mjs in an instance of its own: a thread of Node.js or a worker of the browser.
import * as twindex from 'twindex';
import { cases } from './memory-cases.mjs';

async function run(name, read, answer) {
  const fixture = (file) => read(new URL(`./.fixtures/${typeof process === 'object' ? 'node' : 'browser'}/${file}`, import.meta.url));
  const bytes = () => read(new URL('../dist/twindex.wasm', import.meta.url));
  try {
    await cases[name](twindex, { bytes, fixture });
    answer('ok');
  } catch (error) {
    answer(String(error?.stack ?? error));
  }
}

if (typeof process === 'object') {
  const { parentPort, workerData } = process.getBuiltinModule('node:worker_threads');
  const { readFile } = process.getBuiltinModule('node:fs/promises');
  run(workerData.name, async (url) => new Uint8Array(await readFile(url)), (outcome) => parentPort.postMessage(outcome));
} else {
  const read = async (url) => new Uint8Array(await (await fetch(url)).arrayBuffer());
  onmessage = ({ data }) => run(data.name, read, (outcome) => postMessage(outcome));
}
