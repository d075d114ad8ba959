// Compiled, not run: what must type-check, and with `@ts-expect-error` what must not.
import { Index, SearchResult, TwindexError, init } from 'twindex';
import type {
  ByteSource,
  Candidates,
  Encoding,
  Hit,
  IndexStats,
  Key,
  Metric,
  Originals,
  SearchOptions,
  StoredVector,
  TwindexErrorCode,
} from 'twindex';

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function exactly<A, B>(..._proof: Equal<A, B> extends true ? [] : ['the types differ', A, B]): void {}

export async function usage(module: WebAssembly.Module, response: Promise<{ ok: boolean; status: number; url: string; headers: { get(name: string): string | null }; arrayBuffer(): Promise<ArrayBuffer> }>): Promise<void> {
  await init();
  await init('twindex.wasm');
  await init(new Uint8Array(8));
  await init(new ArrayBuffer(8));
  await init(module);
  await init(response);
  await init({ href: 'https://example.org/twindex.wasm' });
  // @ts-expect-error
  await init(5);

  const index = await Index.create({ dimension: 3, metric: 'cosine', kind: 'hnsw', m: 16, efConstruction: 200, ef: 64, seed: 1n });
  exactly<typeof index, Index>();
  // @ts-expect-error
  await Index.create({ metric: 'l2' });
  // @ts-expect-error
  await Index.create({ dimension: 3 });
  // @ts-expect-error
  await Index.create({ dimension: 3, metric: 'dot' });
  // @ts-expect-error
  await Index.create({ dimension: 3, metric: 'l2', M: 16 });
  // @ts-expect-error
  await Index.create({ dimension: '3', metric: 'l2' });
  await Index.create({ dimension: 3, metric: 'l2', encoding: 'bits1', originals: 'f16', rotate: false, centre: true });
  // @ts-expect-error
  await Index.create({ dimension: 3, metric: 'l2', encoding: 'int16' });
  // @ts-expect-error
  await Index.create({ dimension: 3, metric: 'l2', encoding: 'int8', originals: 'int8' });
  // @ts-expect-error
  await Index.create({ dimension: 3, metric: 'l2', rotate: 1 });
  // @ts-expect-error
  new Index();

  const source: ByteSource = { byteLength: 5, readInto: (offset, buffer) => void buffer.fill(offset) };
  for (const bytes of [new Uint8Array(1), new ArrayBuffer(1), new DataView(new ArrayBuffer(1)), 'a.twx', 3, source]) {
    exactly<Awaited<ReturnType<typeof Index.open>>, Index>();
    await Index.open(bytes, { readOnly: true, dimension: 3, metric: 'l2', kind: 'flat' });
  }
  await Index.open('a.twx', { residency: 'on-demand', encoding: 'int4' });
  await Index.open('a.twx', { residency: 'resident', readOnly: true });
  // @ts-expect-error
  await Index.open('a.twx', { residency: 'mapped' });
  // @ts-expect-error
  await Index.open('a.twx', { encoding: 'f64' });
  // @ts-expect-error
  await Index.open({});
  // @ts-expect-error
  await Index.open('a.twx', { mode: 'r' });

  exactly<typeof index.size, number>();
  exactly<typeof index.dimension, number>();
  exactly<typeof index.metric, Metric>();
  exactly<typeof index.kind, 'flat' | 'hnsw'>();
  exactly<typeof index.encoding, Encoding>();
  exactly<typeof index.originals, Originals>();
  exactly<typeof index.readOnly, boolean>();
  exactly<typeof index.simd, string>();
  exactly<typeof index.memory, number>();
  // @ts-expect-error
  index.size = 5;

  index.add(1, [1, 2, 3]);
  index.add(1n, new Float32Array(3));
  index.add(1, new Int8Array(3));
  // @ts-expect-error
  index.add('1', [1, 2, 3]);
  // @ts-expect-error
  index.add(1, new BigInt64Array(3));
  // @ts-expect-error
  index.add(1, ['1', '2', '3']);
  index.addBatch([1, 2n], [[1, 2, 3], new Float32Array(3)]);
  index.addBatch(new Set([1]), new Float64Array(3));
  index.addBatch(new BigUint64Array(1), [1, 2, 3]);
  index.update(1, [1, 2, 3]);
  exactly<ReturnType<Index['remove']>, boolean>();
  exactly<ReturnType<Index['get']>, Float32Array | undefined>();
  exactly<ReturnType<Index['getWithSource']>, StoredVector | undefined>();
  exactly<StoredVector['vector'], Float32Array>();
  exactly<StoredVector['source'], 'original' | 'code'>();
  exactly<ReturnType<Index['has']>, boolean>();
  exactly<ReturnType<Index['keys']>, BigUint64Array>();
  exactly<ReturnType<Index['save']>, Uint8Array>();
  exactly<ReturnType<Index['stats']>, IndexStats>();
  exactly<ReturnType<Index['search']>, SearchResult>();
  exactly<ReturnType<Index['searchBatch']>, SearchResult[]>();
  exactly<ReturnType<Index['compact']>, void>();
  exactly<ReturnType<Index['retrain']>, void>();
  exactly<ReturnType<Index['attachOriginals']>, void>();
  exactly<ReturnType<Index['clear']>, void>();
  exactly<ReturnType<Index['free']>, void>();

  for (const originals of [new Float32Array(3), new Uint8Array(12), new ArrayBuffer(12), 'a.npy', 3, source]) {
    index.attachOriginals(originals, { format: 'f32' });
  }
  index.attachOriginals('a.npy');
  // @ts-expect-error
  index.attachOriginals([1, 2, 3]);
  // @ts-expect-error
  index.attachOriginals('a.csv', { format: 'csv' });

  const found = index.candidates([1, 2, 3], { k: 5, rerank: 4 });
  exactly<typeof found, Candidates>();
  exactly<typeof found.ids, Uint32Array>();
  exactly<typeof found.keys, BigUint64Array>();
  exactly<typeof found.distances, Float32Array>();
  exactly<ReturnType<Index['rescore']>, SearchResult>();
  index.rescore([1, 2, 3], found, [[1, 2, 3]], { k: 5 });
  index.rescore(new Float32Array(3), { ids: found.ids, keys: found.keys }, new Float32Array(3));
  // @ts-expect-error
  index.rescore([1, 2, 3], [1, 2], [[1, 2, 3]]);
  // @ts-expect-error
  index.rescore([1, 2, 3], found);

  const options: SearchOptions = { k: 5, ef: 50, exact: true, radius: 0.5, rerank: 2, filter: (key) => key === 1 };
  const result = index.search([1, 2, 3], options);
  exactly<typeof result.keys, BigUint64Array>();
  exactly<typeof result.distances, Float32Array>();
  exactly<typeof result.reranked, boolean>();
  exactly<typeof result.length, number>();
  for (const hit of result) {
    exactly<typeof hit, Hit>();
    exactly<typeof hit.key, Key>();
    exactly<typeof hit.distance, number>();
    exactly<typeof hit.reranked, boolean>();
    index.get(hit.key);
  }
  const [first] = result;
  exactly<typeof first, Hit | undefined>();
  index.search(new Float32Array(3), { filter: [1, 2n] });
  index.search(new Float32Array(3), { filter: new Set<bigint>() });
  index.search(new Float32Array(3), { filter: new Uint32Array(2) });
  // @ts-expect-error
  index.search(new Float32Array(3), { topK: 5 });
  // @ts-expect-error
  index.search(new Float32Array(3), { filter: 'x' });
  // @ts-expect-error
  index.search('x');
  // @ts-expect-error
  new SearchResult(new BigUint64Array(1), new Float32Array(1));

  try {
    index.clear();
  } catch (error) {
    if (error instanceof TwindexError) {
      exactly<typeof error.code, TwindexErrorCode>();
      if (error.code === 'DUPLICATE_KEY') index.compact();
    }
  }
  index[Symbol.dispose]();
}
