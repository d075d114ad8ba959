'use strict';
// Where the WebAssembly file is when nobody says: beside the ES modules, one folder up.
Object.defineProperty(exports, '__esModule', { value: true });

exports.defaultLocation = function defaultLocation(relaxedSimd) {
  if (typeof __dirname !== 'string' || typeof process !== 'object' || !process.getBuiltinModule) {
    throw new Error("outside Node.js say where the .wasm file is: await init(url); or import the package as an ES module");
  }
  const name = relaxedSimd ? 'twindex-relaxed-simd.wasm' : 'twindex.wasm';
  return process.getBuiltinModule('node:url').pathToFileURL(`${__dirname}/../${name}`);
};
