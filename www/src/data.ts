// The demo set: fetched with progress, checked for length, taken apart into lines and vectors.
//
// Everything the page knows about its data comes through here: another set is another manifest.

export interface DataFile {
  name: string;
  bytes: number;
}

/** What scripts/data.mjs writes beside the files. */
export interface Manifest {
  /** Changes whenever a file does. */
  made: string;
  rows: number;
  dimension: number;
  metric: 'ip' | 'l2' | 'cosine';
  m: number;
  efConstruction: number;
  queries: number;
  files: { index: DataFile; queryVectors: DataFile; texts: DataFile; queryTexts: DataFile };
}

export interface DataSet {
  manifest: Manifest;
  /** The bytes of the .twx file. */
  index: Uint8Array;
  /** `queries` vectors, one after the other. */
  queryVectors: Float32Array;
  /** The text of each row: its key is its place. */
  texts: string[];
  queryTexts: string[];
}

export type OnProgress = (loaded: number, total: number) => void;

/** A sentence for the reader of the page. */
export class LoadError extends Error {}

/** Loads the set described by `manifest.json` in the folder `base`, an absolute URL that ends in a slash. */
export async function loadData(base: string, onProgress: OnProgress): Promise<DataSet> {
  const manifest = (await (await get(new URL('manifest.json', base), 'no-cache')).json()) as Manifest;
  const { files } = manifest;
  const total = Object.values(files).reduce((sum, { bytes }) => sum + bytes, 0);
  let loaded = 0;
  const load = async (file: DataFile): Promise<Uint8Array<ArrayBuffer>> => {
    const url = new URL(file.name, base);
    url.searchParams.set('v', manifest.made.slice(0, 12));
    return readBody(await get(url), file, (bytes) => onProgress((loaded += bytes), total));
  };
  onProgress(0, total);
  const [index, vectors, texts, queryTexts] = await Promise.all([
    load(files.index),
    load(files.queryVectors),
    load(files.texts),
    load(files.queryTexts),
  ]);
  return {
    manifest,
    index,
    queryVectors: new Float32Array(vectors.buffer),
    texts: lines(texts),
    queryTexts: lines(queryTexts),
  };
}

async function get(url: URL, cache: RequestCache = 'default'): Promise<Response> {
  const name = url.pathname.split('/').pop();
  let response: Response;
  try {
    response = await fetch(url, { cache });
  } catch (cause) {
    throw new LoadError(`${name} could not be fetched; is the network there?`, { cause });
  }
  if (!response.ok) throw new LoadError(`${name} could not be fetched: the server answered ${response.status}.`);
  return response;
}

/** Reads a body into one buffer of the length the manifest promises. */
async function readBody(
  response: Response,
  { name, bytes }: DataFile,
  onBytes: (count: number) => void,
): Promise<Uint8Array<ArrayBuffer>> {
  const body = new Uint8Array(bytes);
  let at = 0;
  try {
    const reader = response.body!.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (at + value.length > bytes) throw new LoadError(`${name} is longer than it should be; reload the page.`);
      body.set(value, at);
      at += value.length;
      onBytes(value.length);
    }
  } catch (cause) {
    if (cause instanceof LoadError) throw cause;
    throw new LoadError(`${name} broke off after ${at} of ${bytes} bytes.`, { cause });
  }
  if (at !== bytes) throw new LoadError(`${name} has ${at} bytes instead of ${bytes}; reload the page.`);
  return body;
}

function lines(bytes: Uint8Array): string[] {
  return new TextDecoder().decode(bytes).replace(/\n$/, '').split('\n');
}
