// One task in a process of its own, printing a line of JSON: node node.mjs WORK TASK OPTIONS
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import * as tasks from './tasks.mjs';

const [work, task, options] = process.argv.slice(2);

const host = {
  cpu() {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  },
  bytes: (file) => new Uint8Array(readFileSync(join(work, file))).buffer,
  open: (file) => join(work, file),
  twindex: () => import('../../../js/dist/index.js'),
  async hnswlib() {
    // It is compiled for the web alone: it looks for a page, and for IndexedDB.
    const installed = (path) => import(pathToFileURL(join(work, 'node_modules', path)).href);
    await installed('fake-indexeddb/auto/index.mjs');
    Object.assign(globalThis, { window: globalThis, document: {}, location: { href: 'http://localhost/' } });
    const { loadHnswlib } = await installed('hnswlib-wasm/dist/hnswlib.js');
    return loadHnswlib();
  },
};

const answer = await tasks[task](host, JSON.parse(options));
process.stdout.write(`\n${JSON.stringify(answer)}\n`, () => process.exit());
