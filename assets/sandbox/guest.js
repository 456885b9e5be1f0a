// What a View's document is written by: it takes one from its proxy, once, and is gone with that.
// The document stands in this one's place: its address, its origin and the policy of its response stay.
"use strict";
(({ proxy, openai }) => {
  addEventListener("message", function take({ source, origin, data }) {
    if (source !== parent || origin !== proxy) return;
    if (!data || data.method !== "ui/notifications/sandbox-resource-ready") return;
    removeEventListener("message", take);
    if (openai) Object.defineProperty(window, "openai", { value: openai, configurable: true });
    document.open();
    document.write(data.params.html);
    document.close();
  });
  parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-guest-ready", params: {} }, proxy);
})(/* constants */);
