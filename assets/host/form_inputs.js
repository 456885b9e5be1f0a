/* The single inputs of a form: text, numbers, choices, yes and no, dates, files, JSON.

   An input is `{node, inputs, takes(value), get(), set(value)}`. `get` gives a value, MISSING or a Wrong; `set` is only
   given what `takes` agrees to, or undefined, which empties it. What an input cannot show without loss it does not take. */

import { bytes, button, clip, el, isObject } from "./dom.js";
import { DATA_URI, isKind, objection } from "./schema.js";

export const MISSING = Symbol("missing");

/** A problem of an input, with its value if it has one. */
export class Wrong {
  constructor(text, value = MISSING) { this.text = text; this.value = value; }
}

const basics = (field, more = {}) => ({ id: field.id, class: "field", "aria-describedby": field.described, "aria-required": field.isRequired ? "true" : null, autocomplete: "off", ...more });
const checked = (field, value) => { const text = objection(field.schema, value); return text ? new Wrong(text, value) : value; };

export function textInput(field) {
  const { schema } = field;
  const types = { email: "email", uri: "url", url: "url", password: "password" };
  const type = schema.writeOnly ? "password" : types[schema.format] ?? "text";
  const isLine = type !== "text" || schema.format !== undefined || schema.pattern !== undefined || schema.maxLength <= 80;
  const hint = Array.isArray(schema.examples) && schema.examples.length ? clip(String(schema.examples[0]), 80) : null;
  const input = isLine ? el("input", basics(field, { type, placeholder: hint, dir: "auto", spellcheck: "false" }))
    : el("textarea", basics(field, { rows: 1, placeholder: hint, dir: "auto" }));
  let isBlank = false;  // the value is "", and not absent
  const blank = button('""', () => { isBlank = !isBlank; show(); field.changed(); }, { class: "toggle", "aria-label": `Send ${field.name} as empty text`, title: "Send as empty text" });
  const show = () => { blank.setAttribute("aria-pressed", String(isBlank && !input.value)); blank.hidden = input.value !== ""; };
  input.addEventListener("input", () => { isBlank = false; show(); });
  show();
  const extra = schema.format === "uuid" ? [button("New", () => { input.value = crypto.randomUUID(); show(); field.changed(); }, { class: "toggle", "aria-label": `New UUID for ${field.name}` })] : [];
  return {
    node: input, inputs: [input], tools: [...extra, blank],
    takes: (value) => typeof value === "string" && (!isLine || !/[\r\n]/.test(value)) && !value.includes("\r"),
    get: () => (input.value === "" && !isBlank ? MISSING : checked(field, input.value)),
    set: (value) => { input.value = value ?? ""; isBlank = value === ""; show(); },
  };
}

export function numberInput(field, isWhole) {
  const { schema } = field;
  const low = schema.minimum, high = schema.maximum;
  const step = schema.multipleOf ?? (isWhole ? 1 : "any");
  const input = el("input", basics(field, { type: "number", inputmode: isWhole ? "numeric" : "decimal", step, min: low, max: high }));
  const slides = Number.isFinite(low) && Number.isFinite(high) && high > low;
  const slider = slides ? el("input", { type: "range", min: low, max: high, step: step === "any" ? (high - low) / 200 : step, "aria-label": `${field.name}, slider`, tabindex: "-1" }) : null;
  const follow = () => { if (slider) slider.value = input.value === "" ? String(low) : input.value; };
  slider?.addEventListener("input", () => { input.value = slider.value; });
  input.addEventListener("input", follow);
  follow();
  const get = () => {
    if (input.validity.badInput) return new Wrong("This is not a number.");
    if (input.value === "") return MISSING;
    const value = Number(input.value);
    if (isWhole && !Number.isInteger(value)) return new Wrong("This is not a whole number.");
    if (isWhole && !Number.isSafeInteger(value)) return new Wrong("Too large to be sent exactly.");
    return checked(field, value);
  };
  return {
    node: slider ? el("div", { class: "slid" }, input, slider) : input, inputs: [input], get,
    takes: (value) => typeof value === "number" && (!isWhole || Number.isInteger(value)),
    set: (value) => { input.value = value === undefined ? "" : String(value); follow(); },
  };
}

/** A choice of one value. It can also hold a value outside the choice. */
export function choiceInput(field, options) {
  const held = options.map(([value]) => value);
  const input = el("select", basics(field));
  const only = field.isRequired && options.length === 1;
  if (!only) input.append(el("option", { value: "" }, field.isRequired ? "Choose…" : "Not sent"));
  const offer = (value, text) => input.append(el("option", { value: String(held.indexOf(value)) }, clip(text, 200)));
  for (const [value, text] of options) offer(value, text);
  const place = (value) => held.findIndex((one) => JSON.stringify(one) === JSON.stringify(value));
  return {
    node: input, inputs: [input], takes: () => true,
    get: () => (input.value === "" ? MISSING : held[Number(input.value)]),
    set: (value) => {
      if (value !== undefined && place(value) < 0) { held.push(value); offer(value, `${JSON.stringify(value)} (not offered)`); }
      input.value = value === undefined ? (only ? "0" : "") : String(place(value));
    },
  };
}

export function boolInput(field) {
  const options = [["true", "true"], ["false", "false"], ...(field.isRequired ? [] : [["", "not sent"]])];
  const inputs = options.map(([value]) => el("input", { type: "radio", name: field.id, value }));
  const node = el("div", { class: "segments", role: "radiogroup", "aria-labelledby": field.labelId, "aria-describedby": field.described, "aria-required": field.isRequired ? "true" : null },
    inputs.map((input, at) => el("label", {}, input, el("span", {}, options[at][1]))));
  return {
    node, inputs, isGroup: true, takes: (value) => typeof value === "boolean",
    get: () => ({ true: true, false: false })[inputs.find((one) => one.checked)?.value] ?? MISSING,
    set: (value) => { for (const one of inputs) one.checked = one.value === (value === undefined ? "" : String(value)); },
  };
}

const TIMES = {
  date: { type: "date", sent: (text) => text, shown: (value) => value },
  time: { type: "time", sent: (text) => `${text.length === 5 ? `${text}:00` : text}Z`, shown: (value) => value.replace(/Z$/i, "") },
  "date-time": {
    type: "datetime-local",
    sent: (text) => new Date(text).toISOString().replace(".000Z", "Z"),
    shown: (value) => { const at = new Date(value); return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, value.includes(".") ? 23 : 19); },
  },
};

/** A date, a time or both. Local time is shown, and UTC is sent. */
export function timeInput(field) {
  const { type, sent, shown } = TIMES[field.schema.format];
  const input = el("input", basics(field, { type, step: type === "date" ? null : 1 }));
  const says = el("span", { class: "hint mono" });
  const get = () => {
    if (input.validity.badInput) return new Wrong("This is not complete.");
    return input.value === "" ? MISSING : checked(field, sent(input.value));
  };
  const say = () => { const value = type === "date" ? MISSING : get(); says.textContent = typeof value === "string" ? `sent as ${value}` : ""; };
  input.addEventListener("input", say);
  const exact = (value) => {
    try { const probe = el("input", { type, step: 0.001 }); probe.value = shown(value); return probe.value !== "" && sent(probe.value) === value; } catch { return false; }
  };
  return {
    node: type === "date" ? input : el("div", { class: "stack" }, input, says), inputs: [input], get,
    takes: (value) => typeof value === "string" && exact(value),
    set: (value) => { input.value = value === undefined ? "" : shown(value); say(); },
  };
}

/** A data URI with the name of its file. */
const named = (uri, name) => uri.replace(/^data:([^;,]*)[^,]*,/, (_, type) => `data:${type || "application/octet-stream"};name=${encodeURIComponent(name)};base64,`);

/** A file, as base64 or, for a parameter that takes files, as a data URI. */
export function fileInput(field) {
  const isUri = field.schema.contentEncoding === DATA_URI;
  const input = el("input", basics(field, { type: "file", accept: field.schema.contentMediaType }));
  const says = el("span", { class: "hint" });
  let value = MISSING, reading = false;
  const say = (text) => { says.textContent = text; };
  const size = (text) => Math.floor((text.replace(/=+$/, "").length * 3) / 4);
  input.addEventListener("change", () => {
    const [file] = input.files;
    if (!file) { value = MISSING; say(""); return; }
    const reader = new FileReader();
    reading = true;
    say("Reading…");
    reader.onload = () => { reading = false; value = isUri ? named(String(reader.result), file.name) : String(reader.result).split(",", 2)[1] ?? ""; say(`${file.name}, ${bytes(file.size)}`); field.changed(); };
    reader.onerror = () => { reading = false; value = MISSING; say("The file could not be read."); };
    reader.readAsDataURL(file);
  });
  return {
    node: el("div", { class: "stack" }, input, says), inputs: [input],
    takes: (given) => typeof given === "string",
    get: () => (reading ? new Wrong("The file is still being read.") : value === MISSING ? MISSING : checked(field, value)),
    set: (given) => { value = given ?? MISSING; input.value = ""; say(given === undefined ? "" : isUri ? clip(given, 40) : `${bytes(size(given))} of base64`); },
  };
}

/** An input for any JSON. */
export function jsonInput(field) {
  const input = el("textarea", basics(field, { class: "field code", rows: 2, spellcheck: "false", placeholder: "JSON", dir: "ltr" }));
  return {
    node: input, inputs: [input], takes: () => true,
    get: () => {
      if (!input.value.trim()) return MISSING;
      try { return checked(field, JSON.parse(input.value)); } catch (error) { return new Wrong(jsonTrouble(error, input.value)); }
    },
    set: (value) => { input.value = value === undefined ? "" : JSON.stringify(value, null, 2); },
  };
}

/** The error in an invalid JSON text, with its place. */
export function jsonTrouble(error, text) {
  const at = /position (\d+)/.exec(error.message);
  if (!at) return `Not JSON yet: ${clip(error.message.replace(/^.*?JSON: /, ""), 120)}`;
  const before = text.slice(0, Number(at[1])).split("\n");
  const what = error.message.replace(/ in JSON at position.*| at position.*/, "").replace(/^JSON\.parse: /, "");
  return `Not JSON yet, line ${before.length}, column ${before.at(-1).length + 1}: ${clip(what, 120)}`;
}

/** The input for a schema without branches; null for objects and lists. */
export function inputFor(field, type) {
  const { schema } = field;
  if (type === "boolean") return boolInput(field);
  if (type === "number" || type === "integer") return numberInput(field, type === "integer");
  if (type === "string") {
    if (schema.contentEncoding === DATA_URI || schema.contentEncoding === "base64" || schema.format === "byte") return fileInput(field);
    return TIMES[schema.format] ? timeInput(field) : textInput(field);
  }
  return type === "object" || type === "array" ? null : jsonInput(field);
}

export const isRightKind = (value, type) => (type ? isKind(value, type) : true);
export const isEmptyObject = (value) => isObject(value) && Object.keys(value).length === 0;
