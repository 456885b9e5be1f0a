/* A form for any JSON Schema. `makeForm(schema)` gives its element, reads and writes its value, and shows what is wrong
   at the field that it is about. Whatever is written into a form comes out of it unchanged: a value that the input of its
   schema cannot hold is edited as JSON, a member that no schema names as key and value. */

import { button, clip, el, newId } from "./dom.js";
import { MISSING, Wrong, choiceInput, inputFor, isRightKind, jsonInput } from "./form_inputs.js";
import { listGroup, objectGroup, severalGroup, unionGroup } from "./form_groups.js";
import { settle } from "./patterns.js";
import { apart, branches, choices, inWords, objection, typeOf } from "./schema.js";

const NEEDED = "This is required.";
const DEEPEST = 14;
const MOST_AT_ONCE = 1000;  // fields that are made at a time
const WORDY = 24;

function kindOf(field) {
  const { schema, root } = field;
  if (field.depth > DEEPEST || schema === null || field.isBeyond) return jsonInput(field);
  const options = choices(schema, root);
  if (options) return choiceInput(field, options);
  const all = branches(schema);
  if (all && typeOf({ ...schema, type: undefined }) !== "object") return unionGroup(field, all);
  if (all && !schema.properties) return unionGroup(field, all);
  const type = typeOf(schema);
  if (type === "array") {
    const items = apart(schema.items ?? {}, root).schema;
    const several = schema.uniqueItems && items && !schema.prefixItems ? choices(items, root) : null;
    return several && several.length <= WORDY ? severalGroup(field, several) : listGroup(field);
  }
  return type === "object" ? objectGroup(field) : inputFor(field, type);
}

/** One field. It is absent, null, held by the input of its schema, or held as JSON. */
class Field {
  constructor(form, { key, label, name, given, isRequired, isItem = false, isBare = false, isTop = false, depth = 0 }) {
    const { schema, isNullable } = apart(given, form.root);
    Object.assign(this, { form, root: form.root, key, schema, isNullable, isRequired, isBare, isTop, depth });
    this.name = name ?? label ?? key;
    this.id = newId("f");
    this.labelId = `${this.id}l`;
    this.described = `${this.id}d ${this.id}e`;
    this.isNull = false;
    this.asJson = false;
    this.kind = null;
    // Required fields may contain themselves without end, so deep ones are JSON.
    if ((form.made += 1) === 1) queueMicrotask(() => { form.made = 0; });
    this.isBeyond = form.made > MOST_AT_ONCE;
    this.build(label ?? key, isItem);
    // Optional objects and lists are made on demand, because schemas may contain themselves.
    const type = schema ? typeOf(schema) : "";
    this.isLazy = !isRequired && !isTop && (type === "object" || type === "array" || Boolean(schema && branches(schema) && !choices(schema, this.root)));
    if (!this.isLazy) this.useKind();
    this.show();
  }

  make(about) { return new Field(this.form, { ...about, depth: this.depth + 1 }); }
  changed() { this.wrong(""); this.form.changed(); }

  build(label, isItem) {
    const schema = this.schema ?? {};
    this.labelNode = el("label", { id: this.labelId, for: this.id, dir: "auto" }, label);
    const title = !isItem && typeof schema.title === "string" && schema.title.toLowerCase().replaceAll(/[\s_-]/g, "") !== String(this.key).toLowerCase().replaceAll(/[\s_-]/g, "") ? schema.title : "";
    this.tools = el("span", { class: "field-tools" });
    this.nullButton = this.isNullable ? button("null", () => { this.setNull(!this.isNull); this.changed(); }, { class: "toggle", "aria-label": `Send ${this.name} as null`, title: "Send as null" }) : null;
    this.setButton = button("Set", () => { this.include(); this.kind.start?.(); this.show(); this.focus(); this.changed(); }, { class: "button small", icon: "plus", "aria-label": `Set ${this.name}` });
    this.leaveButton = button("Leave out", () => { this.exclude(); this.setButton.focus(); this.changed(); }, { class: "toggle", "aria-label": `Leave out ${this.name}` });
    this.formButton = button("Use the form", () => { this.asJson = false; this.useKind(); this.focus(); this.changed(); }, { class: "toggle" });
    const words = inWords(schema);
    const head = el("div", { class: "field-head" }, this.labelNode, title ? el("span", { class: "field-title" }, title) : null,
      words ? el("span", { class: "type" }, words) : null, this.isRequired && !isItem && !this.isBare ? el("span", { class: "need" }, "required") : null, this.tools);
    const text = typeof schema.description === "string" ? clip(schema.description, 2000) : "";
    this.help = el("p", { class: "hint", id: `${this.id}d`, dir: "auto", hidden: !text }, text);
    this.alarm = el("p", { class: "wrong", id: `${this.id}e`, hidden: true });
    this.body = el("div", { class: "field-body" });
    this.node = el("div", { class: "form-field" }, this.isTop || this.isBare ? el("div", { class: "field-head bare" }, this.tools) : head, this.isTop ? null : this.help, this.body, this.alarm);
    this.node.addEventListener("input", (event) => { event.stopPropagation(); this.changed(); });
  }

  useKind() {
    this.kind = this.asJson ? jsonInput(this) : kindOf(this);
    this.kind.set(undefined);
    this.body.replaceChildren(this.kind.node);
    this.node.classList.toggle("box", Boolean(this.kind.isBox) && !this.isTop && !this.isBare);
    if (this.kind.isGroup) {
      this.labelNode.removeAttribute("for");
      if (this.kind.isBox && !this.isTop) for (const [name, value] of [["role", "group"], ["aria-labelledby", this.labelId]]) this.node.setAttribute(name, value);
    }
    if (this.isBare) this.nameIt();
    this.show();
  }

  show() {
    const tools = [...(this.kind?.tools ?? []), this.asJson ? this.formButton : null, this.kind && this.isLazy && !this.isNull ? this.leaveButton : null, this.nullButton].filter(Boolean);
    this.tools.replaceChildren(...tools);
    this.nullButton?.setAttribute("aria-pressed", String(this.isNull));
    this.body.hidden = this.isNull;
    if (!this.kind && !this.isNull) this.body.replaceChildren(this.setButton);
  }

  setNull(isNull) { this.isNull = isNull; this.show(); }
  include() { if (!this.kind) this.useKind(); }
  exclude() { this.kind = null; this.asJson = false; this.isNull = false; this.node.classList.remove("box"); this.show(); }
  rename(label, name) {
    this.labelNode.textContent = label;
    this.name = name;
    if (this.kind) this.nameIt();
  }

  /** Name the input even if it shows no label, or only a number. */
  nameIt() {
    const named = this.kind.isGroup ? [this.kind.isBox ? this.node : this.kind.node] : this.kind.inputs;
    for (const one of named) { one.setAttribute("aria-label", this.name); one.removeAttribute("aria-labelledby"); }
    if (this.kind.isBox) this.node.setAttribute("role", "group");
  }

  focus() { if (this.kind?.focus) this.kind.focus(); else (this.kind?.inputs[0] ?? this.setButton).focus(); }

  wrong(text) {
    if (this.form.isQuiet) return;
    this.alarm.textContent = text;
    this.alarm.hidden = !text;
    for (const one of this.kind?.inputs ?? []) if (text) one.setAttribute("aria-invalid", "true"); else one.removeAttribute("aria-invalid");
  }

  /** Set the default of the schema, or no value. */
  start() {
    const value = this.schema?.default;
    if (value !== undefined) this.set(value);
    else this.kind?.start?.();
  }

  set(value) {
    this.wrong("");
    if (value === null && this.isNullable) { this.setNull(true); return; }
    this.isNull = false;
    if (value === undefined) { if (this.isLazy) this.exclude(); else { if (this.asJson) { this.asJson = false; this.useKind(); } this.kind.set(undefined); this.show(); } return; }
    if (!this.kind || this.asJson) { this.asJson = false; this.useKind(); }
    if (!this.takes(value)) { this.asJson = true; this.useKind(); }
    this.kind.set(value);
    this.show();
  }

  takes(value) {
    const type = this.schema && !branches(this.schema) && !choices(this.schema, this.root) ? typeOf(this.schema) : "";
    return this.kind.takes(value) && (isRightKind(value, type) || !type);
  }

  get() { const problems = []; const value = this.read([], problems); return problems.length ? new Wrong(problems[0].text) : value; }

  /** The current value, or MISSING. Problems are shown here and added to `problems`. */
  read(path, problems) {
    if (this.isNull) return null;
    if (!this.kind) { if (this.isRequired) this.object(NEEDED, path, problems); else this.wrong(""); return MISSING; }
    const value = this.kind.read ? this.kind.read(path, problems) : this.kind.get();
    if (value instanceof Wrong) { this.object(value.text, path, problems); return value.value; }
    if (value === MISSING) { if (this.isRequired && !this.kind.isUnion) this.object(NEEDED, path, problems); else this.wrong(""); return MISSING; }
    const text = this.kind.isBox && this.schema ? objection(this.schema, value) : "";
    if (text) this.object(text, path, problems); else this.wrong("");
    return value;
  }

  object(text, path, problems) {
    this.wrong(text);
    problems.push({ path, text, focus: () => this.focus() });
  }

  find(parts) {
    if (!parts.length || !this.kind?.find) return this;
    const one = this.kind.find(parts);
    return one ? (this.kind.isUnion ? one : one.find(parts.slice(1))) : this;
  }
}

/** A form for `schema`: `{node, read({quiet}), settled(), write(value), complain(path, text), focus()}`; `onChange` hears of
    each change. `settled` is awaited before a reading that counts: patterns are tried where they cannot stop the page. */
export function makeForm(schema, { onChange = () => {} } = {}) {
  const form = { root: schema ?? {}, changed: onChange, made: 0 };
  const top = new Field(form, { key: "", label: "Arguments", given: schema ?? {}, isRequired: true, isTop: true });
  top.start();
  const read = ({ quiet = false } = {}) => {
    const problems = [];
    form.isQuiet = quiet;
    const value = top.read([], problems);
    form.isQuiet = false;
    return { value: value === MISSING ? {} : value, problems };
  };
  return {
    node: top.node,
    read,
    settled: () => settle(() => read({ quiet: true })),
    write: (value) => top.set(value),
    complain: (path, text) => { const field = top.find(path); field.wrong(text); return field; },
    focus: () => top.focus(),
  };
}
