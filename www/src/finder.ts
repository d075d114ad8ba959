// Finding entries and sample sentences by what is typed.

import type { Subject } from './searcher.js';

export interface Match {
  subject: Subject;
  text: string;
}

interface Item extends Match {
  /** The text as it is compared. */
  folded: string;
  /** Where the lemmas end and the definition begins. */
  head: number;
}

/** How many of each kind are offered. */
const LIMITS = { query: 5, entry: 20 } as const;

/** Lower case, without accents; the length may change, which only matters within a text. */
export function fold(text: string): string {
  return text.normalize('NFD').replace(/\p{M}/gu, '').toLowerCase();
}

export class Finder {
  readonly #items: Item[];

  constructor(texts: readonly string[], queryTexts: readonly string[]) {
    const items = (kind: Subject['kind'], list: readonly string[]) =>
      list.map((text, id): Item => {
        const folded = fold(text);
        const colon = kind === 'entry' ? folded.indexOf(': ') : -1;
        return { subject: { kind, id }, text, folded, head: colon < 0 ? folded.length : colon };
      });
    this.#items = [...items('query', queryTexts), ...items('entry', texts)];
  }

  /** The best matches of each kind: sentences first, each kind by rank, then by length. Nothing typed: sentences. */
  find(typed: string): Match[] {
    const terms = fold(typed).split(/\s+/).filter(Boolean);
    const whole = terms.join(' ');
    const ranked: Record<Subject['kind'], { item: Item; rank: number }[]> = { query: [], entry: [] };
    for (const item of this.#items) {
      if (!terms.every((term) => item.folded.includes(term))) continue;
      ranked[item.subject.kind].push({ item, rank: rank(item, whole) });
    }
    if (terms.length === 0) return ranked.query.map(({ item }) => item);
    return (['query', 'entry'] as const).flatMap((kind) =>
      ranked[kind]
        .sort((a, b) => a.rank - b.rank || a.item.head - b.item.head || a.item.subject.id - b.item.subject.id)
        .slice(0, LIMITS[kind])
        .map(({ item }) => item),
    );
  }
}

/** Less is better: the very lemma, a lemma's beginning, a word's beginning among the lemmas, in the text, anywhere. */
function rank({ folded, head }: Item, whole: string): number {
  const lemmas = folded.slice(0, head);
  const list = lemmas.split(', ');
  if (list.includes(whole)) return 0;
  if (list.some((lemma) => lemma.startsWith(whole))) return 1;
  if (startsWord(lemmas, whole)) return 2;
  return startsWord(folded, whole) ? 3 : 4;
}

function startsWord(text: string, whole: string): boolean {
  for (let at = text.indexOf(whole); at >= 0; at = text.indexOf(whole, at + 1)) {
    if (at === 0 || !/[\p{L}\p{N}]/u.test(text[at - 1]!)) return true;
  }
  return false;
}
