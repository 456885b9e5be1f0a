/* Rows and columns of whatever can be read as such, and a table of them that draws only what is in sight. */

const MAX_COLUMNS = 200;
const MAX_ROWS = 500_000;
const SAMPLE = 2000;

/** {columns: [{key, label, get, type, ...}], rows, facts, dropped}, or null if there is nothing to make rows of. */
function tabular(data, options = spec, schema = outputSchema()) {
  const facts = [];
  let found = data;
  for (let depth = 0; depth < 3 && isObject(found); depth += 1) {
    const entries = Object.entries(found);
    const wanted = options.rows && Object.hasOwn(found, options.rows) ? options.rows : undefined;
    const lists = entries.filter(([, value]) => Array.isArray(value));
    if (!wanted && lists.length === entries.length && entries.length > 1) {
      const parts = splitFrame(found);
      if (parts) { found = parts; break; }
      return frame(columnwise(lists, options), facts, schema, options);
    }
    if (!wanted && lists.length !== 1) {
      if (entries.length && entries.every(([, value]) => isObject(value))) found = entries.map(([key, value]) => ({ key, ...value }));
      break;
    }
    const name = wanted ?? lists[0][0];
    for (const [key, value] of entries) if (key !== name && (typeof value !== "object" || value === null)) facts.push([key, value]);
    found = found[name];
    schema = resolved(own(own(schema, "properties"), name));
  }
  if (!Array.isArray(found)) return null;
  return frame(rowwise(found, options, schema), facts, schema, options);
}

/** {"columns": […], "data": [[…]]}: a data frame as some libraries write it, as a list with its header. */
function splitFrame({ columns, data, index, ...others }) {
  if (!Array.isArray(columns) || !Array.isArray(data) || Object.keys(others).length || !data.every(Array.isArray)) return null;
  return [columns.map(String), ...data];
}

function columnwise(lists, options) {
  const length = lists.reduce((most, [, list]) => Math.max(most, list.length), 0);
  const rows = Array.from({ length }, (_, at) => at);
  return { rows, names: lists.map(([key]) => key), get: (key) => { const list = lists.find(([name]) => name === key)?.[1] ?? []; return (at) => list[at]; } };
}

function rowwise(list, options, schema) {
  if (list.length && list.every(Array.isArray)) {
    const [first, ...rest] = list;
    const names = first.every((name) => typeof name === "string") && new Set(first).size === first.length;
    const headed = names && !options.columns && rest.length > 0 && rest.some((row) => row.some((value) => typeof value !== "string" && value !== null));
    const rows = headed ? rest : list;
    const width = Math.min(list.reduce((most, row) => Math.max(most, row.length), 0), 10_000);
    const labels = headed ? first : options.columns ?? [];
    const keys = Array.from({ length: width }, (_, at) => labels[at] ?? `${at + 1}`);
    return { rows, names: keys, get: (key) => { const at = keys.indexOf(key); return (row) => row[at]; } };
  }
  const names = new Set(list.some(isObject) ? Object.keys(own(resolved(own(schema, "items")), "properties") ?? {}) : []);
  const declared = [...names];
  const seen = new Set();
  let loose = false;
  for (const row of list) {
    if (isObject(row)) { for (const key in row) { names.add(key); seen.add(key); } }
    else loose = true;
  }
  for (const key of declared) if (!seen.has(key) && list.length) names.delete(key);
  const value = names.has("value") ? "(value)" : "value";
  if (loose) names.add(value);
  return { rows: list, names: [...names], get: (key) => (loose && key === value ? (row) => (isObject(row) ? undefined : row) : (row) => (isObject(row) ? own(row, key) : undefined)) };
}

function frame({ rows, names, get }, facts, schema, options) {
  const items = own(resolved(own(schema, "items")), "properties") ?? {};
  const chosen = options.columns ? options.columns.filter((name) => names.includes(name)) : names;
  const cut = rows.slice(0, MAX_ROWS);
  const columns = chosen.slice(0, MAX_COLUMNS).map((key) => {
    const about = resolved(own(items, key)) ?? {};
    return { key, label: typeof about.title === "string" ? about.title : humane(key), get: get(key), ...typed(cut, get(key), about, key) };
  });
  return { columns, rows: cut, facts, dropped: { columns: chosen.length - columns.length, rows: rows.length - cut.length } };
}

/** The tool's output schema, where the host tells of the tool; without its wrapper and its references. */
function outputSchema() {
  const whole = state.context.toolInfo?.tool?.outputSchema;
  const inner = own(whole, "properties");
  return resolved(isObject(inner) && Object.keys(inner).length === 1 && inner.result ? inner.result : whole, whole);
}
function resolved(schema, whole = state.context.toolInfo?.tool?.outputSchema) {
  for (let step = 0; step < 8 && isObject(schema); step += 1) {
    const branches = own(schema, "anyOf") ?? own(schema, "oneOf");
    const real = Array.isArray(branches) ? branches.filter((branch) => own(branch, "type") !== "null") : [];
    if (typeof schema.$ref === "string" && schema.$ref.startsWith("#/"))
      schema = schema.$ref.slice(2).split("/").reduce((found, part) => own(found, decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~")), whole);
    else if (real.length === 1) schema = { ...real[0], title: schema.title ?? real[0].title };
    else return schema;
  }
  return isObject(schema) ? schema : undefined;
}

const NOT_NUMBERS = new Set(["NaN", "Infinity", "-Infinity"]);

/** What a column holds, by its values: {type, digits, grouped}. */
function typed(rows, get, about, key) {
  const step = Math.max(1, Math.floor(rows.length / SAMPLE));
  let numbers = 0, dates = 0, booleans = 0, texts = 0, digits = 0, most = 0;
  for (let at = 0; at < rows.length; at += step) {
    const value = get(rows[at]);
    if (isEmpty(value) || NOT_NUMBERS.has(value)) continue;
    if (typeof value === "number") {
      numbers += 1;
      most = Math.max(most, Math.abs(value));
      const text = String(value);
      const point = text.indexOf(".");
      if (point >= 0 && !text.includes("e")) digits = Math.max(digits, Math.min(6, text.length - point - 1));
    } else if (typeof value === "boolean") booleans += 1;
    else if (isDate(value)) dates += 1;
    else texts += 1;
  }
  const only = (count) => count > 0 && count === numbers + dates + booleans + texts;
  if (only(numbers)) return { type: "number", digits, grouped: most >= 10_000 && !/(^|[_\s-])(id|year|zip|code|port|pid)$/i.test(key) };
  if (only(dates) && (about.format === undefined || /^date/.test(about.format))) return { type: "date" };
  return { type: only(booleans) ? "boolean" : "text" };
}

function cellText(value, column) {
  if (typeof value === "number" && column.type === "number") return numberText(value, column.digits, column.grouped);
  if (typeof value === "string" && column.type !== "date") return value;
  return valueText(value);
}

/** Text for a spreadsheet, which would run what begins like a formula: such text is led by an apostrophe. */
function csv({ columns, rows }) {
  const quote = (value) => {
    let text = isEmpty(value) ? "" : typeof value === "object" ? compact(value) : String(value);
    if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text) && !/^[-+]?[\d.]+(e[-+]?\d+)?$/i.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns.map(({ key }) => quote(key)), ...rows.map((row) => columns.map(({ get }) => quote(get(row))))].map((line) => line.join(",")).join("\r\n");
}

const rank = (value) => (isEmpty(value) || NOT_NUMBERS.has(value) ? 3 : typeof value === "number" ? 0 : typeof value === "object" ? 2 : 1);
function sorted(rows, { get, type }, falling) {
  const collator = new Intl.Collator(locale(), { numeric: true });
  const keyed = rows.map((row) => {
    const value = get(row);
    const at = rank(value);
    return { row, at, by: at === 0 ? value : at === 3 ? 0 : type === "date" ? Date.parse(value) : at === 2 ? compact(value) : String(value) };
  });
  const order = falling ? -1 : 1;
  keyed.sort((a, b) => (a.at - b.at) || order * (typeof a.by === "number" ? a.by - b.by : collator.compare(a.by, b.by)));
  return keyed.map(({ row }) => row);
}

const LONG = 72;
let ruler = null;
/** How wide a text is in the font of the page, in px. */
function widthOf(text) {
  ruler ??= document.createElement("canvas").getContext("2d");
  ruler.font = getComputedStyle(main).font;
  return ruler.measureText(text).width;
}

function tableNode(told, { title = null, tools = [] } = {}) {
  const { columns, rows, facts, dropped } = told;
  let view = rows, sort = null, falling = false, from = -1, to = -1, height = 33;
  const texts = new Map();
  const sample = rows.length <= 400 ? rows : Array.from({ length: 400 }, (_, at) => rows[Math.floor(at * rows.length / 400)]);
  const cols = columns.map((column) => {
    let longest = column.label;
    let room = widthOf(column.label) + 44;
    for (const row of sample) {
      const text = clip(cellText(column.get(row), column), LONG);
      if (text.length > longest.length * 0.7) { room = Math.max(room, widthOf(text) + 30); if (text.length > longest.length) longest = text; }
    }
    return Math.round(Math.min(340, Math.max(64, room)));
  });

  const body = el("tbody");
  const headers = columns.map((column) => el("th", { scope: "col", class: column.type === "number" ? "number" : undefined },
    el("button", { type: "button", title: column.key, click: () => turn(column) }, el("span", { dir: "auto" }, column.label), icon("M3 10l5-5 5 5"))));
  const table = el("table", { class: "fixed", "aria-rowcount": rows.length + 1 },
    el("colgroup", {}, ...cols.map((wide) => el("col", { style: `width:${wide}px` }))),
    el("thead", {}, el("tr", { "aria-rowindex": 1 }, ...headers)), body);
  table.style.minWidth = `${cols.reduce((sum, wide) => sum + wide, 0)}px`;
  const scroll = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${spec.title ?? "Results"}, ${plural(rows.length, "row")}`, scroll: () => paint() }, table);
  const count = el("span", { class: "quiet", role: "status" });
  const filter = el("input", { class: "field", type: "search", placeholder: "Filter", "aria-label": "Filter the rows", spellcheck: "false", input: () => { clearTimeout(waiting); waiting = setTimeout(choose, rows.length > 5000 ? 150 : 0); } });
  let waiting = 0;
  const detail = el("section", { class: "detail", "aria-label": "Row", hidden: true });
  const copied = button("Copy CSV", async () => {
    const said = await copy(csv({ columns, rows: view }), "table.csv", "text/csv");
    copied.textContent = said;
    setTimeout(() => { copied.textContent = "Copy CSV"; }, 1600);
  }, { "aria-live": "polite" });

  function turn(column) {
    [sort, falling] = sort !== column ? [column, false] : falling ? [null, false] : [column, true];
    columns.forEach((each, at) => {
      if (each === sort) headers[at].setAttribute("aria-sort", falling ? "descending" : "ascending");
      else headers[at].removeAttribute("aria-sort");
    });
    choose();
  }
  function choose() {
    const words = filter.value.trim().toLowerCase();
    view = rows;
    if (words) {
      view = rows.filter((row, at) => {
        let text = texts.get(at);
        if (text === undefined) texts.set(at, text = columns.map((column) => cellText(column.get(row), column)).join("\u0000").toLowerCase());
        return text.includes(words);
      });
    }
    if (sort) view = sorted(view, sort, falling);
    scroll.scrollTop = 0;
    paint(true);
    tell(words);
  }
  function tell(words) {
    const more = dropped.rows ? ` of ${(rows.length + dropped.rows).toLocaleString(locale())}` : "";
    const wide = dropped.columns ? `, ${plural(dropped.columns, "more column")} in each row` : "";
    count.textContent = (words ? `${view.length.toLocaleString(locale())} of ${plural(rows.length, "row")}` : plural(rows.length, "row")) + more + wide;
  }
  function cell(row, column) {
    const value = column.get(row);
    const text = cellText(value, column);
    const kind = column.type === "number" ? "number" : isEmpty(value) ? "none" : undefined;
    if (isEmpty(value)) return el("td", { class: kind }, el("span", { class: "quiet", "aria-label": "empty" }, "–"));
    if (isLink(value) && own(state.caps, "openLinks")) return el("td", {}, link(value, clip(text, 200)));
    const long = typeof value === "object" || text.length > LONG || text.includes("\n");
    if (long) return el("td", {}, el("button", { type: "button", class: "more", dir: "auto", title: "Show the whole row", click: ({ currentTarget }) => open(row, currentTarget) }, clip(text.replaceAll("\n", " "), 200)));
    return el("td", { class: kind, title: typeof value === "number" && String(value) !== text ? String(value) : undefined }, kind ? text : el("bdi", {}, text));
  }
  function open(row, opener) {
    const close = () => { detail.hidden = true; detail.replaceChildren(); (opener.isConnected ? opener : scroll).focus(); };
    const others = dropped.columns && isObject(row) ? Object.entries(row) : columns.map(({ key, get }) => [key, get(row)]);
    const closer = button("Close", close);
    detail.replaceChildren(el("div", { class: "bar" }, el("b", {}, "Row"), closer), pairs(others));
    detail.hidden = false;
    detail.onkeydown = ({ key }) => { if (key === "Escape") close(); };
    closer.focus();
  }
  /** Draw the rows in sight and a few on both sides, with room for the others above and below. */
  function paint(anew = false) {
    const some = view.length > 120;
    const many = Math.ceil((scroll.clientHeight || 460) / height) + 24;
    const first = some ? Math.max(0, Math.min(view.length - many, Math.floor(scroll.scrollTop / height) - 12)) : 0;
    const last = some ? Math.min(view.length, first + many) : view.length;
    if (!anew && first === from && last === to) return;
    if (!anew && some && first >= from && last <= to + 6 && Math.abs(first - from) < 6) return;
    [from, to] = [first, last];
    const pad = (rest) => (rest > 0 ? el("tr", { class: "pad", "aria-hidden": "true" }, el("td", { colspan: columns.length, style: `height:${rest * height}px` })) : null);
    const drawn = view.slice(first, last).map((row, at) => el("tr", { "aria-rowindex": first + at + 2 }, ...columns.map((column) => cell(row, column))));
    if (!view.length) drawn.push(el("tr", {}, el("td", { colspan: columns.length, class: "none" }, rows.length ? "No row has that." : "No rows.")));
    const focused = body.contains(document.activeElement);
    body.replaceChildren(...[pad(first), ...drawn, pad(view.length - last)].filter(Boolean));
    if (focused) scroll.focus({ preventScroll: true });
    const real = drawn[0]?.getBoundingClientRect().height;
    if (some && real && Math.abs(real - height) > 0.5) { height = real; paint(true); }
  }

  /** Share out what room is left: text gets the most of it, a number in front none. */
  function stretch() {
    const left = scroll.clientWidth - cols.reduce((sum, wide) => sum + wide, 0);
    const weights = columns.map(({ type }, at) => (type === "text" ? cols[at] : type === "number" && at === 0 ? 0 : cols[at] / 2));
    const all = weights.reduce((sum, weight) => sum + weight, 0) || 1;
    [...table.firstChild.children].forEach((col, at) => { col.style.width = `${cols[at] + (left > 0 ? Math.floor((left * weights[at]) / all) : 0)}px`; });
  }

  const node = el("section", { class: "view grows" },
    el("div", { class: "bar" }, title, count, el("span", { class: "grow" }), rows.length > 5 ? filter : null, rows.length ? copied : null, ...tools),
    facts.length ? el("dl", { class: "facts" }, ...facts.slice(0, 12).map(([key, value]) => el("div", {}, el("dt", {}, humane(key)), el("dd", { dir: "auto" }, clip(valueText(value), 200))))) : null,
    el("div", { class: "frame" }, scroll), detail);
  tell("");
  paint(true);
  new ResizeObserver(() => { stretch(); paint(true); }).observe(scroll);
  node.repaint = () => paint(true);
  return node;
}

views.table = {
  show(result) {
    const told = tabular(dataOf(result));
    if (!told || (!told.rows.length && !told.columns.length)) return told ? el("section", { class: "view" }, spec.view === "table" ? heading() : null, empty("There are no rows.")) : null;
    const is_own = spec.view === "table";
    const make = () => tableNode(told, { title: is_own ? heading() : null, tools: is_own ? [expander()] : [] });
    return is_own ? living(make) : make();
  },
};

/** A node that is made anew when theme or locale change. */
function living(make) {
  let node = make();
  let key = "";
  const sign = () => compact([locale(), zone(), root.style.colorScheme, state.context.styles?.variables]);
  key = sign();
  redraws.clear();
  redraws.add(() => {
    if (!node.isConnected || key === sign()) return;
    key = sign();
    const next = make();
    node.replaceWith(next);
    node = next;
  });
  return node;
}
