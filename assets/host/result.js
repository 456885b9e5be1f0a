/* What a tool, a resource or a prompt gave, as a host without Apps shows it: text, pictures, sound, links, embedded
   resources. What is no picture or sound of a known kind is offered as a file, never opened here. */

import { add, bytes, button, chip, clip, copyButton, el, empty, isObject, problem, saveFile } from "./dom.js";
import { folded, jsonBox } from "./json.js";
import { tell } from "./state.js";

const PICTURE = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/i;
const SOUND = /^audio\/[\w.+-]+$/i;
const LONG = 20_000;

export function textBox(text, name = "text") {
  const pre = el("pre", { class: "text", dir: "auto", tabindex: "0", role: "region", "aria-label": name });
  const short = text.length > LONG;
  pre.textContent = short ? text.slice(0, LONG) : text;
  const box = el("div", { class: "json-box" }, pre, copyButton(`Copy ${name}`, () => text));
  if (!short) return box;
  const all = button(`Show all ${bytes(text.length)}`, () => { pre.textContent = text; all.remove(); }, { class: "button small" });
  return el("div", { class: "stack" }, box, all);
}

const asBytes = (data) => Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
function blobUrl(data, type) {
  const url = URL.createObjectURL(new Blob([asBytes(data)], { type }));
  setTimeout(() => URL.revokeObjectURL(url), 600_000);
  return url;
}

function media(data, type, name) {
  if (!PICTURE.test(type) && !SOUND.test(type)) return problem(`No picture or sound is of the type ${clip(type, 80) || "“”"}`, "Hosts show nothing here.");
  let url;
  try { url = blobUrl(data, type); } catch { return problem("This is not base64", clip(String(data), 200)); }
  if (PICTURE.test(type)) return el("figure", {}, el("img", { src: url, alt: name }), el("figcaption", { class: "quiet" }, `${type}, ${bytes(asBytes(data).length)}`));
  return el("figure", {}, el("audio", { controls: true, src: url, "aria-label": name }), el("figcaption", { class: "quiet" }, type));
}

const fileName = (uri) => (/([^/?#]+)\/?(?:[?#].*)?$/.exec(uri)?.[1] ?? "file").replaceAll(/[^\w.-]+/g, "_").slice(0, 80);

/** One of the contents of `resources/read`, or the resource inside a block. */
export function contentOf({ uri = "", mimeType = "", text, blob }) {
  const head = el("div", { class: "block-head" }, el("span", { class: "mono clip", title: uri }, uri), mimeType ? chip(mimeType) : null);
  if (typeof text === "string") {
    const isJson = /[/+]json\b/i.test(mimeType);
    let pretty = text;
    if (isJson) try { pretty = JSON.stringify(JSON.parse(text), null, 2); } catch { /* shown as it is */ }
    return el("div", { class: "block" }, head, isJson ? jsonBox(null, uri, { text: pretty }) : textBox(text, uri || "text"));
  }
  if (typeof blob !== "string") return el("div", { class: "block" }, head, problem("Neither text nor blob", "A content of a resource has one of them."));
  if (PICTURE.test(mimeType) || SOUND.test(mimeType)) return el("div", { class: "block" }, head, media(blob, mimeType, uri));
  return el("div", { class: "block" }, head, el("div", { class: "line" }, el("span", { class: "quiet" }, `${bytes(Math.floor((blob.replace(/=+$/, "").length * 3) / 4))} of data`),
    button("Save", () => saveFile(fileName(uri), "application/octet-stream", [asBytes(blob)]), { icon: "save", class: "button small" })));
}

/** One content block of a tool's result or of a prompt's message. */
export function blockOf(block) {
  if (!isObject(block)) return problem("Not a content block", clip(JSON.stringify(block) ?? "", 200));
  const note = annotated(block.annotations);
  if (block.type === "text") return el("div", { class: "block" }, note, textBox(String(block.text ?? "")));
  if (block.type === "image" || block.type === "audio") return el("div", { class: "block" }, note, media(String(block.data ?? ""), String(block.mimeType ?? ""), block.type));
  if (block.type === "resource" && isObject(block.resource)) return add(el("div", { class: "nested" }, note), [contentOf(block.resource)]);
  if (block.type === "resource_link") {
    const uri = String(block.uri ?? "");
    return el("div", { class: "block link-block" }, note, el("div", { class: "line" }, el("strong", {}, String(block.title ?? block.name ?? uri)), block.mimeType ? chip(block.mimeType) : null, block.size ? el("span", { class: "quiet" }, bytes(block.size)) : null),
      block.description ? el("p", {}, block.description) : null,
      el("div", { class: "line" }, el("span", { class: "mono clip", title: uri }, uri), button("Read", () => tell("read", uri), { class: "button small" })));
  }
  if (block.type === "tool_use" || block.type === "tool_result") return jsonBox(block, block.type);
  return el("div", { class: "block" }, problem(`A content block of the unknown type ${clip(String(block.type), 60)}`, "Hosts leave it out, or show nothing at all."), jsonBox(block, "the block"));
}

function annotated(annotations) {
  if (!isObject(annotations) || !Object.keys(annotations).length) return null;
  const words = [];
  if (annotations.audience) words.push(`for ${[annotations.audience].flat().join(" and ")}`);
  if (annotations.priority !== undefined) words.push(`priority ${annotations.priority}`);
  if (annotations.lastModified) words.push(`of ${annotations.lastModified}`);
  return words.length ? el("p", { class: "quiet" }, words.join(", ")) : null;
}

/** A whole CallToolResult. `text` are the blocks that a host without Apps shows, if they are others. */
export function resultOf(result, { text, milliseconds } = {}) {
  const blocks = text ?? result.content ?? [];
  const head = el("div", { class: "line" }, result.isError ? chip("isError", "bad") : chip("OK", "good"),
    milliseconds === undefined ? null : el("span", { class: "quiet" }, `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`),
    el("span", { class: "quiet" }, blocks.length === 1 ? "1 block" : `${blocks.length} blocks`));
  const node = el("div", { class: "blocks" }, head, blocks.map(blockOf));
  if (!blocks.length) node.append(empty("No content", "A host without Apps has nothing to show, and the model nothing to read. Return a text too."));
  if (result.structuredContent !== undefined) node.append(folded("structuredContent", () => jsonBox(result.structuredContent, "structuredContent"), { open: !blocks.length }));
  if (result._meta !== undefined && Object.keys(result._meta).length) node.append(folded("_meta", () => jsonBox(result._meta, "_meta")));
  node.append(folded("The whole result", () => jsonBox(result, "the result")));
  return node;
}

/** A JSON-RPC error, in words first. */
export function failure(error, what) {
  const advice = { "-32601": "The server does not know this method, or does not offer it.", "-32602": "The arguments do not fit. What is wrong is said above, or at the field.", "-32603": "The server failed inside: look at its log." }[String(error.code)];
  return el("div", { class: "blocks" }, problem(`${what}: ${error.message}`, advice), el("p", { class: "quiet" }, error.code === undefined ? "" : `JSON-RPC error ${error.code}`), error.data === undefined ? null : jsonBox(error.data, "the error's data"));
}
