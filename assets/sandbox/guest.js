// What a View's document is written by: it takes one from its proxy, once, and is gone with that.
// The document stands in this one's place: its address, its origin and the policy of its response stay.
"use strict";
(({ proxy, openai }) => {
  // A cookie could be set for the names of all Views at once, which share nothing else.
  try {
    Object.defineProperty(Document.prototype, "cookie", { get: () => "", set: () => {}, configurable: false });
    Object.defineProperty(window, "cookieStore", { value: undefined, configurable: false });
  } catch {
    // Where the browser does not let it, the server removes what was set.
  }
  addEventListener("message", function take({ source, origin, data }) {
    if (source !== parent || origin !== proxy) return;
    if (!data || data.method !== "ui/notifications/sandbox-resource-ready") return;
    removeEventListener("message", take);
    if (openai) Object.defineProperty(window, "openai", { value: openai, configurable: true });
    document.open();
    document.write(data.params.html);
    document.close();
  });
  // The other end of this is with the proxy, and nobody answers there any more when this document is left.
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => port1.postMessage(0);
  const ready = { jsonrpc: "2.0", method: "ui/notifications/sandbox-guest-ready", params: {} };
  parent.postMessage(ready, proxy, [port2]);
})(/* constants */);
