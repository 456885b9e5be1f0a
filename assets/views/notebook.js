/* A notebook: its cells with what they gave when somebody ran them. Nothing in it runs here. The result of the call says
   which notebook; its cells are asked of one tool of the server that is for this view alone, some at a time. */

const CELLS = spec.calls ?? "show_notebook_cells";
const MOST_TEXT = 100_000;
const DATA_IMAGE = /^image\/(png|jpeg|gif|webp|svg\+xml)$/;

/* ---- Text as terminals show it ---- */

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
/** Text with colours of a terminal as nodes; what else such codes ask for is left out. */
function terminal(text) {
  const nodes = [];
  let strong = false, colour = "";
  const put = (part) => { if (part) nodes.push(strong || colour ? el("span", { class: `${strong ? "strong " : ""}${colour && `ink-${colour}`}` }, part) : part); };
  const set = (codes) => {
    for (let at = 0; at < codes.length; at += 1) {
      const code = codes[at];
      if (code === 0) { strong = false; colour = ""; }
      else if (code === 1) strong = true;
      else if (code === 22) strong = false;
      else if (code === 39) colour = "";
      else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) colour = COLOURS[code % 10];
      else if (code === 38 || code === 48) at += codes[at + 1] === 5 ? 2 : codes[at + 1] === 2 ? 4 : 0;
    }
  };
  for (const part of text.split(/(\u001b\[[0-9;:]{0,60}[A-Za-z])/)) {
    const codes = /^\u001b\[([0-9;]*)m$/.exec(part);
    if (codes) set(codes[1].split(";").slice(0, 40).map(Number));
    else if (!part.startsWith("\u001b[")) put(part.replaceAll(/\u001b\][^\u0007\u001b]{0,4000}(\u0007|\u001b\\)|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g, ""));
    if (nodes.length > 20_000) { nodes.push("…"); break; }
  }
  return nodes;
}

/* ---- Outputs ---- */

const asText = (output, label, kind = "") => el("pre", { class: `out ${kind}`, tabindex: "0", role: "group", "aria-label": label, dir: "ltr" }, terminal(clip(String(output.text ?? ""), MOST_TEXT)));
const outputs = {
  text: (output) => asText(output, output.stream === "stderr" ? "Output, errors" : "Output", output.stream === "stderr" ? "stderr" : ""),
  error: (output) => el("div", { class: "problem" }, el("b", { dir: "ltr" }, [textOr(output.name, "Error"), textOr(output.value)].filter(Boolean).join(": ")), output.text ? asText(output, "Traceback") : null),
  html: (output) => {
    const { nodes, isCut } = safeHtml(String(output.html ?? ""));
    if (!nodes.some((one) => (typeof one === "string" ? one.trim() : one.textContent.trim() || one.querySelector?.("img, math") || one.localName === "img"))) return output.text ? asText(output, "Output") : left("HTML that shows nothing without its code");
    return el("div", { class: "markdown out-html" }, nodes, isCut ? el("p", { class: "quiet" }, "There is more of it than is shown.") : null);
  },
  image: (output) => {
    if (!DATA_IMAGE.test(output.type) || typeof output.data !== "string" || !/^[A-Za-z0-9+/=\s]*$/.test(output.data)) return left("An image of an unknown kind");
    const node = plainImage(`data:${output.type};base64,${output.data}`, textOr(output.alt, "Output"));
    if (node instanceof Element && Number.isInteger(output.width) && output.width > 0 && output.width < 10_000) node.style.width = `${output.width}px`;
    return el("div", { class: "picture" }, node);
  },
  markdown: (output) => marks(output),
  omitted: (output) => left(textOr(output.reason, "Something")),
};
const textOr = (value, other = "") => (typeof value === "string" && value ? clip(value, 2000) : other);
const left = (what) => el("p", { class: "quiet" }, `Left out: ${what}`);
/** Markdown, as HTML if the server has made it, else as it was written. */
const marks = (one) => (typeof one.html === "string" ? el("div", { class: "markdown" }, safeHtml(one.html, { link: notebookLink }).nodes) : markdownNode(textOr(one.source)));
const notebookLink = (href, inner) => (href.startsWith("#") ? el("span", {}, ...inner) : plainLink(href, inner));

/* ---- Cells ---- */

let ran = 0;
function cellNode(cell, number, language) {
  const label = (kind) => ({ class: `cell ${kind}`, "aria-label": `Cell ${number}, ${kind === "text" ? "text" : kind}` });
  if (cell.kind === "markdown") return el("section", label("text"), marks(cell));
  if (cell.kind === "code") {
    const count = Number.isSafeInteger(cell.count) ? cell.count : null;
    const shown = (Array.isArray(cell.outputs) ? cell.outputs.filter(isObject) : []).slice(0, 500).map((one) => own(outputs, one.kind)?.(one)).filter(Boolean);
    const source = typeof cell.source === "string" ? clip(cell.source, MOST_TEXT) : "";
    return el("section", label("code"), source.trim() ? codeFigure(source, textOr(cell.language, language)) : null,
      shown.length ? el("div", { class: "outs", role: "group", "aria-label": "Output" }, shown) : null,
      count === null ? null : el("span", { class: "count quiet", title: "The order in which cells ran" }, `[${count}]`));
  }
  if (cell.kind === "raw") return el("section", label("raw"), el("pre", { tabindex: "0", role: "group", "aria-label": "Text as it is" }, clip(String(cell.source ?? ""), MOST_TEXT)));
  return el("section", label("broken"), left(textOr(cell.reason, "a cell that cannot be read")));
}

async function fill(about, pane, status) {
  const language = textOr(about.language);
  const total = Number.isSafeInteger(about.cells) ? about.cells : null;
  const list = el("div", { class: "cells" });
  const more = button("Show more cells", () => next());
  let first = 1;
  pane.replaceChildren(list, loading("Reading the notebook"));
  async function next() {
    more.disabled = true;
    pane.setAttribute("aria-busy", "true");
    const turn = (ran += 1);
    const { data, error } = await callTool(CELLS, { path: about.path, first });
    if (turn !== ran) return;
    pane.removeAttribute("aria-busy");
    more.disabled = false;
    if (!data) return instead(error);
    const cells = Array.isArray(data.cells) ? data.cells.filter(isObject) : [];
    list.append(...cells.map((cell, at) => cellNode(cell, first + at, language)));
    const shown = first + cells.length - 1;
    first = Number.isSafeInteger(data.next) && data.next > first ? data.next : 0;
    pane.replaceChildren(list, ...(first ? [more] : shown ? [] : [empty("The notebook has no cells.")]));
    status.textContent = first && total !== null ? `${shown} of ${plural(total, "cell")} shown` : `${plural(shown, "cell")} shown`;
  }
  /** Where cells cannot be had the text of the call stands in for all of them. */
  function instead(error) {
    if (list.children.length || !about.text) pane.replaceChildren(list, failure("The cells cannot be shown", String(error ?? "")), more);
    else pane.replaceChildren(markdownNode(about.text));
    more.textContent = "Try again";
  }
  await next();
}

views.notebook = {
  show(result) {
    const data = dataOf(result);
    const path = textOr(own(data, "path")) || textOr(own(state.input, "path"));
    const text = textsOf(result).join("\n\n");
    if (!path || (data !== undefined && !isObject(data))) return text.trim() && data === undefined ? markdownNode(text) : null;
    const about = { ...(isObject(data) ? data : {}), path, text };
    const status = el("span", { class: "quiet", role: "status" });
    const pane = el("div", { class: "pane notebook", tabindex: "0", role: "region", "aria-label": "Cells" });
    fill(about, pane, status);
    return el("section", { class: "view grows" },
      el("div", { class: "bar top" }, el("h1", { dir: "auto", class: "grow", title: path }, path.split("/").at(-1)), status, expander()), pane);
  },
};
