// The page of browser.mjs: the suites here, then in a worker, then each way of loading in a worker of its own.
import { cases } from './init-cases.mjs';
import { cases as memoryCases } from './memory-cases.mjs';
import { runSuites } from './browser-suites.mjs';
import { place } from './harness.mjs';

const only = new URLSearchParams(location.search).get('only') ?? '';

await runSuites(only, 'page', globalThis.report);

await new Promise((done) => {
  const worker = new Worker('browser-worker.mjs', { type: 'module' });
  worker.onmessage = ({ data }) => (data ? globalThis.report(data) : done());
  worker.onerror = (event) => {
    globalThis.report({ name: 'worker', error: event.message });
    done();
  };
  worker.postMessage(only);
});

for (const [kind, file, list] of [['init', 'init-worker.mjs', cases], ['memory', 'memory-worker.mjs', memoryCases]]) {
  for (const name of Object.keys(list).filter((n) => n.includes(only))) {
    const worker = new Worker(file, { type: 'module' });
    const began = performance.now();
    const outcome = await new Promise((done) => {
      worker.onmessage = ({ data }) => done(data);
      worker.onerror = (event) => done(event.message || 'the worker did not start');
      worker.postMessage({ name, simd: place.simd });
    });
    worker.terminate();
    const error = outcome === 'ok' ? '' : outcome;
    await globalThis.report({ name: `${kind}: ${name}`, error, milliseconds: performance.now() - began });
  }
}

globalThis.finished = true;
