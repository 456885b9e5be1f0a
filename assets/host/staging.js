/* A call whose arguments come bit by bit, as from a model that still writes: step through them, or let them play. */

import { api } from "./api.js";
import { button, clip, el, fill, labelled, newId, select } from "./dom.js";
import { openView } from "./views.js";

const STEPS = [["1", "1 character"], ["4", "4 characters"], ["16", "16 characters"], ["64", "64 characters"]];
const SPEEDS = [["20", "20 ms"], ["80", "80 ms"], ["300", "300 ms"]];

export class Staging {
  constructor(panel) {
    this.panel = panel;
    this.text = "";
    this.at = 0;
    this.callId = null;
    this.timer = null;
    this.size = 4;
    this.pace = 80;
    this.sent = el("span", { class: "staged-sent" });
    this.rest = el("span", { class: "staged-rest" });
    this.closed = el("pre", { class: "json", tabindex: "0", role: "region", "aria-label": "What the app was given" });
    this.stepButton = button("Step", () => this.step(), { icon: "step" });
    this.playButton = button("Play", () => this.play(), { icon: "play", "aria-pressed": "false" });
    this.finishButton = button("Finish and call", () => this.finish(), {});
    this.resetButton = button("Start over", () => this.reset(), {});
    this.node = el("section", { class: "staging", id: newId("s"), hidden: true, "aria-label": "Input bit by bit" },
      el("p", { class: "hint" }, "The app is opened and given the arguments as far as they are written; the tool is called at the end."),
      el("pre", { class: "staged", tabindex: "0", role: "region", "aria-label": "The arguments, and how much of them was sent" }, this.sent, this.rest),
      el("div", { class: "actions" }, this.stepButton, this.playButton, this.finishButton, this.resetButton,
        labelled("Step size", select(STEPS, "4", (value) => { this.size = Number(value); }, { class: "field small" }), { row: true }),
        labelled("Pace", select(SPEEDS, "80", (value) => { this.pace = Number(value); }, { class: "field small" }), { row: true })),
      el("h3", {}, "What the app was given"), this.closed);
  }

  async toggle() {
    const isOpen = this.node.hidden;
    if (isOpen && !(await this.reset())) return;
    if (!isOpen) this.stop();
    this.node.hidden = !isOpen;
    this.panel.stageButton.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.stepButton.focus();
  }

  /** Begin anew with the arguments as they stand in the form. */
  async reset() {
    const value = await this.panel.arguments();
    if (value === undefined) return false;
    this.stop();
    if (this.callId) api.request("call/cancel", { callId: this.callId, reason: "The user started over" }).catch(() => {});
    this.value = value;
    this.text = JSON.stringify(value);
    this.at = 0;
    this.callId = null;
    this.draw();
    fill(this.closed, "Nothing yet");
    return true;
  }

  draw() {
    this.sent.textContent = this.text.slice(0, this.at);
    this.rest.textContent = this.text.slice(this.at);
    const isDone = this.at >= this.text.length;
    this.stepButton.disabled = isDone;
    this.playButton.disabled = isDone;
  }

  async step() {
    if (this.callId === null) {
      this.callId = crypto.randomUUID();
      await api.request("call/begin", { callId: this.callId, name: this.panel.tool.name });
      openView(this.panel.tool, this.callId);
    }
    this.at = Math.min(this.text.length, this.at + this.size);
    this.draw();
    const { closed } = await api.request("call/partial", { callId: this.callId, text: this.text.slice(0, this.at) });
    this.closed.textContent = clip(JSON.stringify(closed ?? null, null, 2), 20_000);
  }

  play() {
    if (this.timer) { this.stop(); return; }
    this.playButton.setAttribute("aria-pressed", "true");
    const tick = async () => {
      await this.step().catch(() => this.stop());
      if (!this.timer) return;
      if (this.at < this.text.length) this.timer = setTimeout(tick, this.pace);
      else { this.stop(); this.finishButton.focus(); }
    };
    this.timer = setTimeout(tick, 0);
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.playButton.setAttribute("aria-pressed", "false");
  }

  async finish() {
    this.stop();
    if (this.callId === null) await this.step();
    this.at = this.text.length;
    this.draw();
    const callId = this.callId;
    this.callId = null;
    await this.panel.call({ callId, value: this.value });
  }
}
