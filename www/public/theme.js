// Before the first paint: the theme that was chosen here earlier, where it isn't the system's.
try {
  const theme = localStorage.getItem('twindex-theme');
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Storage is switched off; the system's theme it is.
}
