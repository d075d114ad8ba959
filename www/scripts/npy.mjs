// Reading of .npy files, as far as the bundled set goes: two dimensions, C order, float16, float32 or int32.
import { readFileSync } from 'node:fs';

const MAGIC = '\x93NUMPY';

/** float16 to float32, by table: there are only 65,536 of them. */
const HALVES = Float32Array.from({ length: 1 << 16 }, (_, bits) => {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
});

export function readNpy(path) {
  const file = readFileSync(path);
  if (file.toString('latin1', 0, 6) !== MAGIC) throw new Error(`${path} is not an .npy file`);
  const [length, start] = file[6] === 1 ? [file.readUInt16LE(8), 10] : [file.readUInt32LE(8), 12];
  const header = file.toString('latin1', start, start + length);
  const type = /'descr':\s*'([^']+)'/.exec(header)?.[1];
  const shape = /'shape':\s*\((\d+), (\d+)\)/.exec(header);
  if (!shape || !/'fortran_order':\s*False/.test(header)) throw new Error(`${path}: unexpected form ${header.trim()}`);
  const bytes = file.subarray(start + length);
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  const [rows, columns] = [Number(shape[1]), Number(shape[2])];
  switch (type) {
    case '<f2':
      return { rows, columns, data: Float32Array.from(new Uint16Array(buffer), (bits) => HALVES[bits]) };
    case '<f4':
      return { rows, columns, data: new Float32Array(buffer) };
    case '<i4':
      return { rows, columns, data: new Int32Array(buffer) };
    default:
      throw new Error(`${path}: unexpected type ${type}`);
  }
}
