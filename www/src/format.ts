// Numbers and texts as they are shown.

/** Between a number and its unit: no line breaks there. */
const GAP = '\u00a0';

export interface Entry {
  /** The words, as WordNet lists them: "pickup, pick-me-up". */
  lemmas: string;
  definition: string;
}

/** Takes a row's text apart: "lemmas: definition". */
export function parseEntry(text: string): Entry {
  const colon = text.indexOf(': ');
  if (colon < 0) return { lemmas: text, definition: '' };
  return { lemmas: text.slice(0, colon), definition: text.slice(colon + 2) };
}

export function formatDistance(distance: number): string {
  return distance.toFixed(4).replace('-', '−');
}

/** Three significant digits, in µs below a millisecond. */
export function formatTime(milliseconds: number): string {
  if (milliseconds < 0.9995) return `${Number((milliseconds * 1000).toPrecision(3))}${GAP}µs`;
  if (milliseconds < 999.5) return `${milliseconds.toPrecision(3)}${GAP}ms`;
  return `${(milliseconds / 1000).toPrecision(3)}${GAP}s`;
}

export function formatBytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)}${GAP}MB`;
}

export function formatCount(count: number): string {
  return count.toLocaleString('en');
}

export function formatShare(share: number): string {
  return `${(share * 100).toFixed(1)}${GAP}%`;
}
