// Writes the document of a View, which it receives once from its proxy, over this document.
// The new document keeps the address, the origin and the policy of the response.
"use strict";
(({ proxy, openai }) => {
  // A View could set a cookie for all Views, which share nothing else.
  try {
    Object.defineProperty(Document.prototype, "cookie", { get: () => "", set: () => {}, configurable: false });
    Object.defineProperty(window, "cookieStore", { value: undefined, configurable: false });
  } catch {
    // If the browser does not allow this, the server removes the cookies.
  }
  // The proxy has the other port, which answers until this document is left. It also receives what the sandbox stops
  // without an error. The call is still made, and has the same result.
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => port1.postMessage(0);
  let left = 100;
  const note = (what, about) => {
    if ((left -= 1) >= 0) port1.postMessage({ what, about: String(about).replaceAll(location.origin, "").slice(0, 300) });
  };
  const blocked = new Set(); // addresses that the policy blocked, and reports itself
  const lost = (url) => setTimeout(() => blocked.has(new URL(url, location).href.split("#")[0]) || note("unreachable", url), 100);
  const wrap = (owner, names, run) => {
    for (const name of names.split(" ")) {
      const real = owner?.[name];
      if (!real) continue;
      owner[name] = function (...given) {
        return run.call(this, (...all) => real.apply(this, all), given, name);
      };
    }
  };
  const denied = (real, given, name) =>
    real(...given).catch((error) => {
      if (error.name === "NotAllowedError") note("denied", `${name}: ${error.message}`);
      throw error;
    });
  wrap(window, "open", (real, given) => real(...given) ?? (note("window", given[0] ?? ""), null));
  wrap(window, "alert confirm prompt print", (real, given, name) => (note("dialog", name), real(...given)));
  wrap(window.Clipboard?.prototype, "read readText write writeText", denied);
  wrap(window.MediaDevices?.prototype, "getUserMedia getDisplayMedia", denied);
  wrap(window.Geolocation?.prototype, "getCurrentPosition watchPosition", (real, [found, failed, ...rest], name) => {
    const fails = (error) => {
      if (error.code === error.PERMISSION_DENIED) note("denied", `${name}: ${error.message}`);
      failed?.(error);
    };
    return real(found, fails, ...rest);
  });
  wrap(window, "fetch", (real, given) =>
    real(...given).catch((error) => {
      if (error.name !== "AbortError") lost(given[0]?.url ?? given[0]);
      throw error;
    }),
  );
  wrap(XMLHttpRequest.prototype, "open", function (real, given) {
    this.addEventListener("error", () => lost(given[1]));
    return real(...given);
  });
  for (const name of ["WebSocket", "EventSource"]) {
    window[name] = new Proxy(window[name], {
      construct(real, given, made) {
        const socket = Reflect.construct(real, given, made);
        socket.addEventListener("error", () => lost(given[0]));
        return socket;
      },
    });
  }
  const clicked = (event) => {
    const link = event.composedPath().find((node) => node instanceof HTMLAnchorElement && node.href);
    const tell = () => {
      if (!link || event.defaultPrevented) return;
      if (link.hasAttribute("download")) note("download", link.download || link.href);
      else if (link.target === "_blank") note("window", link.href);
    };
    setTimeout(tell);
  };
  // A script clicks a link outside the document to save a file.
  wrap(HTMLAnchorElement.prototype, "click dispatchEvent", function (real, given) {
    if (!this.isConnected) this.addEventListener("click", clicked, { once: true });
    return real(...given);
  });

  addEventListener("message", function take({ source, origin, data }) {
    if (source !== parent || origin !== proxy) return;
    if (!data || data.method !== "ui/notifications/sandbox-resource-ready") return;
    removeEventListener("message", take);
    if (openai) Object.defineProperty(window, "openai", { value: openai, configurable: true });
    document.open(); // removes all listeners
    addEventListener("click", clicked);
    addEventListener("securitypolicyviolation", ({ blockedURI }) => blocked.add(blockedURI));
    addEventListener("error", ({ target }) => target instanceof Element && lost(target.currentSrc || target.src || target.href || target.data), true);
    document.write(data.params.html);
    document.close();
  });
  const ready = { jsonrpc: "2.0", method: "ui/notifications/sandbox-guest-ready", params: {} };
  parent.postMessage(ready, proxy, [port2]);
})(/* constants */);
