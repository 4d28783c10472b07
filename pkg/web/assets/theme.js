// The theme that was chosen before, set before anything is painted.
"use strict";
try {
  const theme = localStorage.getItem("tranche-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage is off: the system's theme counts */ }
