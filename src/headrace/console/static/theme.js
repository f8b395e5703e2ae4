// Dark or light: as the system says, unless the reader has said otherwise. Loaded before the page is shown.

const remembered = (() => {
  try {
    return localStorage.getItem("headrace-theme");
  } catch {
    return null; // storage may be forbidden; then nothing is remembered
  }
})();
if (remembered === "dark" || remembered === "light") document.documentElement.dataset.theme = remembered;
