/* The drawer below: messages, findings (what the policy blocked and what an app did wrong), what apps said to the model
   and in the conversation, and the server's log. */

import { api } from "./api.js";
import { add, announce, button, byId, chip, clip, copyButton, el, empty, fill, isObject, labelled, select, separator, tabs } from "./dom.js";
import { jsonBox } from "./json.js";
import { blockOf } from "./result.js";
import { on, showPane, store, tell } from "./state.js";
import { start as startTasks } from "./tasks.js";
import * as trace from "./trace.js";
import { allCards, cardOf } from "./views.js";

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
const MOST = 500;
let bar;
let unread = 0;

/* ---- Findings ---- */

const missing = new Map();  // view id -> {title, csp}

/** The metadata of the app with all missing declarations so far. */
function needed(card, field, domain) {
  const held = missing.get(card.info.uri) ?? { title: card.info.title, csp: structuredClone(card.info.declared ?? {}) };
  held.csp[field] = [...new Set([...(held.csp[field] ?? []), domain])];
  missing.set(card.info.uri, held);
}

function drawNeeded() {
  fill(byId("needed"), [...missing].map(([uri, { title, csp }]) => {
    const text = `"_meta": { "ui": { "csp": ${JSON.stringify(csp)} } }`;
    return el("div", { class: "needed" }, el("p", {}, el("strong", {}, `To grant it, write this into the metadata of ${title}`), el("span", { class: "quiet mono" }, ` ${uri}`)),
      el("div", { class: "json-box" }, el("pre", { class: "json", tabindex: "0", role: "region", "aria-label": `The line for ${title}` }, text), copyButton("Copy the line", () => text)));
  }));
}

function finding({ title, text, detail, kind = "warn", where = "" }) {
  byId("no-findings").hidden = true;
  const list = byId("finding-list");
  const same = [...list.children].find((one) => one.dataset.sign === `${where}${title}${text}`);
  if (same) { same.dataset.times = Number(same.dataset.times) + 1; same.querySelector(".times").textContent = `× ${same.dataset.times}`; } else {
    list.prepend(el("li", { class: "finding", "data-sign": `${where}${title}${text}`, "data-times": "1" }, chip(kind === "bad" ? "blocked" : "note", kind), el("div", {}, el("p", {}, el("strong", {}, title), el("span", { class: "times quiet" })), text ? el("p", {}, text) : null, detail ? el("p", { class: "mono quiet wrap" }, detail) : null, where ? el("p", { class: "quiet" }, where) : null)));
    if (list.children.length > MOST) list.lastChild.remove();
  }
  bar.count("findings", list.children.length, list.querySelector(".chip.bad") ? "bad" : "");
}

function viewEvent({ card, event }) {
  const where = `${card.info.title} · ${card.info.viewId}`;
  if (event.kind === "violation") {
    const domain = event.domain ?? event.blockedUri;
    if (event.field && event.domain) { needed(card, event.field, event.domain); drawNeeded(); }
    finding({ kind: event.harmless ? "" : "bad", where, title: event.harmless ? "It tried whether it may compile code" : event.field ? `${domain} is missing in ${event.field}` : `${event.directive} blocked ${domain}`, text: event.advice ?? "", detail: `${event.directive} blocked ${event.blockedUri}${event.sourceFile ? ` at ${event.sourceFile}${event.line ? `:${event.line}` : ""}` : ""}` });
    if (!event.harmless) announce(`The policy blocked ${domain}`, true);
  } else if (event.kind === "finding") {
    finding({ where, title: event.title ?? event.rule ?? "The app broke a rule", text: event.message ?? event.text ?? event.reason ?? "", detail: event.rule ?? "" });
  } else if (event.kind === "stopped") {
    finding({ where, title: `${event.title}: ${event.about}`, text: event.advice });
  } else if (event.kind === "logged") logLine({ level: event.level, logger: event.logger ?? card.info.title, data: event.data }, card.info.title);
}

/* ---- Conversation ---- */

async function conversation() {
  let told;
  try { told = await api.request("conversation/get"); } catch { return; }
  const messages = told.messages ?? [], contexts = told.context ?? [];
  const titleOf = (viewId) => cardOf(viewId)?.info.title ?? viewId ?? "an app";
  fill(byId("conversation-body"),
    el("section", {}, el("h3", {}, "Messages that apps sent"), messages.length ? messages.map((one) => el("div", { class: "said" }, el("p", { class: "quiet" }, `${one.role ?? "user"}, from ${titleOf(one.viewId ?? one.view)}`), ([one.content].flat()).map(blockOf)))
      : empty("None", "An app adds one with ui/message.")),
    el("section", {}, el("h3", {}, "What the model would be told"), contexts.length ? contexts.map((one) => el("div", { class: "said" }, el("p", { class: "quiet" }, titleOf(one.viewId ?? one.view)), (one.content ?? []).map(blockOf), isObject(one.structuredContent) ? jsonBox(one.structuredContent, "structuredContent") : null))
      : empty("Nothing", "An app tells it with ui/update-model-context; only its last word counts.")));
  bar.count("conversation", messages.length + contexts.length);
}

/* ---- Log ---- */

function logLine({ level = "info", logger, data }, from = "server") {
  byId("no-log").hidden = true;
  const list = byId("log-list");
  const isBottom = list.parentElement.scrollTop + list.parentElement.clientHeight >= list.parentElement.scrollHeight - 20;
  const kind = LEVELS.indexOf(level) >= 4 ? "bad" : level === "warning" ? "warn" : "";
  list.append(el("li", { class: "log-line" }, el("time", { class: "quiet" }, new Date().toLocaleTimeString("en-GB")), chip(level, kind), el("span", { class: "quiet" }, logger ?? from), el("span", { class: "mono wrap" }, clip(typeof data === "string" ? data : JSON.stringify(data) ?? "", 4000))));
  if (list.children.length > MOST) list.firstChild.remove();
  if (isBottom) list.parentElement.scrollTop = list.parentElement.scrollHeight;
  bar.count("log", (unread = bar.chosen() === "log" ? 0 : unread + 1));
}

/* ---- The drawer itself ---- */

const drawer = () => byId("records");
export function open(key, focus = true) { drawer().classList.remove("low"); showFold(); bar.choose(key, focus); showPane("records"); }
function showFold() {
  const isLow = drawer().classList.contains("low");
  byId("fold").setAttribute("aria-expanded", String(!isLow));
  tell("records");
}

export function start() {
  const panels = {
    messages: el("div", { id: "messages", class: "record" }),
    findings: el("div", { class: "record scrolls" }, el("div", { id: "no-findings" }, empty("Nothing was found", "What the policy blocks is listed here with the domain that is missing, and what an app does against the rules.")), el("div", { id: "needed" }), el("ul", { class: "plain-list", id: "finding-list" })),
    conversation: el("div", { class: "record scrolls two", id: "conversation-body" }),
    tasks: el("div", { class: "record scrolls", id: "task-body" }),
    log: el("div", { class: "record scrolls" }, el("div", { id: "no-log" }, empty("Nothing was logged", "What the server and the apps log is listed here. What the server writes to stderr is in the terminal of mcpd preview, and the console of an app in the browser’s developer tools.")), el("ol", { class: "plain-list", id: "log-list" })),
  };
  bar = tabs("Records", [["messages", "Messages", panels.messages], ["findings", "Findings", panels.findings], ["conversation", "Conversation", panels.conversation], ["tasks", "Tasks", panels.tasks], ["log", "Log", panels.log]], { onChange: (key) => { if (key === "log") unread = 0; bar?.count("log", 0); tell("records", key); } });
  const level = select(LEVELS.map((one) => [one, one]), "info", (value) => api.request("logging/setLevel", { level: value }).then(() => announce(`The server logs from ${value}`), (error) => announce(error.message, true)), { class: "field small" });
  const fold = button("", () => { drawer().classList.toggle("low"); showFold(); }, { id: "fold", class: "button only small", "aria-label": "Show the records", "aria-expanded": "true", icon: "down", "aria-controls": "record-body" });
  add(drawer(), [
    el("div", { class: "drawer-edge", id: "drawer-edge", role: "separator", tabindex: "0", "aria-orientation": "horizontal", "aria-label": "Height of the records", "aria-valuemin": "120", "aria-valuemax": "1200" }),
    el("div", { class: "drawer-head" }, bar.list, el("span", { class: "grow" }), labelled("Server log", level, { row: true }), fold),
    el("div", { class: "drawer-body", id: "record-body" }, Object.values(panels))]);
  separator(byId("drawer-edge"), { grows: -1, get: () => drawer().offsetHeight, set: (size) => { document.documentElement.style.setProperty("--drawer", `${Math.max(120, Math.min(innerHeight - 160, size))}px`); drawer().classList.remove("low"); showFold(); } });

  trace.start();
  startTasks(panels.tasks, (running) => bar.count("tasks", running));
  on("viewEvent", viewEvent);
  on("show", (key) => open(key));
  on("finding", ({ viewId, title, text }) => finding({ title, text, where: cardOf(viewId)?.info.title ?? "" }));
  api.on("server/log", (about) => logLine(about));
  api.on("conversation/changed", conversation);
  on("hello", conversation);
}
