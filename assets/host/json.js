/* JSON with syntax colours and a button that copies it. */

import { copyButton, el } from "./dom.js";

const COLOURED = 60_000;  // characters; longer texts are shown without colours
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** The nodes of a JSON text, one for each token with its class. */
export function coloured(text) {
  if (text.length > COLOURED) return [text];
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > at) nodes.push(text.slice(at, match.index));
    const kind = match[2] !== undefined ? "j-key" : match[1] !== undefined ? "j-text" : /^[tfn]/.test(match[0]) ? "j-word" : "j-number";
    nodes.push(el("span", { class: kind }, match[1] ?? match[0]), match[2] ?? "");
    at = match.index + match[0].length;
  }
  nodes.push(text.slice(at));
  return nodes;
}

/** A box with a value (or with a text that is JSON already; one that may be none `isPlain`). */
export function jsonBox(value, name, { text = JSON.stringify(value, null, 2) ?? "undefined", tall = false, isPlain = false } = {}) {
  const pre = el("pre", { class: tall ? "json tall" : "json", tabindex: "0", role: "region", "aria-label": name });
  if (isPlain) pre.textContent = text; else for (const node of coloured(text)) pre.append(node);
  return el("div", { class: "json-box" }, pre, copyButton(`Copy ${name}`, () => text));
}

/** The same under a line that opens it. */
export function folded(title, make, { open = false } = {}) {
  const place = el("div", { class: "folded-body" });
  const node = el("details", { class: "folded", toggle: () => { if (node.open && !place.firstChild) place.append(make()); } }, el("summary", {}, title), place);
  node.open = open;
  if (open) place.append(make());
  return node;
}
