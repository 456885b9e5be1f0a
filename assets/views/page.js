/* HTML of others as nodes of our own. The browser's parser reads it in a document that loads and runs nothing; then each
   element is made anew, of the names and attributes that are known here. Nothing is copied, what is not known stays behind. */

const MATHML = "http://www.w3.org/1998/Math/MathML";
const words = (text) => new Set(text.split(" "));
const KEPT = words("p h1 h2 h3 h4 h5 h6 ul ol li dl dt dd blockquote code kbd samp var em strong b i u s del ins sub sup small mark abbr cite q br hr wbr thead tbody tfoot tr th td caption figure figcaption details summary section aside div span time");
const GONE = words("script style template iframe frame frameset object embed applet noscript noembed noframes head title meta link base textarea select option button form dialog canvas audio video source track portal slot xmp plaintext annotation annotation-xml");
const MATHS = words("math mrow mi mo mn ms mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mmultiscripts mprescripts none mtable mtr mtd mstyle mpadded mphantom merror semantics");
const MATH_SAYS = words("display mathvariant stretchy fence form accent accentunder columnalign rowspacing columnspacing displaystyle scriptlevel linethickness lspace rspace separator movablelimits symmetric largeop width height depth rowspan columnspan");
const PICTURE = /^data:image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)(;[a-z0-9=-]+)*,/i;
const MOST_NODES = 40_000;
const MOST_DEEP = 200;
const MOST_DRAWN = 1_000_000;  // characters of a drawing that stands in the HTML

/** What to do with links and images where the app says nothing else: the host opens links, images are data or their words. */
const plainLink = (href, inner) => (isLink(href) && own(state.caps, "openLinks") ? inlineLink(inner, () => ask("ui/open-link", { url: href }), { title: href }) : el("span", {}, ...inner));
/** A link in running text, which a button would keep from being broken over lines. */
function inlineLink(inner, follow, attributes = {}) {
  const node = el("span", { class: "link", role: "link", tabindex: "0", click: follow, keydown: (event) => { if (event.key === "Enter" && event.target === node) { event.preventDefault(); follow(); } }, ...attributes }, ...inner);
  return node;
}
function plainImage(src, alt) {
  if (!PICTURE.test(src)) return isLink(src) ? link(src, alt || src) : alt ? el("span", { class: "quiet" }, alt) : null;
  const image = el("img", { src, alt, loading: "lazy", error: () => {
    const match = /^data:(image\/(?:png|jpeg|gif|webp|avif|bmp));base64,/i.exec(src.slice(0, 60));
    const refused = () => image.replaceWith(el("span", { class: "quiet" }, alt || "This image cannot be shown here."));
    if (!match) return refused();
    painted(src.slice(match[0].length), match[1]).then((canvas) => { canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", alt); image.replaceWith(canvas); }, refused);
  } });
  return image;
}

/** HTML as {nodes, anchors: name -> node, isCut}. `on.link(href, inner nodes, element)` and `on.image(src, alt)` make theirs. */
function safeHtml(html, on = {}) {
  // An address for the document to begin with is nothing that is kept, and the policy would report it.
  const parsed = new DOMParser().parseFromString(html.replaceAll(/<base\b/gi, "<x-base"), "text/html");
  const anchors = new Map();
  const budget = { left: MOST_NODES };
  const inside = (node, depth) => {
    const made = [];
    for (let child = node.firstChild; child && budget.left > 0; child = child.nextSibling) {
      budget.left -= 1;
      if (child.nodeType === Node.TEXT_NODE) made.push(child.data);
      else if (child.nodeType === Node.ELEMENT_NODE && depth < MOST_DEEP) made.push(...[remade(child, depth + 1)].flat());
    }
    return made;
  };
  const remade = (node, depth) => {
    const tag = node.localName;
    const id = node.getAttribute("id") || (tag === "a" && node.getAttribute("name")) || "";
    const made = node.namespaceURI === MATHML ? maths(node, tag, depth) : node.namespaceURI === SVG ? drawing(node, tag) : element(node, tag, depth);
    const first = Array.isArray(made) ? made.find((one) => one instanceof Element) : made;
    if (id && first instanceof Element && !anchors.has(id) && id.length < 500) anchors.set(id, first);
    else if (id && !anchors.has(id) && id.length < 500 && made !== null && !GONE.has(tag)) { const mark = el("span", { class: "anchor" }); anchors.set(id, mark); return [mark, made].flat(); }
    return made ?? [];
  };
  const element = (node, tag, depth) => {
    if (GONE.has(tag)) return null;
    if (tag === "pre") return codeFigure(node.textContent.replace(/\n$/, ""), languageOf(node));
    if (tag === "a") { const inner = inside(node, depth); return node.hasAttribute("href") ? (on.link ?? plainLink)(node.getAttribute("href"), inner, node) : inner; }
    if (tag === "img") return (on.image ?? plainImage)(node.getAttribute("src") ?? "", clip(node.getAttribute("alt") ?? "", 1000));
    if (tag === "input") return node.type === "checkbox" ? el("input", { type: "checkbox", disabled: true, checked: node.hasAttribute("checked"), "aria-label": node.hasAttribute("checked") ? "done" : "open" }) : null;
    if (tag === "table") return wideTable(inside(node, depth));
    if (!KEPT.has(tag)) return inside(node, depth);
    return el(tag, said(node, tag), ...(tag === "li" ? tasked(inside(node, depth)) : inside(node, depth)));
  };
  const maths = (node, tag, depth) => {
    if (GONE.has(tag)) return null;
    if (!MATHS.has(tag)) return inside(node, depth);
    const made = document.createElementNS(MATHML, tag);
    for (const { name, value } of node.attributes) if (MATH_SAYS.has(name) && /^[\w\s.%+-]{0,60}$/.test(value) && !/\d{3}/.test(value)) made.setAttribute(name, value);
    const side = tag === "mtd" ? node.getAttribute("columnalign") : null;
    if (side === "left" || side === "right") made.setAttribute("class", `to-${side}`);
    made.append(...inside(node, depth));
    if (tag !== "math") return made;
    return node.getAttribute("display") === "block" ? el("div", { class: "maths", tabindex: "0", role: "group", "aria-label": "Formula" }, made) : made;
  };
  const nodes = inside(parsed.body, 0);
  return { nodes, anchors, isCut: budget.left <= 0 };
}

/** "[x] done" at the beginning of an item is a task. */
function tasked(nodes) {
  const at = nodes.findIndex((one) => typeof one !== "string" || one.trim());
  const first = nodes[at];
  if (first instanceof Element && first.localName === "p" && first.firstChild?.nodeType === Node.TEXT_NODE) { first.replaceChildren(...tasked([first.firstChild.data, ...[...first.childNodes].slice(1)])); return nodes; }
  const match = typeof first === "string" ? /^\s*\[([ xX])\]\s/.exec(first) : null;
  if (!match) return nodes;
  const done = match[1] !== " ";
  return [el("input", { type: "checkbox", disabled: true, checked: done, "aria-label": done ? "done" : "open" }), ` ${first.slice(match[0].length)}`, ...nodes.slice(at + 1)];
}

/** The few attributes that say something of the text. */
function said(node, tag) {
  const attributes = {};
  const number = (name, least, most) => { const value = Number.parseInt(node.getAttribute(name), 10); if (value >= least && value <= most) attributes[name] = value; };
  for (const name of ["title", "lang", "dir"]) if (node.hasAttribute(name)) attributes[name] = clip(node.getAttribute(name), 500);
  if (tag === "th" || tag === "td") {
    number("colspan", 2, 1000);
    number("rowspan", 2, 1000);
    const scope = node.getAttribute("scope");
    if (scope === "row" || scope === "col") attributes.scope = scope;
    const side = /^(left|right|center)$/.exec(node.style.textAlign || node.getAttribute("align") || node.parentElement?.style.textAlign || "")?.[1];
    if (side || (tag === "td" && /^\s*[-+−]?\d[\d.,\s]*%?\s*$/.test(node.textContent))) attributes.class = `to-${side ?? "right"}`;
  } else if (tag === "ol") number("start", -1e6, 1e6);
  else if (tag === "li") number("value", -1e6, 1e6);
  else if (tag === "details" && node.hasAttribute("open")) attributes.open = true;
  if (/^(p|h[1-6]|li|blockquote|dd|dt|figcaption|td|th)$/.test(tag)) attributes.dir ??= "auto";
  return attributes;
}

/** A drawing in the HTML becomes an image, in which nothing runs and nothing is loaded. */
function drawing(node, tag) {
  if (tag !== "svg") return null;
  const text = new XMLSerializer().serializeToString(node);
  return text.length > MOST_DRAWN ? null : plainImage(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`, clip(node.getAttribute("aria-label") ?? node.querySelector("title")?.textContent ?? "", 1000));
}

function wideTable(inner) {
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" }, el("table", {}, ...inner));
}

const languageOf = (node) => {
  const told = [node, node.querySelector("code")].map((one) => /(?:^|\s)lang(?:uage)?-([\w+#.-]{1,30})/.exec(one?.getAttribute("class") ?? "")?.[1]).find(Boolean);
  return told ?? "";
};

/** Code with its language and a button that copies it. */
function codeFigure(text, language = "", attributes = {}) {
  const name = language ? `Code, ${language}` : "Code";
  const saying = el("span", { class: "seen", role: "status" });
  const press = button("Copy", async () => {
    const outcome = await copy(text, "code.txt", "text/plain");
    press.textContent = saying.textContent = outcome;
    setTimeout(() => { press.textContent = "Copy"; saying.textContent = ""; }, 2000);
  }, { class: "button small", "aria-label": "Copy the code" });
  return el("figure", { class: "code", ...attributes },
    el("div", { class: "bar" }, el("span", { class: "quiet grow" }, language), press, saying),
    el("pre", { tabindex: "0", role: "group", "aria-label": name, dir: "ltr" }, el("code", {}, text)));
}

/** Move a pane so that a node stands at its top. */
function bringUp(pane, node) {
  for (let at = node.parentElement; at && at !== pane; at = at.parentElement) if (at.localName === "details") at.open = true;
  pane.scrollTop += node.getBoundingClientRect().top - pane.getBoundingClientRect().top - 10;
}

/** Call a tool of the server. Resolves with {data, result} or {error}. */
async function callTool(name, given) {
  if (!own(state.caps, "serverTools")) return { error: "This host lets no view ask its server." };
  const { ok, value, error } = await ask("tools/call", { name, arguments: given });
  if (!ok) return { error };
  const said_of_it = textsOf(value).join("\n\n");
  if (value.isError === true) return { error: said_of_it || "The server reported an error." };
  const data = dataOf(value);
  return isObject(data) ? { data, result: value } : { error: said_of_it || "The server's answer is of another kind." };
}
const loading = (text) => el("div", { class: "state", role: "status" }, el("i", { "aria-hidden": "true" }), el("span", {}, text));
