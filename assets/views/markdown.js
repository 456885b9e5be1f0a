/* A safe part of Markdown: headings, lists, quotes, tables, code, emphasis, links, images. HTML in it is text.
   Each line and each mark is looked at a fixed number of times, so hostile texts cost no more than others. */

const MAX_DEPTH = 12;
const BLOCKS_AT_ONCE = 1500;

const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?: (.*))?$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const indentOf = (line) => line.length - line.trimStart().length;

/** Blocks as functions that make their nodes: of a long text only those are made that are shown. */
function blocks(lines, depth = 0) {
  const found = [];
  let at = 0;
  const fresh = (line) => !line.trim() || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
  while (at < lines.length) {
    const line = lines[at];
    let match;
    if (!line.trim()) { at += 1; continue; }
    if ((match = FENCE.exec(line))) {
      const [, , mark, about] = match;
      const start = (at += 1);
      while (at < lines.length && !(lines[at].trim().startsWith(mark) && /^(`+|~+)$/.test(lines[at].trim()))) at += 1;
      const text = lines.slice(start, at).join("\n");
      at += 1;
      found.push(() => el("pre", { tabindex: "0", "aria-label": about.trim() ? `Code, ${clip(about.trim(), 40)}` : "Code", dir: "ltr" }, el("code", {}, text)));
    } else if ((match = HEADING.exec(line))) {
      const marks = match[1];
      let text = (match[2] ?? "").trim();
      let end = text.length;
      while (text[end - 1] === "#") end -= 1;
      if (end === 0 || text[end - 1] === " ") text = text.slice(0, end).trimEnd();
      found.push(() => el(`h${marks.length}`, { dir: "auto" }, inline(text)));
      at += 1;
    } else if (RULE.test(line)) {
      found.push(() => el("hr"));
      at += 1;
    } else if (QUOTE.test(line)) {
      const inner = [];
      while (at < lines.length && lines[at].trim() && (QUOTE.test(lines[at]) || !fresh(lines[at]))) inner.push((QUOTE.exec(lines[at]) ?? [, lines[at]])[1]), at += 1;
      found.push(nested("blockquote", { dir: "auto" }, inner, depth));
    } else if (ITEM.test(line)) {
      at = list(lines, at, depth, found);
    } else if (line.startsWith("    ")) {
      const start = at;
      while (at < lines.length && (lines[at].startsWith("    ") || !lines[at].trim())) at += 1;
      const text = lines.slice(start, at).map((one) => one.slice(4)).join("\n").trimEnd();
      found.push(() => el("pre", { tabindex: "0", dir: "ltr" }, el("code", {}, text)));
    } else if (line.includes("|") && at + 1 < lines.length && isDivider(lines[at + 1], cells(line).length)) {
      const start = at;
      while (at < lines.length && lines[at].includes("|") && !FENCE.test(lines[at])) at += 1;
      const part = lines.slice(start, at);
      found.push(() => grid(part));
    } else {
      const start = at;
      while (at < lines.length && (at === start || !(fresh(lines[at]) || (ITEM.test(lines[at]) && !/^ {0,3}\d/.test(lines[at])) || /^ {0,3}1[.)] /.test(lines[at]))) && !/^ {0,3}(=+|-+)[ \t]*$/.test(lines[at])) at += 1;
      const text = lines.slice(start, at).map((one, n) => (n + 1 < at - start ? one.trimStart() : one.trim())).join("\n");
      const under = at > start && /^ {0,3}(=+|-+)[ \t]*$/.exec(lines[at] ?? "");
      if (under) at += 1;
      const tag = under ? (under[1][0] === "=" ? "h1" : "h2") : "p";
      found.push(() => el(tag, { dir: "auto" }, inline(text)));
    }
  }
  return found;
}
const nested = (tag, attributes, lines, depth) => () => el(tag, attributes, depth >= MAX_DEPTH ? [el("p", {}, lines.join("\n"))] : blocks(lines, depth + 1).map((make) => make()));

function list(lines, start, depth, found) {
  const first = ITEM.exec(lines[start]);
  const ordered = /\d/.test(first[2]);
  const mark = first[2].at(-1);
  const items = [];
  let at = start, inside = 0, loose = false, blank = false;
  while (at < lines.length) {
    const line = lines[at];
    const match = ITEM.exec(line);
    if (!line.trim()) { blank = true; if (items.length) items.at(-1).push(""); at += 1; continue; }
    if (items.length && indentOf(line) >= inside) { if (blank) loose = true; items.at(-1).push(line.slice(inside)); }
    else if (match && match[2].at(-1) === mark && /\d/.test(match[2]) === ordered && !RULE.test(line)) {
      if (blank && items.length) loose = true;
      inside = match[1].length + match[2].length + Math.min(4, Math.max(1, match[3].length));
      items.push([match[4]]);
    } else if (!blank && !match && !HEADING.test(line) && !FENCE.test(line) && !RULE.test(line)) items.at(-1).push(line.trimStart());
    else break;
    blank = false;
    at += 1;
  }
  found.push(() => el(ordered ? "ol" : "ul", { dir: "auto", start: ordered && Number.parseInt(first[2], 10) !== 1 ? Number.parseInt(first[2], 10) : undefined }, items.map((item) => {
    const task = /^\[([ xX])\] +/.exec(item[0]);
    if (task) item = [item[0].slice(task[0].length), ...item.slice(1)];
    const made = depth >= MAX_DEPTH ? [document.createTextNode(item.join("\n"))] : blocks(item, depth + 1).map((make) => make());
    const flat = loose ? made : made.flatMap((node) => (node.tagName === "P" ? [...node.childNodes] : [node]));
    return el("li", { class: task ? "task" : undefined }, task ? el("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": task[1] === " " ? "open" : "done" }) : null, flat);
  })));
  return at;
}

function cells(line) {
  const text = line.trim().replace(/^\|/, "");
  const parts = text.split("|");
  const found = [];
  for (const part of parts) { if (found.length && found.at(-1).endsWith("\\")) found[found.length - 1] = `${found.at(-1).slice(0, -1)}|${part}`; else found.push(part); }
  if (found.length > 1 && !found.at(-1).trim()) found.pop();
  return found.map((cell) => cell.trim());
}
function isDivider(line, count) {
  const found = line.includes("-") && line.length < 10_000 ? cells(line) : [];
  return found.length === count && found.every((cell) => /^:?-+:?$/.test(cell));
}
function grid([head, divider, ...rows]) {
  const sides = cells(divider).map((mark) => ({ "true true": "center", "false true": "end" })[`${mark.startsWith(":")} ${mark.endsWith(":")}`]);
  const row = (line, tag) => { const found = cells(line); return el("tr", {}, sides.map((side, at) => el(tag, { dir: "auto", scope: tag === "th" ? "col" : undefined, style: side && `text-align:${side}` }, inline(found[at] ?? "")))); };
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" }, el("table", {}, el("thead", {}, row(head, "th")), el("tbody", {}, ...rows.slice(0, 5000).map((line) => row(line, "td")))));
}

const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}_]/u;

/** Inline marks, as nodes: one walk over the text, a stack of what is open. */
function inline(text) {
  const parts = [];  // strings, nodes, {mark, count, opens, closes} and {bracket}
  let plain = "";
  const flush = () => { if (plain) parts.push(plain); plain = ""; };
  const brackets = [];
  const ticked = new Map();  // a run of backticks of that length is not closed after this place
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (char === "\\" && PUNCTUATION.test(text[at + 1] ?? "")) { plain += text[at += 1]; continue; }
    if (char === "\n") {
      const hard = plain.endsWith("  ") || plain.endsWith("\\");
      plain = plain.endsWith("\\") ? plain.slice(0, -1) : plain.trimEnd();
      flush();
      parts.push(hard ? el("br") : " ");
    } else if (char === "`") {
      let run = 1;
      while (text[at + run] === "`") run += 1;
      const fence = "`".repeat(run);
      let end = ticked.has(run) ? -1 : text.indexOf(fence, at + run);
      while (end >= 0 && (text[end + run] === "`" || text[end - 1] === "`")) { while (text[end] === "`") end += 1; end = text.indexOf(fence, end); }
      if (end < 0) { ticked.set(run, at); plain += fence; at += run - 1; continue; }
      flush();
      let code = text.slice(at + run, end).replaceAll("\n", " ");
      if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
      parts.push(el("code", { dir: "ltr" }, code));
      at = end + run - 1;
    } else if (char === "*" || char === "_" || char === "~") {
      let run = 1;
      while (text[at + run] === char) run += 1;
      const before = text[at - 1] ?? " ", after = text[at + run] ?? " ";
      const left = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
      const right = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
      if (run > 6) { plain += char.repeat(run); at += run - 1; continue; }
      const word = char === "_";
      flush();
      parts.push({ mark: char, count: run, opens: left && (!word || !right || !WORD.test(before)), closes: right && (!word || !left || !WORD.test(after)) });
      at += run - 1;
    } else if (brackets.length < 100 && (char === "[" || (char === "!" && text[at + 1] === "["))) {
      flush();
      brackets.push({ place: parts.length, image: char === "!", start: at + (char === "!" ? 2 : 1) });
      parts.push(char === "!" ? "![" : "[");
      if (char === "!") at += 1;
    } else if (char === "]" && brackets.length) {
      const opened = brackets.pop();
      const target = text[at + 1] === "(" ? /^\([ \n]{0,3}(<[^<>\n]{0,2000}>|[^\s()<>]{0,2000}(?:\([^\s()]{0,500}\)[^\s()<>]{0,1500})?)(?: {1,3}["'(]([^"\n]{0,500})["')])? {0,3}\)/.exec(text.slice(at + 1, at + 6000)) : null;
      const data = !target && opened.image && text[at + 1] === "(" ? /^\((data:image\/[a-z+.-]+;base64,[A-Za-z0-9+/=]+)\)/.exec(text.slice(at + 1)) : null;
      if (!target && !data) { plain += "]"; continue; }
      flush();
      const url = (target ?? data)[1].replace(/^<|>$/g, "");
      const inner = parts.splice(opened.place).slice(1);
      if (!opened.image) for (const one of brackets) one.place = one.image ? one.place : Infinity;  // no link in a link
      const usable = brackets.findIndex(({ place }) => place === Infinity);
      if (usable >= 0) brackets.length = usable;
      parts.push(opened.image ? picture(url, text.slice(opened.start, at)) : link(url, emphasised(inner)));
      at += (target ?? data)[0].length;
    } else if (char === "<" || char === "h") {
      const rest = text.slice(at, at + 2000);
      const found = char === "<" ? /^<(https?:\/\/[^\s<>]+)>/i.exec(rest) : WORD.test(text[at - 1] ?? " ") ? null : /^(https?:\/\/[^\s<>"']*[^\s<>"'.,;:!?)\]*_~])/i.exec(rest);
      if (!found || brackets.some(({ image }) => !image)) { plain += char; continue; }
      flush();
      parts.push(link(found[1], found[1]));
      at += found[0].length - 1;
    } else plain += char;
  }
  flush();
  return emphasised(parts);
}

/** Pair the marks: each closer looks back to the last opener of its kind, and what is between becomes an element. */
function emphasised(parts) {
  const done = [];
  const open = { "*": [], _: [], "~": [] };
  const forget = (place) => { for (const stack of Object.values(open)) while (stack.length && stack.at(-1) >= place) stack.pop(); };
  for (const part of parts) {
    if (!part.mark) { done.push(part); continue; }
    const stack = open[part.mark];
    if (part.closes) {
      while (part.count && stack.length) {
        const place = stack.at(-1);
        const opener = done[place];
        const both = Math.min(opener.count, part.count);
        if (part.mark === "~" && both < 2) break;
        const use = both >= 2 ? 2 : 1;
        const inner = done.splice(place + 1).map((one) => (one.mark ? one.mark.repeat(one.count) : one));
        forget(place + 1);
        done.push(el(part.mark === "~" ? "del" : use === 2 ? "strong" : "em", {}, inner));
        part.count -= use;
        opener.count -= use;
        if (!opener.count) { stack.pop(); done.splice(place, 1); forget(place); }
      }
    }
    if (part.count) { if (part.opens && open["*"].length + open._.length + open["~"].length < 60) open[part.mark].push(done.length); done.push(part); }
  }
  return done.map((one) => (one.mark ? one.mark.repeat(one.count) : one));
}

/** Images are shown from data: URIs, and from the origins that the view was given; of others there is a link. */
function picture(url, alt) {
  const bare = alt.replace(/[\\*_`[\]]/g, "");
  const inline_data = /^data:image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)[;,]/i.test(url);
  if (!inline_data && !allowed(url)) return link(url, bare || url);
  const image = el("img", { src: url, alt: bare, loading: "lazy", error: () => image.replaceWith(link(url, bare || "(image)")) });
  return image;
}
function allowed(url) {
  try { return isLink(url) && (spec.images ?? []).some((origin) => new URL(url).origin === new URL(origin).origin); } catch { return false; }
}

function markdownNode(text) {
  const made = blocks(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").replaceAll("\u0000", "\ufffd").split("\n"));
  const node = el("article", { class: "markdown" });
  let at = 0;
  const more = button("Show more", () => extend());
  function extend() {
    more.remove();
    node.append(...made.slice(at, at + BLOCKS_AT_ONCE).map((make) => make()));
    at += BLOCKS_AT_ONCE;
    if (at < made.length) node.append(more);
  }
  extend();
  return node;
}

views.markdown = {
  show(result) {
    const data = dataOf(result);
    const named = isObject(data) ? ["markdown", "text", "content"].map((key) => own(data, key)).find((value) => typeof value === "string") : undefined;
    const text = typeof data === "string" ? data : named ?? (data === undefined || !isObject(data) ? textsOf(result).join("\n\n") : "");
    if (!text.trim()) return null;
    return el("section", { class: "view" }, spec.view === "markdown" ? heading() : null, markdownNode(text));
  },
};
