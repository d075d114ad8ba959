// Light, dark, or as the system has it. (public/theme.js applies the choice before the first paint.)

const THEMES = ['system', 'light', 'dark'] as const;
const KEY = 'twindex-theme';

const ICONS: Record<(typeof THEMES)[number], string> = {
  system: 'M10 3a7 7 0 1 0 0 14zM10 3a7 7 0 0 1 0 14',
  light:
    'M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7' +
    'M10 1.5v2M10 16.5v2M1.5 10h2M16.5 10h2M4 4l1.4 1.4M14.6 14.6 16 16M4 16l1.4-1.4M14.6 5.4 16 4',
  dark: 'M16.5 12.2A7 7 0 0 1 7.8 3.5a7 7 0 1 0 8.7 8.7z',
};

export function themeButton(button: HTMLButtonElement): void {
  const root = document.documentElement;
  const show = () => {
    const at = THEMES.findIndex((theme) => theme === (root.dataset.theme ?? 'system'));
    const theme = THEMES[Math.max(0, at)]!;
    const next = THEMES[(Math.max(0, at) + 1) % THEMES.length]!;
    const fill = theme === 'system' ? '<path class="half" d="M10 3a7 7 0 1 0 0 14z"/>' : '';
    button.innerHTML =
      `<svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">${fill}<path d="${ICONS[theme]}"/></svg>` +
      `<span>${theme[0]!.toUpperCase()}${theme.slice(1)}</span>`;
    button.setAttribute('aria-label', `Theme: ${theme}. Change to ${next}`);
    return next;
  };
  let next = show();
  button.addEventListener('click', () => {
    if (next === 'system') delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      if (next === 'system') localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, next);
    } catch {
      // Without storage the choice holds for this visit.
    }
    next = show();
  });
}
