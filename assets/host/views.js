/* The stage: a card for each View that is open. The page draws its border and title, whatever the app asks for. */

import { api } from "./api.js";
import { announce, byId, empty, problem } from "./dom.js";
import { ViewCard } from "./view_card.js";
import { on, showPane, store, tell } from "./state.js";

const cards = new Map();  // view id -> ViewCard
let chosen = null;  // the name of the tool that is shown beside the Views
const early = new Map();  // view id -> events that came before the card
let newest = 0;  // the number of the last call with a View
export const stage = { keeps: false };

/** Open the View of a call; of the Views before it only those stay that are to be kept. */
export async function openView(tool, callId) {
  const before = [...cards.values()];
  const number = newest += 1;
  document.body.classList.add("has-stage");
  showPane("stage");  // before anything is measured
  if (!stage.keeps) for (const card of before) card.close("another call");
  try {
    const info = await api.request("view/open", { callId, context: { containerDimensions: ViewCard.dimensions(byId("views")) } });
    const card = put(new ViewCard(info, tool));
    if (number !== newest && !stage.keeps) card.close("another call");  // which began while this View was opened
    return card;
  } catch (error) {
    byId("views").append(problem(`The app of ${tool.name} cannot be shown`, error.message, { role: "alert" }));
    announce(`The app cannot be shown: ${error.message}`, true);
    return null;
  }
}

function put(card, place = null) {
  for (const one of byId("views").querySelectorAll(":scope > .problem, :scope > .empty")) one.remove();
  cards.set(card.info.viewId, card);
  if (place) place.replaceWith(card.node); else byId("views").prepend(card.node);
  card.begin();
  card.mark(chosen);
  for (const event of early.get(card.info.viewId) ?? []) card.heard(event);
  early.delete(card.info.viewId);
  tell("views", cards);
  return card;
}

/** The same call in a new View, in the place of the old one. */
export async function reload(card) {
  card.isReloading = true;
  try {
    const info = await api.request("view/reload", { viewId: card.info.viewId });
    const next = new ViewCard(info, card.tool, card);
    card.leave();
    cards.delete(card.info.viewId);
    put(next, card.node);
    announce(`${info.title} was loaded again`);
  } catch (error) {
    card.isReloading = false;
    card.fail("It could not be loaded again", error.message);
  }
}

export function gone(card) {
  cards.delete(card.info.viewId);
  card.node.remove();
  if (!cards.size) nothing();
  tell("views", cards);
}

export function nothing() {
  if (byId("views").firstChild) return;
  byId("views").append(empty("No app is open", "Call a tool that has one; it runs here in its sandbox, as a strict host would run it."));
}

export const allCards = () => [...cards.values()];
export const cardOf = (viewId) => cards.get(viewId);

export function start() {
  nothing();
  api.on("view/event", ({ viewId, event }) => {
    const card = cards.get(viewId);
    if (card) card.heard(event);
    else { const all = early.get(viewId) ?? []; all.push(event); early.set(viewId, all); }
  });
  api.on("view/stale", ({ viewId, why }) => {
    const card = cards.get(viewId);
    if (!card || card.isReloading) return;
    announce(`Loading ${card.info.title} again: ${why}`);
    reload(card);
  });
  on("pick", ({ kind, tool }) => { chosen = kind === "tool" ? tool.name : null; for (const card of cards.values()) card.mark(chosen); });
  on("lost", () => { for (const card of cards.values()) card.end("The connection to the preview was lost", "Its host is gone. Call the tool again."); cards.clear(); });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const large = [...cards.values()].find((card) => card.mode === "fullscreen");
    if (large && !document.querySelector("dialog[open]")) { large.setMode("inline"); large.focusHead(); }
  });
  tell("views", cards);
}

/** Tell all Views, and those to come, of their surroundings. */
export async function changeContext(context) {
  Object.assign(store.context, context);
  if ("theme" in context || "safeAreaInsets" in context) for (const card of cards.values()) card.dress();
  await api.request("view/context", { context });
}
