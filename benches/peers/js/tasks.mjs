// What is measured, the same text in Node and in a page. A host gives what differs between the two:
//
//   cpu()                  CPU seconds this process has taken so far, all its threads together
//   bytes(file), open(file)   a file of the working folder as an ArrayBuffer; as what Index.open takes
//   twindex(), hnswlib()   the modules of the contenders

/** CPU seconds that each figure is measured over, at least: Chromium tells them to the hundredth. */
const LEAST = 0.5;
const NPY_HEADER = 128;

const CONTENDERS = {
  async twindex(host, { dimension, m, efConstruction }) {
    const { Index } = await host.twindex();
    const index = await Index.create({ dimension, metric: 'ip', m, efConstruction });
    return {
      add: (key, vector) => index.add(key, vector),
      search: (query, k, ef) => index.search(query, { k, ef }),
      keys: (found) => Array.from(found.keys, Number),
    };
  },
  async 'hnswlib-wasm'(host, { rows, dimension, m, efConstruction }) {
    const { HierarchicalNSW } = await host.hnswlib();
    const index = new HierarchicalNSW('ip', dimension, '');
    index.initIndex(rows, m, efConstruction, 100);
    let current;
    return {
      add: (key, vector) => index.addPoint(vector, key, false),
      search(query, k, ef) {
        if (ef !== current) index.setEfSearch((current = ef));
        return index.searchKnn(query, k, undefined);
      },
      keys: (found) => found.neighbors,
    };
  },
};

/** The rows of a table of four-byte numbers, each a view. */
async function table(host, file, columns, type = Float32Array) {
  const all = new type(await host.bytes(file), NPY_HEADER);
  return Array.from({ length: all.length / columns }, (_, row) => all.subarray(row * columns, (row + 1) * columns));
}

/** Recall and queries per CPU second at each `ef`; the pass that finds the recall is the warming-up. */
async function sweep(host, { search, keys }, queries, truth, { k, efs }) {
  const results = [];
  for (const ef of efs) {
    let found = 0;
    queries.forEach((query, i) => {
      const hits = new Set(keys(search(query, k, ef)));
      for (const key of truth[i]) if (hits.has(key)) found++;
    });
    const start = await host.cpu();
    let passes = 0;
    let seconds;
    do {
      for (const query of queries) search(query, k, ef);
      passes++;
      seconds = (await host.cpu()) - start;
    } while (seconds < LEAST);
    results.push({ ef, recall: found / (queries.length * k), cpu_qps: (passes * queries.length) / seconds });
  }
  return results;
}

/** A contender builds an index row by row, then searches it. */
export async function build(host, options) {
  const { contender, base, queries, truth, dimension, k } = options;
  const rows = await table(host, base, dimension);
  const index = await CONTENDERS[contender](host, { ...options, rows: rows.length });
  const start = await host.cpu();
  rows.forEach((row, key) => index.add(key, row));
  const cpu_seconds = (await host.cpu()) - start;
  const exact = await table(host, truth, k, Int32Array);
  return { cpu_seconds, results: await sweep(host, index, await table(host, queries, dimension), exact, options) };
}

/** Twindex opens a file: the memory that takes, the hits of every query at `ef`, and the speed. */
export async function open(host, options) {
  const { file, readOnly, queries, truth, dimension, k, ef } = options;
  const { Index } = await host.twindex();
  const index = await Index.open(await host.open(file), { readOnly });
  const { memory } = index;
  const asked = await table(host, queries, dimension);
  const hits = asked.map((query) => index.search(query, { k, ef }));
  const keys = hits.map((found) => Array.from(found.keys, Number));
  const bits = hits.map(({ distances }) => Array.from(new Uint32Array(distances.buffer, distances.byteOffset, distances.length)));
  const contender = { search: (query, k, ef) => index.search(query, { k, ef }), keys: (found) => Array.from(found.keys, Number) };
  const exact = await table(host, truth, k, Int32Array);
  return { memory, keys, bits, results: await sweep(host, contender, asked, exact, options) };
}
