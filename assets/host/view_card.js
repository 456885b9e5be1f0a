/* One View on the stage: its frame, the bar above that the page draws, its size, its mode, what is in force for it. */

import { api } from "./api.js";
import { announce, bytes, button, chip, clip, el, icon, iconButton, newId, plural, select, separator } from "./dom.js";
import { ViewFrame, flush } from "./frames.js";
import { detailsOf } from "./view_details.js";
import { store, tell } from "./state.js";
import { gone, reload } from "./views.js";

const STATES = { opening: ["opening", ""], connected: ["connected", ""], live: ["live", "good"], failed: ["failed", "bad"], closed: ["closed", ""] };
const TALLEST = 2000;
export const SIZES = [["fill", "Fill"], ["320", "320"], ["375", "375"], ["480", "480"], ["768", "768"], ["1024", "1024"]];
/** How Views are sized, for those to come too: a width or "fill", and a fixed height or 0 for one that follows the app. */
export const sizing = { width: "fill", height: 0 };

export class ViewCard {
  constructor(info, tool, before = null) {
    this.info = info;
    this.tool = tool;
    this.mode = before?.mode ?? "inline";
    this.width = before?.width ?? sizing.width;
    this.height = before?.height ?? sizing.height;
    this.reported = before?.reported ?? 0;
    this.isOver = false;
    this.isReloading = false;
    this.findings = 0;
    this.sizes = [];
    this.build();
  }

  build() {
    const { info } = this;
    const titleId = newId("v");
    this.state = chip("opening", "", { role: "status" });
    this.other = chip("of another tool", "warn", { hidden: true, title: `It shows a call of ${this.tool.name}, which is not the tool that is chosen` });
    this.frame = new ViewFrame(info, (message) => this.saw(message));
    this.grip = el("div", { class: "grip", role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-label": `Width of ${info.title}`, "aria-valuemin": "120", "aria-valuemax": "4000" });
    this.foot = el("div", { class: "grip foot", role: "separator", tabindex: "0", "aria-orientation": "horizontal", "aria-label": `Height of ${info.title}`, "aria-valuemin": "40", "aria-valuemax": "4000" });
    this.screen = el("div", { class: "screen" }, this.frame.node);
    this.port = el("div", { class: "port" }, this.screen, this.grip);
    this.size = el("span", { class: "quiet mono size" });
    this.alarms = button("", () => tell("show", "findings"), { class: "toggle alarm", hidden: true });
    this.modes = select([["inline", "inline"], ["fullscreen", "fullscreen"], ["pip", "pip"]], this.mode, (mode) => this.setMode(mode), { class: "field small", "aria-label": "Display mode", title: "Display mode" });
    this.widths = select([...SIZES, ["custom", "own"]], this.width, (width) => this.setWidth(width), { class: "field small", "aria-label": "Width of the container", title: "Width of the container" });
    this.details = el("div", { class: "details", hidden: true, id: newId("d") });
    this.detailsButton = button("Details", () => this.toggleDetails(), { class: "button small", "aria-expanded": "false", "aria-controls": this.details.id });
    this.alarm = el("div", {});
    this.node = el("article", { class: "view", "aria-labelledby": titleId, "data-view": info.viewId },
      el("header", { class: "view-head" }, el("div", { class: "view-name" }, icon("app"), el("h3", { id: titleId, tabindex: "-1", title: info.title }, info.title), this.state, this.other),
        el("div", { class: "view-tools" }, this.modes, this.widths, iconButton("reload", "Load again with the same input and result", () => reload(this), { class: "button only small" }), this.detailsButton, iconButton("close", "Tear down", () => this.teardown(), { class: "button only small" }))),
      this.alarm, this.port, this.foot, el("footer", { class: "view-foot" }, this.size, el("span", { class: "quiet" }, `${info.profile} · ${bytes(info.bytes)}`), info.problems.length ? chip(plural(info.problems.length, "problem"), "warn", { title: info.problems.join("\n") }) : null, this.alarms), this.details);
    separator(this.grip, { vertical: true, get: () => this.screen.offsetWidth, set: (size) => { this.width = String(Math.max(120, size)); this.widths.value = SIZES.some(([one]) => one === this.width) ? this.width : "custom"; this.layOut(); } });
    separator(this.foot, { get: () => this.screen.offsetHeight, set: (size) => { this.height = Math.max(40, size); this.layOut(); } });
    this.observer = new ResizeObserver(() => this.measure());
  }

  /** Whether another tool was chosen since. */
  mark(chosen) { this.other.hidden = chosen === this.tool.name; }

  /** The card is in the page: now its frame loads. */
  begin() {
    flush(this.frame);
    this.dress();
    this.setMode(this.mode, { tells: false });
    if (store.quirks.hiddenUntilInitialized) { this.screen.classList.add("unseen"); this.isHidden = true; }
    this.observer.observe(this.port);
    this.layOut();
  }

  dress() {
    const theme = store.context.theme;
    this.frame.node.style.setProperty("color-scheme", theme ?? "normal");
    this.screen.dataset.theme = theme ?? "";
  }

  /** What a View may fill, as it is told: a width, and a height or the most of one. */
  static dimensions(place, { width = sizing.width, height = sizing.height, mode = "inline" } = {}) {
    if (mode === "fullscreen") return { width: Math.max(120, innerWidth - 2), height: Math.max(120, innerHeight - 46) };
    if (mode === "pip") return { width: 358, height: 240 };
    const room = Math.max(120, Math.floor(place.clientWidth) - 12);
    return { width: width === "fill" ? room : Number(width), ...(height ? { height } : { maxHeight: TALLEST }) };
  }

  layOut() {
    const wanted = ViewCard.dimensions(this.port, this);
    this.screen.style.setProperty("width", `${wanted.width}px`);
    this.screen.style.setProperty("height", `${wanted.height ?? Math.max(1, Math.min(TALLEST, this.reported || 160))}px`);
    this.size.textContent = `${Math.round(wanted.width)} × ${Math.round(wanted.height ?? (this.reported || 160))} px`;
    const sign = JSON.stringify(wanted);
    if (this.isOver || sign === this.told) return;
    const isFirst = this.told === undefined;
    this.told = sign;
    clearTimeout(this.telling);
    const tellIt = () => api.request("view/context", { viewId: this.info.viewId, context: { containerDimensions: wanted } }).catch(() => {});
    if (isFirst) tellIt(); else this.telling = setTimeout(tellIt, 60);
  }

  measure() { cancelAnimationFrame(this.turn); this.turn = requestAnimationFrame(() => { if (!this.isOver && this.port.clientWidth) this.layOut(); }); }

  setWidth(width) { if (width !== "custom") { this.width = width; this.layOut(); } }

  /** Show it in a mode. The page draws it; the View is told, unless it asked itself. */
  setMode(mode, { tells = true } = {}) {
    this.mode = mode;
    this.modes.value = mode;
    for (const one of ["inline", "fullscreen", "pip"]) this.node.classList.toggle(one, one === mode);
    this.widths.disabled = mode !== "inline";
    this.layOut();
    if (!tells || this.isOver) return;
    api.request("view/context", { viewId: this.info.viewId, context: { displayMode: mode } }).catch((error) => { announce(error.message, true); this.setMode("inline", { tells: false }); this.note(error.message); });
  }

  /** A message of the View on its way to the preview. */
  saw(message) {
    if (this.isHidden && message?.method === "ui/notifications/initialized") { this.isHidden = false; this.screen.classList.remove("unseen"); }
  }

  heard(event) {
    const { kind } = event;
    if (kind === "live" && performance.getEntriesByName("mcpd:call").length) performance.measure("mcpd:view", "mcpd:call");
    if (STATES[kind]) this.become(kind);
    if (kind === "size") { this.reported = event.height ?? this.reported; this.layOut(); this.watch(); }
    if (kind === "mode" && event.mode !== this.mode) this.setMode(event.mode, { tells: false });
    if (kind === "failed") this.fail("The app does not answer", event.reason ?? event.message ?? "");
    if (kind === "closed") this.end("Closed", event.clean ? "It answered the teardown." : event.reason ?? "It did not answer the teardown.");
    if (kind === "teardownRequested") { announce(`${this.info.title} asks to be closed`); this.teardown("the app asked for it"); }
    if ((kind === "violation" && !event.harmless) || kind === "stopped") this.found();
    tell("viewEvent", { card: this, event });
    if (!this.details.hidden && ["appTools", "violation", "connected"].includes(kind)) this.drawDetails();
  }

  /** A size that never settles: one that grows with the frame, step by step, or changes all the time. */
  watch() {
    this.sizes = [...this.sizes, [performance.now(), this.reported]].filter(([at]) => at > performance.now() - 2000);
    const heights = this.sizes.map(([, height]) => height);
    const steps = heights.slice(-5).map((height, at, all) => height - (all[at - 1] ?? height)).slice(1);
    const grows = steps.length === 4 && steps[0] > 0 && steps.every((step) => Math.abs(step - steps[0]) <= 1);
    if (!grows && heights.filter((height, at) => height !== heights[at - 1]).length < 40) return;
    this.sizes = [];
    this.found();
    tell("finding", { viewId: this.info.viewId, title: "It does not settle on a size", text: "Report the height of the content, not of the window (100vh): the frame grows with it, without end." });
  }

  /** One finding more, to be read below. */
  found() {
    this.findings += 1;
    this.alarms.textContent = plural(this.findings, "finding");
    this.alarms.hidden = false;
  }

  become(kind) {
    const [text, colour] = STATES[kind];
    this.state.textContent = text;
    this.state.className = `chip ${colour}`;
    this.node.dataset.state = kind;
    if (kind === "live") announce(`${this.info.title} is shown`);
  }

  note(text) { this.alarm.replaceChildren(el("p", { class: "note" }, text)); }

  fail(title, text) {
    this.become("failed");
    this.alarm.replaceChildren(el("div", { class: "problem", role: "alert" }, icon("warn"), el("div", {}, el("p", { class: "problem-title" }, title), el("p", { class: "pre" }, clip(String(text), 1000)),
      el("p", {}, "Its messages are under “Messages”, what was blocked or stopped under “Findings”, errors of its scripts in the console of the browser’s developer tools."), button("Load again", () => reload(this), { class: "button small", icon: "reload" }))));
  }

  toggleDetails() {
    this.details.hidden = !this.details.hidden;
    this.detailsButton.setAttribute("aria-expanded", String(!this.details.hidden));
    if (!this.details.hidden) this.drawDetails();
  }
  drawDetails() { this.details.replaceChildren(detailsOf(this)); }

  async teardown(reason = "closed by the user") {
    this.node.setAttribute("aria-busy", "true");
    const { clean } = await api.request("view/close", { viewId: this.info.viewId, reason }).catch(() => ({ clean: false }));
    announce(`${this.info.title} is closed. ${clean ? "It answered the teardown." : "It did not answer the teardown."}`);
    tell("closedView", { title: this.info.title, clean });
    this.leave();
    gone(this);
  }

  close(reason) { return this.teardown(reason); }

  /** The View is no more; what it was still stands there, without its frame. */
  end(title, text) {
    if (this.isOver || this.isReloading) return;
    this.leave();
    this.become("closed");
    this.alarm.replaceChildren(el("p", { class: "note" }, `${title}. ${text}`));
    this.port.remove();
    this.foot.remove();
  }

  leave() {
    this.isOver = true;
    this.observer.disconnect();
    clearTimeout(this.telling);
    this.frame.close();
  }

  focusHead() { this.node.querySelector("h3").focus(); }
}
