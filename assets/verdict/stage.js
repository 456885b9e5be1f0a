// The bare page of `mcpd apps test`: frames the proxy of one View, and passes messages between it and the program.
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
  // Waits for messages of the proxy and returns all of them since the last call.
  async receive() {
    if (!stage.inbox.length) await new Promise((resolve) => { stage.wake = resolve; });
    return stage.inbox.splice(0);
  },
});

addEventListener("message", ({ source, origin, data }) => {
  if (source !== stage.frame?.contentWindow || origin !== stage.origin) return;
  if (stage.inbox.length >= 10_000) return;  // a View that floods must not fill the memory
  let text = "null";
  try { text = JSON.stringify(data) ?? text; } catch { /* circular, or with a bigint: not a message */ }
  stage.inbox.push(text);
  stage.wake?.();
});
