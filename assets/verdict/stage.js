// The bare page of `mcpd apps test`: one View in its proxy's frame, and messages between that and the program.
"use strict";
const stage = (window.stage = {
  frame: null,
  origin: "",
  inbox: [],
  wake: null,

  open({ url, origin, sandbox, allow, title, isHidden }) {
    const frame = (stage.frame = document.createElement("iframe"));
    stage.origin = origin;
    frame.setAttribute("sandbox", sandbox);
    if (allow) frame.allow = allow;
    frame.title = title;
    frame.classList.toggle("hidden", isHidden);
    frame.src = url;
    document.body.append(frame);
  },
  reveal() { stage.frame?.classList.remove("hidden"); },
  resize(height) { if (stage.frame) stage.frame.style.height = `${height}px`; },
  remove() { stage.frame?.remove(); stage.frame = null; },
  send(messages) {
    for (const message of messages) stage.frame?.contentWindow.postMessage(message, stage.origin);
  },
  // What the proxy sent since the last time, as soon as there is something.
  async receive() {
    if (!stage.inbox.length) await new Promise((resolve) => { stage.wake = resolve; });
    return stage.inbox.splice(0);
  },
});

addEventListener("message", ({ source, origin, data }) => {
  if (source !== stage.frame?.contentWindow || origin !== stage.origin) return;
  if (stage.inbox.length >= 10_000) return;  // nobody takes so much: a View that floods is not to fill the memory
  let text = "null";
  try { text = JSON.stringify(data) ?? text; } catch { /* circular, a bigint: no JSON, and so no message */ }
  stage.inbox.push(text);
  stage.wake?.();
});
