// The suites in a Web Worker.
import { runSuites } from './browser-suites.mjs';

onmessage = async ({ data: only }) => {
  await runSuites(only, 'worker', (outcome) => postMessage(outcome));
  postMessage(null);
};
