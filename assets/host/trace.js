/* Every message of server, host and Views, in order: a list of which only the rows that are seen exist. */

import { api } from "./api.js";
import { announce, button, byId, bytes, clip, copyText, el, empty, fill, icon, iconButton, saveFile, select } from "./dom.js";
import { jsonBox } from "./json.js";
import { on } from "./state.js";

const ROW = 28, PAGE = 100, KEPT_PAGES = 40, SAVE_AT_ONCE = 500;
const KINDS = [["request", "requests", "→"], ["response", "responses", "←"], ["error", "errors", "!"], ["notification", "notifications", "•"], ["invalid", "invalid", "?"]];
const MARKS = Object.fromEntries(KINDS.map(([kind, , mark]) => [kind, mark]));

const FORGOTTEN = { n: "", time: 0, from: "", to: "", kind: "forgotten", method: "forgotten", preview: "Only the newest 50,000 messages are kept.", bytes: 0 };

const clock = (seconds) => (seconds < 60 ? seconds.toFixed(3) : `${Math.floor(seconds / 60)}:${(seconds % 60).toFixed(2).padStart(5, "0")}`);
const party = (name) => (String(name).startsWith("view:") ? "view" : String(name));

class Trace {
  constructor() {
    this.total = 0;
    this.pages = new Map();
    this.asked = new Set();
    this.filter = {};
    this.at = -1;  // the row that is chosen
    this.follows = true;
    this.put = 0;  // where the list was scrolled to, to follow
    this.turn = 0;  // answers for an older filter are thrown away
    this.rows = [];
    this.build();
  }

  build() {
    this.space = el("div", { class: "trace-space" });
    this.list = el("div", { class: "trace-list", role: "grid", tabindex: "0", "aria-label": "Messages", "aria-colcount": "6", "aria-readonly": "true" }, this.space);
    this.list.addEventListener("scroll", () => {
      this.noticeScroll();
      this.schedule();
    });
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("click", (event) => { const row = event.target.closest(".trace-row"); if (row) this.choose(Number(row.dataset.at)); });
    this.detail = el("div", { class: "trace-detail", role: "region", "aria-label": "The chosen message", hidden: true });
    this.none = el("div", {});
    this.text = el("input", { type: "search", class: "field", placeholder: "Text in messages", "aria-label": "Text in messages", spellcheck: "false", autocomplete: "off", input: () => this.refilter(200) });
    this.method = el("input", { type: "search", class: "field method", placeholder: "Method", "aria-label": "Method", list: "all-methods", spellcheck: "false", autocomplete: "off", input: () => this.refilter(200) });
    this.methods = el("datalist", { id: "all-methods" });
    this.seen = new Set();
    this.party = select([["", "all parties"], ["server", "server"], ["view", "Views"]], "", () => this.refilter(0), { class: "field small", "aria-label": "Party" });
    this.kinds = new Set();
    const toggles = KINDS.map(([kind, text]) => { const node = button(text, () => { if (!this.kinds.delete(kind)) this.kinds.add(kind); node.setAttribute("aria-pressed", String(this.kinds.has(kind))); this.refilter(0); }, { class: "toggle", "aria-pressed": "false" }); return node; });
    this.count = el("span", { class: "quiet", role: "status" });
    this.followButton = button("Follow", () => { this.follows = !this.follows; this.showFollow(); if (this.follows) this.end(); }, { class: "toggle", "aria-pressed": "true", title: "Stay at the newest message" });
    this.saveButton = button("Save", () => this.save(), { class: "button small", icon: "save", title: "Save what the filter shows as .jsonl, without tokens and passwords that are named so" });
    this.node = el("div", { class: "trace" },
      el("div", { class: "trace-bar" }, this.text, this.method, this.methods, this.party, el("div", { class: "toggles", role: "group", "aria-label": "Kinds of messages" }, toggles), this.count, this.followButton, this.saveButton),
      el("div", { class: "trace-body" }, el("div", { class: "trace-main" }, this.list, this.none), this.detail));
    new ResizeObserver(() => this.schedule()).observe(this.list);
  }

  /** Stop following once the user has scrolled up, whose event may come only after the next messages. */
  noticeScroll() { if (this.follows && this.list.scrollTop < this.put - ROW) { this.follows = false; this.showFollow(); } }

  showFollow() { this.followButton.setAttribute("aria-pressed", String(this.follows)); }
  end() { this.list.scrollTop = this.list.scrollHeight; this.put = this.list.scrollTop; this.schedule(); }

  refilter(wait) {
    clearTimeout(this.soon);
    this.soon = setTimeout(() => {
      const filter = {};
      if (this.text.value) filter.text = this.text.value;
      if (this.method.value) filter.methods = [this.method.value];
      if (this.party.value) filter.parties = [this.party.value];
      if (this.kinds.size) filter.kinds = [...this.kinds];
      this.filter = filter;
      this.forget();
      this.unchoose();
      this.put = 0;
      this.list.scrollTop = 0;
      this.renew();
    }, wait);
  }

  forget() { this.turn += 1; this.pages.clear(); this.asked.clear(); }

  /** Something was added, or everything is another: ask for the end, which also says how many there are. */
  async renew() {
    if (this.renewing) { this.again = true; return; }
    this.renewing = true;
    const { turn } = this;
    try {
      const place = Math.max(0, Math.ceil(this.total / PAGE) - 1) * PAGE;
      const told = await api.request("trace/get", { from: place, count: PAGE, filter: this.filter, brief: true });
      if (turn === this.turn) this.take(place, told, true);
    } catch { /* the connection is gone; the page says so */ }
    this.renewing = false;
    if (this.again) { this.again = false; setTimeout(() => this.renew(), 100); }
  }

  take(place, told, isEnd) {
    if (isEnd || told.total > this.total) this.total = told.total;
    // Places stay what they are: of those that were forgotten meanwhile nothing is known any more.
    const forgotten = Math.max(0, Math.min(PAGE, told.first - place));
    this.pages.set(place / PAGE, [...Array(forgotten).fill(FORGOTTEN), ...told.entries].slice(0, PAGE));
    for (const { method } of told.entries) if (method && !this.seen.has(method)) { this.seen.add(method); this.methods.append(el("option", { value: method })); }
    if (this.pages.size > KEPT_PAGES) for (const one of this.pages.keys()) { if (this.pages.size <= KEPT_PAGES / 2) break; if (Math.abs(one - this.firstSeen() / PAGE) > 4) this.pages.delete(one); }
    const isFiltered = Object.keys(this.filter).length > 0;
    this.count.textContent = `${this.total.toLocaleString("en")}${isFiltered ? " fit" : ""}`;
    this.none.replaceChildren(...(this.total ? [] : [isFiltered ? empty("No message fits the filter") : empty("No messages yet", "What host, server and Views say to each other will be listed here.")]));
    this.list.setAttribute("aria-rowcount", String(this.total));
    this.space.style.setProperty("height", `${this.total * ROW}px`);
    this.noticeScroll();
    if (this.follows) this.end();
    this.schedule();
    this.onCount?.(this.total);
  }

  firstSeen() { return Math.floor(this.list.scrollTop / ROW); }
  schedule() { this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); }); }

  entry(at) {
    const number = Math.floor(at / PAGE);
    const one = this.pages.get(number)?.[at % PAGE];
    if (!one && !this.asked.has(number)) {
      this.asked.add(number);
      const { turn } = this;
      api.request("trace/get", { from: number * PAGE, count: PAGE, filter: this.filter, brief: true }).then((told) => { this.asked.delete(number); if (turn === this.turn) this.take(number * PAGE, told, false); }, () => this.asked.delete(number));
    }
    return one;
  }

  draw() {
    if (!this.list.clientHeight) return;
    const first = Math.max(0, this.firstSeen() - 4);
    const last = Math.min(this.total, this.firstSeen() + Math.ceil(this.list.clientHeight / ROW) + 4);
    const free = this.rows.filter((row) => row.at < first || row.at >= last);
    const used = new Map(this.rows.filter((row) => row.at >= first && row.at < last).map((row) => [row.at, row]));
    for (let at = first; at < last; at += 1) {
      let row = used.get(at);
      if (!row) { row = free.pop() ?? this.newRow(); row.at = at; row.entry = null; row.node.style.setProperty("transform", `translateY(${at * ROW}px)`); row.node.dataset.at = at; row.node.id = `m${at}`; row.node.setAttribute("aria-rowindex", String(at + 1)); }
      const entry = this.entry(at);
      if (row.entry !== entry || !row.isDrawn) this.write(row, entry);
      const isChosen = at === this.at;
      row.node.setAttribute("aria-selected", String(isChosen));
    }
    for (const row of free) { row.node.remove(); this.rows.splice(this.rows.indexOf(row), 1); }
    if (this.at >= first && this.at < last) this.list.setAttribute("aria-activedescendant", `m${this.at}`); else this.list.removeAttribute("aria-activedescendant");
  }

  newRow() {
    const cells = ["n", "time", "way", "kind", "what", "size"].map((name, at) => el("span", { class: `t-${name}`, role: "gridcell", "aria-colindex": at + 1 }));
    const node = el("div", { class: "trace-row", role: "row" }, cells);
    this.space.append(node);
    const row = { node, cells, at: -1, entry: null, isDrawn: false };
    this.rows.push(row);
    return row;
  }

  write(row, entry) {
    row.entry = entry;
    row.isDrawn = Boolean(entry);
    const [n, time, way, kind, what, size] = row.cells;
    if (!entry) { for (const cell of row.cells) cell.textContent = ""; what.textContent = "…"; row.node.className = "trace-row"; return; }
    row.node.className = `trace-row ${entry.kind}`;
    n.textContent = entry.n;
    time.textContent = entry === FORGOTTEN ? "" : clock(entry.time);
    way.textContent = entry === FORGOTTEN ? "" : `${party(entry.from)} → ${party(entry.to)}`;
    kind.replaceChildren(el("span", { "aria-hidden": "true" }, MARKS[entry.kind] ?? ""), el("span", { class: "seen" }, entry.kind));
    what.replaceChildren(el("b", {}, entry.method ?? entry.kind), entry.id === undefined || entry.id === null ? "" : el("i", {}, ` #${entry.id}`), " ", el("span", {}, entry.note ?? entry.preview ?? ""));
    size.textContent = bytes(entry.bytes ?? 0);
  }

  key(event) {
    const height = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1);
    const to = { ArrowDown: this.at + 1, ArrowUp: this.at - 1, PageDown: this.at + height, PageUp: this.at - height, Home: 0, End: this.total - 1 }[event.key];
    if (event.key === "Escape" && this.at >= 0) { event.preventDefault(); this.unchoose(); return; }
    if (event.key === "Enter" && this.at >= 0) { event.preventDefault(); this.detail.querySelector("pre")?.focus(); return; }
    if (event.key === "c" && !event.ctrlKey && !event.metaKey && this.at >= 0) { event.preventDefault(); this.copy(); return; }
    if (to === undefined || !this.total) return;
    event.preventDefault();
    this.choose(Math.max(0, Math.min(this.total - 1, this.at < 0 && event.key !== "Home" && event.key !== "End" ? this.firstSeen() : to)));
  }

  choose(at) {
    this.at = at;
    this.follows = at === this.total - 1 && this.follows;
    this.showFollow();
    const top = at * ROW;
    if (top < this.list.scrollTop) this.list.scrollTop = top;
    else if (top + ROW > this.list.scrollTop + this.list.clientHeight) this.list.scrollTop = top + ROW - this.list.clientHeight;
    this.draw();
    this.show(at);
  }

  unchoose() { this.at = -1; this.detail.hidden = true; this.schedule(); }

  async show(at) {
    const entry = this.entry(at);
    if (!entry) { setTimeout(() => { if (this.at === at) this.show(at); }, 60); return; }
    if (entry === FORGOTTEN) return;
    let whole = entry;
    try { whole = (await api.request("trace/get", { whole: entry.n })).entries[0] ?? entry; } catch { /* shown as far as it is known */ }
    if (this.at !== at) return;
    this.shown = whole;
    const facts = [`${whole.from} → ${whole.to}`, `${clock(whole.time)} s`, bytes(whole.bytes ?? 0), whole.id === undefined || whole.id === null ? "" : `id ${whole.id}`].filter(Boolean);
    this.detail.hidden = false;
    fill(this.detail, el("div", { class: "detail-head" }, el("strong", { class: "clip" }, whole.method ?? whole.kind), iconButton("close", "Close this message", () => { this.unchoose(); this.list.focus(); }, { class: "button only small" })),
      el("p", { class: "quiet" }, facts.join(" · ")), whole.note ? el("p", { class: "note" }, whole.note) : null,
      whole.message === undefined ? jsonBox(null, "the message", { text: whole.text ?? "", tall: true, isPlain: true }) : jsonBox(whole.message, "the message", { tall: true }));
    this.list.setAttribute("aria-activedescendant", `m${at}`);
  }

  async copy() { if (this.shown) await copyText(this.shown.message === undefined ? this.shown.text ?? "" : JSON.stringify(this.shown.message), "The message was copied"); }

  /** All that the filter shows, whole, one line each. */
  async save() {
    this.saveButton.disabled = true;
    const parts = [];
    try {
      for (let from = 0, told = null; !told || told.entries.length; from = told.first + told.entries.length) {
        told = await api.request("trace/get", { from, count: SAVE_AT_ONCE, filter: this.filter, masked: true });
        if (!from) parts.push(`${JSON.stringify(told.header)}\n`);
        for (const entry of told.entries) {
          const whole = entry.cut ? (await api.request("trace/get", { whole: entry.n, masked: true })).entries[0] ?? entry : entry;
          parts.push(`${JSON.stringify(whole)}\n`);
        }
      }
      saveFile("mcpd-preview.jsonl", "application/x-ndjson", parts);
      announce(`${parts.length - 1} messages were saved`);
    } catch (error) { announce(`Nothing was saved: ${error.message}`, true); }
    this.saveButton.disabled = false;
  }
}

export function start() {
  const trace = new Trace();
  byId("messages").append(trace.node);
  let timer = null;
  api.on("trace/added", () => { timer ??= setTimeout(() => { timer = null; trace.renew(); }, 60); });
  on("hello", () => { trace.forget(); trace.renew(); });
  on("pane", () => { trace.schedule(); if (trace.follows) trace.end(); });
  on("records", () => { trace.schedule(); if (trace.follows) trace.end(); });
  return trace;
}
