/* Inputs made of others: objects, lists, choices of several, unions. They are inputs as in form_inputs.js, and besides
   `read(path, problems)` collects what is wrong below them, and `find(parts)` is the field that a path leads to. */

import { MISSING, Wrong } from "./form_inputs.js";
import { button, el, iconButton, isObject } from "./dom.js";
import { matches } from "./patterns.js";
import { fits, inWords, objection, plain, schemaOfMember, typeOf } from "./schema.js";

/** The fields of an object, and rows of key and value for members that no property names. */
export function objectGroup(field) {
  const { schema } = field;
  const properties = isObject(schema.properties) ? schema.properties : {};
  const needed = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = Object.entries(properties).map(([key, one]) => field.make({ key, given: one, isRequired: needed.has(key) }));
  const isOpen = isObject(schema.patternProperties) || (schema.additionalProperties ?? (fields.length ? false : true)) !== false;
  const rows = [];
  const holder = el("div", { class: "rows" });
  const more = isOpen ? button("Add member", () => { addRow("", undefined).key.focus(); field.changed(); }, { class: "button small", icon: "plus", "aria-label": `Add a member to ${field.name}` }) : null;

  function addRow(name, value) {
    const key = el("input", { class: "field mono", type: "text", "aria-label": `Key in ${field.name}`, placeholder: "key", spellcheck: "false", autocomplete: "off" });
    key.value = name;
    const place = el("div", { class: "row-value" });
    const wrong = el("p", { class: "wrong", hidden: true });
    const row = { key, wrong, one: null, sign: null, node: null };
    const nameOf = () => `value of ${key.value || "the new member"}`;
    const build = (kept) => {
      row.one?.rename("", nameOf());
      const given = schemaOfMember(schema, key.value) ?? {};
      const sign = JSON.stringify(given);
      if (row.sign === sign) return;
      row.sign = sign;
      row.one = field.make({ key: "value", label: "", given, isRequired: true, isBare: true, name: nameOf() });
      if (kept !== undefined) row.one.set(kept);
      place.replaceChildren(row.one.node);
    };
    key.addEventListener("change", () => { const got = row.one.get(); build(got === MISSING || got instanceof Wrong ? undefined : got); });
    key.addEventListener("input", () => { wrong.hidden = true; });
    build(value);
    const gone = iconButton("close", "Remove this member", () => { rows.splice(rows.indexOf(row), 1); row.node.remove(); more?.focus(); field.changed(); }, { class: "button only small" });
    row.node = el("div", { class: "row" }, el("div", { class: "row-key" }, key, wrong), place, gone);
    rows.push(row);
    holder.append(row.node);
    return row;
  }

  const clearRows = () => { for (const row of rows.splice(0)) row.node.remove(); };
  const rowTrouble = (row, value) => {
    const name = row.key.value;
    if (name === "") return "A member needs a key.";
    if (Object.hasOwn(value, name)) return "This key is there already.";
    const names = schema.propertyNames;
    if (isObject(names)) { const said = objection(names, name); if (said) return said; if (Array.isArray(names.enum) && !names.enum.includes(name)) return `One of ${names.enum.join(", ")}.`; }
    if (schema.patternProperties && schema.additionalProperties === false && !Object.keys(schema.patternProperties).some((one) => matches(one, name))) return `Must fit ${Object.keys(schema.patternProperties).join(" or ")}`;
    return "";
  };

  function read(path, problems) {
    const value = {};
    for (const one of fields) {
      const got = one.read([...path, one.key], problems);
      if (got !== MISSING) Object.defineProperty(value, one.key, { value: got, enumerable: true, configurable: true, writable: true });
    }
    for (const row of rows) {
      const trouble = rowTrouble(row, value);
      row.wrong.textContent = trouble;
      row.wrong.hidden = !trouble;
      if (trouble) problems.push({ path: [...path, row.key.value], text: trouble, focus: () => row.key.focus() });
      const got = row.one.read([...path, row.key.value], problems);
      if (!trouble && got !== MISSING) value[row.key.value] = got;
    }
    return value;
  }
  const nothing = field.isTop && !fields.length && !isOpen ? el("p", { class: "quiet" }, "This tool takes no arguments.") : null;
  return {
    node: el("div", { class: "fields" }, nothing, fields.map(({ node }) => node), holder, more), inputs: [], isGroup: true, isBox: true,
    takes: isObject, read,
    set: (value = {}) => {
      for (const one of fields) one.set(Object.hasOwn(value, one.key) ? value[one.key] : undefined);
      clearRows();
      for (const [name, one] of Object.entries(value)) if (!Object.hasOwn(properties, name)) addRow(name, one);
    },
    start: () => { for (const one of fields) one.start(); },
    find: ([name]) => fields.find(({ key }) => key === name) ?? rows.find(({ key }) => key.value === name)?.one,
    focus: () => fields[0]?.focus(),
  };
}

/** A list: items that can be added, removed and moved. The first ones may each have a schema of their own. */
export function listGroup(field) {
  const { schema } = field;
  const first = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  const given = (at) => first[at] ?? (schema.items === undefined || schema.items === true ? {} : schema.items);
  const rows = [];
  const holder = el("ol", { class: "items" });
  const none = el("p", { class: "quiet" }, "An empty list.");
  const more = button("Add item", () => { addRow(undefined, true); field.changed(); }, { class: "button small", icon: "plus", "aria-label": `Add an item to ${field.name}` });

  function number() {
    rows.forEach((row, at) => {
      row.one.rename(`${at + 1}`, `${field.name}, item ${at + 1}`);
      row.up.disabled = at === 0 || at < first.length;
      row.down.disabled = at === rows.length - 1 || at < first.length;
      row.up.setAttribute("aria-label", `Move item ${at + 1} up`);
      row.down.setAttribute("aria-label", `Move item ${at + 1} down`);
      row.gone.setAttribute("aria-label", `Remove item ${at + 1}`);
    });
    none.hidden = rows.length > 0;
    more.hidden = rows.length >= (schema.maxItems ?? Infinity) || (rows.length >= first.length && schema.items === false);
  }
  function move(row, by) {
    const at = rows.indexOf(row), to = at + by;
    if (to < 0 || to >= rows.length) return;
    rows.splice(at, 1);
    rows.splice(to, 0, row);
    if (by < 0) rows[to + 1].node.before(row.node); else rows[to - 1].node.after(row.node);
    number();
    field.changed();
  }
  function addRow(value, isNew) {
    const one = field.make({ key: String(rows.length), label: String(rows.length + 1), given: given(rows.length), isRequired: true, isItem: true });
    const row = { one };
    row.up = iconButton("up", "Move up", () => { move(row, -1); row.up.disabled ? row.down.focus() : row.up.focus(); }, { class: "button only small" });
    row.down = iconButton("down", "Move down", () => { move(row, 1); row.down.disabled ? row.up.focus() : row.down.focus(); }, { class: "button only small" });
    row.gone = iconButton("close", "Remove", () => { const at = rows.indexOf(row); rows.splice(at, 1); row.node.remove(); number(); (rows[at] ?? rows[at - 1])?.gone.focus() ?? more.focus(); field.changed(); }, { class: "button only small" });
    row.node = el("li", { class: "item", keydown: (event) => {
      const by = event.altKey ? { ArrowUp: -1, ArrowDown: 1 }[event.key] : undefined;
      if (by) { event.preventDefault(); const held = document.activeElement; move(row, by); held.focus(); }
    } }, el("div", { class: "item-value" }, one.node), el("div", { class: "item-tools" }, row.up, row.down, row.gone));
    rows.push(row);
    holder.append(row.node);
    if (value !== undefined) one.set(value); else one.start();
    number();
    if (isNew) one.focus();
  }
  number();
  return {
    node: el("div", { class: "list" }, none, holder, more), inputs: [], isGroup: true, isBox: true, takes: Array.isArray,
    read: (path, problems) => rows.map(({ one }, at) => one.read([...path, at], problems)).filter((one) => one !== MISSING),
    set: (value = []) => { for (const row of rows.splice(0)) row.node.remove(); for (const one of value) addRow(one, false); number(); },
    start: () => { for (let at = rows.length; at < Math.min(20, Math.max(schema.minItems ?? 0, first.length)); at += 1) addRow(undefined, false); },
    find: ([at]) => rows[Number(at)]?.one,
    focus: () => (rows[0] ? rows[0].one.focus() : more.focus()),
  };
}

/** A choice of several values, each at most once. */
export function severalGroup(field, options) {
  const inputs = options.map(() => el("input", { type: "checkbox" }));
  const node = el("div", { class: "ticks", role: "group", "aria-labelledby": field.labelId, "aria-describedby": field.described }, inputs.map((input, at) => el("label", { class: "tick" }, input, el("span", {}, options[at][1]))));
  const words = options.map(([value]) => JSON.stringify(value));
  return {
    node, inputs, isGroup: true,
    // The order of the value is kept, or it would change without an edit.
    takes: (value) => Array.isArray(value) && value.every((one) => words.includes(JSON.stringify(one))) && value.every((one, at) => at === 0 || words.indexOf(JSON.stringify(one)) > words.indexOf(JSON.stringify(value[at - 1]))),
    get: () => { const value = options.filter((_, at) => inputs[at].checked).map(([one]) => one); const text = objection(field.schema, value); return text ? new Wrong(text, value) : value; },
    set: (value = []) => { const held = value.map((one) => JSON.stringify(one)); inputs.forEach((input, at) => { input.checked = held.includes(words[at]); }); },
  };
}

function nameOfBranch(schema, at) {
  if (schema === null) return `Option ${at + 1}`;
  if (schema.title) return schema.title;
  const fixed = Object.entries(schema.properties ?? {}).find(([, one]) => isObject(one) && typeof one.const === "string");
  if (fixed) return `${fixed[0]}: ${fixed[1].const}`;
  return inWords({ ...schema, type: schema.type ?? typeOf(schema) }) || `Option ${at + 1}`;
}

/** One of several schemas: which one, and its field. */
export function unionGroup(field, all) {
  const plains = all.map((one) => plain(one, field.root));
  let at = 0, one = null;
  const place = el("div", { class: "branch" });
  const input = el("select", { class: "field", id: field.id, "aria-describedby": field.described, change: () => { swap(Number(input.value)); one.start(); field.changed(); } }, plains.map((schema, number) => el("option", { value: number }, nameOfBranch(schema, number))));
  function swap(to) {
    const kept = one?.read([], []);
    at = to;
    input.value = String(to);
    one = field.make({ key: "", label: "", name: `${field.name} as ${nameOfBranch(plains[to], to)}`, given: { ...(plains[to] ?? {}), title: undefined }, isRequired: true, isBare: true });
    place.replaceChildren(one.node);
    if (isObject(kept) && plains[to]?.properties) one.set(Object.fromEntries(Object.entries(kept).filter(([key]) => { const other = plain(plains[to].properties[key], field.root); return Object.hasOwn(plains[to].properties, key) && !(other && "const" in other); })));
  }
  swap(0);
  const placeOf = (value) => {
    const fit = all.findIndex((schema) => fits(schema, value, field.root));
    return fit >= 0 ? fit : plains.findIndex((schema) => schema !== null && isSameShape(schema, value));
  };
  return {
    node: el("div", { class: "union" }, input, place), inputs: [input], isUnion: true,
    takes: (value) => placeOf(value) >= 0,
    read: (path, problems) => one.read(path, problems),
    set: (value) => { if (value === undefined) { swap(0); return; } swap(placeOf(value)); one.set(value); },
    start: () => one.start(),
    find: (parts) => one.find(parts),
    focus: () => input.focus(),
  };
}

const isSameShape = (schema, value) => { const type = typeOf(schema); return Array.isArray(value) ? type === "array" : isObject(value) ? type === "object" : type === typeof value; };
