/* Pages that the server wants visited: a page is opened by the user's press only, its host is shown before. That what
   happens there is over the server says by itself, and it is said here. */

import { api } from "./api.js";
import { announce, byId, chip, el, fill, iconButton } from "./dom.js";

const visits = new Map();  // elicitation id -> {host, message, isOver}

const target = (url) => { try { return new URL(url); } catch { return null; } };

/** The host of an address, and the whole of it. */
export function addressOf(url) {
  const to = target(url);
  return el("div", { class: "address" }, el("strong", {}, to ? to.host : "Not an address"), el("span", { class: "mono wrap" }, String(url)));
}

/** A link that opens it in a tab of its own, without a way back; null if it is no page. `opened` is called after. */
export function opener(url, opened, label = "Open it") {
  const to = target(url);
  if (to === null || !["http:", "https:"].includes(to.protocol)) return null;
  return el("a", { class: "button primary", href: to.href, target: "_blank", rel: "noopener noreferrer", click: () => setTimeout(opened, 0) }, label);
}

/** The user was sent there: until the server says that it is over, this stands at the top. */
export function visited({ elicitationId, message, url }) {
  if (!elicitationId || visits.has(elicitationId)) return;
  visits.set(elicitationId, { host: target(url)?.host ?? String(url), message, isOver: false });
  draw();
}

function draw() {
  const place = byId("visits");
  place.hidden = !visits.size;
  fill(place, [...visits].map(([id, { host, message, isOver }]) => el("div", { class: "visit", "data-over": String(isOver) },
    chip(isOver ? "complete" : "opened", isOver ? "good" : ""), el("div", {}, el("strong", {}, host), el("span", { class: "quiet" }, ` ${isOver ? "The server says that it is complete." : "The server will say when it is complete."} ${message ?? ""}`)),
    iconButton("close", `Forget the visit to ${host}`, () => { visits.delete(id); draw(); }, { class: "button only small" }))));
}

/** What a call was refused for (-32042): each page with its link, and the call again. */
export function required(elicitations, again) {
  return el("div", { class: "blocks" }, el("p", {}, "The server wants this visited first; then call again."), elicitations.map((one) => {
    const open = opener(one.url, () => visited(one));
    return el("div", { class: "block stack" }, one.message ? el("p", { class: "pre", dir: "auto" }, String(one.message)) : null, addressOf(one.url), open ? el("div", { class: "actions" }, open) : el("p", { class: "wrong" }, "Only http and https addresses are opened."));
  }), again);
}

export function start() {
  api.on("elicitation/complete", ({ elicitationId }) => {
    const one = visits.get(elicitationId);
    if (!one) return;
    one.isOver = true;
    draw();
    announce(`${one.host}: complete`);
  });
}
