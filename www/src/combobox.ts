// An editable combobox with a list popup, as the ARIA Authoring Practices describe it: focus stays in the field,
// aria-activedescendant says which option is meant.

import { el } from './dom.js';

export interface Option<T> {
  value: T;
  group: string;
  title: string;
  detail: string;
}

export interface ComboboxParts {
  input: HTMLInputElement;
  listbox: HTMLElement;
  clear: HTMLButtonElement;
}

export interface ComboboxHooks<T> {
  find(typed: string): Option<T>[];
  choose(value: T): void;
  /** Says something to those who don't see it. */
  announce(text: string): void;
}

export class Combobox<T> {
  readonly #parts: ComboboxParts;
  readonly #hooks: ComboboxHooks<T>;
  #options: Option<T>[] = [];
  #elements: HTMLElement[] = [];
  #active = -1;

  constructor(parts: ComboboxParts, hooks: ComboboxHooks<T>) {
    this.#parts = parts;
    this.#hooks = hooks;
    const { input, listbox, clear } = parts;
    input.addEventListener('input', () => this.#open());
    input.addEventListener('click', () => {
      if (!this.#isOpen) this.#open();
    });
    input.addEventListener('focus', () => input.select());
    input.addEventListener('blur', () => this.#close());
    input.addEventListener('keydown', (event) => this.#key(event));
    // Pressing in the list must not take the focus away; scrolling it by touch must not choose.
    listbox.addEventListener('pointerdown', (event) => event.preventDefault());
    listbox.addEventListener('mousedown', (event) => event.preventDefault());
    listbox.addEventListener('click', (event) => {
      const at = this.#elements.indexOf((event.target as Element).closest<HTMLElement>('[role=option]')!);
      if (at >= 0) this.#choose(at);
    });
    clear.addEventListener('click', () => {
      this.text = '';
      input.focus();
      this.#open();
    });
  }

  set text(text: string) {
    const { input, clear } = this.#parts;
    input.value = text;
    clear.hidden = text === '';
    // The next thing typed replaces it.
    if (document.activeElement === input) input.select();
  }

  get #isOpen(): boolean {
    return !this.#parts.listbox.hidden;
  }

  #open(): void {
    const { input, listbox, clear } = this.#parts;
    const typed = input.value.trim();
    clear.hidden = input.value === '';
    this.#options = this.#hooks.find(typed);
    this.#elements = this.#options.map((option, i) =>
      el('div', { id: `option-${i}`, role: 'option', 'aria-selected': 'false' }, [
        el('span', { class: 'option-title' }, highlighted(option.title, typed)),
        ...(option.detail ? [el('span', { class: 'option-detail' }, highlighted(option.detail, typed))] : []),
      ]),
    );
    const groups = [...new Set(this.#options.map(({ group }) => group))].map((name, g) =>
      el('div', { role: 'group', 'aria-labelledby': `group-${g}` }, [
        el('div', { id: `group-${g}`, class: 'group eyebrow', role: 'presentation' }, [name]),
        ...this.#elements.filter((_, i) => this.#options[i]!.group === name),
      ]),
    );
    const none = el('p', { class: 'none' }, [`No entry and no sample sentence has “${typed}” in it.`]);
    listbox.replaceChildren(...(groups.length > 0 ? groups : [none]));
    listbox.scrollTop = 0;
    listbox.hidden = false;
    input.setAttribute('aria-expanded', 'true');
    this.#setActive(-1);
    const count = this.#options.length;
    this.#hooks.announce(count === 0 ? none.textContent! : count === 1 ? '1 suggestion' : `${count} suggestions`);
  }

  #close(): void {
    const { input, listbox } = this.#parts;
    listbox.hidden = true;
    input.setAttribute('aria-expanded', 'false');
    this.#setActive(-1);
  }

  #setActive(at: number): void {
    const { input } = this.#parts;
    this.#elements[this.#active]?.setAttribute('aria-selected', 'false');
    this.#active = at;
    const element = this.#elements[at];
    if (!element) {
      input.removeAttribute('aria-activedescendant');
      return;
    }
    element.setAttribute('aria-selected', 'true');
    element.scrollIntoView({ block: 'nearest' });
    input.setAttribute('aria-activedescendant', element.id);
  }

  #choose(at: number): void {
    const option = this.#options[at];
    if (!option) return;
    this.#close();
    // A phone's keyboard would cover what was found.
    if (matchMedia('(pointer: coarse)').matches) this.#parts.input.blur();
    this.#hooks.choose(option.value);
  }

  #key(event: KeyboardEvent): void {
    if (event.isComposing || event.altKey || event.ctrlKey || event.metaKey) return;
    const count = this.#options.length;
    switch (event.key) {
      case 'ArrowDown':
      case 'ArrowUp': {
        const down = event.key === 'ArrowDown';
        if (!this.#isOpen) this.#open();
        else if (count > 0) {
          const from = this.#active < 0 && !down ? count : this.#active;
          this.#setActive((from + (down ? 1 : -1) + count) % count);
        }
        break;
      }
      case 'Enter':
        if (!this.#isOpen) return;
        this.#choose(Math.max(0, this.#active));
        break;
      case 'Escape':
        if (this.#isOpen) this.#close();
        else this.text = '';
        break;
      default:
        return;
    }
    event.preventDefault();
  }
}

/** The text with the typed terms marked. */
function highlighted(text: string, typed: string): (Node | string)[] {
  const terms = typed.split(/\s+/).filter(Boolean);
  if (terms.length === 0) return [text];
  const escaped = terms.map((term) => term.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'));
  const parts = text.split(new RegExp(`(${escaped.join('|')})`, 'giu'));
  return parts.map((part, i) => (i % 2 === 1 ? el('mark', {}, [part]) : part));
}
