/* Images of content blocks and of data, with zoom. */

const DRAWABLE = /^image\/(png|jpeg|jpg|gif|webp|avif|bmp|svg\+xml|x-icon|vnd\.microsoft\.icon)$/i;
const ZOOMS = [0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8];
const MAX_IMAGES = 60;

/** What the first bytes of base64 say it is. */
function sniffed(data) {
  const starts = { iVBORw0KGgo: "image/png", "/9j/": "image/jpeg", R0lGOD: "image/gif", UklGR: "image/webp", Qk: "image/bmp", PHN2Zy: "image/svg+xml" };
  return Object.entries(starts).find(([start]) => data.startsWith(start))?.[1];
}

/** Images as {type, data} (base64), {url} or {uri}, each with what there is of alt, wherever a result has them. */
function imagesOf(result) {
  const found = [];
  const add = (value, alt, depth = 0) => {
    if (found.length >= MAX_IMAGES || depth > 4) return;
    if (typeof value === "string") {
      const match = /^data:(image\/[a-z0-9.+-]+)(;[a-z0-9=-]+)*,/i.exec(value.slice(0, 200));
      if (match && DRAWABLE.test(match[1])) found.push({ url: value, alt });
      else if (isLink(value)) found.push({ url: value, alt });
      else if (value.length > 40 && /^[A-Za-z0-9+/]{40}/.test(value) && sniffed(value)) found.push({ type: sniffed(value), data: value, alt });
      else if (/^\s*<svg[\s>]/i.test(value.slice(0, 200))) found.push({ url: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(value)}`, alt });
    } else if (Array.isArray(value)) {
      for (const one of value) add(one, alt, depth + 1);
    } else if (isObject(value)) {
      const words = [value.alt, value.title, value.description, value.caption, value.name].find((one) => typeof one === "string" && one) ?? alt;
      const data = [value.data, value.blob, value.base64].find((one) => typeof one === "string" && one);
      const type = value.mimeType ?? value.mime_type ?? (data && sniffed(data));
      if (data && DRAWABLE.test(type)) found.push({ type, data, alt: words });
      else if (typeof value.text === "string" && DRAWABLE.test(value.mimeType)) add(value.text, words, depth + 1);
      else if (typeof value.uri === "string" && !isLink(value.uri) && DRAWABLE.test(value.mimeType)) found.push({ uri: value.uri, alt: words });
      else for (const key of ["url", "uri", "src", "image", "images", "resource", "data"]) if (Object.hasOwn(value, key)) add(value[key], words, depth + 1);
    }
  };
  for (const block of blocksOf(result)) if (block.type !== "text") add(block.type === "resource" ? block.resource : block);
  if (!found.length) add(dataOf(result));
  return found;
}

/** Draw bytes without an address: for hosts whose policy has no images of `data:`. */
async function painted(data, type) {
  const bytes = Uint8Array.from(atob(data.replace(/\s/g, "")), (char) => char.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type }));
  const canvas = el("canvas", { width: bitmap.width, height: bitmap.height });
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  return canvas;
}

function imageFigure(image, caption, alone) {
  const alt = spec.alt ?? image.alt ?? caption ?? "";
  const stage = el("div", { class: "stage fits", tabindex: "0", role: "group", "aria-label": "Image; plus and minus zoom" });
  const percent = el("span", { class: "quiet", role: "status" });
  let shown = null, zoom = 0;  // 0: as large as fits
  const wide = () => shown?.naturalWidth || shown?.width || 300;
  function apply(next, around) {
    zoom = next;
    stage.classList.toggle("fits", !zoom);
    stage.classList.toggle("zoomed", Boolean(zoom));
    const before = { x: stage.scrollLeft + (around?.x ?? stage.clientWidth / 2), y: stage.scrollTop + (around?.y ?? stage.clientHeight / 2), w: stage.scrollWidth, h: stage.scrollHeight };
    if (shown) shown.style.width = zoom ? `${wide() * zoom}px` : "";
    percent.textContent = zoom ? `${Math.round(zoom * 100)} %` : "Fits";
    stage.scrollLeft = before.x / before.w * stage.scrollWidth - (around?.x ?? stage.clientWidth / 2);
    stage.scrollTop = before.y / before.h * stage.scrollHeight - (around?.y ?? stage.clientHeight / 2);
  }
  const now = () => zoom || (shown ? shown.getBoundingClientRect().width / wide() : 1);
  const step = (up, around) => apply(up ? ZOOMS.find((one) => one > now() + 0.01) ?? 8 : ZOOMS.findLast((one) => one < now() - 0.01) ?? 0.1, around);
  stage.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = stage.getBoundingClientRect();
    step(event.deltaY < 0, { x: event.clientX - box.left, y: event.clientY - box.top });
  }, { passive: false });
  stage.addEventListener("keydown", ({ key }) => { if (key === "+" || key === "=") step(true); else if (key === "-") step(false); else if (key === "0") apply(0); });
  stage.addEventListener("dblclick", () => apply(zoom ? 0 : Math.max(1, now() * 2)));
  let held = null;
  stage.addEventListener("pointerdown", (event) => { if (zoom && event.pointerType === "mouse") { held = [event.clientX + stage.scrollLeft, event.clientY + stage.scrollTop]; stage.setPointerCapture(event.pointerId); stage.classList.add("held"); } });
  stage.addEventListener("pointermove", (event) => { if (held) { stage.scrollLeft = held[0] - event.clientX; stage.scrollTop = held[1] - event.clientY; } });
  for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, () => { held = null; stage.classList.remove("held"); });

  const tools = [button("−", () => step(false), { class: "button icon", "aria-label": "Smaller" }), button("+", () => step(true), { class: "button icon", "aria-label": "Larger" }), button("Fit", () => apply(0)), button("100 %", () => apply(1))];
  const put = (node) => { shown = node; stage.replaceChildren(node); apply(0); };
  const refused = (why) => {
    stage.replaceWith(el("div", { class: "state" }, el("span", {}, why, " ", image.url && isLink(image.url) ? link(image.url, image.url) : "")));
    for (const tool of [...tools, percent]) tool.remove();
  };
  function load(url, data, type) {
    const node = el("img", { alt, draggable: "false", error: () => {
      if (!data) return refused("This image cannot be shown here.");
      painted(data, type).then((canvas) => { canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", alt); put(canvas); }, () => refused("This image cannot be read."));
    }, load: () => { if (shown === node) apply(0); } });
    node.src = url;
    put(node);
  }
  async function read() {
    const { ok, value, error } = await ask("resources/read", { uri: image.uri });
    const part = ok && Array.isArray(value.contents) ? value.contents.find((one) => isObject(one) && (one.blob || one.text)) : null;
    const type = part?.mimeType ?? "";
    if (!part || !DRAWABLE.test(type)) return refused(`The image ${clip(image.uri, 200)} cannot be read${error ? `: ${error}` : "."}`);
    if (part.blob) load(`data:${type};base64,${part.blob}`, part.blob, type);
    else load(`data:${type};charset=utf-8,${encodeURIComponent(part.text)}`);
  }
  const allowed = (url) => /^data:/i.test(url) || (spec.images ?? []).some((origin) => { try { return new URL(url).origin === new URL(origin).origin; } catch { return false; } });
  if (image.data) load(`data:${image.type};base64,${image.data}`, image.data, image.type);
  else if (image.uri) { if (own(state.caps, "serverResources")) read(); else queueMicrotask(() => refused(`The host cannot read ${clip(image.uri, 200)}.`)); }
  else if (allowed(image.url)) load(image.url);
  else queueMicrotask(() => refused("This image is on another server:"));
  return el("figure", {}, el("div", { class: "bar" }, alone ? heading() : null, el("span", { class: "grow" }), percent, ...tools, alone ? expander() : null), stage, caption ? el("figcaption", { dir: "auto" }, caption) : null);
}

views.image = {
  show(result) {
    const images = imagesOf(result);
    if (!images.length) return null;
    const words = textsOf(result).filter((text) => text.trim() && !/^\s*[[{]/.test(text) && !/^data:/i.test(text) && text.length < 2000 && !sniffed(text) && !isLink(text.trim())).join("\n");
    const alone = images.length === 1;
    return el("section", { class: "view grows" }, alone ? null : heading(), ...images.map((image) => imageFigure(image, clip(alone ? words || image.alt || "" : image.alt || "", 1000) || null, alone)));
  },
};
