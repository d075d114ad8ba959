// The page depends on what users get: `npm pack` of ../js, installed from the tarball.
//
// It is no entry of package.json: the lock file would have to hold the checksum of a file that every build makes anew.
// TWINDEX_TARBALL names a tarball to be used instead.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

/** npm started by npm inherits its caller's settings: the folder given with `--prefix` is not ours to inherit. */
function npm(args, cwd) {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_config_.*prefix$/i.test(name)));
  return execFileSync('npm', args, { cwd, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
}

function pack(www) {
  const js = resolve(www, '..', 'js');
  if (!existsSync(join(js, 'dist', 'twindex.wasm'))) {
    throw new Error('js/dist is missing: build the package first (npm ci && npm run build in js/)');
  }
  const folder = join(www, 'node_modules', '.twindex');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const [{ filename }] = JSON.parse(npm(['pack', js, '--json', '--silent', '--pack-destination', folder], www));
  return join(folder, filename);
}

export function installPackage(www) {
  const packed = process.env.TWINDEX_TARBALL ? resolve(process.env.TWINDEX_TARBALL) : pack(www);
  const digest = createHash('sha256').update(readFileSync(packed)).digest('hex');
  const installed = join(www, 'node_modules', 'twindex');
  const stamp = join(installed, `.${digest}`);
  if (existsSync(stamp)) return;
  rmSync(installed, { recursive: true, force: true });
  npm(['install', '--no-save', '--no-audit', '--no-fund', '--prefer-offline', packed], www);
  writeFileSync(stamp, '');
}
