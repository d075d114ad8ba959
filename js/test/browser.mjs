// Runs the suites in Chromium, on the main thread and in a Web Worker: node test/browser.mjs [part of a test's name]
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findChromium, launch, serve } from './chromium.mjs';
import { RUST_BUILDS, prepare } from './prepare.mjs';

const js = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const root = resolve(js, '..');
const only = process.argv[2] ?? '';
const started = Date.now();
let passed = 0;
let failed = 0;

function report({ name, error, milliseconds }) {
  if (error) {
    failed++;
    console.log(`✖ ${name}\n    ${error.replaceAll('\n', '\n    ')}`);
  } else {
    passed++;
    console.log(`✔ ${name} (${Math.round(milliseconds)} ms)`);
  }
}

prepare('browser');
// Import maps don't reach workers, so the package's name becomes its path. Cross-origin isolated: SharedArrayBuffer.
const server = await serve(js, {
  change: (text, path) => (path.startsWith('/test/') ? text.replaceAll("from 'twindex'", "from '/dist/index.js'") : text),
  headers: {
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-embedder-policy': 'require-corp',
    'content-security-policy': "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'",
  },
});
const browser = await launch();
try {
  const page = await browser.context.newPage();
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().includes('404')) console.log(`  page: ${message.text()}`);
  });
  page.on('pageerror', (error) => report({ name: 'an error of the page', error: String(error.stack) }));
  await page.exposeFunction('report', report);
  await page.goto(`${server.url}/test/browser.html?only=${encodeURIComponent(only)}`);
  await page.waitForFunction(() => globalThis.finished, null, { timeout: 900_000, polling: 500 });
} finally {
  await browser.close();
  await server.close();
}

if (!only && existsSync(join(root, 'scripts', 'with'))) {
  for (const [level, args] of Object.entries(RUST_BUILDS)) {
    const cargo = ['cargo', 'test', ...args, '--no-default-features', '--target', 'wasm32-unknown-unknown', '--test', 'wasm'];
    const name = `Rust suites in WebAssembly, ${level}: storage conformance, kernel parity`;
    try {
      const output = execFileSync(join(root, 'scripts', 'with'), ['wasm-browser', ...cargo], { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
      report({ name, error: /test result: ok\. [1-9]/.test(output) ? '' : output, milliseconds: 0 });
    } catch (error) {
      report({ name, error: `${error.stdout}\n${error.stderr}` });
    }
  }
}

console.log(`\nin ${findChromium()}, ${Math.round((Date.now() - started) / 1000)} s\n${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed < (only ? 1 : 50) ? 1 : 0;
