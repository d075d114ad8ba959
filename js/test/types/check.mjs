// Type-checks usage.ts against the built package, as projects with different settings see it.
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const here = dirname(fileURLToPath(import.meta.url));

const PROJECTS = {
  'ES2020 and the DOM, Node resolution': { lib: ['lib.es2020.d.ts', 'lib.dom.d.ts'], module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext },
  'ES2020 alone, Node resolution': { lib: ['lib.es2020.d.ts'], module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext },
  'newest and the DOM, a bundler': { lib: ['lib.esnext.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'], module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler },
  'newest in a worker, a bundler': { lib: ['lib.esnext.d.ts', 'lib.webworker.d.ts'], module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler },
  'CommonJS': { lib: ['lib.es2020.d.ts'], module: ts.ModuleKind.Node16, moduleResolution: ts.ModuleResolutionKind.Node16, extension: 'cts' },
};

export function checkTypes() {
  const problems = [];
  for (const [name, { extension, ...settings }] of Object.entries(PROJECTS)) {
    const options = {
      target: ts.ScriptTarget.ES2020,
      strict: true,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
      skipLibCheck: false,
      noEmit: true,
      types: [],
      ...settings,
    };
    const host = ts.createCompilerHost(options);
    const real = join(here, 'usage.ts');
    const file = extension ? join(here, `usage.${extension}`) : real;
    const { getSourceFile, fileExists } = host;
    host.fileExists = (path) => path === file || fileExists.call(host, path);
    host.getSourceFile = (path, ...rest) =>
      path === file ? ts.createSourceFile(file, ts.sys.readFile(real), rest[0]) : getSourceFile.call(host, path, ...rest);
    const program = ts.createProgram([file], options, host);
    for (const diagnostic of ts.getPreEmitDiagnostics(program)) {
      const at = diagnostic.file
        ? `${diagnostic.file.fileName}:${diagnostic.file.getLineAndCharacterOfPosition(diagnostic.start).line + 1}`
        : '';
      problems.push(`${name}: ${at} ${ts.flattenDiagnosticMessageText(diagnostic.messageText, '\n')}`);
    }
  }
  if (problems.length > 0) throw new Error(problems.join('\n'));
}
