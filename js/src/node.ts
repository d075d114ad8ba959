// The little of Node.js that is used where there is one, found without an import that bundlers would trip over.

/** @internal */
export interface NodeFs {
  openSync(path: string, flags: string): number;
  closeSync(descriptor: number): void;
  fstatSync(descriptor: number): { size: number; isFile(): boolean };
  readSync(descriptor: number, buffer: Uint8Array, offset: number, length: number, position: number): number;
  promises: { readFile(path: string | URL): Promise<Uint8Array> };
}

interface Process {
  versions?: { node?: string };
  getBuiltinModule?(name: string): unknown;
}

/** @internal Node's `fs`, or undefined in a page. */
export function nodeFs(): NodeFs | undefined {
  const process = (globalThis as { process?: Process }).process;
  if (!process?.versions?.node) return undefined;
  return process.getBuiltinModule?.('node:fs') as NodeFs | undefined;
}
