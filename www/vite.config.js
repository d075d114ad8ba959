import { defineConfig } from 'vite';

const POLICY = [
  "default-src 'none'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

/** The built page states its own content security policy; the dev server's inline styles would not pass it. */
const policy = {
  name: 'content-security-policy',
  apply: 'build',
  transformIndexHtml: () => [
    { tag: 'meta', attrs: { 'http-equiv': 'Content-Security-Policy', content: POLICY }, injectTo: 'head-prepend' },
  ],
};

export default defineConfig({
  // Relative addresses: the built folder works wherever a static server puts it.
  base: './',
  plugins: [policy],
  // The package finds its .wasm beside its own module, so it must stay where it is.
  optimizeDeps: { exclude: ['twindex'] },
  build: { modulePreload: { polyfill: false }, reportCompressedSize: false },
});
