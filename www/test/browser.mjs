// A static server over dist/ and a Chromium to look at it.
import { execFileSync } from 'node:child_process';
import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize, sep } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { chromium } from 'playwright-core';

const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
  '.wasm': 'application/wasm',
};

function findChromium() {
  for (const name of ['TWINDEX_CHROMIUM', 'CHROMIUM_PATH']) if (process.env[name]) return process.env[name];
  for (const name of ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']) {
    try {
      return execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim();
    } catch {
      // The next one, then.
    }
  }
  throw new Error('no Chromium found: install one, or set CHROMIUM_PATH to its executable');
}

/**
 * Serves a folder below the path `/demo/`. Files named in `slow` come in pieces with pauses between, those in `cut` end
 * early, those in `missing` are not there.
 */
export async function serve(folder) {
  const faults = { slow: new Set(), cut: new Set(), missing: new Set() };
  const requests = [];
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
    requests.push(pathname);
    let file = join(folder, normalize(decodeURIComponent(pathname.replace(/^\/demo/, ''))));
    if (file.endsWith(sep)) file += 'index.html';
    const name = file.split(sep).pop();
    let size;
    try {
      if (!pathname.startsWith('/demo/') || !file.startsWith(folder) || faults.missing.has(name)) throw new Error();
      size = statSync(file).size;
    } catch {
      response.writeHead(404).end('not found');
      return;
    }
    const headers = { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream', 'cache-control': 'no-store' };
    response.writeHead(200, faults.cut.has(name) ? headers : { ...headers, 'content-length': size });
    const end = faults.cut.has(name) ? size >> 1 : size;
    for await (const piece of createReadStream(file, { end: end - 1, highWaterMark: 1 << 20 })) {
      if (response.destroyed) return;
      response.write(piece);
      if (faults.slow.has(name)) await sleep(60);
    }
    response.end();
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return {
    url: `http://127.0.0.1:${server.address().port}/demo/`,
    faults,
    requests,
    close: () => new Promise((closed) => { server.close(closed); server.closeAllConnections(); }),
  };
}

export function launch() {
  return chromium.launch({
    executablePath: findChromium(),
    headless: true,
    args: [
      ...['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'],
      ...['--disable-component-update', '--disable-sync'],
      ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []),
    ],
  });
}
