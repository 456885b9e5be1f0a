/* Documentation: what was found, sections, pages, and the way between them. All but what came with the call is asked of
   one tool of the server that is for this view alone: {path, anchor?}, {query, section?, kind?, cursor?}, {section} or {}. */

const BOOK = spec.calls ?? "show_docs";
const KEPT_PLACES = 30;
const way = { back: [], on: [], now: null, turn: 0, kept: new Map() };
let shell = null;

/** Where a page is: its path, without the beginning that the server's URIs have. */
function pathOf(one) {
  const told = own(one, "path") ?? own(one, "url") ?? own(one, "uri");
  if (typeof told !== "string") return "";
  const start = typeof spec.prefix === "string" && told.startsWith(spec.prefix) ? told.slice(spec.prefix.length) : told;
  return start.split("#")[0];
}
const listOf = (value) => (Array.isArray(value) ? value.filter(isObject) : null);
const textOf = (value, limit = 500) => (typeof value === "string" ? clip(value, limit) : "");
const sectionOf = (one) => textOf(one.section_title) || humane(textOf(one.section));
const countOf = (value) => (Number.isSafeInteger(value) && value >= 0 ? value : null);

const hitsOf = (data) => listOf(data.hits) ?? listOf(data.results) ?? [];

/** What a result is about, as a place: its `what` is hits, entries, code, sections, list, page, miss or text. */
function placeOf(data) {
  if (!isObject(data)) return null;
  if (typeof data.error === "string" && Array.isArray(data.near)) return { what: "miss" };
  if (typeof data.name === "string" && listOf(data.results)) return { what: "entries" };
  const found = listOf(data.hits) ?? listOf(data.results);
  if (found && (typeof data.query === "string" || !found.length || pathOf(found[0]))) return { what: "hits", query: textOf(data.query), section: own(data, "section"), kind: own(data, "kind") };
  if (listOf(data.examples)) return { what: "code" };
  if (listOf(data.sections)) return { what: "sections" };
  if (listOf(data.pages) ?? listOf(data.docs)) return { what: "list", section: textOf(data.section) };
  return pathOf(data) ? { what: "page", path: pathOf(data), anchor: textOf(data.anchor), title: textOf(data.title) } : null;
}

const asked = {
  hits: ({ query, section, kind, cursor }) => ({ query, ...(section ? { section } : {}), ...(kind ? { kind } : {}), ...(cursor ? { cursor } : {}) }),
  sections: () => ({}),
  list: ({ section }) => ({ section }),
  page: ({ path, anchor }) => ({ path, ...(anchor ? { anchor } : {}) }),
};
const keyOf = (place) => compact({ ...place, anchor: undefined, scroll: undefined, title: undefined });

/** Go to a place: draw what is known of it, or ask. `step` says what becomes of the place that is left. */
async function go(place, { step = "on", focus = true } = {}) {
  const turn = (way.turn += 1);
  if (way.now) way.now.scroll = shell.pane.scrollTop;
  if (way.now && step === "on") { way.back.push(way.now); way.on.length = 0; }
  way.now = place;
  const known = way.kept.get(keyOf(place));
  if (!known) {
    shell.say("Loading");
    shell.pane.setAttribute("aria-busy", "true");
    const timer = setTimeout(() => { if (turn === way.turn) shell.put(loading("Loading")); }, 150);
    const { data, error } = place.what in asked ? await callTool(BOOK, asked[place.what](place)) : { error: "This cannot be asked for again." };
    clearTimeout(timer);
    if (turn !== way.turn) return;
    shell.pane.removeAttribute("aria-busy");
    if (!data) return sorry(place, error);
    keep(place, data);
  }
  draw(place, way.kept.get(keyOf(place)), focus);
  if (step === "on" && place.what === "page" && focus) tellModel(place);
}
function keep(place, data) {
  way.kept.set(keyOf(place), data);
  if (way.kept.size > KEPT_PLACES) way.kept.delete(way.kept.keys().next().value);
}
function move(from, to) {
  const place = from.pop();
  if (!place) return;
  to.push(way.now);
  way.now.scroll = shell.pane.scrollTop;
  go(place, { step: "kept" });
}
const back = () => move(way.back, way.on);
const forward = () => move(way.on, way.back);

/** What could not be had: in its place what came with the call, else words and a way to try again. */
function sorry(place, error) {
  shell.said(place);
  const given = way.given && place === way.first ? way.given : "";
  if (given) return shell.put(markdownNode(given));
  const again = place.what in asked ? button("Try again", () => go(place, { step: "kept" })) : null;
  shell.put(failure("This cannot be shown", String(error ?? "")), again);
  shell.say("This cannot be shown");
}

/** The model hears what the user opens, where the host passes that on. */
function tellModel({ path, anchor, title }) {
  if (!own(state.caps, "updateModelContext")) return;
  const words_of_it = `In the documentation reader the user opened ${title ? `"${clip(title, 200)}", ` : ""}${clip(path, 400)}${anchor ? `#${clip(anchor, 200)}` : ""}.`;
  ask("ui/update-model-context", { content: [{ type: "text", text: words_of_it }] });
}

function draw(place, data, focus) {
  const { title, nodes, after } = drawn[place.what](place, data);
  shell.said(place);
  shell.pane.setAttribute("aria-label", title);
  shell.put(...nodes);
  shell.say(title);
  after?.();
  shell.pane.scrollTop = place.scroll ?? shell.pane.scrollTop;
  if (focus) shell.pane.focus({ preventScroll: true });
}

/* ---- The frame: what stays while places change ---- */

const ARROWS = { back: "M10 3L5 8l5 5", on: "M6 3l5 5-5 5", home: "M2.5 4h11M2.5 8h11M2.5 12h7", find: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.8 10.8L14 14" };
function makeShell() {
  const named = (path, label, click) => button(icon(path), click, { class: "button icon", "aria-label": label, title: label });
  const canAsk = Boolean(own(state.caps, "serverTools"));
  const backward = named(ARROWS.back, "Back", back), onward = named(ARROWS.on, "Forward", forward);
  // No form: a frame may not be allowed to send one, and then its event never comes.
  const search = () => { if (box.value.trim()) go({ what: "hits", query: box.value.trim() }); };
  const box = el("input", { class: "field grow", type: "search", name: "query", keydown: (event) => { if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); search(); } }, "aria-label": "Search the documentation", placeholder: "Search", maxlength: "500", enterkeyhint: "search", dir: "auto" });
  const form = el("div", { class: "find grow", role: "search" }, box, button(icon(ARROWS.find), search, { class: "button icon", "aria-label": "Search", title: "Search" }));
  const status = el("span", { class: "seen", role: "status" });
  const pane = el("div", { class: "pane", tabindex: "0", role: "region" });
  const bar = el("div", { class: "bar tools" }, canAsk ? [backward, onward, named(ARROWS.home, "Sections", () => go({ what: "sections" })), form] : el("span", { class: "grow" }), expander());
  const node = el("section", { class: "view grows reader", keydown: (event) => {
    if (!event.altKey || event.target === box) return;
    if (event.key === "ArrowLeft") { event.preventDefault(); back(); } else if (event.key === "ArrowRight") { event.preventDefault(); forward(); }
  } }, bar, status, pane);
  const said = (place) => {
    backward.disabled = !way.back.length;
    onward.disabled = !way.on.length;
    if (place.what === "hits") box.value = place.query;
  };
  return { node, pane, said, say: (text) => { status.textContent = text; }, put: (...nodes) => pane.replaceChildren(...nodes.flat().filter(Boolean)) };
}

/* ---- Places, drawn ---- */

const goer = (place, label) => (own(state.caps, "serverTools") && (place.what !== "page" || place.path)
  ? el("button", { type: "button", class: "link", role: "link", click: () => go({ ...place }) }, label) : el("span", { dir: "auto" }, label));
/** The way to a place, from the whole to the part. */
function crumbs(...steps) {
  const shown = steps.filter(([label]) => label);
  return shown.length ? el("span", { class: "quiet crumbs", dir: "auto" }, ...shown.flatMap(([label, place], at) => [at ? " › " : null, place ? goer(place, label) : label])) : null;
}

/** A text with the places marked that were found; Python counts characters where JavaScript counts halves of some. */
function marked(text, spans) {
  const letters = Array.from(text);
  const found = [];
  let at = 0;
  for (const span of Array.isArray(spans) ? spans.slice(0, 200) : []) {
    const [start, end] = Array.isArray(span) ? span : [own(span, "start"), own(span, "end")];
    if (!(Number.isInteger(start) && Number.isInteger(end) && start >= at && end > start)) continue;
    found.push(letters.slice(at, start).join(""), el("mark", {}, letters.slice(start, end).join("")));
    at = end;
  }
  return [...found, letters.slice(at).join("")];
}
function hitNode(hit) {
  const title = textOf(hit.title) || pathOf(hit);
  const heading = textOf(hit.heading);
  const snippet = textOf(hit.snippet, 2000);
  const place = { what: "page", path: pathOf(hit), anchor: textOf(hit.anchor), title };
  return el("li", {}, el("h3", { dir: "auto" }, goer(place, title)),
    crumbs([sectionOf(hit)], [heading && heading !== title ? heading : ""]),
    snippet ? el("p", { dir: "auto" }, marked(bareKeeping(snippet), hit.highlights)) : null);
}
/** Line ends as blanks, one for one, so that the places of what was found stay. */
const bareKeeping = (text) => text.replaceAll("\n", " ");

function choice(label, options, chosen, pick) {
  return el("label", { class: "choice" }, el("span", { class: "quiet" }, label), el("select", { class: "field", change: ({ target }) => pick(target.value) },
    el("option", { value: "" }, "All"), ...options.map(([value, text]) => el("option", { value, selected: value === chosen }, text))));
}

let filters = null;  // the sections and kinds that there are, once somebody has said
async function withFilters(slot, place) {
  if (!filters && own(state.caps, "serverTools")) filters = await callTool(BOOK, {}).then(({ data }) => data ?? {});
  const sections = (listOf(own(filters, "sections")) ?? []).map((one) => [textOf(one.name), textOf(one.title) || textOf(one.name)]).filter(([name]) => name);
  const kinds = (Array.isArray(own(filters, "kinds")) ? filters.kinds : []).filter((one) => typeof one === "string").map((one) => [one, one]);
  const again = (change) => go({ ...place, cursor: undefined, scroll: undefined, ...change });
  slot.replaceChildren(...[
    sections.length > 1 ? choice("Section", sections, place.section, (section) => again({ section: section || undefined })) : null,
    kinds.length > 1 ? choice("Kind", kinds, place.kind, (kind) => again({ kind: kind || undefined })) : null,
  ].filter(Boolean));
}

const drawn = {
  hits(place, data) {
    const found = [...hitsOf(data)];
    const total = countOf(data.total) ?? found.length;
    const title = found.length ? `${plural(total, "result")}${place.query ? ` for “${place.query}”` : ""}` : `Nothing has “${place.query}”`;
    const corrected = textOf(data.corrected);
    const list = el("ol", { class: "hits" }, ...found.map(hitNode));
    const slot = el("div", { class: "bar" });
    const more = button("More results", async () => {
      more.disabled = true;
      const { data: next, error } = await callTool(BOOK, asked.hits({ ...place, cursor: data.next_cursor }));
      const added = next ? hitsOf(next) : [];
      list.append(...added.map(hitNode));
      if (next) { data = { ...next, hits: [...hitsOf(data), ...added], corrected: data.corrected }; keep(place, data); }
      more.disabled = false;
      if (!next || !data.next_cursor) more.replaceWith(next ? "" : failure("There is no more to be had", error));
      shell.say(`${plural(list.children.length, "result")} shown`);
    });
    if (place.query && own(state.caps, "serverTools")) withFilters(slot, place);
    return { title, nodes: [
      el("h2", { dir: "auto" }, title), corrected && corrected !== place.query ? el("p", { class: "quiet", dir: "auto" }, `Searched for “${corrected}” instead.`) : null,
      slot, list, typeof data.next_cursor === "string" && own(state.caps, "serverTools") ? more : null,
    ] };
  },

  code(place, data) {
    const found = listOf(data.examples);
    const total = countOf(data.total) ?? found.length;
    const title = total > found.length ? `${found.length.toLocaleString(locale())} of ${plural(total, "example")}` : plural(found.length, "example");
    return { title, nodes: [el("h2", {}, title), ...found.map((one) => el("article", { class: "example" },
      el("h3", { dir: "auto" }, goer({ what: "page", path: pathOf(one), anchor: textOf(one.anchor), title: textOf(one.title) }, textOf(one.title) || pathOf(one))),
      crumbs([sectionOf(one)], [textOf(one.heading)]), textOf(one.before) ? el("p", { dir: "auto" }, textOf(one.before, 1000)) : null,
      codeFigure(textOf(one.code ?? one.text, 50_000), textOf(one.language, 30))))] };
  },

  entries(place, data) {
    const title = data.results.length ? `“${clip(data.name, 100)}”` : `Nothing describes “${clip(data.name, 100)}”`;
    return { title, nodes: [el("h2", { dir: "auto" }, title), ...listOf(data.results).map((one) => el("article", { class: "example" },
      el("h3", { dir: "auto" }, goer({ what: "page", path: pathOf(one), anchor: textOf(one.anchor), title: textOf(one.title) }, textOf(one.title) || pathOf(one))),
      crumbs([sectionOf(one)], [textOf(one.heading)]), textOf(one.content ?? one.text) ? markdownNode(textOf(one.content ?? one.text, 6000)) : null))] };
  },

  miss(place, data) {
    const near = data.near.filter((one) => typeof one === "string").slice(0, 20);
    return { title: "This is not there", nodes: [failure("This is not there", clip(data.error, 2000)), near.length ? el("ul", { class: "places" }, ...near.map((one) =>
      el("li", {}, goer(/\.[a-z]{2,8}$/i.test(one) ? { what: "page", path: one } : { what: "hits", query: one }, clip(one, 300))))) : null] };
  },

  sections(place, data) {
    const all = listOf(data.sections);
    filters ??= Array.isArray(data.kinds) ? data : null;
    const title = textOf(data.title) || heading()?.textContent || "Documentation";
    const pages = countOf(data.total_pages) ?? countOf(data.pages) ?? countOf(data.totalDocs);
    return { title, nodes: [el("h2", { dir: "auto" }, title), pages === null ? null : el("p", { class: "quiet" }, `${plural(pages, "page")}${data.is_indexing ? "; more are being read" : ""}`),
      el("ul", { class: "places" }, ...all.map((one) => {
        const name = textOf(one.name), count = countOf(one.pages) ?? countOf(one.docCount);
        return el("li", {}, goer({ what: "list", section: name, title: textOf(one.title) }, textOf(one.title) || name || "Top"), count === null ? null : el("span", { class: "quiet" }, plural(count, "page")));
      }))] };
  },

  list(place, data) {
    const title = textOf(data.title) || place.section || "Pages";
    return { title, nodes: [crumbs(["Sections", { what: "sections" }], [title]), el("h2", { dir: "auto" }, title),
      el("ul", { class: "places tall" }, ...(listOf(data.pages) ?? listOf(data.docs)).map((one) => el("li", {},
        goer({ what: "page", path: pathOf(one), title: textOf(one.title) }, textOf(one.title) || pathOf(one)),
        textOf(one.description) ? el("span", { class: "quiet", dir: "auto" }, textOf(one.description, 300)) : null)))] };
  },

  page(place, data) {
    const path = pathOf(data) || place.path;
    const title = place.title = textOf(data.title) || path;
    const found = safeHtml(textOf(data.html, 8_000_000), { link: (href, inner, node) => pageLink(href, inner, node, path, (name) => anchored(name)) });
    const { nodes, anchors, isCut } = found;
    const anchored = (name) => anchors.get(`page-${name}`) ?? anchors.get(name);
    const first = nodes.find((one) => one instanceof Element && one.textContent.trim());
    const article = el("article", { class: "markdown" }, first?.localName === "h1" ? null : el("h1", { dir: "auto" }, title), nodes,
      isCut || data.is_cut ? el("p", { class: "quiet" }, "The page is longer; this is its beginning.") : null);
    const contents = (listOf(data.toc) ?? []).filter((one) => textOf(one.title) && anchored(one.anchor)).slice(0, 500);
    const jump = (anchor) => { const node = anchored(anchor); if (node) { bringUp(shell.pane, node); way.now.anchor = anchor; node.tabIndex = -1; node.focus({ preventScroll: true }); } };
    const section = textOf(data.section);
    const beside = [["previous", "Previous"], ["next", "Next"]].map(([key, label]) => (isObject(data[key]) && pathOf(data[key])
      ? el("div", { class: key }, el("span", { class: "quiet" }, label), goer({ what: "page", path: pathOf(data[key]), title: textOf(data[key].title) }, textOf(data[key].title) || pathOf(data[key]))) : null));
    return {
      title,
      nodes: [crumbs(["Sections", { what: "sections" }], [textOf(data.section_title) || section, { what: "list", section }], [title]),
        el("div", { class: contents.length > 2 ? "with-toc" : "" }, contents.length > 2 ? contentsNode(contents, jump) : null, article),
        beside.some(Boolean) ? el("nav", { class: "beside", "aria-label": "Pages beside this one" }, ...beside) : null],
      after: () => { shell.pane.scrollTop = 0; const node = place.scroll === undefined && place.anchor && anchored(place.anchor); if (node) bringUp(shell.pane, node); },
    };
  },
};

/** A link of a page: to another page inside, to a place in this one, or out through the host. */
function pageLink(href, inner, node, path, anchored) {
  const target = node.getAttribute("data-page") ?? (href.startsWith("#") ? path : null);
  if (target === null) return plainLink(href, inner);
  let anchor = node.getAttribute("data-anchor") ?? href.slice(1);
  try { anchor = decodeURIComponent(anchor); } catch { /* as it stands */ }
  if (target !== path) return own(state.caps, "serverTools") && target ? inlineLink(inner, () => go({ what: "page", path: target, anchor })) : el("span", {}, ...inner);
  return inlineLink(inner, () => {
    const there = anchored(anchor);
    if (!there) return;
    way.back.push({ ...way.now, scroll: shell.pane.scrollTop });
    way.on.length = 0;
    way.now = { ...way.now, anchor, scroll: undefined };
    shell.said(way.now);
    bringUp(shell.pane, there);
    there.tabIndex = -1;
    there.focus({ preventScroll: true });
  });
}

const isWide = window.matchMedia("(min-width: 820px)");
function contentsNode(contents, jump) {
  const least = Math.min(...contents.map(({ level }) => countOf(level) ?? 2));
  const fold = el("details", { open: isWide.matches }, el("summary", {}, "On this page"), el("ul", {}, ...contents.map(({ level, title, anchor }) =>
    el("li", { class: `l${Math.min(3, Math.max(0, (countOf(level) ?? 2) - least))}` }, el("button", { type: "button", class: "link", role: "link", dir: "auto", click: () => { if (!isWide.matches) fold.open = false; jump(anchor); } }, textOf(title, 200))))));
  isWide.onchange = () => { if (fold.isConnected) fold.open = isWide.matches; };
  return el("nav", { class: "toc", "aria-label": "On this page" }, fold);
}

views.reader = {
  show(result) {
    // What the server calls things in structured content is its author's to say; the copy has our names.
    const copied = own(result._meta, "mcpd/data");
    const data = isObject(copied) ? copied : dataOf(result);
    const given = textsOf(result).join("\n\n");
    const place = placeOf(data);
    if (!place && (!given.trim() || isObject(data) || Array.isArray(data))) return null;
    shell = makeShell();
    way.given = typeof own(data, "text") === "string" ? data.text : given;
    way.first = place ?? { what: "text" };
    if (place && place.what !== "page") { keep(place, data); way.now = place; draw(place, data, false); }
    else if (place) go(place, { step: "first", focus: false });
    else { way.now = way.first; shell.pane.setAttribute("aria-label", "Result"); shell.said(way.first); shell.put(markdownNode(given)); }
    return shell.node;
  },
};
