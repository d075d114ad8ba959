// The page: loads the set, then shows what the address asks for, and follows the address from there on.

import { TwindexError, init } from 'twindex';
import { Combobox } from './combobox.js';
import { LoadError, loadData } from './data.js';
import type { DataSet } from './data.js';
import { byId, el } from './dom.js';
import { Finder } from './finder.js';
import type { Match } from './finder.js';
import { formatBytes, formatCount, formatDistance, formatShare, formatTime, parseEntry } from './format.js';
import { Searcher } from './searcher.js';
import type { Answer, Subject } from './searcher.js';
import { EF_STEPS, formatHash, parseHash } from './state.js';
import type { State } from './state.js';
import { themeButton } from './theme.js';

/** Sample sentences offered below the field, the first of them shown when the address asks for nothing. */
const TRIES = [161, 14, 154];

/** What a distance is, for the metric in use, and how much of the bar it fills. */
const METRICS = {
  ip: { note: 'Distance is the negated inner product: smaller is closer.', closeness: (d: number) => -d },
  cosine: { note: 'Distance is 1 − the cosine of the angle: smaller is closer.', closeness: (d: number) => 1 - d },
  l2: { note: 'Distance is the squared Euclidean distance: smaller is closer.', closeness: (d: number) => 1 - d / 2 },
} as const;

/** Milliseconds of quiet before measuring begins: a slider that moves should move smoothly. */
const QUIET = 120;

const announce = (text: string) => {
  byId('announce').textContent = text;
};

class Page {
  readonly #data: DataSet;
  readonly #searcher: Searcher;
  readonly #combobox: Combobox<Subject>;
  #state: State;
  #measuring = new AbortController();

  constructor(data: DataSet, searcher: Searcher) {
    this.#data = data;
    this.#searcher = searcher;
    this.#state = this.#parse();
    const finder = new Finder(data.texts, data.queryTexts);
    this.#combobox = new Combobox<Subject>(
      { input: byId<HTMLInputElement>('query'), listbox: byId('options'), clear: byId<HTMLButtonElement>('clear') },
      {
        find: (typed) => finder.find(typed).map(toOption),
        choose: (subject) => this.#go({ ...this.#state, subject }),
        announce,
      },
    );
  }

  start(): void {
    const ef = byId<HTMLInputElement>('ef');
    ef.max = String(EF_STEPS.length - 1);
    ef.addEventListener('input', () => this.#adjust({ ef: EF_STEPS[Number(ef.value)]! }));
    for (const radio of document.querySelectorAll<HTMLInputElement>('input[name=way]')) {
      radio.addEventListener('change', () => this.#adjust({ exact: radio.value === 'exact' }));
    }
    addEventListener('hashchange', () => {
      const wasInResults = byId('results').contains(document.activeElement);
      this.#state = this.#parse();
      this.#show();
      if (wasInResults) this.#toSubject();
    });

    const sentences = TRIES.filter((id) => id < this.#data.queryTexts.length);
    byId('tries').prepend(
      ...sentences.map((id) => el('li', {}, [el('a', { 'data-query': String(id) }, [this.#data.queryTexts[id]!])])),
    );
    byId('surprise').addEventListener('click', () => {
      const id = Math.floor(Math.random() * this.#data.texts.length);
      this.#go({ ...this.#state, subject: { kind: 'entry', id } });
    });
    byId('sample-count').textContent = formatCount(this.#data.queryTexts.length);
    byId('distance-note').textContent = METRICS[this.#searcher.metric].note;
    for (const id of ['tries', 'workspace', 'facts']) byId(id).hidden = false;
    byId<HTMLInputElement>('query').disabled = false;
    this.#show();
  }

  #parse(): State {
    const counts = { query: this.#data.queryTexts.length, entry: this.#data.texts.length };
    return parseHash(location.hash, counts, { kind: 'query', id: TRIES[0]! });
  }

  /** Another subject: a step in the history. */
  #go(state: State): void {
    const hash = formatHash(state);
    if (hash === location.hash) this.#show();
    else location.hash = hash;
  }

  /** Another setting: the same step. */
  #adjust(change: Partial<State>): void {
    this.#state = { ...this.#state, ...change };
    history.replaceState(history.state, '', formatHash(this.#state));
    this.#show();
  }

  #toSubject(): void {
    const subject = byId('subject');
    const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
    subject.focus({ preventScroll: true });
    subject.closest('.subject')!.scrollIntoView({ behavior: still ? 'auto' : 'smooth', block: 'start' });
  }

  #show(): void {
    const { subject, ef, exact } = this.#state;
    const answer = this.#searcher.answer(subject, ef, exact);
    this.#showSubject(subject);
    this.#showSettings(ef, exact);
    this.#showHits(answer, exact);
    byId('recall').textContent = `${answer.found} of ${answer.of}`;
    announce(`The ${answer.hits.length} definitions nearest to ${byId('subject').textContent} are listed.`);
    void this.#measure();
  }

  #showSubject(subject: Subject): void {
    const text = (subject.kind === 'query' ? this.#data.queryTexts : this.#data.texts)[subject.id]!;
    const isQuery = subject.kind === 'query';
    const { lemmas, definition } = isQuery ? { lemmas: `“${text}”`, definition: '' } : parseEntry(text);
    byId('subject-kind').textContent = isQuery ? 'Nearest to the sentence' : 'Nearest to the entry';
    byId('subject').textContent = lemmas;
    byId('subject-text').textContent = definition;
    byId('subject-text').hidden = definition === '';
    this.#combobox.text = isQuery ? text : lemmas;
    document.title = `${lemmas} · Twindex`;
    for (const link of byId('tries').querySelectorAll('a')) {
      const id = Number(link.dataset.query);
      link.href = formatHash({ ...this.#state, subject: { kind: 'query', id } });
      if (isQuery && subject.id === id) link.setAttribute('aria-current', 'true');
      else link.removeAttribute('aria-current');
    }
  }

  #showSettings(ef: number, exact: boolean): void {
    const slider = byId<HTMLInputElement>('ef');
    slider.value = String(EF_STEPS.indexOf(ef));
    slider.setAttribute('aria-valuetext', String(ef));
    slider.style.setProperty('--filled', String(EF_STEPS.indexOf(ef) / (EF_STEPS.length - 1)));
    byId('ef-value').textContent = String(ef);
    document.querySelector<HTMLInputElement>(`input[name=way][value=${exact ? 'exact' : 'graph'}]`)!.checked = true;
  }

  #showHits({ hits }: Answer, exact: boolean): void {
    const { closeness } = METRICS[this.#searcher.metric];
    byId('results').replaceChildren(
      ...hits.map(({ key, distance, inGraph }) => {
        const { lemmas, definition } = parseEntry(this.#data.texts[key]!);
        const bar = el('span', { class: 'bar', 'aria-hidden': 'true' }, [el('span')]);
        bar.style.setProperty('--closeness', String(Math.min(1, Math.max(0, closeness(distance)))));
        const href = formatHash({ ...this.#state, subject: { kind: 'entry', id: key } });
        return el('li', {}, [
          el('a', { class: 'hit', href, 'data-key': String(key) }, [
            el('span', { class: 'lemmas' }, [
              lemmas,
              ...(exact && !inGraph ? [' ', el('span', { class: 'tag' }, ['missed by the graph'])] : []),
            ]),
            el('span', { class: 'distance' }, [
              el('span', { class: 'visually-hidden' }, ['distance ']),
              el('span', { class: 'number' }, [formatDistance(distance)]),
              bar,
              el('span', { class: 'more' }, ['More like this']),
            ]),
            el('span', { class: 'definition' }, [definition]),
          ]),
        ]);
      }),
    );
  }

  /**
   * Sweeps the sample sentences, then times what is shown, unless something else comes to be shown meanwhile. In this
   * order, because an engine's first runs of a module are slow.
   */
  async #measure(): Promise<void> {
    this.#measuring.abort();
    const { signal } = (this.#measuring = new AbortController());
    const { subject, ef } = this.#state;
    byId('workspace').setAttribute('aria-busy', 'true');
    await new Promise((quiet) => setTimeout(quiet, QUIET));
    if (signal.aborted) return;
    const sweep = await this.#searcher.sweep(ef, signal);
    if (!sweep || signal.aborted) return;
    byId('sweep-graph-time').textContent = formatTime(sweep.graph);
    byId('sweep-exact-time').textContent = formatTime(sweep.exact);
    byId('sweep-recall').textContent = formatShare(sweep.recall);
    byId('graph-time').textContent = formatTime(this.#searcher.time(subject, ef, false));
    byId('exact-time').textContent = formatTime(this.#searcher.time(subject, ef, true));
    byId('fact-memory').textContent = formatBytes(this.#searcher.memory);
    byId('workspace').removeAttribute('aria-busy');
  }
}

function toOption({ subject, text }: Match) {
  if (subject.kind === 'query') return { value: subject, group: 'Sample sentences', title: text, detail: '' };
  const { lemmas, definition } = parseEntry(text);
  return { value: subject, group: 'Entries', title: lemmas, detail: definition };
}

function showProgress(loaded: number, total: number): void {
  const percent = Math.floor((100 * loaded) / total);
  const bar = byId('progress');
  bar.setAttribute('aria-valuenow', String(percent));
  bar.style.setProperty('--loaded', String(loaded / total));
  byId('loaded').textContent = `Loading the index: ${formatBytes(loaded)} of ${formatBytes(total)}`;
}

function showFacts(searcher: Searcher, { manifest }: DataSet, milliseconds: number): void {
  const facts = {
    rows: formatCount(searcher.size),
    dimension: formatCount(searcher.dimension),
    file: formatBytes(manifest.files.index.bytes),
    memory: formatBytes(searcher.memory),
    simd: searcher.simd,
    open: formatTime(milliseconds),
  };
  for (const [name, text] of Object.entries(facts)) byId(`fact-${name}`).textContent = text;
  byId('hint').textContent = `${facts.rows} entries · ${facts.file} index · ${facts.simd}`;
  byId('hint').hidden = false;
}

function sentence(error: unknown): string {
  if (error instanceof LoadError) return error.message;
  if (error instanceof TwindexError && error.code === 'UNSUPPORTED_ENGINE') {
    return `The index cannot be searched in this browser: ${error.message}.`;
  }
  return `The index could not be opened: ${error instanceof Error ? error.message : String(error)}.`;
}

async function load(): Promise<void> {
  const loading = byId('loading');
  const failure = byId('failure');
  loading.hidden = false;
  failure.hidden = true;
  try {
    await init();
    const data = await loadData(new URL('data/', document.baseURI).href, showProgress);
    const began = performance.now();
    const searcher = await Searcher.open(data);
    showFacts(searcher, data, performance.now() - began);
    new Page(data, searcher).start();
  } catch (error) {
    failure.querySelector('p')!.textContent = sentence(error);
    failure.hidden = false;
  } finally {
    loading.hidden = true;
  }
}

themeButton(byId<HTMLButtonElement>('theme'));
byId('failure').querySelector('button')!.addEventListener('click', () => void load());
void load();
