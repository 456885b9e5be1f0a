// The least that a page of the preview does: the API, frames, and messages passed on between the two.
const token = location.hash.slice(1);
history.replaceState(null, "", location.pathname);

const bare = (window.bare = {
  told: [], // notifications of the API
  asked: [], // its questions
  answers: {}, // by kind; {allow: true} where there is none
  views: new Map(),
  closed: null,
  passed: [], // what proxies sent
  hello: null,

  send: (message) => socket.send(JSON.stringify({ jsonrpc: "2.0", ...message })),
  tell: (method, params) => bare.send({ method, params }),
  request(method, params = {}) {
    const id = `p${(last += 1)}`;
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      bare.send({ id, method, params });
    });
  },
  // What a request comes to, error or not, as JSON.
  attempt: (method, params) => bare.request(method, params).then((result) => ({ result }), (error) => ({ error })),

  frame(info) {
    const frame = document.createElement("iframe");
    frame.setAttribute("sandbox", info.outerSandbox);
    frame.allow = info.allow;
    frame.style = "border:0;width:100%;height:600px";
    frame.src = info.proxyUrl;
    bare.views.set(info.viewId, { info, frame });
    document.body.append(frame);
    return info;
  },
  async show(callId, context) {
    return bare.frame(await bare.request("view/open", { callId, context }));
  },
  remove(viewId) {
    bare.views.get(viewId)?.frame.remove();
    bare.views.delete(viewId);
  },
});

let last = 0;
const waiting = new Map();
const socket = new WebSocket(`ws://${location.host}/api`);
socket.onopen = async () => { bare.hello = await bare.request("hello", { token }); };
socket.onclose = ({ code, reason }) => { bare.closed = { code, reason }; };
socket.onmessage = ({ data }) => {
  const { id, method, params, result, error } = JSON.parse(data);
  if (!method) {
    const { resolve, reject } = waiting.get(id) ?? {};
    waiting.delete(id);
    if (error) reject?.(error); else resolve?.(result);
    return;
  }
  if (method === "ask") {
    bare.asked.push(params);
    const answer = params.kind in bare.answers ? bare.answers[params.kind] : { allow: true };
    if (answer !== null) bare.send({ id, result: answer });
    return;
  }
  bare.told.push({ method, params });
  const view = bare.views.get(params.viewId);
  if (method === "view/message" && view) view.frame.contentWindow.postMessage(params.message, view.info.proxyOrigin);
};

addEventListener("message", ({ source, origin, data }) => {
  for (const [viewId, { info, frame }] of bare.views) {
    if (source === frame.contentWindow && origin === info.proxyOrigin) {
      bare.passed.push(data);
      bare.tell("view/message", { viewId, message: data });
    }
  }
});
