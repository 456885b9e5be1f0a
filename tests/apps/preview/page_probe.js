/* What tests look for in the page of the preview: runs first in every document of every frame. */
"use strict";
window.find = {
  /** What a control is called, as a screen reader says it: enough of the rules for what this page does. */
  name(node) {
    const by = node.getAttribute("aria-labelledby");
    if (node.hasAttribute("aria-label")) return node.getAttribute("aria-label");
    if (by) return by.split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim();
    if (node.labels?.length) return [...node.labels].map((one) => one.textContent).join(" ").trim();
    return (node.textContent.trim() || node.title || "").trim();
  },
  shown: (node) => node.checkVisibility({ visibilityProperty: true }),
  all(root = document) {
    const controls = "button, input, select, textarea, a[href], summary, [role=separator], [role=grid]";
    return [...root.querySelectorAll(controls)].filter(find.shown);
  },
  one(name, root = document) {
    const fit = find.all(root).filter((node) => find.name(node) === name);
    const names = () => find.all(root).map(find.name).join(" | ");
    if (fit.length !== 1) throw new Error(`${fit.length} controls ${JSON.stringify(name)} among ${names()}`);
    return fit[0];
  },
  write(name, value, root = document) {
    const node = find.one(name, root);
    if (node.type === "checkbox" || node.type === "radio") {
      if (node.checked !== value) node.click();
      return;
    }
    node.focus();
    if (node.tagName === "SELECT") {
      const option = [...node.options].find((one) => one.text === value);
      if (!option) throw new Error(`${name} has no ${value}: ${[...node.options].map((one) => one.text)}`);
      node.value = option.value;
    } else node.value = value;
    node.dispatchEvent(new Event("input", { bubbles: true }));
    node.dispatchEvent(new Event("change", { bubbles: true }));
  },
  press(name, root = document) {
    const node = find.one(name, root);
    node.focus();
    node.click();
  },
};

/** Forms without the page around them. */
window.bench = {
  async form(schema) {
    const { makeForm } = await import("/form.js");
    return makeForm(JSON.parse(schema));
  },
  /** Do the steps in a form: `[control, value]` to write, `[control]` to press, `["group: choice"]` for a radio. */
  async act(schema, steps) {
    document.getElementById("bench")?.remove();
    const place = document.body.appendChild(document.createElement("div"));
    place.id = "bench";
    const form = await bench.form(schema);
    place.append(form.node);
    for (const [name, ...value] of steps) {
      if (value.length) find.write(name, value[0], place);
      else if (find.all(place).some((node) => find.name(node) === name)) find.press(name, place);
      else {
        const [group, word] = name.split(": ");
        find.press(word, [...place.querySelectorAll("[role=radiogroup]")].find((one) => find.name(one) === group));
      }
    }
    await form.settled();
    const { value, problems } = form.read();
    const alarms = [...place.querySelectorAll(".wrong")].filter(find.shown).length;
    place.remove();
    return { value: JSON.stringify(value), problems: problems.map(({ path, text }) => [path.join("."), text]), alarms };
  },
  /** A value as JSON, into a form and out again. */
  async through(schema, value) {
    const form = await bench.form(schema);
    form.write(JSON.parse(value));
    return JSON.stringify(form.read({ quiet: true }).value);
  },
};

const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const colour = (text) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const over = ([r, g, b, a], below) => below.map((one, at) => ([r, g, b][at] * a) / 255 + one * (1 - a / 255));
const behind = (node) => {
  const layers = [];
  for (let at = node; at && layers.at(-1)?.[3] !== 255; at = at.parentElement) layers.push(colour(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
};
const linear = (one) => (one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4);
const luminance = (rgb) => { const [r, g, b] = rgb.map(linear); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ratio = (front, back) => {
  const [low, high] = [luminance(over(front, back)), luminance(back)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};

window.looks = {
  /** Every text that is seen and has less than 4.5:1, every border of a field with less than 3:1. */
  faint() {
    const found = new Set();
    let seen = 0;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
      const node = text.parentElement;
      if (!text.data.trim() || node.closest(":disabled, .old, .seen, option")) continue;
      if (!node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
      seen += 1;
      const got = ratio(colour(getComputedStyle(node).color), behind(node));
      if (got < 4.5) found.add(`${text.data.trim().slice(0, 30)} ${node.className} ${got.toFixed(2)}`);
    }
    for (const node of document.querySelectorAll("input.field, select.field, textarea.field, .segments")) {
      if (!find.shown(node) || node.disabled) continue;
      const got = ratio(colour(getComputedStyle(node).borderTopColor), behind(node.parentElement));
      if (got < 3) found.add(`border of ${find.name(node)} ${got.toFixed(2)}`);
    }
    return { found: [...found], seen };
  },
  /** What reaches beyond the screen, and is in no box that scrolls or cuts it off. */
  wide() {
    const isKept = (node) => {
      for (let at = node.parentElement; at && at !== document.body; at = at.parentElement) if (getComputedStyle(at).overflowX !== "visible") return true;
      return false;
    };
    const found = [...document.body.querySelectorAll("*")].filter((node) => {
      if (!find.shown(node) || node.closest(".seen, .skip")) return false;
      const { left, right, width } = node.getBoundingClientRect();
      return width && (right > innerWidth + 1 || left < -1) && !isKept(node);
    });
    const names = found.map((node) => `${node.tagName} ${node.className} ${node.textContent.slice(0, 30)}`);
    return names.concat(document.scrollingElement.scrollWidth > innerWidth ? ["the page"] : []);
  },
};
