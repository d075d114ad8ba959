// A static server and a Chromium to look at it.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join, normalize, sep } from 'node:path';
import { chromium } from 'playwright-core';

const TYPES = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.wasm': 'application/wasm',
};

export function findChromium() {
  for (const name of ['CHROMIUM_PATH', 'TWINDEX_CHROMIUM']) if (process.env[name]) return process.env[name];
  for (const name of ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome']) {
    try {
      return execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim();
    } catch {}
  }
  throw new Error('no Chromium found: install one or set CHROMIUM_PATH to its executable');
}

/** Serves a folder; `change` may rewrite a text, `headers` are added to every answer. */
export async function serve(folder, { change = (text) => text, headers = {} } = {}) {
  const requests = [];
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
    let file = join(folder, normalize(decodeURIComponent(pathname)));
    try {
      if (file.endsWith(sep)) file += 'index.html';
      if (!file.startsWith(folder) || !statSync(file).isFile()) throw new Error('not a file');
      const type = TYPES[extname(file)] ?? 'application/octet-stream';
      const bytes = readFileSync(file);
      const body = /text/.test(type) ? change(bytes.toString(), pathname) : bytes;
      requests.push({ pathname, status: 200, type });
      response.writeHead(200, { 'content-type': type, ...headers }).end(body);
    } catch {
      requests.push({ pathname, status: 404 });
      response.writeHead(404).end('not found');
    }
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    requests,
    close: () => new Promise((closed) => { server.close(closed); server.closeAllConnections(); }),
  };
}

/** Opens pages in a fresh profile; `close` ends the browser and removes it. */
export async function launch() {
  const profile = mkdtempSync(join(tmpdir(), 'twindex-chromium-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: findChromium(),
    headless: true,
    args: [
      ...['--headless', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'],
      ...['--disable-component-update', '--disable-sync'],
      ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []),
    ],
  });
  return {
    context,
    async close() {
      await context.close();
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
