// Screen readers get a name for the search dialog, and no landmark for each button that copies code.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
new MutationObserver(() => {
  for (const nav of document.querySelectorAll("nav.md-code__nav:not([role])")) nav.setAttribute("role", "group");
}).observe(document.body, { childList: true, subtree: true });
