// Runs first in the frame of a View in one trial, and records when the View listens and what it posts.
// The View sees a substitute for its parent, through which all messages pass.
"use strict";
(() => {
  if (window === window.top || !location.pathname.endsWith("/guest")) return;
  const log = [];
  Object.defineProperty(window, "__mcpdSpy", { value: log });

  const real = window.parent;
  const seen = new Proxy({}, {
    get: (_, name) => {
      if (name !== "postMessage") return real[name];
      return (message, ...rest) => {
        log.push({ does: "post", method: message?.method ?? null, target: typeof rest[0] === "string" ? rest[0] : "" });
        return real.postMessage(message, ...rest);
      };
    },
    set: (_, name, value) => { real[name] = value; return true; },
    has: (_, name) => name in real,
  });
  Object.defineProperty(window, "parent", { get: () => seen, configurable: true });

  const source = Object.getOwnPropertyDescriptor(MessageEvent.prototype, "source");
  Object.defineProperty(MessageEvent.prototype, "source", {
    ...source,
    get() { const from = source.get.call(this); return from === real ? seen : from; },
  });

  const { addEventListener, removeEventListener } = EventTarget.prototype;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (type === "message" && (this === window || this === undefined)) log.push({ does: "listen" });
    return addEventListener.call(this ?? window, type, ...rest);
  };
  EventTarget.prototype.removeEventListener = function (type, ...rest) {
    if (type === "message" && (this === window || this === undefined)) log.push({ does: "unlisten" });
    return removeEventListener.call(this ?? window, type, ...rest);
  };
  const handler = Object.getOwnPropertyDescriptor(window, "onmessage");
  if (handler?.set) {
    Object.defineProperty(window, "onmessage", {
      ...handler,
      set(value) { log.push({ does: "listen" }); handler.set.call(window, value); },
    });
  }
})();
