// What the theme leaves out for screen readers and keyboards: a name for the search dialog, no landmark for each button
// that copies code, and focus for wide tables and code.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
new MutationObserver(() => {
  for (const nav of document.querySelectorAll("nav.md-code__nav:not([role])")) nav.setAttribute("role", "none");
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex]), pre > code:not([tabindex])")) {
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
  }
}).observe(document.body, { childList: true, subtree: true });

// Browsers break lines after hyphens, and so after the hyphens of an option; extra.css forbids it.
for (const code of document.querySelectorAll(".md-typeset code")) {
  if (code.children.length || !/(?<![\w-])--?\w/.test(code.textContent)) continue;
  const mark = (text) => Object.assign(document.createElement("span"), { className: "option", textContent: text });
  const parts = code.textContent.split(/((?<![\w-])--?\w[\w-]*)/);
  code.replaceChildren(...parts.map((part, index) => (index % 2 ? mark(part) : part)));
}
