// The sandbox proxy of one View: only passes messages on between the page of the host and the frame of the View.
// It makes no requests. The server wrote the origins of both into the constants, and each message is checked.
"use strict";
((about) => {
  const RESERVED = "ui/notifications/sandbox-";
  const { page, guest, guestUrl, sandbox, allow } = about;
  const frame = document.createElement("iframe");
  let state = "loading"; // then "ready", when the guest waits for its document, then "delivered"
  let loads = 0;
  let life = null; // a port to the document of the guest, which ends with it
  let doubt; // the timer for the answer of the guest

  const methodOf = (data) => (data && typeof data === "object" && typeof data.method === "string" ? data.method : "");
  const tellPage = (data) => parent.postMessage(data, page);
  // A frame with an opaque origin has no other address, and there is only one frame here.
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

  // The policy of this document blocks navigations of the View. Shortly after, the frame contains an error page.
  addEventListener("securitypolicyviolation", ({ effectiveDirective }) => {
    if (effectiveDirective === "frame-src") for (const wait of [50, 500]) setTimeout(ask, wait, 300);
  });
  // The frame loads the empty guest, then the document. After a third load, the View has navigated to something that no
  // policy blocks, or has written its document anew and may be busy with that.
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
