/* Starts the page: reads the token from the address, starts the parts, connects, and fills the top bar. */

import { api } from "./api.js";
import { focusAsk, drop, start as startAsks } from "./asks.js";
import { callShown, cancelShown, start as startCalls } from "./call.js";
import { choose, chosenKey, failed, start as startCatalogue } from "./catalogue.js";
import { announce, button, byId, chip, clip, el, fill, icon, problem } from "./dom.js";
import { start as startFrames } from "./frames.js";
import { start as startHost, toggle as toggleHost } from "./host.js";
import { jsonBox } from "./json.js";
import { open as openRecords, start as startRecords } from "./records.js";
import { start as startResources } from "./resources.js";
import { on, showPane, store, tell } from "./state.js";
import { start as startViews } from "./views.js";
import { start as startVisits } from "./visits.js";

const LISTS = {
  tools: async () => { store.tools = (await api.request("tools/list")).tools; },
  resources: async () => {
    const [resources, templates] = await Promise.all([api.request("resources/list"), api.request("resources/templates/list")]);
    store.resources = resources.resources ?? [];
    store.templates = templates.resourceTemplates ?? [];
  },
  prompts: async () => { store.prompts = (await api.request("prompts/list")).prompts ?? []; },
};

const ERAS = { legacy: "in a session (versions up to 2025-11-25)", modern: "without a session: each request stands for itself (versions from 2026-07-28)" };

const listing = new Map();  // kind -> whether to list it again afterwards, because a server may report changes all the time

async function list(kind) {
  if (listing.has(kind)) { listing.set(kind, true); return; }
  listing.set(kind, false);
  await listOnce(kind);
  const again = listing.get(kind);
  listing.delete(kind);
  if (again) setTimeout(() => list(kind), 100);
}

async function listOnce(kind) {
  try {
    await LISTS[kind]();
    tell(kind);
  } catch (error) {
    if (error.code === -32601) { tell(kind); return; }  // the server does not offer this kind at all
    failed(kind, problem(`The ${kind} could not be listed`, error.message));
  }
}

/* ---- Top bar: the server and its connection ---- */

function showServer() {
  const { server, hello } = store;
  const name = server.title ?? server.name ?? hello.target;
  byId("server-name").textContent = name;
  byId("server-name").title = hello.target;
  document.title = `${name} · mcpd preview`;
  fill(byId("server-facts"), server.version ? el("span", { class: "quiet clip" }, server.version) : null, chip(server.state ?? "connected", server.state === "lost" ? "bad" : "good"));
  const versions = byId("version");
  if (!versions.options.length) {
    versions.append(el("option", { value: "" }, "newest in common"));
    for (const version of hello.versions) versions.append(el("option", { value: version }, version));
    versions.addEventListener("change", () => reconnect(versions.value || null));
  }
  versions.options[0].textContent = server.protocolVersion ?? "newest in common";
  versions.title = `Protocol version in force: ${server.protocolVersion ?? "none"}`;
}

async function reconnect(version) {
  byId("version").disabled = true;
  try {
    store.server = await api.request("server/connect", { version });
    announce(`Connected in version ${store.server.protocolVersion}`);
    banner(null);
    showServer();
    await Promise.all(Object.keys(LISTS).map(list));
  } catch (error) {
    banner("bad", `The server was not reached${version ? ` in version ${version}` : ""}`, `${error.message} What it logged is under “Log”.`, button("Try again", () => reconnect(version), { class: "button small" }));
  }
  byId("version").disabled = false;
}

function banner(kind, title, text, ...actions) {
  const node = byId("banner");
  node.hidden = !kind;
  node.className = `banner ${kind ?? ""}`;
  if (kind) fill(node, icon(kind === "bad" ? "warn" : "info"), el("div", {}, el("strong", {}, title), text ? el("span", {}, ` ${text}`) : null), actions); else node.replaceChildren();
}

function serverStatus({ state, message, server }) {
  if (server) store.server = server;
  if (store.server) { store.server.state = state; showServer(); }
  if (state === "lost") banner("bad", "The server has stopped.", `${message ?? ""} Its output is under “Log”; mend it, then connect anew.`, button("Connect anew", () => reconnect(byId("version").value || null), { class: "button small" }), button("Log", () => openRecords("log"), { class: "button small" }));
  else { banner(null); announce(state === "connected" ? "The server is connected" : `The server was ${state}. ${message ?? ""}`); if (state !== "connected") for (const kind of Object.keys(LISTS)) list(kind); }
}

function showServerDialog() {
  const { server, hello } = store;
  if (!server) return;
  const facts = [["Target", hello.target], ["Name", server.name], ["Title", server.title], ["Version", server.version], ["Protocol", server.protocolVersion], ["It is spoken to", server.era && ERAS[server.era]], ["mcpd", hello.mcpd], ["Sandbox", typeof hello.sandbox === "string" ? hello.sandbox : hello.sandbox?.origin]];
  fill(byId("server-body"), el("dl", { class: "pairs" }, facts.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", { class: "wrap" }, value)])),
    server.instructions ? el("section", {}, el("h3", {}, "Instructions"), el("p", { class: "pre" }, clip(server.instructions, 20_000))) : null,
    el("section", {}, el("h3", {}, "Capabilities"), jsonBox(server.capabilities ?? {}, "capabilities")), server.extensions ? el("section", {}, el("h3", {}, "Extensions"), jsonBox(server.extensions, "extensions")) : null);
  byId("server-dialog").showModal();
}

/* ---- The connection to the preview ---- */

async function begin(hello) {
  Object.assign(store, { hello, server: hello.server, quirks: { ...store.quirks, ...hello.quirks }, profile: hello.profile, context: { ...hello.context, ...store.context } });
  document.body.dataset.state = "ready";
  banner(null);
  showServer();
  if (hello.server?.state === "lost") serverStatus({ state: "lost", message: "" });
  tell("hello", hello);
  await Promise.all(Object.keys(LISTS).map(list));
  if (!chosenKey() && store.tools.length && innerWidth > 900) {
    const first = store.tools.find(({ app }) => app) ?? store.tools[0];
    choose(`tool ${first.name}`);
  }
}

function connection(state, why) {
  if (state === "refused") {
    document.body.dataset.state = "refused";
    banner("bad", "This address is not valid any more.", `${why ? `${why} ` : ""}Open the one that mcpd preview printed when it was started.`);
  } else if (state === "lost") {
    drop();
    tell("lost");
    if (store.server) { store.server.state = "lost"; showServer(); }
    banner("bad", "The preview cannot be reached.", "If it was ended, start it again with mcpd preview and open the address that it prints; this page tries on by itself.", button("Try now", () => api.retry(), { class: "button small" }));
    announce("The connection to the preview was lost", true);
  }
}

/* ---- Theme, shortcuts ---- */

const THEMES = [["", "half", "Theme: as the system"], ["light", "sun", "Theme: light"], ["dark", "moon", "Theme: dark"]];
function nextTheme() {
  const root = document.documentElement;
  const at = (THEMES.findIndex(([one]) => one === (root.dataset.theme ?? "")) + 1) % THEMES.length;
  const [theme, picture, label] = THEMES[at];
  if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
  const node = byId("theme");
  node.setAttribute("aria-label", label);
  node.title = label;
  node.replaceChildren(icon(picture));
  announce(label);
  tell("theme");
}

const KEYS = [
  ["/", "Search what the server offers", () => { showPane("browse"); byId("search").focus(); }],
  ["c", "Go to the tool that is chosen", () => { showPane("call"); byId("tool-title")?.focus(); }],
  ["v", "Go to the app", () => { showPane("stage"); (document.querySelector("#views h3") ?? byId("stage-title")).focus(); }],
  ["m", "Go to the messages", () => { openRecords("messages", false); document.querySelector(".trace-list").focus(); }],
  ["f", "Go to the findings", () => openRecords("findings")],
  ["q", "Go to the question that waits", focusAsk],
  ["h", "The host’s settings", () => toggleHost()],
  ["t", "Change the page’s theme", nextTheme],
  ["?", "These shortcuts", () => byId("help").showModal()],
];
const FIXED = [["Ctrl Enter", "Call the tool, answer the question"], ["Escape", "Cancel the call; leave full screen; close what is open"], ["Alt ↑ ↓", "Move an item of a list in the form"], ["↑ ↓ Home End", "Move in lists, tabs, messages"], ["Shift ↑ ↓", "On an edge: move it further"]];

function shortcuts() {
  fill(byId("help-keys"), [...KEYS.map(([key, text]) => [key, text]), ...FIXED].map(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)]));
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || document.querySelector("dialog[open]")) return;
    const isWriting = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "Escape") {
      // Leave the field, so that single keys are shortcuts again; outside of a field, cancel the call.
      if (!cancelShown() && isWriting) byId(event.target.closest("#asks") ? "ask-title" : "tool-title")?.focus();
      return;
    }
    if (isWriting || event.ctrlKey || event.metaKey) { if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !isWriting) callShown(); return; }
    const found = KEYS.find(([key]) => key === event.key);
    if (found) { event.preventDefault(); found[2](); }
  });
}

function panes() {
  for (const node of document.querySelectorAll("#panes button")) node.addEventListener("click", () => { showPane(node.dataset.to); if (node.dataset.to === "host") document.body.classList.add("has-host"); });
  on("pane", (name) => { for (const node of document.querySelectorAll("#panes button")) if (node.dataset.to === name) node.setAttribute("aria-current", "true"); else node.removeAttribute("aria-current"); });
  showPane("browse");
}

/** Take the token from the address, also when the address is pasted into an open page. */
function enter() {
  const token = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  if (token) { api.open(token, begin); return; }
  document.body.dataset.state = "refused";
  banner("bad", "This page needs the whole address.", "Open the one that mcpd preview printed, with what stands behind the #. It works again after a reload, too.");
}

function start() {
  for (const one of [startCatalogue, startCalls, startResources, startFrames, startViews, startHost, startRecords, startAsks, startVisits, panes, shortcuts]) one();
  byId("theme").append(icon("half"));
  byId("help-button").append(icon("key"));
  byId("host-button").prepend(icon("sliders"));
  byId("theme").addEventListener("click", nextTheme);
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  byId("server-button").addEventListener("click", showServerDialog);
  for (const node of document.querySelectorAll("dialog")) node.querySelector(".shut").addEventListener("click", () => node.close());
  api.onState = connection;
  api.on("server/status", serverStatus);
  api.on("list/changed", ({ kind }) => { const name = kind === "templates" ? "resources" : kind; if (LISTS[name]) list(name); });
  enter();
  addEventListener("hashchange", () => { if (location.hash.length > 1) enter(); });
}

start();
