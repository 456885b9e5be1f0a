/* Questions to the user: of the server (forms, addresses, sampling, roots) and of apps (links, messages, files). They wait
   in a tray, one at a time, and do not block the page: the call that asks can still be cancelled. */

import { api } from "./api.js";
import { announce, button, byId, el, fill, iconButton, labelled, saveFile, tick } from "./dom.js";
import { makeForm } from "./form.js";
import { jsonTrouble } from "./form_inputs.js";
import { folded, jsonBox } from "./json.js";
import { blockOf } from "./result.js";
import { consent } from "./host.js";
import { cardOf } from "./views.js";
import { addressOf, opener, visited } from "./visits.js";

const waiting = [];  // {about, answer, node}
let roots = [];
let givesRoots = false;
let before = null;  // the element that had the focus

/* Each returns the content of a card, {title, nodes, actions}, and answers with `done(result)`. */
const KINDS = {
  elicitForm({ message, schema }, done) {
    const form = makeForm(schema ?? {});
    const submit = async () => {
      await form.settled();
      const { value, problems } = form.read();
      if (problems.length) { problems[0].focus(); return; }
      done({ action: "accept", content: value });
    };
    return { title: "The server asks", nodes: [el("p", { class: "pre", dir: "auto" }, message), form.node], submit, actions: [button("Send", submit, { class: "button primary" }), button("Decline", () => done({ action: "decline" })), button("Dismiss", () => done({ action: "cancel" }))] };
  },

  elicitUrl({ message, url, elicitationId }, done) {
    const open = opener(url, () => { visited({ elicitationId, message, url }); done({ action: "accept" }); });
    const nodes = [el("p", { class: "pre", dir: "auto" }, message), addressOf(url)];
    if (!open) nodes.push(el("p", { class: "wrong" }, "Only http and https addresses are opened."));
    return { title: "The server asks to open an address", nodes, actions: [open, button("Decline", () => done({ action: "decline" })), button("Dismiss", () => done({ action: "cancel" }))].filter(Boolean) };
  },

  sampling({ params }, done, fail) {
    const text = el("textarea", { class: "field", rows: 4, dir: "auto" });
    const model = el("input", { class: "field", value: "a person", autocomplete: "off" });
    const raw = el("textarea", { class: "field code", rows: 5, spellcheck: "false", "aria-label": "The whole result as JSON", dir: "ltr" });
    const wrong = el("p", { class: "wrong", hidden: true });
    const result = () => ({ role: "assistant", content: { type: "text", text: text.value }, model: model.value || "a person", stopReason: "endTurn" });
    const whole = folded("Answer with JSON instead", () => { raw.value = JSON.stringify(result(), null, 2); return el("div", { class: "stack" }, raw, wrong); });
    const submit = () => {
      if (!whole.open) { done({ result: result() }); return; }
      try { done({ result: JSON.parse(raw.value) }); } catch (error) { wrong.textContent = jsonTrouble(error, raw.value); wrong.hidden = false; raw.focus(); }
    };
    const { messages = [], systemPrompt, ...rest } = params ?? {};
    return {
      title: "The server asks the model", submit,
      nodes: [systemPrompt ? el("div", { class: "said" }, el("p", { class: "quiet" }, "system"), el("p", { class: "pre" }, systemPrompt)) : null,
        messages.map((one) => el("div", { class: "said" }, el("p", { class: "quiet" }, String(one.role)), [one.content].flat().map(blockOf))), folded("Other parameters", () => jsonBox(rest, "parameters")),
        labelled("Your answer, as the model", text), labelled("Name of the model", model), whole],
      actions: [button("Answer", submit, { class: "button primary" }), button("Refuse", () => fail("The user refused to sample"))],
    };
  },

  roots(_, done) {
    const rows = el("div", { class: "rows" });
    const addRow = ({ uri = "file:///", name = "" } = {}) => {
      const node = el("div", { class: "row" }, el("input", { class: "field mono", "aria-label": "Address of a root", value: uri, spellcheck: "false" }), el("input", { class: "field", "aria-label": "Name of a root", placeholder: "name", value: name }), iconButton("close", "Remove this root", () => node.remove(), { class: "button only small" }));
      rows.append(node);
    };
    for (const one of roots) addRow(one);
    if (!roots.length) addRow();
    const always = tick("Answer the same from now on", givesRoots, (isOn) => { givesRoots = isOn; });
    const submit = () => {
      roots = [...rows.children].map((row) => { const [uri, name] = [...row.querySelectorAll("input")].map(({ value }) => value.trim()); return { uri, ...(name ? { name } : {}) }; }).filter(({ uri }) => uri);
      done({ roots });
    };
    return { title: "The server asks for the roots", submit, nodes: [el("p", { class: "quiet" }, "Folders that it may work in."), rows, button("Add root", () => addRow(), { class: "button small", icon: "plus" }), always], actions: [button("Send", submit, { class: "button primary" }), button("None", () => done({ roots: [] }))] };
  },

  openLink({ url }, done) {
    const open = opener(url, () => done({ allow: true }), "Open");
    return { title: "asks to open a link", nodes: [addressOf(url)], actions: [open, button("Allow without opening", () => done({ allow: true })), button("Deny", () => done({ allow: false }))].filter(Boolean) };
  },

  message({ content }, done) {
    return { title: "asks to send a message as the user", nodes: [content].flat().map(blockOf), ...yesNo(done) };
  },

  download({ items }, done) {
    const names = (items ?? []).map((one) => el("li", { class: "mono wrap" }, [one.name ?? one.url ?? "a file", one.mimeType, one.url].filter(Boolean).join(" · ")));
    return { title: "asks to save files", nodes: [el("ul", { class: "plain-list" }, names)], ...yesNo(done, "Save") };
  },
};

function yesNo(done, yes = "Allow") {
  const submit = () => done({ allow: true });
  return { submit, actions: [button(yes, submit, { class: "button primary" }), button("Deny", () => done({ allow: false }))] };
}

/** The answer without a question: to modes, which the page shows, and to what the user has decided before. */
function settled(about) {
  if (about.kind === "displayMode") {
    cardOf(about.viewId)?.setMode(about.mode, { tells: false });
    return { allow: true, mode: about.mode };
  }
  if (about.kind === "roots" && givesRoots) return { roots };
  const rule = { openLink: consent.links, message: consent.messages, download: consent.downloads }[about.kind];
  return rule === "allow" ? { allow: true } : rule === "deny" ? { allow: false } : null;
}

function ask(about) {
  const known = settled(about);
  if (known) { if (known.allow && about.kind === "download") save(about.items); return known; }
  const make = KINDS[about.kind];
  if (!make) throw new Error(`The page knows no question of the kind ${about.kind}`);
  return new Promise((resolve, reject) => {
    const one = { about };
    const leave = () => { const at = waiting.indexOf(one); if (at >= 0) waiting.splice(at, 1); show(); };
    one.done = (result) => { leave(); if (result.allow && about.kind === "download") save(about.items); resolve(result); };
    one.fail = (text) => { leave(); reject(Object.assign(new Error(text), { code: -1 })); };
    one.parts = make(about, one.done, one.fail);
    waiting.push(one);
    show();
  });
}

function save(items) {
  for (const { name, data, mimeType, url } of items ?? []) {
    if (typeof data === "string") {  // base64
      const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
      saveFile(name ?? "file", mimeType ?? "application/octet-stream", [bytes]);
    } else if (/^https?:\/\//i.test(url ?? "")) el("a", { href: url, target: "_blank", rel: "noopener noreferrer", download: name }).click();
  }
}

/** Show the first waiting question. It takes the focus, unless the user is writing. */
function show() {
  const tray = byId("asks");
  const [one] = waiting;
  if (one && tray.dataset.ask === one.about.askId) { tray.querySelector(".ask-count").textContent = waiting.length > 1 ? `1 of ${waiting.length}` : ""; return; }
  tray.dataset.ask = one?.about.askId ?? "";
  tray.hidden = !one;
  if (!one) {
    tray.replaceChildren();
    if (before?.isConnected && document.activeElement === document.body) before.focus();
    before = null;
    return;
  }
  const { title, nodes, actions, submit } = one.parts;
  const card = cardOf(one.about.viewId);
  const head = el("h2", { id: "ask-title", tabindex: "-1" }, card ? `${card.info.title} ${title}` : title.charAt(0).toUpperCase() + title.slice(1));
  fill(tray, el("div", { class: "ask-head" }, head, el("span", { class: "quiet ask-count" }, waiting.length > 1 ? `1 of ${waiting.length}` : "")),
    el("div", { class: "ask-body", keydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submit?.(); } } }, nodes), el("div", { class: "actions" }, actions));
  announce(head.textContent, true);
  const active = document.activeElement;
  const isWriting = active?.matches?.("textarea, input:not([type=checkbox], [type=radio])") && active.value;
  if (isWriting) return;
  before ??= active === document.body ? null : active;
  head.focus();
}

export function focusAsk() { byId("ask-title")?.focus(); }

export function start() {
  api.answer("ask", ask);
  api.on("ask/cancelled", ({ askId }) => {
    const one = waiting.find(({ about }) => about.askId === askId);
    if (one) { one.fail("The question was taken back"); announce("The question was taken back"); }
  });
}

/** Remove all questions, because the connection is gone. */
export function drop() { for (const one of [...waiting]) one.fail("The connection was lost"); }
