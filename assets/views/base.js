/* What all pages share: the protocol of MCP Apps (2026-01-26), the host's context, values as text, states. */

const VERSION = "2026-01-26";
const root = document.documentElement;
const main = document.querySelector("main");
const spec = JSON.parse(document.getElementById("spec").textContent);
const host = window.parent === window ? null : window.parent;
const views = {};  // kind -> {show(result), and what else a kind has to say}
const state = { live: false, ended: false, closed: false, input: null, caps: {}, context: {} };

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const own = (object, key) => (object !== null && object !== undefined && Object.hasOwn(object, key) ? object[key] : undefined);
const isEmpty = (value) => value === undefined || value === null || value === "";
const clip = (text, limit) => (text.length > limit ? `${text.slice(0, limit)}…` : text);
const plural = (count, word) => `${count.toLocaleString(locale())} ${count === 1 ? word : `${word}s`}`;

/* Elements are made of names and text. Nothing of the data is ever read as markup, so no other way to make them exists here. */
const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "path", "g", "line", "rect", "circle", "text", "title", "polyline"]);
function el(tag, attributes = {}, ...children) {
  const node = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) node.append(child);  // too many for one call
  return node;
}
const icon = (path) => el("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, el("path", { d: path }));
const button = (label, click, attributes = {}) => el("button", { type: "button", class: "button", click, ...attributes }, label);

/* ---- Wire ---- */

let nextId = 0;
const pending = new Map();

function post(message) {
  if (host) host.postMessage({ jsonrpc: "2.0", ...message }, "*");  // the host's origin cannot be known in here
}
const notify = (method, params) => { if (!state.closed) post(params === undefined ? { method } : { method, params }); };

/** Send a request. Resolves, never rejects, with {ok, value} or {error}. `limit` in ms; 0 waits until it is cancelled. */
function ask(method, params, { limit = 60_000, onProgress, signal } = {}) {
  return new Promise((resolve) => {
    const id = nextId++;
    let timer = 0;
    const finish = (outcome) => { clearTimeout(timer); pending.delete(id); resolve(outcome); };
    const give_up = (error) => {
      notify("notifications/cancelled", { requestId: id, reason: error });
      finish({ error });
    };
    const arm = () => { clearTimeout(timer); if (limit) timer = setTimeout(() => give_up("the host did not answer in time"), limit); };
    pending.set(id, { finish, progress: (told) => { arm(); onProgress?.(told); } });
    signal?.addEventListener("abort", () => give_up("stopped"), { once: true });
    arm();
    post({ id, method, params: onProgress ? { ...params, _meta: { progressToken: id } } : params });
  });
}

const requests = {
  ping: () => ({}),
  "ui/resource-teardown": () => {
    state.closed = true;
    root.dataset.phase = "closed";
    sizes.disconnect();
    for (const waiting of [...pending.values()]) waiting.finish({ error: "closed" });
    return {};
  },
};

const notifications = {
  "ui/notifications/tool-input-partial": ({ arguments: given }) => { if (!state.input && !state.ended) onInput(given, false); },
  "ui/notifications/tool-input": ({ arguments: given }) => { if (!state.input) onInput(given, true); },
  "ui/notifications/tool-result": (result) => { if (!state.ended) { state.ended = true; showResult(result); } },
  "ui/notifications/tool-cancelled": ({ reason }) => { if (!state.ended) { state.ended = true; cancelled(reason); } },
  "ui/notifications/host-context-changed": (delta) => { state.context = { ...state.context, ...delta }; applyContext(); },
  "notifications/progress": (told) => pending.get(told.progressToken)?.progress(told),
};

window.addEventListener("message", ({ source, data }) => {
  if (!host || source !== host || !isObject(data) || data.jsonrpc !== "2.0") return;
  const { id, method } = data;
  if (typeof method !== "string") {
    const waiting = pending.get(id);
    if (!waiting) return;
    if (isObject(data.result)) waiting.finish({ ok: true, value: data.result });
    else waiting.finish({ error: String(data.error?.message ?? "refused") });
  } else if (id === undefined || id === null) {
    if (!state.closed) own(notifications, method)?.(isObject(data.params) ? data.params : {});
  } else {
    const answer = own(requests, method);
    post(answer ? { id, result: answer() } : { id, error: { code: -32601, message: "Method not found" } });
  }
});

async function connect() {
  const { ok, value, error } = await ask("ui/initialize", {
    appInfo: { name: `mcpd-${spec.view}`, version: "1" },
    appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
    protocolVersion: VERSION,
  });
  if (!ok) return problem("This view has no host", error, "failed");
  state.caps = isObject(value.hostCapabilities) ? value.hostCapabilities : {};
  state.context = { ...(isObject(value.hostContext) ? value.hostContext : {}), ...state.context };
  applyContext();
  post({ method: "ui/notifications/initialized" });
  state.live = true;
  if (root.dataset.phase === "connecting") root.dataset.phase = "waiting";
  views[spec.view].ready?.();
  reportSize();
  sizes.observe(root);
}

/* ---- Size, theme, locale ---- */

let lastSize = "";
let sizeTimer = 0;
function reportSize() {
  sizeTimer = 0;
  const given = isObject(state.context.containerDimensions) ? state.context.containerDimensions : {};
  if (!state.live || state.closed || innerWidth === 0) return;
  const cap = (value, limit) => (Number.isFinite(limit) ? Math.min(value, limit) : value);
  const size = {
    width: cap(innerWidth, given.maxWidth),
    height: Number.isFinite(given.height) ? innerHeight : cap(Math.ceil(root.getBoundingClientRect().height), given.maxHeight),
  };
  if (lastSize !== (lastSize = `${size.width} ${size.height}`)) notify("ui/notifications/size-changed", size);
}
const sizes = new ResizeObserver(() => { sizeTimer ||= setTimeout(reportSize, 16); });

const NAMES = /^--(color-(background|text|border|ring)|font-(sans$|mono$|weight|text|heading)|border-(radius|width)|shadow)/;

/** Use what the host gave. Its colours are taken only as a set: half a palette on top of ours may be unreadable. */
function applyContext() {
  const { theme, styles, displayMode, containerDimensions, safeAreaInsets } = state.context;
  root.style.colorScheme = theme === "light" || theme === "dark" ? theme : "";
  const told = isObject(styles?.variables) ? styles.variables : {};
  const palette = told["--color-background-primary"] && told["--color-text-primary"];
  for (const name of [...root.style]) if (NAMES.test(name)) root.style.removeProperty(name);
  for (const [name, value] of Object.entries(told))
    if (NAMES.test(name) && typeof value === "string" && !/url\(|image-set\(/i.test(value) && (palette || !name.startsWith("--color-")))
      root.style.setProperty(name, value);
  const fonts = styles?.css?.fonts;
  document.getElementById("fonts").textContent = typeof fonts === "string" ? fonts : "";
  const size = isObject(containerDimensions) ? containerDimensions : {};
  const fills = displayMode === "fullscreen" || Number.isFinite(size.height);
  root.classList.toggle("fill", fills);
  root.style.setProperty("--room", `${Number.isFinite(size.maxHeight) ? Math.max(140, Math.min(440, size.maxHeight - 130)) : 440}px`);
  let inset = 0;
  for (const side of ["top", "right", "bottom", "left"]) {
    const wide = Math.max(0, Math.min(200, Number(safeAreaInsets?.[side]) || 0));
    root.style.setProperty(`padding-${side}`, `${wide}px`);
    if (side === "top" || side === "bottom") inset += wide;
  }
  root.style.setProperty("--inset", `${inset}px`);
  root.dir = /^(ar|he|iw|fa|ur|ps|sd|ug|yi|dv|ckb)\b/i.test(locale() ?? "") ? "rtl" : "ltr";
  for (const slot of document.querySelectorAll(".expander")) slot.replaceChildren(expandButton());
  for (const redraw of redraws) redraw();
  sizeTimer ||= setTimeout(reportSize, 16);
}
const redraws = new Set();  // what has to be drawn anew when theme, locale or room change

const known = new Map();
/** Whether Intl can use it: hosts send what they like. */
function usable(key, value, attempt) {
  if (typeof value !== "string") return undefined;
  if (!known.has(key + value)) { try { attempt(value); known.set(key + value, value); } catch { known.set(key + value, undefined); } }
  return known.get(key + value);
}
const locale = () => usable("l", state.context.locale, (tag) => Intl.getCanonicalLocales(tag));
const zone = () => usable("z", state.context.timeZone, (timeZone) => new Intl.DateTimeFormat("en", { timeZone }));

/** The button that makes the view as large as the window, where the host has such a mode. */
const expander = () => el("span", { class: "expander" }, expandButton());
function expandButton() {
  const modes = state.context.availableDisplayModes;
  if (!Array.isArray(modes) || !modes.includes("fullscreen") || !modes.includes("inline")) return "";
  const full = state.context.displayMode === "fullscreen";
  const label = full ? "Back to the conversation" : "Full screen";
  const click = async () => {
    const { ok, value } = await ask("ui/request-display-mode", { mode: full ? "inline" : "fullscreen" });
    if (ok && typeof value.mode === "string") { state.context.displayMode = value.mode; applyContext(); }
  };
  const path = full ? "M6.5 2.5v4h-4M9.5 13.5v-4h4M6.5 6.5l-4-4M9.5 9.5l4 4" : "M9.5 2.5h4v4M6.5 13.5h-4v-4M13.5 2.5l-4.5 4.5M2.5 13.5L7 9";
  return button(icon(path), click, { class: "button icon", "aria-label": label, title: label });
}

/* ---- Links and copies: the host opens and keeps, the page cannot ---- */

const isLink = (text) => typeof text === "string" && text.length < 2000 && /^https?:\/\/[^\s/]\S*$/i.test(text);
function link(url, ...label) {
  if (!isLink(url) || !own(state.caps, "openLinks")) return el("span", {}, ...label);
  return el("button", { type: "button", class: "link", role: "link", title: url, click: () => ask("ui/open-link", { url }) }, ...label);
}

/** Put text on the clipboard; a frame may not be allowed to, so there are two ways, and at last a file of the host. */
async function copy(text, name, type) {
  try { await navigator.clipboard.writeText(text); return "Copied"; } catch { /* the frame has no permission */ }
  const area = el("textarea", { class: "seen", "aria-hidden": "true" });
  const before = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  let copied = false;
  try { copied = document.execCommand("copy"); } catch { /* nor this one */ }
  area.remove();
  before?.focus?.();
  if (copied) return "Copied";
  if (own(state.caps, "downloadFile")) {
    const resource = { uri: `file:///${name}`, mimeType: type, text };
    const { ok, value } = await ask("ui/download-file", { contents: [{ type: "resource", resource }] }, { limit: 0 });
    if (ok && !value.isError) return "Saved";
  }
  return "The host does not allow it";
}

/* ---- Values as text ---- */

/** A value as one line of JSON; what cannot be written (too deep) says so. */
function compact(value, space) {
  try { return JSON.stringify(value, null, space) ?? ""; } catch { return "(too deeply nested to be shown)"; }
}
const DATE = /^\d{4}-(0\d|1[0-2])-([0-2]\d|3[01])([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$/i;
const isDate = (text) => typeof text === "string" && text.length < 40 && DATE.test(text) && !Number.isNaN(Date.parse(text));
const formats = new Map();
function formatter(key, make) {
  if (!formats.has(key)) formats.set(key, make());
  return formats.get(key);
}
function dateText(text) {
  const day = text.length === 10;
  const zoned = /(Z|[+-]\d\d:?\d\d)$/i.test(text);
  const timeZone = day || !zoned ? "UTC" : zone();  // without an offset the clock shows what was written
  const format = formatter(`d${day}${timeZone}${locale()}`, () => new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: day ? undefined : "short", timeZone }));
  return format.format(new Date(day || zoned ? text : `${text}Z`));
}
function numberText(number, digits, grouped = true) {
  if (!Number.isFinite(number) || Math.abs(number) >= 1e15 || (number !== 0 && Math.abs(number) < 1e-6)) return String(number);
  const least = digits ?? 0;
  const format = formatter(`n${digits}${grouped}${locale()}`, () => new Intl.NumberFormat(locale(), { minimumFractionDigits: least, maximumFractionDigits: digits ?? 6, useGrouping: grouped }));
  return format.format(number);
}
function valueText(value) {
  if (isEmpty(value)) return "";
  if (typeof value === "number") return numberText(value, undefined, Math.abs(value) >= 10_000);
  if (typeof value === "boolean") return value ? "Yes" : "No";
  if (typeof value === "object") return compact(value);
  return isDate(value) ? dateText(value) : String(value);
}
/** A name for people: unit_price is "Unit price"; names with capitals of their own stay as they are. */
function humane(name) {
  if (!/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/.test(name)) return name;
  const words = name.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

/** A value whole: text, link, or JSON. */
function valueNode(value) {
  if (isLink(value)) return link(value, value);
  if (typeof value === "object" && value !== null) return el("pre", { tabindex: "0" }, clip(compact(value, 2), 50_000));
  return el("span", { class: "plain", dir: "auto" }, isEmpty(value) ? "–" : clip(valueText(value), 50_000));
}
function pairs(entries) {
  return el("dl", { class: "pairs" }, ...entries.slice(0, 500).flatMap(([key, value]) => [el("dt", { dir: "auto", title: key }, humane(key)), el("dd", {}, valueNode(value))]));
}

/* ---- Results ---- */

/** The text blocks of a result. */
const textsOf = (result) => blocksOf(result).filter((block) => block.type === "text" && typeof block.text === "string").map((block) => block.text);
const blocksOf = (result) => (Array.isArray(result.content) ? result.content.filter(isObject) : []);

/** The data of a result. Each way may be lost in some host: structured content, its copy in _meta, the text. */
function dataOf(result) {
  let data = result.structuredContent ?? own(result._meta, "mcpd/data");
  if (data === undefined || data === null) {
    const texts = textsOf(result);
    try { data = texts.length > 1 ? texts.map((text) => JSON.parse(text)) : /^\s*[[{]/.test(texts[0] ?? "") ? JSON.parse(texts[0]) : undefined; } catch { return undefined; }
  }
  if (isObject(data) && Object.keys(data).length === 1 && Object.hasOwn(data, "result")) data = data.result;
  return data;
}

/** A result as anything at all, where it is not of the kind that the view shows. */
function anything(result) {
  const data = dataOf(result);
  const texts = textsOf(result).filter((text) => text.trim());
  if (isObject(data) && Object.keys(data).length) return pairs(Object.entries(data));
  if (data !== undefined && data !== null && typeof data === "object" && !isObject(data) && data.length) return el("pre", { tabindex: "0" }, clip(compact(data, 2), 50_000));
  if (!isEmpty(data) && typeof data !== "object") return valueNode(data);
  if (texts.length && data === undefined) return el("p", { class: "plain", dir: "auto" }, clip(texts.join("\n\n"), 100_000));
  return null;
}

function place(phase, ...nodes) {
  main.replaceChildren(...nodes.filter(Boolean));
  main.setAttribute("aria-busy", String(phase === "waiting" || phase === "running"));
  root.dataset.phase = phase;
}
const heading = () => {
  const title = spec.title ?? state.context.toolInfo?.tool?.title;
  return typeof title === "string" && title ? el("h1", { dir: "auto" }, title) : null;
};
function failure(title, text) {
  return el("div", { class: "problem", role: "alert" }, el("b", {}, title), text ? el("p", { dir: "auto", tabindex: "0" }, clip(String(text), 20_000)) : null);
}
const problem = (title, text, phase) => place(phase, heading(), failure(title, text));
const empty = (text) => el("p", { class: "state", role: "status" }, text);

/** The pages that are not forms: what is shown while the tool runs. */
function onInput(given, final) {
  if (final) state.input = isObject(given) ? given : {};
  if (views[spec.view].input) return views[spec.view].input(isObject(given) ? given : {}, final);
  if (state.ended) return;
  const told = Object.entries(isObject(given) ? given : {}).slice(0, 6).map(([key, value]) => `${humane(key)}: ${clip(valueText(value), 80)}`).join(" · ");
  const what = final ? "Running" : "Preparing";
  place(final ? "running" : "waiting", el("div", { class: "state", role: "status" }, el("i", { "aria-hidden": "true" }), el("span", { dir: "auto" }, told ? `${what}. ${told}` : what)));
}
function cancelled(reason) {
  if (views[spec.view].cancelled) return views[spec.view].cancelled(reason);
  place("cancelled", heading(), empty(typeof reason === "string" && reason ? `Cancelled: ${clip(reason, 400)}` : "The call was cancelled."));
}
function showResult(result) {
  if (views[spec.view].result) return views[spec.view].result(result);
  const task = taskOf(result);
  if (task) return followTask(task);
  const { phase, nodes } = resultNodes(result, spec.view);
  place(phase, ...nodes);
}
/** What there is to see of a result: by a view of that kind, else as it is. */
function resultNodes(result, kind) {
  const title = kind === spec.view ? heading() : null;
  if (result.isError === true) return { phase: "error", nodes: [title, failure("The tool reported an error", textsOf(result).join("\n\n"))] };
  let shown = null;
  try { shown = views[kind]?.show(result) ?? null; } catch (error) { console.error(error); }
  if (shown) return { phase: "shown", nodes: [shown] };
  shown = anything(result);
  return shown ? { phase: "shown", nodes: [title, shown] } : { phase: "empty", nodes: [title, empty("The result is empty.")] };
}

/* ---- Tasks: mcpd answers a call that takes long with the id of its task, and two tools that wait for it and stop it ---- */

// The text may come from elsewhere, so only these two tools are called.
const TASK = /^This still works .+ the task (\S+)\. Call (\w*task_result) .+ or (\w*task_cancel)/;
const WORKS = /^The task still works(?:: (.*))?\. Call/s;
const PART = / ?\(([\d.]+) of ([\d.]+)\)$/;

/** The task that answers a call: its id, and the names of the tools, if it is one. */
const taskOf = (result) => own(state.caps, "serverTools") && TASK.exec(textsOf(result)[0]);

/** The result of a task. `tell(message)` is called while it works; aborting `signal` stops it. */
async function resultOf([, id, wait, stop], tell, signal) {
  const call = (name, more, how) => ask("tools/call", { name, arguments: { id, ...more } }, how);
  signal.addEventListener("abort", () => call(stop));
  for (;;) {
    const { value, error } = await call(wait, { wait: 2 }, { signal });
    if (error) return { isError: true, content: [{ type: "text", text: error }] };
    const works = value.isError && WORKS.exec(textsOf(value)[0]);
    if (!works) return value;
    tell(works[1] ?? "");
    await new Promise((next) => setTimeout(next, 200));  // a server that does not wait is not asked all the time
  }
}

async function followTask(task) {
  const work = new AbortController();
  const said = el("span", { dir: "auto" }, "Running");
  const bar = el("progress", { hidden: true, title: "Progress" });
  place("running", heading(), el("div", { class: "state", role: "status" }, el("i"), said, bar, button("Stop", () => work.abort())));
  const result = await resultOf(task, (text) => {
    const [end, value, max] = PART.exec(text) ?? [];
    said.textContent = text.replace(PART, "") || "Running";
    bar.hidden = !end;
    if (end) Object.assign(bar, { max, value });
  }, work.signal);
  if (!state.closed) showResult(result);
}
