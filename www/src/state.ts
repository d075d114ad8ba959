// What the page shows, as it stands in the address: #query=12, #entry=3456, &ef=64, &exact.

import type { Subject } from './searcher.js';

export interface State {
  subject: Subject;
  ef: number;
  exact: boolean;
}

/** The steps of the slider. */
export const EF_STEPS: readonly number[] = [10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

export const DEFAULT_EF = 64;

/** Reads an address' hash; what is missing or makes no sense is as in `fallback`. */
export function parseHash(hash: string, counts: { query: number; entry: number }, fallback: Subject): State {
  const given = new URLSearchParams(hash.replace(/^#/, ''));
  const number = (name: string) => (/^\d{1,9}$/.test(given.get(name) ?? '') ? Number(given.get(name)) : undefined);
  let subject = fallback;
  for (const kind of ['query', 'entry'] as const) {
    const id = number(kind);
    if (id !== undefined && id < counts[kind]) subject = { kind, id };
  }
  const ef = number('ef') ?? DEFAULT_EF;
  return { subject, ef: EF_STEPS.includes(ef) ? ef : DEFAULT_EF, exact: given.has('exact') };
}

/** The hash of a state; what is as by default is left out. */
export function formatHash({ subject, ef, exact }: State): string {
  const parts = [`${subject.kind}=${subject.id}`];
  if (ef !== DEFAULT_EF) parts.push(`ef=${ef}`);
  if (exact) parts.push('exact');
  return `#${parts.join('&')}`;
}
