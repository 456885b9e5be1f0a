/* The chosen tool: its description, its arguments as a form and as JSON, its calls. */

import { RemoteError, api } from "./api.js";
import { announce, button, byId, chip, clip, el, empty, fill, icon, isObject, plural, problem, select, tabs } from "./dom.js";
import { makeForm } from "./form.js";
import { jsonTrouble } from "./form_inputs.js";
import { jsonBox } from "./json.js";
import { failure, resultOf } from "./result.js";
import { Staging } from "./staging.js";
import { withFiles } from "./schema.js";
import { on, store, tell } from "./state.js";
import { openView } from "./views.js";
import { required } from "./visits.js";

const panels = new Map();  // name of a tool -> its panel, which keeps the input
const running = new Map();  // call id -> panel
let shown = null;

const HINTS = [["readOnlyHint", "read-only", ""], ["destructiveHint", "destructive", "warn"], ["idempotentHint", "idempotent", ""], ["openWorldHint", "open world", ""]];
const OBJECTION = /^`?([^\s:.[\]`,]+)((?:\.[^\s:.[\]`]+|\[\d+\])*)`?(?:, a key)?: (.+)$/;

const seenBy = (tool) => tool.visibility ?? ["model", "app"];

class Panel {
  constructor(tool) {
    this.tool = tool;
    this.callId = null;
    this.complaints = [];
    this.form = makeForm(withFiles(tool), { onChange: () => { this.rawIs = null; } });
    this.rawIs = null;  // the form when the JSON was made from it: until it changes, the text stays as typed
    this.build();
  }

  build() {
    const { tool } = this;
    this.raw = el("textarea", { class: "field code raw", spellcheck: "false", "aria-label": "Arguments as JSON", dir: "ltr", rows: 10, "aria-describedby": "raw-wrong" });
    this.raw.value = "{}";
    this.raw.addEventListener("input", () => { this.rawChanged = true; this.complaints = []; this.rawWrong(""); });
    this.rawAlarm = el("p", { class: "wrong", id: "raw-wrong", hidden: true });
    const formPanel = el("div", { class: "form" }, this.form.node);
    const rawPanel = el("div", { class: "stack" }, this.raw, this.rawAlarm);
    const schemaPanel = el("div", { class: "stack" });
    this.mode = "form";
    this.bar = tabs("Arguments", [["form", "Form", formPanel], ["json", "JSON", rawPanel], ["schema", "Definition", schemaPanel]], { onChange: (key) => this.change(key, schemaPanel) });
    this.callButton = button("Call", () => this.call(), { class: "button primary", icon: "play", "aria-keyshortcuts": "Control+Enter" });
    this.cancelButton = button("Cancel", () => this.cancel(), { hidden: true, icon: "close" });
    this.as = select([["model", "as the model"], ["app", "as an app"]], seenBy(tool).includes("model") ? "model" : "app", () => {}, { class: "field small", "aria-label": "Call as" });
    this.staging = new Staging(this);
    this.stageButton = button("Input bit by bit", () => this.staging.toggle(), { "aria-expanded": "false", "aria-controls": this.staging.node.id, icon: "step", title: "Give the app its arguments unfinished, step by step, as a model writes them" });
    this.progress = el("progress", { "aria-label": "Progress of the call", hidden: true });
    this.said = el("span", { class: "quiet said" });
    this.output = el("div", { class: "output" }, empty("Not called yet", tool.app ? "Its result is shown here as a host without Apps would show it; its app beside it, or under “App”." : "Its result will be here."));
    this.node = el("div", { class: "tool", keydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); this.call(); } } },
      this.heading(), el("section", { class: "arguments", "aria-label": "Arguments" }, this.bar.list, formPanel, rawPanel, schemaPanel),
      el("div", { class: "actions" }, this.callButton, this.cancelButton, this.as, tool.app ? this.stageButton : null, this.said), this.progress, this.staging.node);
  }

  heading() {
    const { tool } = this;
    const title = tool.title ?? tool.annotations?.title ?? tool.name;
    const sees = seenBy(tool);
    const marks = [chip(sees.includes("model") ? "model" : "hidden from the model", sees.includes("model") ? "" : "warn"), tool.app ? chip(sees.includes("app") ? "apps may call" : "apps may not call") : null,
      ...HINTS.map(([name, text, kind]) => (tool.annotations?.[name] === true ? chip(text, kind) : null))];
    return el("header", { class: "tool-head" }, el("h2", { tabindex: "-1", id: "tool-title", dir: "auto" }, title),
      el("div", { class: "line" }, title === tool.name ? null : el("code", {}, tool.name), marks),
      tool.app ? el("p", { class: "line whole quiet" }, icon("app"), el("span", { class: "mono clip", title: tool.app }, tool.app)) : null,
      tool.description ? el("p", { class: "about", dir: "auto" }, clip(tool.description, 4000)) : null,
      tool.problems?.length ? problem(plural(tool.problems.length, "problem"), tool.problems.join("\n")) : null);
  }

  change(key, schemaPanel) {
    if (!this.bar) return;
    if (key === "schema" && !schemaPanel.firstChild) {
      const { inputSchema, outputSchema, visibility, app, problems, ...rest } = this.tool;
      schemaPanel.append(el("h3", {}, "Input schema"), jsonBox(inputSchema ?? {}, "input schema"), outputSchema ? el("h3", {}, "Output schema") : "", outputSchema ? jsonBox(outputSchema, "output schema") : "", el("h3", {}, "Everything else"), jsonBox(rest, "definition"));
    }
    if (key === "json" && this.mode === "form") {
      const { value } = this.form.read({ quiet: true });
      const text = JSON.stringify(value, null, 2);
      if (this.rawIs !== text) { this.raw.value = text; this.rawIs = text; this.rawChanged = false; }
    }
    if (key === "form" && this.mode === "json" && this.rawChanged) {
      const value = this.parsed();
      if (value === undefined) { this.bar.choose("json", true); this.raw.focus(); return; }
      this.form.write(value);
      this.complain();
      this.rawIs = JSON.stringify(this.form.read({ quiet: true }).value, null, 2);  // unless the form changes, the text stays as typed
      this.rawChanged = false;
    }
    if (key !== "schema") this.mode = key;
  }

  rawWrong(text) { this.rawAlarm.textContent = text; this.rawAlarm.hidden = !text; if (text) this.raw.setAttribute("aria-invalid", "true"); else this.raw.removeAttribute("aria-invalid"); }

  parsed() {
    try {
      const value = this.raw.value.trim() ? JSON.parse(this.raw.value) : {};
      if (!isObject(value)) { this.rawWrong("Arguments are an object: { … }"); return undefined; }
      this.rawWrong("");
      return value;
    } catch (error) { this.rawWrong(jsonTrouble(error, this.raw.value)); return undefined; }
  }

  /** The current arguments, or undefined after showing what is wrong. */
  async arguments() {
    this.isReading = true;
    try { if (this.mode !== "json") await this.form.settled(); } finally { this.isReading = false; }
    if (this.mode === "json") { const value = this.parsed(); if (value === undefined) { this.bar.choose("json"); this.raw.focus(); } return value; }
    const { value, problems } = this.form.read();
    if (!problems.length) return value;
    this.bar.choose("form");
    problems[0].focus();
    announce(`${plural(problems.length, "field")} to look at. ${problems[0].path.join(" ")}: ${problems[0].text}`, true);
    return undefined;
  }

  async call(staged = null) {
    if ((this.callId || this.isReading) && !staged) return;
    const given = staged?.value ?? await this.arguments();
    if (given === undefined) return;
    const callId = staged?.callId ?? crypto.randomUUID();
    this.begin(callId);
    performance.mark("mcpd:call");
    const answer = api.request("tools/call", { callId, name: this.tool.name, arguments: given, as: this.as.value });
    const opened = staged || !this.tool.app ? null : openView(this.tool, callId);  // together with the call
    try {
      const told = await answer;
      this.say(told.result.isError ? "The tool reports an error" : "Done");
      fill(this.output, resultOf(told.result, told));
      if (told.result.isError) this.objections(told.result);
    } catch (error) {
      if (!(error instanceof RemoteError)) throw error;
      const isOver = /cancel/i.test(error.message);
      this.say(isOver ? "Cancelled" : "The call failed");
      fill(this.output, isOver ? empty("Cancelled", "The server was told; what it still answers is thrown away.") : this.refused(error));
      if (!isOver) this.objections({ content: [{ type: "text", text: error.message }] });
    } finally { this.end(callId); }
    await opened;
  }

  /** Show a JSON-RPC error, with links if it requires to visit pages first. */
  refused(error) {
    const pages = error.code === -32042 ? error.data?.elicitations : null;
    const node = failure(error, "The call failed");
    if (Array.isArray(pages)) node.prepend(required(pages.filter(isObject), el("div", { class: "actions" }, button("Call again", () => this.call()))));
    return node;
  }

  begin(callId) {
    this.callId = callId;
    running.set(callId, this);
    this.callButton.disabled = true;
    this.cancelButton.hidden = false;
    this.progress.hidden = false;
    this.progress.removeAttribute("value");
    this.said.textContent = "Running";
    this.node.setAttribute("aria-busy", "true");
    if (this.output.querySelector(".empty")) fill(this.output, empty("Running", "Its result will be here."));
    this.output.classList.add("old");
  }

  end(callId) {
    running.delete(callId);
    if (this.callId !== callId) return;
    this.callId = null;
    const held = document.activeElement === this.cancelButton;
    this.callButton.disabled = false;
    this.cancelButton.hidden = true;
    this.progress.hidden = true;
    this.node.removeAttribute("aria-busy");
    this.output.classList.remove("old");
    if (held) this.callButton.focus();
  }

  /** Call the tool at once, if it has an app and no arguments. */
  showAtOnce() {
    const { app, inputSchema, annotations } = this.tool;
    const isAsked = this.wasShown || !app || Object.keys(inputSchema?.properties ?? {}).length || annotations?.destructiveHint;
    this.wasShown = true;
    if (!isAsked) this.call();
  }

  say(text) { this.said.textContent = text; announce(`${this.tool.title ?? this.tool.name}: ${text}`); }
  /** Cancel the running call; returns whether there was one. */
  cancel() {
    if (!this.callId) return false;
    this.said.textContent = "Cancelling";
    api.request("call/cancel", { callId: this.callId, reason: "The user cancelled the call" }).catch((error) => this.say(error.message));
    return true;
  }

  advance({ progress, total, message }) {
    if (Number.isFinite(total) && total > 0) { this.progress.max = total; this.progress.value = progress; } else this.progress.removeAttribute("value");
    const part = Number.isFinite(total) && total > 0 ? `${Math.round((100 * progress) / total)} %` : String(progress ?? "");
    this.said.textContent = [part, message ? clip(message, 200) : ""].filter(Boolean).join(" · ");
    announce(this.said.textContent);
  }

  /** Show the errors of the server about single arguments at their fields. */
  objections(result) {
    const names = Object.keys(this.tool.inputSchema?.properties ?? {});
    const lines = (result.content ?? []).filter(({ type }) => type === "text").flatMap(({ text }) => String(text).split("\n"));
    this.complaints = lines.map((line) => OBJECTION.exec(line.trim().slice(0, 2000))).filter((match) => match && names.includes(match[1]))
      .map((match) => [[match[1], ...match[2].split(/[.[\]]/).filter(Boolean)], match[3]]);
    const [first] = this.complain();
    if (first && this.mode === "form") first.focus();
  }

  complain() { return this.complaints.map(([path, text]) => this.form.complain(path, text)); }
}

function show(panel) {
  shown = panel;
  document.body.classList.toggle("has-stage", Boolean(panel.tool.app) || document.querySelector("#views > .view") !== null);
  fill(byId("call"), panel.node);
  fill(byId("result"), el("h2", { class: "pane-title" }, panel.tool.app ? "Text result" : "Result"), panel.output);
  tell("tool", panel.tool);
}

const sameTool = (left, right) => JSON.stringify(left) === JSON.stringify(right);

export function start() {
  on("pick", (about) => {
    if (about.kind !== "tool") { shown = null; return; }
    let panel = panels.get(about.tool.name);
    if (!panel || !sameTool(panel.tool, about.tool)) panels.set(about.tool.name, (panel = new Panel(about.tool)));
    show(panel);
    panel.showAtOnce();
  });
  on("tools", () => {
    if (!shown) return;
    const now = store.tools.find(({ name }) => name === shown.tool.name);
    if (!now || sameTool(now, shown.tool) || shown.callId) return;
    // The tool has changed: the input is kept for arguments that still exist.
    const { value } = shown.form.read({ quiet: true });
    const panel = new Panel(now);
    panel.form.write(value);
    panel.output = shown.output;
    panels.set(now.name, panel);
    show(panel);
    announce(`${now.title ?? now.name} has changed`);
  });
  api.on("call/progress", (told) => running.get(told.callId)?.advance(told));
}

export const callShown = () => shown?.call();
export const cancelShown = () => shown?.cancel() ?? false;
