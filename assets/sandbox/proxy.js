// The sandbox proxy of one View: passes messages on between the host's page and the View's frame, and nothing else.
// It makes no request of its own. Who the two others are was written in by the server, and is checked at each message.
"use strict";
((about) => {
  const RESERVED = "ui/notifications/sandbox-";
  const { page, guest, guestUrl, sandbox, allow } = about;
  const frame = document.createElement("iframe");
  let state = "loading"; // then "ready": the guest waits for its document, then "delivered"
  let loads = 0;

  const methodOf = (data) => (data && typeof data === "object" && typeof data.method === "string" ? data.method : "");
  const tellPage = (data) => parent.postMessage(data, page);
  // A frame without an origin of its own can be addressed in no other way; it is the only one here.
  const tellGuest = (data) => frame.contentWindow.postMessage(data, guest === "null" ? "*" : guest);
  const note = (name, params) => tellPage({ jsonrpc: "2.0", method: RESERVED + name, params });

  const fromGuest = (data) => {
    const method = methodOf(data);
    if (method === `${RESERVED}guest-ready` && state === "loading") {
      state = "ready";
      note("proxy-ready", {});
    } else if (method.startsWith(RESERVED)) {
      note("dropped", { method: method.slice(0, 200) });
    } else if (state === "delivered") {
      tellPage(data);
    }
  };

  const fromPage = (data) => {
    const method = methodOf(data);
    if (method === `${RESERVED}resource-ready`) {
      if (state !== "ready") return;
      state = "delivered";
      tellGuest(data);
    } else if (!method.startsWith(RESERVED) && state === "delivered") {
      tellGuest(data);
    }
  };

  addEventListener("message", ({ source, origin, data }) => {
    if (source === frame.contentWindow && source && origin === guest) fromGuest(data);
    else if (source === parent && origin === page) fromPage(data);
  });

  // The first load is that of the empty guest, the second its document's; with a third the View has left.
  frame.addEventListener("load", () => {
    loads += 1;
    if (loads > 1) note("guest-loaded", { loads });
  });
  frame.setAttribute("sandbox", sandbox);
  if (allow) frame.allow = allow;
  frame.title = about.title;
  frame.src = guestUrl;
  document.body.append(frame);
})(/* constants */);
