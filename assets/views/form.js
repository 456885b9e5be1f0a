/* The tool's input schema as a form, that calls the tool again and shows what came of it. */

const toolOf = () => {
  const told = state.context.toolInfo?.tool;  // under the name that the host knows; else as the page was made
  return isObject(told) && typeof told.name === "string" && isObject(told.inputSchema) ? told : spec.tool;
};
let whole = {};  // the schema that references lead into
const plainly = (schema) => {
  const found = resolved(schema, whole) ?? {};
  const all = Array.isArray(found.allOf) && found.allOf.length === 1 ? { ...resolved(found.allOf[0], whole), ...found, allOf: undefined } : found;
  return { ...all, title: own(schema, "title") ?? all.title, description: own(schema, "description") ?? all.description, default: own(schema, "default") ?? all.default };
};
const isOptional = (schema) => [own(schema, "anyOf"), own(schema, "oneOf")].some((branches) => Array.isArray(branches) && branches.some((branch) => own(branch, "type") === "null"))
  || (Array.isArray(own(schema, "type")) && schema.type.includes("null"));
const typeOf = (schema) => (Array.isArray(schema.type) ? schema.type.filter((type) => type !== "null") : [schema.type]);
/** [[value, label], …] of what can be chosen, or null. */
function choicesOf(schema) {
  if (Array.isArray(schema.enum)) return schema.enum.filter((value) => value !== null).map((value) => [value, typeof value === "string" ? value : compact(value)]);
  const branches = schema.oneOf ?? schema.anyOf;
  const real = Array.isArray(branches) ? branches.filter((branch) => own(branch, "type") !== "null") : [];
  if (real.length && real.every((branch) => isObject(branch) && (Object.hasOwn(branch, "const")))) return real.map((branch) => [branch.const, String(branch.title ?? branch.const)]);
  return null;
}

const MISSING = Symbol("missing");
const NEEDED = "This is needed.";
let numbered = 0;

/** One field: {node, get() -> value | MISSING | {error}, set(value), wrong(text), named(path) -> the field of a path}. */
function fieldOf(key, given, required, depth = 0) {
  const schema = plainly(given);
  const id = `f${numbered += 1}`;
  const label = typeof schema.title === "string" && schema.title ? schema.title : humane(key);
  const star = required ? el("span", { class: "star", title: "Required" }, " *") : null;
  const help = typeof schema.description === "string" && schema.description ? el("div", { class: "help", id: `${id}h`, dir: "auto" }, clip(schema.description, 1000)) : null;
  const alarm = el("div", { class: "wrong", id: `${id}e`, hidden: true });
  const described = help ? `${id}h ${id}e` : `${id}e`;
  const kind = inputOf({ key, schema, given, id, required, described, depth, label });
  const wrong = (text) => {
    alarm.hidden = !text;
    alarm.replaceChildren(text ? el("span", {}, text) : "");
    for (const input of kind.inputs ?? []) input.setAttribute("aria-invalid", String(Boolean(text)));
  };
  const node = kind.group
    ? el("fieldset", { class: kind.bordered ? "group" : `one ${kind.wide ? "wide" : ""}`, "aria-describedby": described }, el("legend", { dir: "auto" }, label, star), help, kind.group, alarm)
    : kind.tick ? el("div", { class: "one" }, kind.tick, help, alarm)
      : el("div", { class: `one ${kind.wide ? "wide" : ""}` }, el("label", { for: id, dir: "auto" }, label, star), kind.inputs[0], help, alarm);
  node.addEventListener("input", () => wrong(""));
  const get = () => {
    const value = kind.get();
    if (value === MISSING) return required ? { error: NEEDED } : MISSING;
    if (isObject(value) && value.error !== undefined && kind.checks) return value;
    const error = kind.checks ? "" : objection(value, schema);
    return error ? { error } : { value };
  };
  return { key, node, get, set: kind.set, wrong, named: kind.named, focus: () => (kind.inputs?.[0] ?? node.querySelector("input, select, textarea, button"))?.focus() };
}

/** What a value breaks of the schema's constraints, in words; "" if nothing. */
function objection(value, schema) {
  if (typeof value === "string") {
    const length = [...value].length;
    if (length < schema.minLength) return `At least ${plural(schema.minLength, "character")}.`;
    if (length > schema.maxLength) return `At most ${plural(schema.maxLength, "character")}.`;
    if (typeof schema.pattern === "string" && value.length < 1000) {
      let pattern = null;
      try { pattern = new RegExp(schema.pattern, "u"); } catch { /* not a pattern of this language: the tool checks it */ }
      if (pattern && !pattern.test(value)) return `Does not fit the pattern ${clip(schema.pattern, 80)}`;
    }
    if (schema.format === "email" && !/^[^\s@]+@[^\s@]+$/.test(value)) return "This is no e-mail address.";
    if ((schema.format === "uri" || schema.format === "url") && !URL.canParse(value)) return "This is no address (https://…).";
  }
  if (typeof value === "number") {
    if (value < schema.minimum) return `At least ${schema.minimum}.`;
    if (value > schema.maximum) return `At most ${schema.maximum}.`;
    if (value <= schema.exclusiveMinimum) return `More than ${schema.exclusiveMinimum}.`;
    if (value >= schema.exclusiveMaximum) return `Less than ${schema.exclusiveMaximum}.`;
    const times = value / schema.multipleOf;
    if (schema.multipleOf && Math.abs(times - Math.round(times)) > 1e-9 * Math.max(1, Math.abs(times))) return `A multiple of ${schema.multipleOf}.`;
  }
  if (Array.isArray(value)) {
    if (value.length < schema.minItems) return `At least ${schema.minItems}.`;
    if (value.length > schema.maxItems) return `At most ${schema.maxItems}.`;
    if (schema.uniqueItems && new Set(value.map((one) => compact(one))).size < value.length) return "Each only once.";
  }
  return "";
}

function inputOf(field) {
  const { schema, given, required, depth } = field;
  const types = typeOf(schema);
  const choices = choicesOf(schema);
  if (Object.hasOwn(schema, "const")) return oneOf(field, [[schema.const, String(schema.const)]]);
  if (choices) return oneOf(field, choices);
  if (types.length === 1) {
    if (types[0] === "boolean") return isOptional(given) || (!required && schema.default === undefined) ? oneOf(field, [[true, "Yes"], [false, "No"]]) : tickOf(field);
    if (types[0] === "number" || types[0] === "integer") return numberOf(field, types[0] === "integer");
    if (types[0] === "string") return schema.contentEncoding === DATA_URI ? fileOf(field) : textOf(field);
    if (types[0] === "array") {
      const items = plainly(schema.items);
      const several = choicesOf(items);
      if (several && several.length <= 24) return someOf(field, several);
      if (!schema.prefixItems && ["string", "number", "integer"].includes(items.type)) return listOf(field, schema.items, items);
    }
    if (types[0] === "object" && depth < 2 && isObject(schema.properties) && Object.keys(schema.properties).length) return groupOf(field);
  }
  return jsonOf(field);
}

const DATA_URI = "data-uri";
/** The schema of a parameter that takes files, whose strings are marked. */
const asFile = (schema) => !isObject(schema) ? schema
  : schema.type === "string" ? { ...schema, contentEncoding: DATA_URI }
    : { ...schema, ...(schema.items ? { items: asFile(schema.items) } : {}), ...(Array.isArray(schema.anyOf) ? { anyOf: schema.anyOf.map(asFile) } : {}) };

/** A file, as a data URI with its name. */
function fileOf(field) {
  const input = el("input", { ...basics(field), type: "file" });
  let value = MISSING;
  input.addEventListener("change", () => {
    const [file] = input.files;
    value = MISSING;
    if (!file) return;
    const reader = new FileReader();
    input.setAttribute("aria-busy", "true");
    value = { error: "The file is still being read." };
    reader.onload = () => { value = String(reader.result).replace(/^data:([^;,]*)[^,]*,/, (_, type) => `data:${type || "application/octet-stream"};name=${encodeURIComponent(file.name)};base64,`); };
    reader.onerror = () => { value = { error: "The file could not be read." }; };
    reader.onloadend = () => input.removeAttribute("aria-busy");
    reader.readAsDataURL(file);
  });
  return { inputs: [input], checks: true, get: () => value, set: (given) => { value = isEmpty(given) ? MISSING : given; input.value = ""; } };
}

const basics = ({ id, described, required }) => ({ id, class: "field", "aria-describedby": described, "aria-required": String(Boolean(required)) });

function textOf(field) {
  const { schema } = field;
  const kinds = { date: "date", "date-time": "datetime-local", time: "time", email: "email", uri: "url", url: "url" };
  const type = kinds[schema.format] ?? "text";
  const long = type === "text" && (schema.maxLength > 200 || schema.contentMediaType || /^(text|body|content|message|query|code|markdown|description|notes?)$/i.test(field.key) && !(schema.maxLength <= 200));
  const input = long ? el("textarea", { ...basics(field), rows: 3, dir: "auto" }) : el("input", { ...basics(field), type, dir: type === "text" ? "auto" : undefined, placeholder: Array.isArray(schema.examples) ? String(schema.examples[0] ?? "") : undefined, step: type === "datetime-local" || type === "time" ? 1 : undefined, autocomplete: "off" });
  const get = () => {
    const value = input.value;
    if (!value) return MISSING;
    if (type === "datetime-local") { const at = new Date(value); return Number.isNaN(at.getTime()) ? value : at.toISOString().replace(".000Z", "Z"); }
    return value;
  };
  const set = (value) => {
    let text = isEmpty(value) ? "" : String(value);
    if (type === "datetime-local" && text && !Number.isNaN(Date.parse(text))) { const at = new Date(text); text = new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19); }
    if (type === "date") text = text.slice(0, 10);
    input.value = text;
    if (text && !input.value) { input.type = "text"; input.value = text; }
  };
  return { inputs: [input], wide: long, get, set };
}

function numberOf(field, whole_number) {
  const input = el("input", { ...basics(field), type: "text", inputmode: whole_number ? "numeric" : "decimal", autocomplete: "off", dir: "ltr" });
  const get = () => {
    const text = input.value.trim().replace(/^(-?\d+),(\d+)$/, "$1.$2").replaceAll("−", "-");
    if (!text) return MISSING;
    const value = Number(text);
    if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) || !Number.isFinite(value)) return { error: "This is no number." };
    if (whole_number && !Number.isInteger(value)) return { error: "This is no whole number." };
    return objection(value, field.schema) ? { error: objection(value, field.schema) } : value;
  };
  return { inputs: [input], get, checks: true, set: (value) => { input.value = isEmpty(value) ? "" : String(value); } };
}

function tickOf(field) {
  const input = el("input", { ...basics(field), class: undefined, type: "checkbox" });
  return { inputs: [input], tick: el("label", { class: "tick", dir: "auto" }, input, el("span", { class: "label" }, field.label)), get: () => input.checked, set: (value) => { input.checked = value === true; } };
}

function oneOf(field, choices) {
  const open = !field.required || field.schema.default === undefined;
  const input = el("select", basics(field), open ? el("option", { value: "" }, field.required ? "Choose" : "–") : null, ...choices.map(([, label], at) => el("option", { value: String(at) }, label)));
  return { inputs: [input], get: () => (input.value === "" ? MISSING : choices[Number(input.value)][0]), set: (value) => { const at = choices.findIndex(([one]) => compact(one) === compact(value)); input.value = at < 0 ? (open ? "" : "0") : String(at); } };
}

function someOf(field, choices) {
  const inputs = choices.map(() => el("input", { type: "checkbox" }));
  const group = el("div", { class: "choices" }, ...choices.map(([, label], at) => el("label", { dir: "auto" }, inputs[at], label)));
  const touched = { is: false };
  group.addEventListener("input", () => { touched.is = true; });
  const get = () => { const value = choices.filter((_, at) => inputs[at].checked).map(([one]) => one); return value.length || field.required || touched.is ? value : MISSING; };
  return { inputs, group, wide: true, get, set: (value) => { const chosen = Array.isArray(value) ? value.map((one) => compact(one)) : []; choices.forEach(([one], at) => { inputs[at].checked = chosen.includes(compact(one)); }); } };
}

function listOf(field, given, items) {
  const rows = [];
  const holder = el("div", { class: "list" });
  const add = (value, focus) => {
    const at = { ...field, schema: items, given, required: false, id: `f${numbered += 1}`, key: "" };
    const kind = items.contentEncoding === DATA_URI ? fileOf(at) : items.type === "string" ? textOf(at) : numberOf(at, items.type === "integer");
    kind.inputs[0].setAttribute("aria-label", `${field.label}, ${rows.length + 1}`);
    const row = el("div", {}, kind.inputs[0], button("×", () => { rows.splice(rows.indexOf(entry), 1); row.remove(); more.focus(); holder.dispatchEvent(new Event("input", { bubbles: true })); }, { class: "button icon", "aria-label": `Remove ${field.label}, ${rows.length + 1}` }));
    const entry = { kind, row };
    rows.push(entry);
    kind.set(value);
    more.before(row);
    if (focus) kind.inputs[0].focus();
  };
  const more = button("Add", () => add("", true), { "aria-label": `Add to ${field.label}` });
  holder.append(more);
  const get = () => {
    const values = [];
    for (const { kind } of rows) {
      const value = kind.get();
      if (value === MISSING) continue;
      const error = value?.error ?? objection(value, items);
      if (error) return { error: `${rows.findIndex((one) => one.kind === kind) + 1}: ${error}` };
      values.push(value);
    }
    if (!values.length && !field.required && isEmpty(field.schema.default)) return MISSING;
    const error = objection(values, field.schema);
    return error ? { error } : values;
  };
  const set = (value) => { for (const { row } of rows.splice(0)) row.remove(); for (const one of Array.isArray(value) ? value.slice(0, 200) : []) add(one, false); if (!rows.length && field.required) add("", false); };
  return { group: holder, wide: true, checks: true, get, set };
}

function groupOf(field) {
  const needed = new Set(Array.isArray(field.schema.required) ? field.schema.required : []);
  const fields = Object.entries(field.schema.properties).map(([key, one]) => fieldOf(key, one, needed.has(key), field.depth + 1));
  const get = () => {
    const value = {};
    let bad = null, lacking = null, some = false;
    for (const one of fields) {
      const got = one.get();
      if (got === MISSING) continue;
      if (got.error === NEEDED) lacking ??= one;
      else if (got.error !== undefined) { bad ??= one; one.wrong(got.error); }
      else {
        value[one.key] = got.value;
        some ||= compact(got.value) !== compact(plainly(field.schema.properties[one.key]).default ?? false);
      }
    }
    if (!some && !bad && !field.required) return MISSING;  // an optional group of which nothing is said is left out
    if (lacking) lacking.wrong(NEEDED);
    bad ??= lacking;
    return bad ? { error: `Look at ${bad.key}.`, field: bad } : value;
  };
  return { group: el("div", { class: "form" }, ...fields.map(({ node }) => node)), bordered: true, checks: true, get, set: (value) => { for (const one of fields) one.set(own(isObject(value) ? value : {}, one.key) ?? plainly(field.schema.properties[one.key]).default); }, named: (key) => fields.find((one) => one.key === key) };
}

function jsonOf(field) {
  const input = el("textarea", { ...basics(field), class: "field code", rows: 3, spellcheck: "false", placeholder: "JSON", dir: "ltr" });
  const get = () => {
    if (!input.value.trim()) return MISSING;
    try { return { parsed: JSON.parse(input.value) }; } catch (error) { return { error: `This is no JSON: ${clip(error.message, 100)}` }; }
  };
  return { inputs: [input], wide: true, checks: true, get: () => { const got = get(); return got === MISSING || got.error !== undefined ? got : got.parsed; }, set: (value) => { input.value = value === undefined || value === null ? "" : compact(value, 2); } };
}

const page = { fields: [], shown: "", body: null, outcome: el("div", { class: "outcome", "aria-live": "polite" }), note: el("div", { class: "problem", role: "alert", hidden: true }), running: null };

/** Make the form, unless it stands already for this schema. */
function build() {
  const tool = toolOf() ?? {};
  const sign = compact([tool.name, tool.inputSchema, locale(), state.caps.serverTools !== undefined]);
  if (page.shown === sign) return;
  const kept = page.fields.length ? collect(false).values : null;
  page.shown = sign;
  whole = isObject(tool.inputSchema) ? tool.inputSchema : {};
  const needed = new Set(Array.isArray(whole.required) ? whole.required : []);
  const properties = isObject(whole.properties) ? whole.properties : {};
  const files = own(own(tool, "_meta") ?? own(spec.tool, "_meta"), "openai/fileParams");
  const marked = (key, schema) => (Array.isArray(files) && files.includes(key) ? asFile(schema) : schema);
  page.fields = Object.entries(properties).map(([key, schema]) => fieldOf(key, marked(key, schema), needed.has(key)));
  fill(kept ?? state.input ?? {});
  page.send = button(spec.submit ?? "Run", submit, { class: "button primary" });
  page.stop = button("Stop", () => page.running?.abort(), { hidden: true });
  page.said = el("span", { class: "quiet", role: "status" });
  page.send.disabled = !own(state.caps, "serverTools");
  say("");
  const form = el("div", { class: "form", role: "form", "aria-label": spec.title ?? tool.title ?? tool.name, keydown: (event) => { if (event.key === "Enter" && event.target.tagName === "INPUT" && !event.isComposing) { event.preventDefault(); submit(); } } }, ...page.fields.map(({ node }) => node));
  const title = spec.title ?? tool.title ?? humane(String(tool.name ?? ""));
  const about = typeof tool.description === "string" ? el("p", { class: "about", dir: "auto" }, clip(tool.description, 1000)) : null;
  const body = el("section", { class: "view" }, el("h1", { dir: "auto" }, title), about, form, page.note, el("div", { class: "send" }, page.send, page.stop, page.said), page.outcome);
  const focused = page.fields.length && main.contains(document.activeElement);
  main.replaceChildren(body);
  page.body = body;
  if (focused) page.fields[0]?.focus();
}

/** What is going on, or why nothing can. */
function say(text) {
  page.said.textContent = text || (state.live && !own(state.caps, "serverTools") ? "This host lets no view call tools." : "");
}

function fill(values) {
  for (const one of page.fields) {
    const value = own(values, one.key);
    one.set(value !== undefined ? value : plainly(whole.properties[one.key]).default);
    one.wrong("");
  }
}

/** The arguments as they stand; `aloud` shows what is wrong with them. */
function collect(aloud) {
  const values = {};
  let first = null;
  for (const one of page.fields) {
    const got = one.get();
    if (aloud) one.wrong(got !== MISSING && got.error ? (got.field ? "" : got.error) : "");
    if (got === MISSING) continue;
    if (got.error !== undefined) { first ??= got.field ?? one; }
    else values[one.key] = got.value;
  }
  return { values, first };
}

async function submit() {
  if (page.running || page.send.disabled) return;
  const { values, first } = collect(true);
  page.note.hidden = true;
  if (first) { first.focus(); return; }
  const result = await run(async (onProgress, signal) => {
    const answer = await ask("tools/call", { name: toolOf().name, arguments: values }, { limit: 0, onProgress, signal });
    const task = answer.ok ? taskOf(answer.value) : null;
    return task ? follow(task, onProgress, signal) : answer;
  });
  if (result) tell(values, result);
}
const follow = async (task, onProgress, signal) => ({ ok: true, value: await resultOf(task, (message) => onProgress({ message }), signal) });

/** Wait for `work`, show its result and return it; null if there is none. */
async function run(work) {
  page.running = new AbortController();
  page.send.disabled = true;
  page.stop.hidden = false;
  page.said.textContent = "Running";
  page.outcome.classList.add("old");
  root.dataset.phase = "running";
  main.setAttribute("aria-busy", "true");
  const onProgress = ({ progress, total, message }) => { page.said.textContent = typeof message === "string" && message ? clip(message, 200) : Number.isFinite(total) && total > 0 ? `${Math.round(100 * progress / total)} %` : "Running"; };
  const { ok, value, error } = await work(onProgress, page.running.signal);
  page.running = null;
  page.send.disabled = false;
  page.stop.hidden = true;
  say("");
  page.outcome.classList.remove("old");
  main.setAttribute("aria-busy", "false");
  if (state.closed) return null;
  if (!ok) { page.outcome.replaceChildren(failure(error === "stopped" ? "Stopped" : "The call did not go through", error === "stopped" ? "" : error)); root.dataset.phase = "error"; return null; }
  show(value);
  return value;
}

/** The model does not see what a view calls: it is told of the last call, where the host passes that on. */
function tell(values, result) {
  const offer = own(state.caps, "updateModelContext");
  if (!isObject(offer) || (Object.keys(offer).length && !Object.hasOwn(offer, "text"))) return;
  const text = textsOf(result).join("\n") || compact(dataOf(result));
  const outcome = result.isError === true ? "failed" : "gave";
  ask("ui/update-model-context", { content: [{ type: "text", text: `The user called ${toolOf().name} with ${clip(compact(values), 4000)} in its form. It ${outcome}: ${clip(text, 12_000)}` }] });
}

/** Show a result under the form; complaints about arguments go to their fields. */
function show(result) {
  page.note.hidden = true;
  for (const one of page.fields) one.wrong("");
  if (result.isError === true) {
    const others = [];
    let first = null;
    for (const line of textsOf(result).join("\n").split("\n")) {
      const match = /^([^\s:.[\],]+)((?:\.[^\s:.[\]]+|\[[^\]]*\])*)(?:, a key)?: (.+)$/.exec(line.slice(0, 2000));
      const field = match ? page.fields.find(({ key }) => key === match[1]) : null;
      if (!field) { if (line.trim()) others.push(line); continue; }
      const inner = field.named?.(match[2].slice(1)) ?? field;
      inner.wrong(inner === field && match[2] ? `${match[2].slice(0, 60)}: ${match[3]}` : match[3].replaceAll("`", ""));
      first ??= inner;
    }
    if (first && !others.length) { page.outcome.replaceChildren(); root.dataset.phase = "error"; if (page.body.contains(document.activeElement)) first.focus(); return; }
  }
  const data = dataOf(result);
  const kind = imageLike(result) ? "picture" : tabular(data, {}) && typeof data === "object" && (Array.isArray(data) ? data.some((one) => typeof one === "object") : true) ? "table" : typeof data === "object" && data !== null ? "plain" : "markdown";
  const { phase, nodes } = resultNodes(result, kind);
  page.outcome.replaceChildren(...nodes.filter(Boolean));
  root.dataset.phase = phase;
}

const imageLike = (result) => blocksOf(result).some(({ type }) => type === "image");
views.picture = {
  show: (result) => el("div", { class: "view markdown" }, ...blocksOf(result).map((block) => (block.type === "image" && /^image\/[a-z+.-]+$/i.test(block.mimeType) ? el("img", { src: `data:${block.mimeType};base64,${block.data}`, alt: "" }) : block.type === "text" ? el("p", { class: "plain" }, String(block.text)) : ""))),
};

views.form = {
  ready() { build(); if (root.dataset.phase === "waiting") main.setAttribute("aria-busy", "false"); redraws.add(build); },
  input(given, final) {
    build();
    fill(given);
    if (final && !state.ended) { root.dataset.phase = "running"; page.said.textContent = "Running"; }
  },
  result(result) {
    build();
    say("");
    const task = taskOf(result);
    if (task) run((onProgress, signal) => follow(task, onProgress, signal)); else show(result);
  },
  cancelled(reason) { build(); page.said.textContent = typeof reason === "string" && reason ? `Cancelled: ${clip(reason, 200)}` : "The call was cancelled."; root.dataset.phase = "cancelled"; },
};
