// How the module may be loaded. Each case needs a fresh module graph: the runners give each a worker of its own.
import { equal, ok, refuses, same } from './harness.mjs';

async function works(Index) {
  const index = await Index.create({ dimension: 2, metric: 'l2' });
  index.add(1, [1, 2]);
  equal(index.search([1, 2]).keys[0], 1n);
  return index;
}

const FILES = { simd128: 'twindex.wasm', 'relaxed-simd': 'twindex-relaxed-simd.wasm' };

// `wasm` is the URL of the file without relaxed SIMD, `bytes()` reads it, `simd` is the level of the file that the engine
// is to be given, `read()` tells the names of .wasm files read so far.
export const cases = {
  async 'nothing needs to be said'({ Index }) {
    await works(Index);
  },
  async 'the best file is read and no other'({ Index }, { simd, read }) {
    equal((await works(Index)).simd, simd);
    same(read(), [FILES[simd]]);
  },
  async 'an engine without relaxed SIMD gets the other file'({ init, Index }, { read }) {
    const { validate } = WebAssembly;
    const RELAXED_DOT = '253,146,2,';
    WebAssembly.validate = (probe) => !`${probe},`.includes(RELAXED_DOT) && validate.call(WebAssembly, probe);
    await init();
    WebAssembly.validate = validate;
    equal((await works(Index)).simd, 'simd128');
    same(read(), [FILES.simd128]);
  },
  async 'a file that was asked for is taken, whatever the engine has'({ init, Index }, { wasm }) {
    await init(wasm);
    equal((await works(Index)).simd, 'simd128');
  },
  async 'called without arguments, at the same time and again'({ init, Index }) {
    await Promise.all([init(), init(), works(Index), init(), works(Index)]);
    const first = await works(Index);
    await init();
    await init('nowhere.wasm');
    first.add(2, [3, 4]);
    equal(first.size, 2);
    const second = await works(Index);
    equal(first.memory, second.memory, 'one memory for all');
  },
  async 'a URL, as a string'({ init, Index }, { wasm }) {
    await init(wasm);
    await works(Index);
  },
  async 'a URL object'({ init, Index }, { wasm }) {
    await init(new URL(wasm));
    await works(Index);
  },
  async 'bytes'({ init, Index }, { bytes }) {
    const whole = await bytes();
    const within = new Uint8Array(whole.length + 9);
    within.set(whole, 5);
    await init(within.subarray(5, 5 + whole.length));
    await works(Index);
  },
  async 'an ArrayBuffer'({ init, Index }, { bytes }) {
    await init((await bytes()).slice().buffer);
    await works(Index);
  },
  async 'a module'({ init, Index }, { bytes }) {
    await init(await WebAssembly.compile(await bytes()));
    await works(Index);
  },
  async 'a promise of a Response of the right type'({ init, Index }, { bytes }) {
    const headers = { 'content-type': 'application/wasm' };
    await init(bytes().then((b) => new Response(b, { headers })));
    await works(Index);
  },
  async 'a Response of a wrong type'({ init, Index }, { bytes }) {
    await init(new Response(await bytes(), { headers: { 'content-type': 'text/plain' } }));
    await works(Index);
  },
  async 'failures say what happened, and the next call tries again'({ init, Index }, { wasm, bytes }) {
    await refuses(() => init(`${wasm}.missing`), 'LOAD_FAILED', '.missing');
    await refuses(() => init(new Response('gone', { status: 404 })), 'LOAD_FAILED', '404');
    const html = new Response('<!doctype html>', { headers: { 'content-type': 'text/html' } });
    await refuses(() => init(html), 'LOAD_FAILED', 'text/html');
    const lies = new Response('<!doctype html>', { headers: { 'content-type': 'application/wasm' } });
    await refuses(() => init(lies), 'LOAD_FAILED', 'compile');
    await refuses(() => init(new Uint8Array(100)), 'LOAD_FAILED', 'not a WebAssembly module');
    await refuses(() => init((async () => { throw new Error('no network'); })()), 'LOAD_FAILED', 'no network');
    const foreign = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0);
    for (const bad of [5, null, {}, [], true, Symbol('x')]) await refuses(() => init(bad), 'INVALID_ARGUMENT', 'source');
    const [a, b] = await Promise.allSettled([init(`${wasm}.missing`), Index.create({ dimension: 1, metric: 'l2' })]);
    equal([a.status, b.status].join(), 'rejected,rejected');
    const cut = (await bytes()).slice(0, 1000);
    await refuses(() => init(cut), 'LOAD_FAILED');
    ok(foreign.length === 8);
    await works(Index);
  },
  async 'an engine without SIMD gets a sentence'({ init, Index }) {
    const { validate } = WebAssembly;
    WebAssembly.validate = () => false;
    await refuses(() => init(), 'UNSUPPORTED_ENGINE', 'SIMD', 'Safari');
    await refuses(() => Index.create({ dimension: 1, metric: 'l2' }), 'UNSUPPORTED_ENGINE');
    WebAssembly.validate = validate;
    await works(Index);
  },
  async 'an engine without WebAssembly gets a sentence'({ init, Index }) {
    const saved = globalThis.WebAssembly;
    delete globalThis.WebAssembly;
    await refuses(() => init(), 'UNSUPPORTED_ENGINE', 'no WebAssembly');
    globalThis.WebAssembly = saved;
    await works(Index);
  },
  async 'another module is not taken for this one'({ init, Index }) {
    await refuses(() => init(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0)), 'LOAD_FAILED', 'version of twindex');
    await works(Index);
  },
};
