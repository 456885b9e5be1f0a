// Measures what a View renders, in its own frame: content, overflow, contrast, controls, focus.
// Evaluates to an object of functions. Spec: WCAG 2.2, 1.4.3 (contrast), 1.4.10 (reflow), 2.4.3, 2.4.7, 4.1.2.
(() => {
  "use strict";
  const MOST = 20;
  const SKIPPED = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "TITLE", "HEAD", "META", "LINK"]);
  const CONTROLS = [
    "a[href]", "button", "input:not([type=hidden])", "select", "textarea", "summary", "[contenteditable='']",
    "[contenteditable='true']", "[tabindex]", "[role=button]", "[role=link]", "[role=checkbox]", "[role=switch]",
    "[role=radio]", "[role=tab]", "[role=menuitem]", "[role=option]", "[role=slider]", "[role=textbox]", "[role=combobox]",
  ].join(",");
  const COMPOSITE = "[role=grid],[role=treegrid],[role=tablist],[role=toolbar],[role=menu],[role=menubar],[role=listbox]," +
    "[role=radiogroup],[role=tree],[role=application]";

  const all = function* (root) {
    for (const element of root.querySelectorAll("*")) {
      yield element;
      if (element.shadowRoot) yield* all(element.shadowRoot);
    }
  };
  const isShown = (element) => {
    if (SKIPPED.has(element.tagName)) return false;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true })) return false;
    const { width, height } = element.getBoundingClientRect();
    return width > 1 && height > 1;
  };
  const nameOf = (element) => {
    const id = element.id ? `#${element.id}` : "";
    const kind = element.classList.length ? `.${[...element.classList].slice(0, 2).join(".")}` : "";
    return `<${element.localName}${id || kind}>`.slice(0, 80);
  };
  const said = (text) => text.trim().replace(/\s+/g, " ").slice(0, 60);

  // ------------------------------------------------------------------------------------ something
  const texts = function* () {
    for (const element of all(document)) {
      if (SKIPPED.has(element.tagName)) continue;
      const own = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
      if (own.length && isShown(element)) yield [element, own];
    }
  };
  // The pixels of a picture of this frame (a PNG in base64), without some elements, whose pixels are 0.
  const pixels = async (picture, left = []) => {
    const bytes = Uint8Array.from(atob(picture), (letter) => letter.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const pen = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    pen.drawImage(bitmap, 0, 0);
    for (const { x, y, width, height } of left.map((element) => element.getBoundingClientRect())) pen.clearRect(x, y, width, height);
    return pen.getImageData(0, 0, bitmap.width, bitmap.height);
  };
  // Whether something is painted besides a background of one colour and the icons of broken pictures.
  const shows = async (picture) => {
    const isBroken = (element) => element.tagName === "IMG" && element.complete && !element.naturalWidth;
    const { data } = await pixels(picture, [...all(document)].filter(isBroken));
    const counts = new Map();
    for (const word of new Uint32Array(data.buffer)) if (word) counts.set(word, (counts.get(word) ?? 0) + 1);
    const [ground] = [...counts].reduce((one, other) => (other[1] > one[1] ? other : one), [0, 0]);
    const parts = (word) => [word & 255, (word >> 8) & 255, (word >> 16) & 255];
    const differs = (word) => parts(word).some((part, at) => Math.abs(part - parts(ground)[at]) > 8);
    return [...counts].reduce((sum, [word, count]) => sum + (differs(word) ? count : 0), 0) > 20;
  };

  // The browser's message about refused code, if the View shows it.
  const refusal = () => {
    for (const [, own] of texts()) {
      const text = own.map((node) => node.data).join(" ").trim().replace(/\s+/g, " ");
      if (/violates the following Content Security Policy directive/i.test(text)) return text.slice(0, 200);
    }
    return "";
  };

  // ----------------------------------------------------------------------------------------- size
  const scrolls = (element) => {
    for (let up = element.parentElement; up && up !== document.body && up !== document.documentElement; up = up.parentElement) {
      if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(up).overflowX)) return true;
    }
    return false;
  };
  const overflow = () => {
    const root = document.scrollingElement ?? document.documentElement;
    const by = Math.max(root.scrollWidth, document.documentElement.scrollWidth) - window.innerWidth;
    const wide = [];
    if (by > 1) {
      for (const element of all(document)) {
        if (wide.length < 5 && isShown(element) && element.getBoundingClientRect().right > window.innerWidth + 1 && !scrolls(element)) {
          wide.push(nameOf(element));
        }
      }
    }
    return { by, wide, width: window.innerWidth };
  };

  // ------------------------------------------------------------------------------------- contrast
  const brush = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const colour = (text) => {
    if (!known.has(text)) {
      brush.clearRect(0, 0, 1, 1);
      brush.fillStyle = text;
      brush.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
      known.set(text, [r, g, b, a / 255]);
    }
    return known.get(text);
  };
  const over = ([r, g, b, a], [r2, g2, b2]) => [r * a + r2 * (1 - a), g * a + g2 * (1 - a), b * a + b2 * (1 - a), 1];
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ratio = (one, two) => {
    const [a, b] = [light(one), light(two)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const parentOf = (element) => element.assignedSlot ?? element.parentElement ?? element.getRootNode().host ?? null;
  const line = function* (element) { for (let up = element; up; up = parentOf(up)) yield getComputedStyle(up); };
  // Hides all text, for a picture of the background.
  const veil = new CSSStyleSheet();
  veil.replaceSync(`*, ::before, ::after { transition: none !important; -webkit-text-fill-color: transparent !important;
    text-decoration-color: transparent !important } text, text * { fill: transparent !important }`);
  const veiled = (isVeiled) => {
    for (const root of [document, ...[...all(document)].flatMap((element) => element.shadowRoot ?? [])]) {
      root.adoptedStyleSheets = [...root.adoptedStyleSheets.filter((sheet) => sheet !== veil), ...(isVeiled ? [veil] : [])];
    }
  };
  // The boxes in which a text is painted, without those that are scrolled or clipped away.
  const places = (element, own) => own.flatMap((node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const isHit = ({ x, y, width, height }) => element.getRootNode().elementsFromPoint(x + width / 2, y + height / 2).includes(element);
    return [...range.getClientRects()].filter((box) => getComputedStyle(element).pointerEvents === "none" || isHit(box));
  });
  const contrast = async (picture) => {
    veiled(false);
    const { data, width, height } = await pixels(picture);
    const poor = new Map();
    let looked = 0;
    for (const [element, own] of texts()) {
      if (element.closest(":disabled, [aria-disabled=true], [inert]")) continue;
      const style = getComputedStyle(element);
      const isDrawing = element instanceof SVGElement;
      const paint = isDrawing ? style.fill : style.webkitTextFillColor;
      if (!CSS.supports("color", paint)) continue;  // a pattern, or none
      const ink = [...colour(paint)];
      for (const { opacity } of line(element)) ink[3] *= Number(opacity);
      if (isDrawing) ink[3] *= Number(style.fillOpacity);
      const found = [];
      for (const box of places(element, own)) {
        const step = Math.max(1, Math.sqrt(box.width * box.height) / 20);
        for (let y = Math.max(0, box.top); y < Math.min(height, box.bottom); y += step) {
          for (let x = Math.max(0, box.left); x < Math.min(width, box.right); x += step) {
            const at = (Math.floor(y) * width + Math.floor(x)) * 4;
            const back = [data[at], data[at + 1], data[at + 2], 1], front = over(ink, back);
            found.push({ back, front, ratio: ratio(front, back) });
          }
        }
      }
      if (!found.length || !ink[3]) continue;
      looked += 1;
      const size = parseFloat(style.fontSize), isBold = Number(style.fontWeight) >= 700;
      const wanted = size >= 24 || (size >= 18.66 && isBold) ? 3 : 4.5;
      // The background may be a picture, so the worst quarter counts.
      const worst = found.sort((one, other) => one.ratio - other.ratio)[Math.floor(found.length / 4)];
      if (worst.ratio >= wanted - 0.01) continue;
      const hex = (rgb) => `#${rgb.slice(0, 3).map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;
      const front = hex(worst.front), back = hex(worst.back);
      if (!poor.has(front + back) && poor.size < MOST) {
        const isBare = !isDrawing && [...line(element)].every(({ backgroundColor, backgroundImage }) => !colour(backgroundColor)[3] && backgroundImage === "none");
        const text = said(own.map((node) => node.data).join(" "));
        poor.set(front + back, { element: nameOf(element), text, ratio: Math.floor(worst.ratio * 100) / 100, wanted, front, back, isBare });
      }
    }
    return { looked, poor: [...poor.values()] };
  };

  // ------------------------------------------------------------------------------------- controls
  const labelled = (element) => {
    if (typeof element.computedName === "string") return element.computedName;
    const by = (element.getAttribute("aria-labelledby") ?? "").split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    const label = [...(element.labels ?? [])].map((one) => one.textContent).join(" ");
    const inner = element.matches("input, select, textarea") ? (/^(submit|button|reset)$/.test(element.type) ? element.value : "") : element.textContent;
    const alt = [...element.querySelectorAll("img[alt], [aria-label], svg title")].map((one) => one.alt ?? one.ariaLabel ?? one.textContent).join(" ");
    return [by, element.ariaLabel, label, inner, alt, element.alt, element.title, element.placeholder].find((one) => one?.trim()) ?? "";
  };
  const usable = () => [...all(document)].filter((element) => element.matches(CONTROLS) && isShown(element) && !element.closest(":disabled, [inert]"));
  const controls = () => usable().map((element) => ({
    element: nameOf(element),
    name: said(labelled(element)),
    text: said(element.textContent),
    // An element that has the focus only for scrolling is not a control, and needs no name.
    isPlain: !element.matches(CONTROLS.replace(",[tabindex]", "")) && !element.hasAttribute("role"),
    isTakenOut: element.getAttribute("tabindex")?.startsWith("-") ?? false,
    isPart: element.tabIndex < 0 && Boolean(element.closest(COMPOSITE)),
    isRadio: element.type === "radio" || element.getAttribute("role") === "radio",
    hasPositive: Number(element.getAttribute("tabindex")) > 0,
    width: Math.round(element.getBoundingClientRect().width),
    height: Math.round(element.getBoundingClientRect().height),
  }));
  const active = () => {
    let element = document.activeElement;
    while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
    return !element || element === document.body || element === document.documentElement || !document.hasFocus() ? null : element;
  };
  const looksOf = (element) => {
    const drawn = [];
    for (let up = element, step = 0; up && step < 3; up = parentOf(up), step += 1) {
      for (const part of [null, "::before", "::after"]) {
        const { outlineStyle, outlineWidth, outlineColor, boxShadow, borderColor, borderWidth, backgroundColor, color, textDecorationLine, opacity } = getComputedStyle(up, part);
        const ring = outlineStyle === "none" || outlineWidth === "0px" ? "" : `${outlineStyle} ${outlineWidth} ${outlineColor}`;
        drawn.push([ring, boxShadow, borderColor, borderWidth, backgroundColor, color, textDecorationLine, opacity].join("|"));
      }
    }
    return drawn.join("\n");
  };
  const drawn = async () => {
    const ends = document.getAnimations().filter((one) => Number.isFinite(one.effect?.getComputedTiming().endTime));
    const wait = new Promise((done) => setTimeout(done, 2000));
    await Promise.race([Promise.allSettled(ends.map((one) => one.finished)), wait]);
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  };
  const before = new Map();
  return {
    shows, drawn, refusal, overflow, veiled, contrast, controls,
    text: () => (document.body?.innerText ?? "").slice(0, 20000),
    // Stores how each control looks without the focus.
    unfocused: () => { active()?.blur(); for (const element of usable()) before.set(element, looksOf(element)); },
    focus: () => {
      const element = active();
      if (!element) return null;
      const looks = before.get(element);
      return {
        element: nameOf(element), index: usable().indexOf(element), name: said(labelled(element)),
        isSeen: looks === undefined || looks !== looksOf(element) || element.matches("input, textarea, select, iframe"),
      };
    },
  };
})()
