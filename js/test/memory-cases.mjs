// What may lie in WebAssembly memory, and what it takes. Memory never shrinks, so each case has an instance of its own.
import { equal, filled, ok, randomVectors, refuses, same } from './harness.mjs';
import { linesOf } from './suites/parity.mjs';

const PAGE = 65536;
/** What the allocator and a search take besides: its windows above all. */
const SLACK = 3 << 20;

/** The module with a memory of at most so many bytes. */
function limited(module, most) {
  const read = (at) => {
    for (let value = 0, shift = 0; ; shift += 7, at++) {
      value |= (module[at] & 127) << shift;
      if (module[at] < 128) return [value >>> 0, at + 1];
    }
  };
  const leb = (value) => (value < 128 ? [value] : [(value & 127) | 128, ...leb(value >>> 7)]);
  for (let at = 8; at < module.length; ) {
    const [length, start] = read(at + 1);
    if (module[at] === 5) {
      const [count, flags] = read(start);
      const [least] = read(flags + 1);
      if (count !== 1 || least * PAGE > most) throw new Error(`${count} memories of ${least} pages or more`);
      const limits = [1, 1, ...leb(least), ...leb(Math.floor(most / PAGE))];
      const [before, after] = [module.subarray(0, at), module.subarray(start + length)];
      const changed = new Uint8Array(before.length + 2 + limits.length + after.length);
      changed.set(before);
      changed.set([5, limits.length, ...limits], before.length);
      changed.set(after, changed.length - after.length);
      return changed;
    }
    at = start + length;
  }
  throw new Error('no memory section');
}

/** What prepare.mjs says of the large files, and a check that one of them is searched as natively. */
async function large(fixture) {
  const text = async (name) => new TextDecoder().decode(await fixture(name));
  const { dimension, count, k, rerank } = JSON.parse(await text('large.json'));
  const queries = new Float32Array((await fixture('large-queries.f32')).slice().buffer);
  const expected = { codes: await text('large-codes.hits'), originals: await text('large-originals.hits') };
  const check = (name, index) => {
    const lines = linesOf(index, queries, dimension, { k, ef: 1, exact: true, rerank });
    same(lines, expected[name].trim().split('\n'));
  };
  return { dimension, count, bytes: count * dimension * 4, check };
}

export const cases = {
  async 'a file larger than memory opens on demand, and is searched by windows (B129)'({ init, Index }, { bytes, fixture }) {
    const { check, bytes: size, dimension, count } = await large(fixture);
    const most = 12 << 20;
    ok(size > most);
    await init(limited(await bytes(), most));
    const file = await fixture('large-codes.twx');
    for (let attempt = 0; attempt < 3; attempt++) {
      for (const options of [{}, { readOnly: true }, { residency: 'resident' }]) {
        await refuses(() => Index.open(file, options), 'OUT_OF_MEMORY', 'bytes');
      }
    }
    const first = await Index.create({ dimension: 1, metric: 'l2' });
    const before = first.memory;
    first.free();
    const index = await Index.open(file, { residency: 'on-demand' });
    same([index.size, index.dimension, index.readOnly], [count, dimension, true]);
    const { residentBytes } = index.stats();
    ok(residentBytes < 20 * count, `${residentBytes} bytes resident`);
    check('codes', index);
    const { memory } = index;
    ok(memory <= most && memory - before <= residentBytes + SLACK, `${memory - before} bytes more`);
    for (let round = 0; round < 3; round++) check('codes', index);
    equal(index.memory, memory, 'searched again');
    // Others still find room, and one that asks for too much is told so.
    const small = await Index.create({ dimension, metric: 'l2' });
    small.add(1, new Float32Array(dimension));
    const many = new Float32Array(size / 4);
    await refuses(() => small.addBatch(Array.from({ length: count }, (_, i) => i + 2), many), 'OUT_OF_MEMORY');
    equal(small.size, 1);
    equal(small.search(new Float32Array(dimension)).keys[0], 1n);
    check('codes', index);
  },
  async 'originals never come into memory, codes and links do once'({ init, Index }, { bytes, fixture }) {
    const { check, bytes: size, count, dimension } = await large(fixture);
    const most = 14 << 20;
    ok(size > most);
    await init(limited(await bytes(), most));
    const empty = await Index.create({ dimension: 1, metric: 'l2' });
    const before = empty.memory;
    empty.free();
    const file = await fixture('large-originals.twx');
    const index = await Index.open(file, { readOnly: true });
    const { residentBytes, sections } = index.stats();
    const codes = count * (dimension + 8);
    equal(sections.CODES, codes);
    equal(sections.ORIGINALS, size);
    ok(residentBytes >= codes && residentBytes < codes + 20 * count, `${residentBytes} resident`);
    check('originals', index);
    const { memory } = index;
    ok(memory <= most && memory - before <= residentBytes + SLACK, `${memory - before} for ${residentBytes}`);
    for (let round = 0; round < 3; round++) check('originals', index);
    equal(index.memory, memory, 'searched again');
    // One that is to be changed has them with it.
    await refuses(() => Index.open(file), 'OUT_OF_MEMORY');
    check('originals', index);
  },
  async 'memory grows by what is resident, for every encoding'({ init, Index }, { bytes }) {
    await init(await bytes());
    for (const encoding of ['f32', 'f16', 'int8', 'int4', 'bits1']) {
      const dimension = 64;
      const count = 20000;
      const originals = encoding === 'f32' ? 'none' : 'f32';
      const index = await Index.create({ dimension, metric: 'ip', kind: 'flat', encoding, originals });
      for (let at = 0; at < count; at += 1000) {
        index.addBatch(Array.from({ length: 1000 }, (_, i) => at + i), randomVectors(1000, dimension, at));
      }
      const file = index.save();
      index.free();
      // Those before left some room: as many as it takes until memory grows, then one more.
      const opened = [];
      const grown = [];
      while (grown.length < 4) {
        const before = opened.at(-1)?.memory ?? 0;
        opened.push(await Index.open(file, { readOnly: true }));
        if (before > 0 && opened.at(-1).memory > before) grown.push([opened.length, opened.at(-1).memory]);
        if (opened.length > 200) break;
      }
      const { residentBytes } = opened[0].stats();
      ok(residentBytes < count * (20 + { f32: 256, f16: 128, int8: 72, int4: 40, bits1: 16 }[encoding]), encoding);
      const each = (grown.at(-1)[1] - grown[0][1]) / (grown.at(-1)[0] - grown[0][0]);
      ok(each < residentBytes * 1.25 + PAGE, `${encoding}: memory grows by ${each} for ${residentBytes} resident bytes`);
      opened.forEach((one) => one.free());
    }
  },
  async 'two hundred indexes, one after the other, in the memory of three (B123)'({ init, Index }, { bytes }) {
    await init(await bytes());
    const dimension = 128;
    const vectors = randomVectors(5000, dimension, 1);
    const keys = Array.from({ length: 5000 }, (_, i) => i);
    const encodings = ['f32', 'f16', 'int8', 'int4', 'bits1'];
    let third = 0;
    for (let cycle = 1; cycle <= 200; cycle++) {
      // The first three are the largest.
      const encoding = cycle <= 3 ? 'f32' : encodings[cycle % 5];
      const originals = cycle > 3 && encoding === 'bits1' ? 'f16' : 'none';
      const index = await Index.create({ dimension, metric: 'cosine', kind: 'flat', encoding, originals });
      index.addBatch(keys, vectors);
      const query = vectors.subarray(cycle * dimension, (cycle + 1) * dimension);
      equal(index.search(query, { k: 1, rerank: originals === 'none' && encoding !== 'f32' ? undefined : 10 }).keys[0], BigInt(cycle));
      if (cycle === 3) third = index.memory;
      if (cycle === 200) ok(index.memory <= 1.2 * third, `${third} bytes after 3, ${index.memory} after 200`);
      index.free();
    }
  },
  async 'a graph whose codes are read on demand'({ init, Index }, { bytes }) {
    await init(await bytes());
    for (const encoding of ['f32', 'int8']) {
      const { index, row } = await filled(Index, { encoding, count: 3000, dimension: 200, m: 8, efConstruction: 40 });
      const file = index.save();
      let [reads, most] = [0, 0];
      const source = {
        byteLength: file.length,
        readInto(at, buffer) {
          reads++;
          most = Math.max(most, buffer.length);
          buffer.set(file.subarray(at, at + buffer.length));
        },
      };
      const opened = await Index.open(source, { residency: 'on-demand' });
      const codes = 3000 * { f32: 800, int8: 208 }[encoding];
      ok(opened.stats().residentBytes < file.length - codes + 1000);
      [reads, most] = [0, 0];
      let read = 0;
      for (let i = 0; i < 20; i++) {
        const [here, there] = [opened, index].map((one) => one.search(row(i), { k: 5, ef: 20 }));
        same([here.keys, here.distances], [there.keys, there.distances]);
        read = Math.max(read, reads);
        reads = 0;
      }
      ok(read > 3 && read < 800 && most <= 1 << 20, `${read} reads of ${most} bytes at most`);
      const { memory } = opened;
      for (let i = 0; i < 50; i++) opened.search(row(i), { k: 5, ef: 20 });
      equal(opened.memory, memory);
      index.free();
      opened.free();
    }
  },
};
