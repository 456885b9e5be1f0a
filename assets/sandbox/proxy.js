// The sandbox proxy of one View: passes messages on between the host's page and the View's frame, and nothing else.
// It makes no request of its own. Who the two others are was written in by the server, and is checked at each message.
"use strict";
((about) => {
  const RESERVED = "ui/notifications/sandbox-";
  const { page, guest, guestUrl, sandbox, allow } = about;
  const frame = document.createElement("iframe");
  let state = "loading"; // then "ready": the guest waits for its document, then "delivered"
  let loads = 0;
  let life = null; // a port to the guest's document, which ends with that
  let doubt; // a timer: it was asked whether it is still there

  const methodOf = (data) => (data && typeof data === "object" && typeof data.method === "string" ? data.method : "");
  const tellPage = (data) => parent.postMessage(data, page);
  // A frame without an origin of its own can be addressed in no other way; it is the only one here.
  const tellGuest = (data) => frame.contentWindow.postMessage(data, guest === "null" ? "*" : guest);
  const note = (name, params) => tellPage({ jsonrpc: "2.0", method: RESERVED + name, params });

  const ask = (patience) => {
    if (!life) return;
    clearTimeout(doubt);
    doubt = setTimeout(() => {
      life = null;
      note("guest-gone", {});
    }, patience);
    life.postMessage(0);
  };

  const fromGuest = (data, ports) => {
    const method = methodOf(data);
    if (method === `${RESERVED}guest-ready` && state === "loading") {
      state = "ready";
      [life] = ports;
      life.onmessage = ({ data: noted }) => (noted ? note("noted", noted) : clearTimeout(doubt));
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

  addEventListener("message", ({ source, origin, data, ports }) => {
    if (source === frame.contentWindow && source && origin === guest) fromGuest(data, ports);
    else if (source === parent && origin === page) fromPage(data);
  });

  // The policy of this document blocks what the View goes to; a moment later there is an error page in its place.
  addEventListener("securitypolicyviolation", ({ effectiveDirective }) => {
    if (effectiveDirective === "frame-src") for (const wait of [50, 500]) setTimeout(ask, wait, 300);
  });
  // The first load is that of the empty guest, the second its document's. With a third the View has left for what no
  // policy blocks, or it has written its own document anew, and may be busy with that.
  frame.addEventListener("load", () => {
    loads += 1;
    if (loads > 2) ask(1000);
  });
  frame.setAttribute("sandbox", sandbox);
  if (allow) frame.allow = allow;
  frame.title = about.title;
  frame.src = guestUrl;
  document.body.append(frame);
})(/* constants */);
