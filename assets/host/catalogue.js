/* The lists on the left: tools, resources, prompts; each can be searched and has one tab stop. */

import { button, byId, chip, clip, el, empty, icon, plural, roving, tabs } from "./dom.js";
import { on, showPane, store, tell } from "./state.js";

const KINDS = {
  tools: { name: "Tools", icon: "tool", none: ["No tools", "The server lists none. What it logs while it starts is under “Log”."] },
  resources: { name: "Resources", icon: "file", none: ["No resources", "The server lists neither resources nor templates."] },
  prompts: { name: "Prompts", icon: "prompt", none: ["No prompts", "The server lists none."] },
};
const AT_ONCE = 300;  // rows of a list; more are made when its end is visible
const panels = {};
let bar, search, chosen = null;

const seen = (tool) => tool.visibility ?? ["model", "app"];

/** The display of an entry: {key, title, name, text, marks(), about}. */
function rowsOf(kind) {
  if (kind === "tools") return store.tools.map((tool) => ({
    key: `tool ${tool.name}`, about: { kind: "tool", tool }, title: tool.title ?? tool.annotations?.title ?? "", name: tool.name, text: tool.description ?? "",
    marks: () => [tool.app ? chip("app", "accent", { title: `Opens ${tool.app}` }) : null, seen(tool).includes("model") ? null : chip("app only", "", { title: "The model does not see it" }), seen(tool).includes("app") || !tool.app ? null : chip("model only", "", { title: "Views may not call it" }), tool.problems?.length ? chip("!", "warn", { title: tool.problems.join("\n"), "aria-label": plural(tool.problems.length, "problem") }) : null],
  }));
  if (kind === "prompts") return store.prompts.map((prompt) => ({ key: `prompt ${prompt.name}`, about: { kind: "prompt", prompt }, title: prompt.title ?? "", name: prompt.name, text: prompt.description ?? "", marks: () => [] }));
  return [
    ...store.resources.map((resource) => ({ key: `resource ${resource.uri}`, about: { kind: "resource", resource }, title: resource.title ?? resource.name ?? "", name: resource.uri, text: resource.description ?? "", marks: () => [String(resource.uri).startsWith("ui://") ? chip("app", "accent") : null] })),
    ...store.templates.map((template) => ({ key: `template ${template.uriTemplate}`, about: { kind: "template", template }, title: template.title ?? template.name ?? "", name: template.uriTemplate, text: template.description ?? "", marks: () => [chip("template")] })),
  ];
}

const words = () => search.value.toLowerCase().split(/\s+/).filter(Boolean);

const item = (row) => el("li", {}, el("button", {
  type: "button", class: "entry", tabindex: "-1", "data-key": row.key, "aria-current": row.key === chosen ? "true" : null,
  click: () => pick(row),
}, el("span", { class: "entry-top" }, el("span", { class: "entry-name", title: row.name }, row.title || row.name), el("span", { class: "entry-marks" }, row.marks())),
el("span", { class: "entry-text" }, row.title && row.title !== row.name ? el("span", { class: "mono" }, row.name) : null, row.text ? ` ${clip(row.text.split("\n", 1)[0], 200)}` : null)));

/** Add the next rows of a list. */
function extend(panel, count = AT_ONCE) {
  const from = panel.list.children.length;
  panel.list.append(...panel.fit.slice(from, from + count).map(item));
  const left = panel.fit.length - panel.list.children.length;
  panel.more.hidden = left <= 0;
  panel.more.textContent = `${left.toLocaleString("en")} more`;
}

function draw(kind) {
  const panel = panels[kind];
  const all = panel.rows;
  const wanted = words();
  const fit = wanted.length ? all.filter((row) => { row.hay ??= `${row.title} ${row.name} ${row.text}`.toLowerCase(); return wanted.every((one) => row.hay.includes(one)); }) : all;
  const hadFocus = panel.list.contains(document.activeElement);
  panel.fit = fit;
  panel.list.replaceChildren();
  const place = chosen === null ? -1 : fit.findIndex(({ key }) => key === chosen);
  extend(panel, Math.max(AT_ONCE, place + 10));
  const current = panel.list.querySelector("[aria-current]") ?? panel.list.querySelector(".entry");
  if (current) { panel.move.hold(current); if (hadFocus) current.focus(); }
  panel.note.replaceChildren();
  if (!all.length) panel.note.append(panel.problem ?? empty(...KINDS[kind].none));
  else if (!fit.length) panel.note.append(empty("Nothing fits", `None of ${plural(all.length, kind.slice(0, -1))} has “${search.value}”.`));
  byId("shown").textContent = wanted.length && bar.chosen() === kind ? `${fit.length} of ${all.length}` : "";
  bar.count(kind, all.length);
}

function pick(row) {
  chosen = row.key;
  for (const one of document.querySelectorAll("#browse .entry")) if (one.dataset.key === chosen) one.setAttribute("aria-current", "true"); else one.removeAttribute("aria-current");
  tell("pick", row.about);
  showPane("call");
}

/** Choose an entry by its key, like a click; returns false for an unknown key. */
export function choose(key) {
  const kind = key.startsWith("tool") ? "tools" : key.startsWith("prompt") ? "prompts" : "resources";
  const row = panels[kind].rows.find((one) => one.key === key);
  if (!row) return false;
  bar.choose(kind);
  pick(row);
  return true;
}
export const chosenKey = () => chosen;

/** Show an error instead of a list. */
export function failed(kind, node) { panels[kind].problem = node; draw(kind); }

export function start() {
  search = el("input", { type: "search", class: "field", id: "search", placeholder: "Search", "aria-label": "Search tools, resources and prompts", autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": "/" });
  search.addEventListener("input", () => draw(bar.chosen()));
  search.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    const first = panels[bar.chosen()].list.querySelector(".entry");
    event.preventDefault();
    if (event.key === "Enter") first?.click(); else first?.focus();
  });
  for (const kind of Object.keys(KINDS)) {
    const list = el("ul", { class: "entries", "aria-label": KINDS[kind].name });
    const note = el("div", {});
    const more = button("", () => extend(panel), { class: "button small more", hidden: true });
    const panel = panels[kind] = { node: el("div", { class: "entries-box" }, list, more, note), list, note, more, move: roving(list, ".entry"), problem: null, rows: [], fit: [] };
    new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) extend(panel); }, { root: panel.node, rootMargin: "400px" }).observe(more);
  }
  bar = tabs("What the server offers", Object.entries(KINDS).map(([kind, { name }]) => [kind, name, panels[kind].node]), { onChange: (kind) => { if (bar) draw(kind); } });
  byId("browse").append(el("div", { class: "search" }, icon("search"), search, el("span", { id: "shown", class: "quiet", role: "status" })), bar.list, ...Object.values(panels).map(({ node }) => node));
  for (const kind of Object.keys(KINDS)) on(kind, () => { panels[kind].problem = null; panels[kind].rows = rowsOf(kind); draw(kind); });
}
