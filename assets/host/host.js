/* The settings of the host for Views: context, quirks of other hosts, profile of the sandbox, questions to the user. */

import { api } from "./api.js";
import { announce, byId, el, fill, iconButton, labelled, select, tick } from "./dom.js";
import { on, showPane, store, tell } from "./state.js";
import { SIZES, sizing } from "./view_card.js";
import { allCards, changeContext, stage } from "./views.js";

const QUIRKS = [
  ["dropMeta", "Drop _meta", "Results lose their _meta on the way to the View."],
  ["dropStructuredContent", "Drop structuredContent", "Data has to come by text or _meta then."],
  ["noToolInput", "No tool-input", "The View is never told its arguments."],
  ["inputBeforeInitialized", "Input before initialized", "tool-input comes as soon as initialize is answered."],
  ["hiddenUntilInitialized", "Hidden until initialized", "The frame is not shown, and has no size, before."],
  ["opaqueOrigin", "Opaque origin", "No storage, origin “null”."],
  ["errorResult", "isError result", "The View is told that the tool failed."],
  ["openaiGlobal", "window.openai", "There, as in ChatGPT, but without functions."],
];
const PROFILES = { strict: "strict: as the specification says, all else closed", compat: "compat: as lax as the official example host", opaque: "opaque: strict, without an origin of its own" };
const LOCALES = ["en-US", "en-GB", "de-DE", "fr-FR", "es-ES", "pt-BR", "ja-JP", "zh-CN", "ar-EG", "he-IL", "hi-IN"];
const ZONES = ["UTC", "Europe/Berlin", "America/New_York", "America/Los_Angeles", "Asia/Tokyo", "Asia/Kolkata", "Australia/Sydney"];
const NOTCH = { top: 44, right: 0, bottom: 34, left: 0 };

export const consent = { links: "ask", messages: "allow", downloads: "ask" };
const dark = matchMedia("(prefers-color-scheme: dark)");
let themed = "page";

/** The theme for Views: that of the page, or a fixed one. */
export function viewTheme() {
  const forced = document.documentElement.dataset.theme;
  return themed !== "page" ? themed : forced || (dark.matches ? "dark" : "light");
}
const retheme = () => { if (viewTheme() !== store.context.theme) change({ theme: viewTheme() }); };
const change = (context) => changeContext(context).catch((error) => announce(error.message, true));
const setQuirks = () => api.request("quirks/set", { quirks: store.quirks }).then(() => announce("Views that are opened from now on are treated so"), (error) => announce(error.message, true));

function insets() {
  const now = { top: 0, right: 0, bottom: 0, left: 0, ...store.context.safeAreaInsets };
  const inputs = {};
  const send = () => change({ safeAreaInsets: Object.fromEntries(Object.entries(inputs).map(([side, input]) => [side, Number(input.value) || 0])) });
  const node = el("fieldset", { class: "quad" }, el("legend", {}, "Safe area, px"), Object.keys(now).map((side) => {
    inputs[side] = el("input", { class: "field", type: "number", min: 0, max: 400, value: now[side], change: send });
    return labelled(side, inputs[side]);
  }));
  const notch = tick("A phone’s notch and bar", false, (isOn) => { for (const side of Object.keys(now)) inputs[side].value = isOn ? NOTCH[side] : 0; send(); });
  return [node, notch];
}

function device() {
  const has = { touch: false, hover: true, ...store.context.deviceCapabilities };
  const send = () => change({ deviceCapabilities: { ...has } });
  return el("div", { class: "ticks" }, ["touch", "hover"].map((name) => tick(name, has[name], (isOn) => { has[name] = isOn; send(); })));
}

function listed(name, all, key, now) {
  const choices = el("datalist", { id: `all-${key}` }, all.map((one) => el("option", { value: one })));
  const input = el("input", { class: "field", list: choices.id, value: now, autocomplete: "off", spellcheck: "false" });
  input.addEventListener("change", () => { if (input.value.trim()) change({ [key]: input.value.trim() }); });
  const node = labelled(name, input);
  node.append(choices);
  return node;
}

function draw() {
  const { hello, context } = store;
  const heights = [["0", "follows the app"], ["200", "200 px"], ["400", "400 px"], ["600", "600 px"], ["800", "800 px"]];
  const resize = () => { for (const card of allCards()) { card.width = sizing.width; card.height = sizing.height; card.widths.value = sizing.width; card.layOut(); } };
  fill(byId("host-body"),
    section("Surroundings", "Told to all Views at once.",
      labelled("Theme", select([["page", "as this page"], ["light", "light"], ["dark", "dark"]], themed, (value) => { themed = value; retheme(); })),
      listed("Locale", LOCALES, "locale", context.locale ?? "en-US"), listed("Time zone", ZONES, "timeZone", context.timeZone ?? "UTC"),
      labelled("Platform", select([["web", "web"], ["desktop", "desktop"], ["mobile", "mobile"]], context.platform ?? "web", (platform) => change({ platform }))), device()),
    section("Container", "",
      labelled("Width", select(SIZES.map(([value, text]) => [value, value === "fill" ? "all there is" : `${text} px`]), sizing.width, (value) => { sizing.width = value; resize(); })),
      labelled("Height", select(heights, String(sizing.height), (value) => { sizing.height = Number(value); resize(); })),
      labelled("Display modes offered", select([["inline fullscreen pip", "all"], ["inline fullscreen", "inline, fullscreen"], ["inline", "inline only"]], (context.availableDisplayModes ?? ["inline", "fullscreen", "pip"]).join(" "), (value) => change({ availableDisplayModes: value.split(" ") }))), insets()),
    section("Sandbox", "For Views that are opened from now on.",
      labelled("Profile", select((hello.profiles ?? []).map((one) => [one, PROFILES[one] ?? one]), store.profile, (profile) => { store.profile = profile; api.request("profile/set", { profile }).catch((error) => announce(error.message, true)); })),
      tick("Keep Views open", stage.keeps, (isOn) => { stage.keeps = isOn; }, { hint: "A call leaves those of earlier calls open." })),
    section("When an app asks", "",
      ...[["links", "to open a link"], ["messages", "to send a message"], ["downloads", "to save a file"]].map(([key, text]) => labelled(text, select([["ask", "ask me"], ["allow", "allow"], ["deny", "deny"]], consent[key], (value) => { consent[key] = value; })))),
    section("Quirks of other hosts", "For Views that are opened from now on.", ...QUIRKS.map(([key, text, hint]) => tick(text, Boolean(store.quirks[key]), (isOn) => { store.quirks[key] = isOn; setQuirks(); tell("quirks"); }, { hint }))));
}

const section = (title, hint, ...children) => el("section", { class: "host-part" }, el("h3", {}, title), hint ? el("p", { class: "hint" }, hint) : null, children);

export function toggle(isOpen = !document.body.classList.contains("has-host")) {
  document.body.classList.toggle("has-host", isOpen);
  byId("host-button").setAttribute("aria-expanded", String(isOpen));
  if (isOpen) { showPane("host"); byId("host-title").focus(); } else { byId("host-button").focus(); }
}

export function start() {
  on("hello", () => {
    const wanted = { theme: viewTheme(), locale: store.context.locale ?? navigator.language, timeZone: store.context.timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone, platform: store.context.platform ?? "web", deviceCapabilities: store.context.deviceCapabilities ?? { touch: matchMedia("(any-pointer: coarse)").matches, hover: matchMedia("(any-hover: hover)").matches }, availableDisplayModes: ["inline", "fullscreen", "pip"], displayMode: "inline" };
    change(wanted);
    draw();
  });
  dark.addEventListener("change", retheme);
  on("theme", retheme);
  byId("host-button").addEventListener("click", () => toggle());
  byId("host-head").append(iconButton("close", "Close the host’s settings", () => toggle(false)));
}
