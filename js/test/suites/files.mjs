// Saving and opening (K8), damaged and hostile bytes (K9), and every kind of source.
import { Index } from 'twindex';
import { KINDS, METRICS, equal, filled, hitsOf, ok, place, randomizer, refuses, same, test } from '../harness.mjs';

const DAMAGE = [
  'NOT_A_SEGMENT',
  'UNSUPPORTED_VERSION',
  'UNSUPPORTED_FEATURES',
  'TRUNCATED',
  'CORRUPT',
  'CHECKSUM_MISMATCH',
  'TOO_LARGE',
  'NOT_FINITE',
  'ZERO_VECTOR',
  'NORM_TOO_LARGE',
];

const bits = (result) => [Array.from(result.keys), new Uint32Array(result.distances.buffer, result.distances.byteOffset, result.length)];

test('a saved index answers as before, and its bytes are the same again', async () => {
  for (const metric of METRICS) {
    for (const kind of KINDS) {
      const { index, row } = await filled(Index, { metric, kind, dimension: 7, count: 300 });
      for (let key = 0; key < 300; key += 10) index.remove(key);
      index.update(1, row(2));
      const bytes = index.save();
      ok(bytes instanceof Uint8Array && bytes.byteLength === bytes.buffer.byteLength);
      for (const readOnly of [false, true]) {
        const opened = await Index.open(bytes, { readOnly });
        same([opened.metric, opened.kind, opened.dimension, opened.size, opened.readOnly], [metric, kind, 7, 270, readOnly]);
        for (let i = 0; i < 30; i++) same(bits(opened.search(row(i))), bits(index.search(row(i))));
        same(opened.get(1), row(2));
        equal(opened.has(10), false);
        same(opened.keys().slice().sort(), index.keys().slice().sort());
        same(opened.save(), bytes, 'saved again');
        opened.free();
      }
      index.free();
    }
  }
});

test('an opened index grows, a read-only one refuses every change', async () => {
  const { index, row } = await filled(Index);
  const bytes = index.save();
  const opened = await Index.open(bytes);
  opened.add(1000, row(0).map((x) => x + 0.001));
  opened.update(3, row(4));
  equal(opened.remove(5), true);
  opened.compact();
  equal(opened.size, 200);
  same(opened.search(row(0), { k: 2 }).keys, BigUint64Array.of(0n, 1000n));
  opened.clear();
  equal(opened.size, 0);
  const readOnly = await Index.open(bytes, { readOnly: true });
  for (const change of [
    () => readOnly.add(1000, row(0)),
    () => readOnly.addBatch([1000], row(0)),
    () => readOnly.update(1, row(0)),
    () => readOnly.remove(1),
    () => readOnly.compact(),
    () => readOnly.clear(),
  ]) {
    await refuses(change, 'READ_ONLY');
  }
  equal(readOnly.size, 200);
  equal(readOnly.search(row(9), { k: 1 }).keys[0], 9n);
});

test('residency: what it implies and what contradicts it', async () => {
  const { index, row } = await filled(Index);
  const bytes = index.save();
  for (const [options, readOnly] of [
    [{}, false],
    [{ residency: 'resident' }, true],
    [{ residency: 'resident', readOnly: true }, true],
    [{ residency: 'on-demand' }, true],
    [{ residency: 'on-demand', readOnly: true }, true],
  ]) {
    const opened = await Index.open(bytes, options);
    equal(opened.readOnly, readOnly);
    same(hitsOf(opened.search(row(4))), hitsOf(index.search(row(4))));
    if (readOnly) await refuses(() => opened.add(1000, row(0)), 'READ_ONLY');
    opened.free();
  }
  for (const residency of ['resident', 'on-demand']) {
    await refuses(() => Index.open(bytes, { residency, readOnly: false }), 'INVALID_ARGUMENT', 'readOnly');
  }
  for (const residency of ['mapped', '', null, true, 1]) {
    await refuses(() => Index.open(bytes, { residency }), 'INVALID_ARGUMENT', 'residency');
  }
});

test('an empty index is saved and opened', async () => {
  for (const kind of KINDS) {
    const index = await Index.create({ dimension: 3, metric: 'ip', kind });
    const opened = await Index.open(index.save());
    same([opened.size, opened.kind, opened.search([1, 2, 3]).length], [0, kind, 0]);
    opened.add(1, [1, 2, 3]);
    equal(opened.search([1, 2, 3]).length, 1);
  }
});

test('a file that contradicts what was expected (B64)', async () => {
  const files = [];
  for (const metric of METRICS) {
    for (const kind of KINDS) {
      for (const dimension of [4, 9]) {
        files.push({ metric, kind, dimension, bytes: (await filled(Index, { metric, kind, dimension, count: 20 })).index.save() });
      }
    }
  }
  for (const file of files) {
    for (const { metric, kind, dimension } of files) {
      const right = metric === file.metric && kind === file.kind && dimension === file.dimension;
      if (right) (await Index.open(file.bytes, { metric, kind, dimension })).free();
      else await refuses(() => Index.open(file.bytes, { metric, kind, dimension }), 'MISMATCH');
    }
    if (file.dimension === 4) {
      const error = await refuses(() => Index.open(file.bytes, { dimension: 9 }), 'MISMATCH', '4', '9');
      ok(error.message.includes('dimension'));
    }
  }
});

test('a file cut anywhere is refused (B76)', async () => {
  for (const kind of KINDS) {
    const { index } = await filled(Index, { kind });
    const bytes = index.save();
    const lengths = [];
    for (let length = 0; length <= 512; length++) lengths.push(length);
    for (let i = 0; i < 200; i++) lengths.push(Math.floor((i * bytes.length) / 200));
    lengths.push(bytes.length - 1);
    for (const length of lengths) {
      if (length >= bytes.length) continue;
      for (const readOnly of [false, true]) {
        await refuses(() => Index.open(bytes.subarray(0, length), { readOnly }), DAMAGE);
      }
    }
  }
});

test('random and foreign bytes are refused', async () => {
  const next = randomizer(3);
  for (const length of [0, 1, 8, 64, 100, 4096, 100000]) {
    await refuses(() => Index.open(Uint8Array.from({ length }, next)), DAMAGE);
    await refuses(() => Index.open(new Uint8Array(length)), DAMAGE);
  }
  await refuses(() => Index.open(new TextEncoder().encode('<!doctype html><title>404</title>'.repeat(100))), 'NOT_A_SEGMENT');
});

test('a file opened with verify is whole, or refused', async () => {
  const next = randomizer(11);
  for (const kind of KINDS) {
    const { index, row } = await filled(Index, { kind, count: 150, dimension: 4, m: 4, efConstruction: 20 });
    const bytes = index.save();
    for (const readOnly of [false, true]) {
      const opened = await Index.open(bytes, { readOnly, verify: true });
      equal(opened.search(row(3), { k: 1 }).keys[0], 3n);
      for (let round = 0; round < 100; round++) {
        const copy = bytes.slice();
        copy[next() % copy.length] ^= 1 << next() % 8;
        await refuses(() => Index.open(copy, { readOnly, verify: true }), DAMAGE);
      }
    }
  }
});

test('flipped bytes: a typed error or an answer in bounds, never a trap (B74, B75, B78, B79)', async () => {
  const next = randomizer(7);
  for (const kind of KINDS) {
    const { index, row } = await filled(Index, { kind, count: 150, dimension: 4, m: 4, efConstruction: 20 });
    const bytes = index.save();
    let opened = 0;
    for (let round = 0; round < 1500; round++) {
      const copy = bytes.slice();
      // The header, the section table at the end, then anywhere.
      const at = round < 300 ? round : round < 600 ? copy.length - 1 - (round - 300) : next() % copy.length;
      const values = [0xff, 0, copy[at] ^ (1 << next() % 8), copy[at] + 1];
      copy[at] = values[next() % 4];
      if (round % 3 === 0) copy.fill(0xff, at, at + 4);
      let damaged;
      try {
        damaged = await Index.open(copy, { readOnly: round % 2 === 0 });
      } catch (error) {
        ok(DAMAGE.includes(error.code), `${kind}, byte ${at}: ${error.code} ${error.message}`);
        continue;
      }
      opened++;
      try {
        const hits = damaged.search(row(3), { k: 20, ef: 50 });
        ok(hits.length <= 20 && new Set(hits.keys).size === hits.length, `byte ${at}`);
        ok(hits.distances.every(Number.isFinite), `byte ${at}`);
        damaged.search(row(3), { k: 20, exact: true });
        for (const key of damaged.keys()) damaged.get(key);
        damaged.stats();
        if (!damaged.readOnly) {
          damaged.add(12345678, row(1));
          damaged.compact();
        }
        damaged.save();
      } catch (error) {
        ok(error.code !== 'INTERNAL' && error.name === 'TwindexError', `${kind}, byte ${at}: ${error.stack}`);
      }
      damaged.free();
    }
    ok(opened > 0, 'no flipped byte was let through to search');
  }
  const { index, row } = await filled(Index);
  equal(index.search(row(0), { k: 1 }).keys[0], 0n);
});

test('bytes in every wrapping', async () => {
  const { index, row } = await filled(Index);
  const bytes = index.save();
  const expected = hitsOf(index.search(row(0)));
  const within = new Uint8Array(bytes.length + 100);
  within.set(bytes, 37);
  const sources = {
    ArrayBuffer: bytes.buffer,
    Uint8Array: bytes,
    subarray: within.subarray(37, 37 + bytes.length),
    DataView: new DataView(within.buffer, 37, bytes.length),
    Int8Array: new Int8Array(bytes.buffer),
    byteSource: {
      byteLength: bytes.length,
      readInto: (offset, buffer) => void buffer.set(bytes.subarray(offset, offset + buffer.length)),
    },
    counting: {
      byteLength: bytes.length,
      readInto(offset, buffer) {
        buffer.set(bytes.subarray(offset, offset + buffer.length));
        return buffer.length;
      },
    },
    accessHandle: {
      getSize: () => bytes.length,
      read(buffer, { at }) {
        buffer.set(bytes.subarray(at, at + buffer.length));
        return buffer.length;
      },
    },
  };
  if (typeof SharedArrayBuffer === 'function') {
    const shared = new SharedArrayBuffer(bytes.length);
    new Uint8Array(shared).set(bytes);
    sources.SharedArrayBuffer = shared;
    sources.shared = new Uint8Array(shared);
  }
  if (typeof Buffer === 'function') sources.Buffer = Buffer.from(bytes);
  for (const [name, source] of Object.entries(sources)) {
    for (const readOnly of [false, true]) {
      const opened = await Index.open(source, { readOnly });
      same(hitsOf(opened.search(row(0))), expected, name);
      opened.free();
    }
  }
});

test('after open the source is not needed', async () => {
  const { index, row } = await filled(Index);
  const expected = hitsOf(index.search(row(0)));
  for (const readOnly of [false, true]) {
    const bytes = index.save();
    const opened = await Index.open(bytes, { readOnly });
    bytes.fill(0xaa);
    structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
    same(hitsOf(opened.search(row(0))), expected);
    same(hitsOf(opened.search(row(0), { exact: true })), expected);
    same(opened.get(0), row(0));
    equal(opened.keys().length, 200);
    opened.stats();
    if (readOnly) await refuses(() => opened.save(), 'STORAGE', 'detached');
    else equal(opened.save().length, index.save().length);
    same(hitsOf(opened.search(row(0))), expected);
  }
});

test('a source that fails is an error that says why', async () => {
  const { index, row } = await filled(Index);
  const bytes = index.save();
  const copy = (offset, buffer) => buffer.set(bytes.subarray(offset, offset + buffer.length));
  const own = new Error('the cable was pulled');
  let reads = 0;
  const counted = { byteLength: bytes.length, readInto: (o, b) => (reads++, copy(o, b)) };
  (await Index.open(counted)).free();
  ok(reads > 0);
  for (let good = 0; good < reads; good++) {
    let left = good;
    const error = await refuses(
      () => Index.open({ byteLength: bytes.length, readInto(o, b) { if (left-- === 0) throw own; copy(o, b); } }),
      'STORAGE',
      'the cable was pulled',
    );
    equal(error.cause, own);
  }
  for (const [readInto, word] of [
    [(o, b) => (copy(o, b), b.length - 1), 'returned'],
    [async (o, b) => copy(o, b), 'Promise'],
    [() => 'done', 'done'],
    [() => { throw 'a string'; }, 'a string'],
    [() => { throw null; }, 'not an Error'],
  ]) {
    await refuses(() => Index.open({ byteLength: bytes.length, readInto }), 'STORAGE', word);
  }
  for (const byteLength of [-1, 1.5, NaN, '5', undefined, 2 ** 54, 5n]) {
    await refuses(() => Index.open({ byteLength, readInto: copy }), 'INVALID_ARGUMENT', 'byteLength');
  }
  await refuses(() => Index.open({ byteLength: bytes.length - 1, readInto: copy }), DAMAGE);
  // It reads another index while this one is opened.
  const nested = await Index.open({ byteLength: bytes.length, readInto: (o, b) => (index.search(row(0)), copy(o, b)) });
  equal(nested.size, 200);
  // Its buffer is transferred away while it is read.
  const victim = bytes.slice();
  const thief = { byteLength: bytes.length, readInto: (o, b) => { structuredClone(victim.buffer, { transfer: [victim.buffer] }); b.set(victim.subarray(o, o + b.length)); } };
  await refuses(() => Index.open(thief), ['STORAGE', ...DAMAGE]);
  await refuses(() => Index.open(new Blob([bytes])), 'INVALID_ARGUMENT', 'source', 'arrayBuffer()');
  equal(index.search(row(0), { k: 1 }).keys[0], 0n);
});

test('paths and descriptors in Node.js, a sentence elsewhere', async () => {
  const { index, row } = await filled(Index);
  if (place.name !== 'node') {
    await refuses(() => Index.open('a.twx'), 'INVALID_ARGUMENT', 'source', 'Node.js');
    await refuses(() => Index.open(3), 'INVALID_ARGUMENT', 'source', 'Node.js');
    return;
  }
  const fs = await import('node:fs');
  const { join } = await import('node:path');
  const { tmpdir } = await import('node:os');
  const folder = fs.mkdtempSync(join(tmpdir(), 'twindex test '));
  try {
    const path = join(folder, 'a.twx');
    fs.writeFileSync(path, index.save());
    const opened = () => fs.readdirSync('/proc/self/fd').length;
    const before = process.platform === 'linux' ? opened() : 0;
    equal((await Index.open(path)).search(row(4), { k: 1 }).keys[0], 4n);
    for (const options of [{ readOnly: true }, { residency: 'on-demand' }]) {
      const opened = await Index.open(path, options);
      equal(opened.search(row(4), { k: 1 }).keys[0], 4n);
      same(opened.save(), index.save());
      opened.free();
    }
    const coded = await filled(Index, { encoding: 'int8', kind: 'flat', count: 1200 });
    fs.writeFileSync(join(folder, 'rows.f32'), new Uint8Array(coded.vectors.buffer));
    for (let i = 0; i < 3; i++) coded.index.attachOriginals(join(folder, 'rows.f32'), { format: 'f32' });
    equal(coded.index.search(coded.row(4), { k: 1, rerank: 4 }).keys[0], 4n);
    coded.index.free();
    await refuses(() => index.attachOriginals(join(folder, 'rows.f32'), { format: 'f32' }), 'INVALID_PARAMETER');
    fs.writeFileSync(join(folder, 'cut.twx'), index.save().subarray(0, 1000));
    await refuses(() => Index.open(join(folder, 'cut.twx')), 'TRUNCATED');
    if (process.platform === 'linux') equal(opened(), before, 'files left open');
    const descriptor = fs.openSync(path);
    equal((await Index.open(descriptor)).size, 200);
    equal(fs.fstatSync(descriptor).size, index.save().length, 'the descriptor is the caller\'s');
    fs.closeSync(descriptor);
    await refuses(() => Index.open(descriptor), 'IO');
    await refuses(() => Index.open(join(folder, 'none.twx')), 'IO', 'none.twx');
    await refuses(() => Index.open(folder), 'IO', 'regular file');
    for (const bad of [-1, 1.5, NaN, 2 ** 32]) await refuses(() => Index.open(bad), 'INVALID_ARGUMENT', 'source');
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
});
