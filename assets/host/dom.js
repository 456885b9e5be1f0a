/* Elements of names and text, and the few widgets that all parts of the page share. Data never becomes markup:
   nothing here, and nothing that uses it, reads a string as HTML. */

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  tool: "M9.8 2.6a3.4 3.4 0 0 0-4.3 4.3L2.2 10.2a1.4 1.4 0 0 0 0 2l1.6 1.6a1.4 1.4 0 0 0 2 0l3.3-3.3a3.4 3.4 0 0 0 4.3-4.3L11.2 8.4 8.8 7.2 7.6 4.8z",
  app: "M2 4.5A1.5 1.5 0 0 1 3.5 3h9A1.5 1.5 0 0 1 14 4.5v7a1.5 1.5 0 0 1-1.5 1.5h-9A1.5 1.5 0 0 1 2 11.5zM2 6h12",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  prompt: "M3 3h10v7.5H8L5 13.3V10.5H3z",
  up: "M8 13V3.5M4 7l4-4 4 4",
  down: "M8 3v9.5M4 9l4 4 4-4",
  close: "M4 4l8 8M12 4l-8 8",
  plus: "M8 3v10M3 8h10",
  copy: "M6 5.5h7.5V14H6zM10.5 5.5V2H3v8.5h3",
  check: "M3 8.5l3.5 3.5L13 4.5",
  reload: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  save: "M8 2v8M4.5 7L8 10.5 11.5 7M3 13.5h10",
  info: "M8 7.2v4M8 4.7v.1M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12z",
  warn: "M8 2.5l6.3 11H1.7zM8 6.7v3M8 11.7v.1",
  play: "M5 3l8 5-8 5z",
  pause: "M5.5 3v10M10.5 3v10",
  step: "M4 3l6 5-6 5zM12.5 3v10",
  sun: "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM8 1.5v1.4M8 13.1v1.4M1.5 8h1.4M13.1 8h1.4M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  moon: "M13.2 9.7A5.7 5.7 0 0 1 6.3 2.8a5.7 5.7 0 1 0 6.9 6.9z",
  half: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12M10 3v10M12 4.8v6.4",
  sliders: "M2 4.5h7M12 4.5h2M2 11.5h2M7 11.5h7M9 4.5a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0M4 11.5a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0",
  lines: "M2.5 4h11M2.5 8h11M2.5 12h7",
  key: "M2 4.5h12v7H2zM4.5 9.3h7M4.5 6.8h.1M7 6.8h.1M9.5 6.8h.1M12 6.8h-.1",
  expand: "M9.5 2.5h4v4M6.5 13.5h-4v-4M13.5 2.5L9 7M2.5 13.5L7 9",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3L14 14",
};

/** An element: attributes by name, functions as listeners, children as nodes or text (null and false are left out). */
export function el(tag, attributes = {}, ...children) {
  const node = tag === "svg" || tag === "path" ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(name, value);
  }
  add(node, children);
  return node;
}

export function add(node, children) {
  for (const child of children.flat(2)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

export const fill = (node, ...children) => { node.replaceChildren(); return add(node, children); };
export const icon = (name) =>
  el("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true", focusable: "false" }, el("path", { d: ICONS[name] }));
export const byId = (id) => document.getElementById(id);

/** A button with a text, after the picture `attributes.icon`. */
export function button(label, click, { icon: picture, ...attributes } = {}) {
  return el("button", { type: "button", class: "button", click, ...attributes }, picture ? icon(picture) : null, label ? el("span", {}, label) : null);
}

/** A button with a picture only; the label is its name and tool tip. */
export const iconButton = (picture, label, click, attributes = {}) =>
  el("button", { type: "button", class: "button only", click, "aria-label": label, title: label, ...attributes }, icon(picture));

let numbered = 0;
export const newId = (prefix = "x") => `${prefix}${(numbered += 1)}`;

/** A label over (or before) its control. */
export function labelled(text, control, { hint, row = false } = {}) {
  control.id ||= newId("c");
  return el("div", { class: row ? "control row" : "control" }, el("label", { for: control.id }, text), control, hint ? el("p", { class: "hint" }, hint) : null);
}

export function select(options, value, change, attributes = {}) {
  const node = el("select", { class: "field", change: () => change(node.value), ...attributes }, options.map(([one, text]) => el("option", { value: one }, text)));
  node.value = value;
  return node;
}

export function tick(text, checked, change, { hint } = {}) {
  const input = el("input", { type: "checkbox", change: () => change(input.checked) });
  input.checked = checked;
  const help = hint ? el("span", { class: "hint", id: newId("h") }, hint) : null;
  if (help) input.setAttribute("aria-describedby", help.id);
  const node = el("label", { class: "tick" }, input, el("span", {}, el("span", {}, text), help));
  node.input = input;
  return node;
}

export const chip = (text, kind = "", attributes = {}) => el("span", { class: `chip ${kind}`, ...attributes }, text);

/** A placeholder: a sentence, and what to do. */
export const empty = (title, text, ...more) => el("div", { class: "empty" }, el("p", { class: "empty-title" }, title), text ? el("p", {}, text) : null, more);

/** An error, and what to do about it. */
export const problem = (title, text, attributes = {}) =>
  el("div", { class: "problem", ...attributes }, icon("warn"), el("div", {}, el("p", { class: "problem-title" }, title), text ? el("p", { class: "pre" }, text) : null));

/** Announce a text to screen readers. */
export function announce(text, isUrgent = false) {
  const region = byId(isUrgent ? "urgent" : "polite");
  region.textContent = "";
  setTimeout(() => { region.textContent = text; }, 30);  // so that a repeated text is announced again
}

/** One tab stop for a list; arrows, Home and End move inside it. `fits` selects its items. */
export function roving(container, fits, { across = false } = {}) {
  const items = () => [...container.querySelectorAll(fits)].filter((one) => one.checkVisibility());
  const [back, forth] = across ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"];
  const hold = (item) => {
    for (const one of container.querySelectorAll(fits)) one.tabIndex = one === item ? 0 : -1;
  };
  container.addEventListener("focusin", ({ target }) => { const item = target.closest(fits); if (item) hold(item); });
  container.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.indexOf(event.target.closest(fits));
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = 10;
    const to = { [back]: at - 1, [forth]: at + 1, Home: 0, End: all.length - 1, PageUp: at - page, PageDown: at + page }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const item = all[Math.max(0, Math.min(all.length - 1, to))];
    hold(item);
    item.focus();
    item.dispatchEvent(new CustomEvent("reach", { bubbles: true }));
  });
  return { hold, settle: () => { const all = items(); if (!all.some((one) => one.tabIndex === 0) && all[0]) hold(all[0]); } };
}

/** A row of tabs: [[key, text, panel], …]. `choose(key)` shows one; `onChange` is called for each. */
export function tabs(name, rows, { onChange = () => {}, start } = {}) {
  const list = el("div", { class: "tabs", role: "tablist", "aria-label": name });
  const known = new Map();
  const choose = (key, focus = false) => {
    for (const [other, { tab, panel }] of known) {
      const isChosen = other === key;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
      panel.hidden = !isChosen;
      if (isChosen && focus) tab.focus();
    }
    list.dataset.chosen = key;
    onChange(key);
  };
  for (const [key, text, panel] of rows) {
    const count = el("span", { class: "count", hidden: true });
    panel.id ||= newId("p");
    const tab = el("button", { type: "button", role: "tab", id: newId("t"), "aria-controls": panel.id, click: () => choose(key), reach: () => choose(key) }, text, count);
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    known.set(key, { tab, panel, count });
    list.append(tab);
  }
  roving(list, "[role=tab]", { across: true });
  choose(start ?? rows[0][0]);
  const count = (key, number, kind = "") => {
    const node = known.get(key).count;
    node.textContent = number > 999 ? "999+" : String(number);
    node.hidden = !number;
    node.className = `count ${kind}`;
  };
  return { list, choose, count, chosen: () => list.dataset.chosen };
}

export async function copyText(text, what = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
    announce(what);
    return true;
  } catch {
    announce("The browser did not let the page copy", true);
    return false;
  }
}

/** A button that copies the result of `make`, and confirms it for a moment. */
export function copyButton(label, make, attributes = {}) {
  const node = iconButton("copy", label, async () => {
    const done = await copyText(await make());
    node.replaceChildren(icon(done ? "check" : "warn"));
    setTimeout(() => node.replaceChildren(icon("copy")), 1500);
  }, attributes);
  return node;
}

export function saveFile(name, type, parts) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A bar that moves an edge, with the pointer or arrow keys. `set(pixels)` receives the new size. */
export function separator(node, { get, set, vertical, grows = 1 }) {
  const move = (size) => { set(Math.round(size)); node.setAttribute("aria-valuenow", String(Math.round(get()))); };
  node.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    node.setPointerCapture(event.pointerId);
    document.documentElement.classList.add("dragging");  // otherwise a frame under the pointer would receive the events
    const start = vertical ? event.clientX : event.clientY;
    const size = get();
    const drag = (moved) => move(size + grows * ((vertical ? moved.clientX : moved.clientY) - start));
    const stop = () => {
      node.removeEventListener("pointermove", drag);
      document.documentElement.classList.remove("dragging");
    };
    node.addEventListener("pointermove", drag);
    node.addEventListener("lostpointercapture", stop, { once: true });
  });
  node.addEventListener("keydown", (event) => {
    const sign = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[event.key];
    if (!sign) return;
    event.preventDefault();
    move(get() + sign * grows * (event.shiftKey ? 64 : 16));
  });
}

export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
export const clip = (text, limit) => (text.length > limit ? `${text.slice(0, limit)}…` : text);
export const plural = (count, word) => `${count.toLocaleString("en")} ${count === 1 ? word : `${word}s`}`;
export const bytes = (count) =>
  count < 1024 ? `${count} B` : count < 1024 * 1024 ? `${(count / 1024).toFixed(count < 10_240 ? 1 : 0)} KB` : `${(count / 1024 / 1024).toFixed(1)} MB`;

export function debounce(action, wait) {
  let timer;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => action(...given), wait); };
}
