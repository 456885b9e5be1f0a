/* Creates the frames of Views and exchanges messages with them. A message must come from the window of the frame and from
   the exact origin of the proxy, and messages are sent to that origin only. The preview decides on their content. */

import { api } from "./api.js";
import { on, tell } from "./state.js";

const LARGEST = 4 * 1024 * 1024;
const MOST_AT_ONCE = 2000;
const MOST_A_SECOND = 500;  // more than the preview accepts from a View: more would block the page itself
const frames = new Map();  // view id -> ViewFrame

export class ViewFrame {
  constructor(info, onMessage) {
    this.info = info;
    this.onMessage = onMessage;
    this.loads = 0;
    this.counted = 0;
    this.count = 0;
    const node = document.createElement("iframe");
    node.setAttribute("sandbox", info.outerSandbox);  // of the proxy; that of the View is in `sandbox` of its info
    if (info.allow) node.allow = info.allow;
    node.title = `App: ${info.title}`;
    node.addEventListener("load", () => {
      this.loads += 1;
      // The proxy never navigates, so another load is not the sandbox.
      if (this.loads > 1) api.notify("view/lost", { viewId: info.viewId, reason: "the sandbox's frame was navigated away" });
    });
    node.src = info.proxyUrl;
    this.node = node;
    frames.set(info.viewId, this);
  }

  /** Whether the View sends too many messages. Its frame is then removed, because nothing else would stop it. */
  floods() {
    const now = performance.now();
    this.count = Math.max(0, this.count - (now - this.counted) / 1000 * MOST_A_SECOND) + 1;
    this.counted = now;
    if (this.count <= MOST_AT_ONCE) return false;
    this.close();
    const reason = `it sent more than ${MOST_AT_ONCE} messages at once, or ${MOST_A_SECOND} a second for long`;
    api.notify("view/lost", { viewId: this.info.viewId, reason });
    return true;
  }

  send(message) { this.node.contentWindow?.postMessage(message, this.info.proxyOrigin); }

  close() {
    frames.delete(this.info.viewId);
    this.node.remove();
  }
}

addEventListener("message", ({ source, origin, data }) => {
  if (source === null) return;
  for (const frame of frames.values()) {
    if (source !== frame.node.contentWindow) continue;
    if (frame.floods()) return;
    if (origin !== frame.info.proxyOrigin) { tell("finding", { viewId: frame.info.viewId, title: "A message from another origin was thrown away", text: `It came from ${origin}.` }); return; }
    let text;
    try { text = JSON.stringify(data); } catch { text = undefined; }
    if (text === undefined || text.length > LARGEST) { tell("finding", { viewId: frame.info.viewId, title: "A message was thrown away", text: text === undefined ? "It cannot be written as JSON." : "It is larger than 4 MiB." }); return; }
    frame.onMessage(data);
    api.notify("view/message", { viewId: frame.info.viewId, message: data });
    return;
  }
});

/** Keep an empty document of the site of the proxies, so that their process is already running. */
function warm(origin) {
  if (!origin?.includes("*") || document.getElementById("warm")) return;
  const node = document.createElement("iframe");
  node.id = "warm";
  node.hidden = true;
  node.title = "Nothing";
  node.setAttribute("sandbox", "allow-same-origin");
  node.src = `${origin.replace("*", "warm")}/warm`;
  document.body.append(node);
}

/** Send messages to Views, once their frames exist. */
export function start() {
  on("hello", ({ sandbox }) => requestIdleCallback(() => warm(sandbox?.origin), { timeout: 2000 }));
  api.on("view/message", ({ viewId, message }) => {
    const frame = frames.get(viewId);
    if (frame) frame.send(message);
    else waiting.set(viewId, [...(waiting.get(viewId) ?? []), message]);
  });
}
const waiting = new Map();

/** Messages that arrived before the frame: they may overtake the answer that names the View. */
export function flush(frame) {
  for (const message of waiting.get(frame.info.viewId) ?? []) frame.send(message);
  waiting.delete(frame.info.viewId);
}
