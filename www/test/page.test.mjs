// The built page, in a real Chromium, from a plain static server.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { readNpy } from '../scripts/npy.mjs';
import { launch, serve } from './browser.mjs';

const www = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const dist = join(www, 'dist');
const set = resolve(www, '..', 'tests', 'data', 'wordnet');
const K = 10;

const lines = (name) => readFileSync(join(set, name), 'utf8').trimEnd().split('\n');
const texts = lines('texts.txt');
const sentences = lines('queries.txt');
const truth = readNpy(join(set, 'truth.i32.npy'));
const products = readNpy(join(set, 'truth.f32.npy'));
const manifest = JSON.parse(readFileSync(join(dist, 'data', 'manifest.json'), 'utf8'));

/** The exact answer to sample sentence `id`. */
const exact = (id, k = K) => Array.from({ length: k }, (_, i) => truth.data[id * truth.columns + i]);

/** A sentence of which the graph search at the default ef misses something: recall has something to show. */
const HARD = sentences.indexOf('ducks walk with a waddle');

let server;
let browser;

before(async () => {
  server = await serve(dist);
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await server?.close();
});

/** A test with a page of its own. Whatever the page complains of, or asks of another host, fails it. */
function pageTest(name, { width = 1280, height = 900, errors = false, ...options }, run) {
  test(name, { timeout: 120_000 }, async () => {
    const context = await browser.newContext({ viewport: { width, height }, ...options });
    const complaints = [];
    const page = await context.newPage();
    page.setDefaultTimeout(60_000);
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
    });
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('request', (request) => {
      const url = request.url();
      if (!url.startsWith(server.url) && !url.startsWith('data:')) complaints.push(`asks for ${url}`);
    });
    try {
      await run(page);
      if (!errors) assert.deepEqual(complaints, []);
    } finally {
      await context.close();
    }
  });
}

async function open(page, hash = '') {
  await page.goto(server.url + hash);
  await settled(page);
}

/** Until the results are there and everything is measured. */
const settled = (page) => page.waitForSelector('#workspace:not([hidden]):not([aria-busy])');

/** Goes to another hash, as a link would. */
async function follow(page, hash) {
  await page.evaluate((to) => { location.hash = to; }, hash);
  await settled(page);
}

const number = (text) => Number(text.replace('−', '-').replace(/[^\d.-]/g, ''));
const text = (page, selector) => page.textContent(selector).then((found) => found.trim());
const keys = (page) => page.$$eval('#results a', (links) => links.map((link) => Number(link.dataset.key)));
const allTexts = (page, selector) => page.$$eval(selector, (all) => all.map(({ textContent }) => textContent));
const distances = async (page) => (await allTexts(page, '#results .number')).map(number);

/** The text as a reader sees it: spaces are spaces. */
const plain = (string) => string.replace(/\u00a0/g, ' ');

test('the page carries the WebAssembly of the packed package, unchanged', () => {
  const digest = (path) => createHash('sha256').update(readFileSync(path)).digest('hex');
  const modules = (folder) => readdirSync(folder).filter((file) => file.endsWith('.wasm')).map((file) => digest(join(folder, file)));
  const packed = modules(join(www, 'node_modules', 'twindex', 'dist'));
  assert.equal(packed.length, 2);
  assert.deepEqual(modules(join(dist, 'assets')).sort(), packed.sort());
});

pageTest('loads with progress, then answers', {}, async (page) => {
  server.faults.slow.add('demo.twx');
  await page.addInitScript(() => {
    globalThis.seen = [];
    document.addEventListener('DOMContentLoaded', () => {
      const bar = document.getElementById('progress');
      new MutationObserver(() => globalThis.seen.push(Number(bar.getAttribute('aria-valuenow')))).observe(bar, {
        attributeFilter: ['aria-valuenow'],
      });
    });
  });
  try {
    await page.goto(server.url);
    await page.waitForFunction(() => /of \d+\.\d\sMB/.test(document.getElementById('loaded').textContent));
    assert.equal(await page.isDisabled('#query'), true);
    assert.equal(await page.isVisible('#progress'), true);
    await settled(page);
  } finally {
    server.faults.slow.clear();
  }
  const seen = await page.evaluate(() => globalThis.seen);
  assert.ok(new Set(seen).size >= 5, `progress was seen at ${seen}`);
  assert.deepEqual(seen, [...seen].sort((a, b) => a - b));
  assert.equal(seen.at(-1), 100);
  assert.equal(await page.isVisible('#progress'), false);
  assert.equal(await page.isEnabled('#query'), true);
  assert.equal(await page.locator('#results > li').count(), K);
});

pageTest('sample sentences find exactly what the truth says', {}, async (page) => {
  await open(page);
  for (const id of [0, HARD, 85, 137, sentences.length - 1]) {
    await follow(page, `#query=${id}&exact`);
    assert.equal(await text(page, '#subject'), `“${sentences[id]}”`);
    assert.deepEqual(await keys(page), exact(id));
    for (const [i, distance] of (await distances(page)).entries()) {
      const expected = -products.data[id * products.columns + i];
      assert.ok(Math.abs(distance - expected) < 6e-5, `sentence ${id}, hit ${i}: ${distance}, not ${expected}`);
    }
    const [lemmas, definition] = texts[exact(id)[0]].split(/: (.*)/s);
    assert.equal(await text(page, '#results li:first-child .lemmas'), lemmas);
    assert.equal(await text(page, '#results li:first-child .definition'), definition);
  }
});

pageTest('the graph is held against the exact scan', {}, async (page) => {
  await open(page, `#query=${HARD}`);
  const graph = await keys(page);
  const found = graph.filter((key) => exact(HARD).includes(key)).length;
  assert.ok(found < K, 'this sentence should be one that the graph does not answer in full');
  assert.equal(await text(page, '#recall'), `${found} of ${K}`);
  assert.equal(await page.locator('.tag').count(), 0);

  await page.check('input[value=exact]', { force: true });
  assert.match(page.url(), /&exact$/);
  assert.deepEqual(await keys(page), exact(HARD));
  assert.equal(await text(page, '#recall'), `${found} of ${K}`);
  assert.equal(await page.locator('.tag').count(), K - found);

  await page.check('input[value=graph]', { force: true });
  assert.deepEqual(await keys(page), graph);
});

pageTest('ef moves recall and time, and stays in the address', {}, async (page) => {
  await open(page, `#query=${HARD}&ef=10`);
  assert.equal(await text(page, '#ef-value'), '10');
  const narrow = number(await text(page, '#sweep-recall'));
  const narrowTime = await text(page, '#sweep-graph-time');
  await page.focus('#ef');
  await page.keyboard.press('End');
  await settled(page);
  assert.equal(await text(page, '#ef-value'), '512');
  assert.match(page.url(), /&ef=512$/);
  assert.equal(await page.getAttribute('#ef', 'aria-valuetext'), '512');
  const wide = number(await text(page, '#sweep-recall'));
  assert.ok(narrow > 50 && narrow < wide && wide > 99, `recall ${narrow} % at ef 10, ${wide} % at ef 512`);
  assert.notEqual(await text(page, '#sweep-graph-time'), narrowTime);
  assert.equal(await text(page, '#recall'), `${K} of ${K}`);
  await page.reload();
  await settled(page);
  assert.equal(await text(page, '#ef-value'), '512');
});

pageTest('what it takes is shown', {}, async (page) => {
  await open(page);
  for (const id of ['graph-time', 'exact-time', 'sweep-graph-time', 'sweep-exact-time']) {
    const shown = plain(await text(page, `#${id}`));
    assert.match(shown, /^\d+(\.\d+)? (µs|ms)$/);
    assert.ok(number(shown) > 0);
  }
  const fact = async (name) => plain(await text(page, `#fact-${name}`));
  assert.equal(await fact('rows'), '10,000');
  assert.equal(await fact('dimension'), '384');
  assert.equal(await fact('file'), `${(manifest.files.index.bytes / 1e6).toFixed(1)} MB`);
  assert.equal(await fact('simd'), 'relaxed-simd');
  const memory = number(await fact('memory')) * 1e6;
  assert.ok(memory > manifest.rows * manifest.dimension * 4, `${memory} bytes cannot hold the rows`);
  assert.ok(memory < 1.25 * manifest.files.index.bytes, `${memory} bytes are more than a copy of the file`);
  assert.match(await fact('open'), /^\d+(\.\d+)? m?s$/);
});

pageTest('an entry is found by typing, with the keyboard alone', {}, async (page) => {
  await open(page);
  const field = page.locator('#query');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  assert.equal(await field.evaluate((element) => element === document.activeElement), true);
  await page.keyboard.type('magnet');
  assert.equal(await field.getAttribute('aria-expanded'), 'true');
  assert.match(await text(page, '#announce'), /^\d+ suggestions$/);
  const options = await allTexts(page, '[role=option]');
  assert.ok(options.length > 3);
  for (const option of options) assert.match(option, /magnet/i);
  assert.equal(options[0], 'The strong magnet magnetized the iron shavings');

  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  assert.equal(await field.getAttribute('aria-activedescendant'), 'option-1');
  assert.equal(await page.getAttribute('#option-1', 'aria-selected'), 'true');
  assert.equal(await page.locator('[aria-selected=true]').count(), 1);
  const lemmas = await text(page, '#option-1 .option-title');
  await page.keyboard.press('Enter');
  await settled(page);
  assert.equal(await page.isVisible('#options'), false);
  assert.equal(await text(page, '#subject'), lemmas);
  assert.equal(await field.inputValue(), lemmas);
  assert.match(page.url(), /#entry=\d+$/);
  assert.match(await page.title(), new RegExp(lemmas.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')));

  const before = page.url();
  await page.keyboard.type('duck');
  assert.equal(await field.inputValue(), 'duck');
  await page.keyboard.press('ArrowUp');
  const last = (await page.locator('[role=option]').count()) - 1;
  assert.equal(await field.getAttribute('aria-activedescendant'), `option-${last}`);
  await page.keyboard.press('Escape');
  assert.equal(await field.getAttribute('aria-expanded'), 'false');
  assert.equal(await field.getAttribute('aria-activedescendant'), null);
  assert.equal(page.url(), before);
  await page.keyboard.press('Escape');
  assert.equal(await field.inputValue(), '');

  await page.keyboard.type('no such thing <b>');
  assert.match(await text(page, '#options'), /^No entry and no sample sentence has “no such thing <b>” in it\.$/);
  await page.keyboard.press('Enter');
  assert.equal(page.url(), before);
});

pageTest('a suggestion is chosen by a click, accents and case aside', {}, async (page) => {
  await open(page);
  await page.fill('#query', 'DÚCKS wad');
  await page.click('[role=option] >> text=ducks walk with a waddle');
  await settled(page);
  assert.equal(new URL(page.url()).hash, `#query=${HARD}`);
  await page.click('#clear');
  assert.equal(await page.inputValue('#query'), '');
  assert.equal(await page.locator('[role=option]').count(), sentences.length);
});

pageTest('a result leads to more like it, and back', {}, async (page) => {
  await open(page, `#query=${HARD}&exact`);
  const [first] = await keys(page);
  await page.focus('#results a');
  await page.keyboard.press('Enter');
  await settled(page);
  assert.equal(new URL(page.url()).hash, `#entry=${first}&exact`);
  assert.equal(await text(page, '#subject'), texts[first].split(': ')[0]);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'subject');

  const base = readNpy(join(set, 'base.f16.npy'));
  const row = (id) => base.data.subarray(id * base.columns, (id + 1) * base.columns);
  const nearest = texts
    .map((_, key) => ({ key, product: row(first).reduce((sum, x, i) => sum + x * row(key)[i], 0) }))
    .filter(({ key }) => key !== first)
    .sort((a, b) => b.product - a.product)
    .slice(0, K);
  assert.deepEqual(await keys(page), nearest.map(({ key }) => key));

  await page.goBack();
  await settled(page);
  assert.deepEqual(await keys(page), exact(HARD));
});

pageTest('a hash that makes no sense shows the first sample', {}, async (page) => {
  await open(page, '#entry=10000&query=-3&ef=11');
  assert.equal(await text(page, '#ef-value'), '64');
  assert.equal(await page.locator('#tries a[aria-current]').count(), 1);
  assert.equal(await page.locator('#results > li').count(), K);
  await page.click('#surprise');
  await settled(page);
  assert.match(page.url(), /#entry=\d+$/);
});

for (const [width, height] of [[360, 740], [390, 844], [768, 1024], [1280, 900]]) {
  const touch = width < 500 ? { isMobile: true, hasTouch: true } : {};
  pageTest(`${width} pixels wide: nothing sticks out`, { width, height, ...touch }, async (page) => {
    const lengths = texts.map((line) => line.indexOf(': '));
    const longest = lengths.indexOf(Math.max(...lengths));
    const sticksOut = () =>
      page.evaluate(() => {
        const limit = document.documentElement.clientWidth;
        return [...document.querySelectorAll('body *')]
          .filter((element) => element.getClientRects().length > 0 && !element.closest('.tries'))
          .filter((element) => element.getBoundingClientRect().right > limit + 0.5)
          .map((element) => element.outerHTML.slice(0, 80));
      });
    const wide = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    await open(page);
    assert.deepEqual([await wide(), await sticksOut()], [0, []]);
    await page.fill('#query', 'american');
    assert.deepEqual([await wide(), await sticksOut()], [0, []]);
    if (touch.hasTouch) {
      const title = await text(page, '[role=option] .option-title');
      await page.tap('[role=option]');
      await settled(page);
      assert.equal(await page.isVisible('#options'), false);
      assert.ok([title, `“${title}”`].includes(await text(page, '#subject')));
    }
    await follow(page, `#entry=${longest}`);
    assert.deepEqual([await wide(), await sticksOut()], [0, []]);
    for (const target of await page.$$('button:visible, #results a, .segmented label, #ef')) {
      const box = await target.boundingBox();
      const what = await target.evaluate((element) => element.outerHTML);
      assert.ok(box.height >= 32 && box.width >= 32, `${what} is too small to hit`);
    }
  });
}

/** The contrast of two colours, as WCAG defines it. */
function contrast(a, b) {
  const luminance = (colour) => {
    const [red, green, blue] = colour
      .match(/[\d.]+/g)
      .slice(0, 3)
      .map((part) => Number(part) / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
}

const colours = (page) =>
  page.evaluate(() => {
    const style = (selector) => getComputedStyle(document.querySelector(selector));
    return {
      paper: style('html').backgroundColor,
      texts: ['#subject', '#results .definition', '#hint', '#results .number', '#surprise'].map((s) => style(s).color),
    };
  });

for (const scheme of ['light', 'dark']) {
  pageTest(`${scheme} by the system's wish, legibly`, { colorScheme: scheme }, async (page) => {
    await open(page);
    const { paper, texts: all } = await colours(page);
    assert.equal(contrast(paper, 'rgb(0, 0, 0)') > 10, scheme === 'light', `paper is ${paper}`);
    for (const colour of all) assert.ok(contrast(paper, colour) >= 4.5, `${colour} on ${paper}`);
  });
}

pageTest('the theme can be chosen, and is remembered', { colorScheme: 'light' }, async (page) => {
  await open(page);
  const { paper: system } = await colours(page);
  await page.click('#theme');
  assert.match(await page.getAttribute('#theme', 'aria-label'), /^Theme: light/);
  assert.equal((await colours(page)).paper, system);
  await page.click('#theme');
  assert.match(await page.getAttribute('#theme', 'aria-label'), /^Theme: dark/);
  const { paper: dark } = await colours(page);
  assert.notEqual(dark, system);
  await page.reload();
  await settled(page);
  assert.equal((await colours(page)).paper, dark);
  await page.click('#theme');
  assert.equal((await colours(page)).paper, system);
});

pageTest('reduced motion is respected', { reducedMotion: 'reduce' }, async (page) => {
  await open(page);
  const moving = await page.$$eval(
    '*',
    (all) => all.filter((element) => getComputedStyle(element).transitionDuration !== '0s').length,
  );
  assert.equal(moving, 0);
});

pageTest('the licence of the texts is there', {}, async (page) => {
  await open(page);
  const licence = await page.request.get(await page.$eval('footer a', ({ href }) => href));
  assert.equal(licence.status(), 200);
  assert.match(await licence.text(), /WordNet 3\.0 Copyright 2006 by Princeton University/);
});

const failure = async (page) => {
  await page.waitForSelector('#failure:not([hidden])');
  assert.equal(await page.isVisible('#workspace'), false);
  assert.equal(await page.isVisible('#progress'), false);
  return text(page, '#failure p');
};

pageTest('a file that is missing is a sentence, and can be tried again', { errors: true }, async (page) => {
  server.faults.missing.add('demo.twx');
  try {
    await page.goto(server.url);
    assert.equal(await failure(page), 'demo.twx could not be fetched: the server answered 404.');
  } finally {
    server.faults.missing.clear();
  }
  await page.click('#failure button');
  await settled(page);
  assert.equal(await page.isVisible('#failure'), false);
  assert.equal(await page.locator('#results > li').count(), K);
});

pageTest('a file that ends early is a sentence', { errors: true }, async (page) => {
  server.faults.cut.add('demo.twx');
  try {
    await page.goto(server.url);
    const { bytes } = manifest.files.index;
    assert.equal(await failure(page), `demo.twx has ${bytes >> 1} bytes instead of ${bytes}; reload the page.`);
  } finally {
    server.faults.cut.clear();
  }
});

pageTest('a browser without SIMD is told so', {}, async (page) => {
  await page.addInitScript(() => { WebAssembly.validate = () => false; });
  server.requests.length = 0;
  await page.goto(server.url);
  const said = await failure(page);
  assert.match(said, /^The index cannot be searched in this browser: .*no WebAssembly SIMD.*\.$/);
  assert.ok(!server.requests.includes('/demo/data/demo.twx'), 'nothing large is fetched in vain');
});
