/* The page's connection to the preview: JSON-RPC 2.0 over one WebSocket, opened with the token of the address. */

export class RemoteError extends Error {
  constructor({ code, message, data }) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

const WAITS = [250, 500, 1000, 2000, 5000];

class Api {
  constructor() {
    this.waiting = new Map();
    this.heard = new Map();
    this.answers = new Map();
    this.last = 0;
    this.token = "";
    this.socket = null;
    this.state = "closed";
    this.onState = () => {};
    this.tries = 0;
  }

  /** Add a listener for a notification of the preview. */
  on(method, listener) {
    const all = this.heard.get(method) ?? [];
    all.push(listener);
    this.heard.set(method, all);
  }

  /** Set the function for a request of the preview: `answer(params)` returns the result or throws. */
  answer(method, answer) { this.answers.set(method, answer); }

  /** Open the connection. `begin(hello)` is awaited for each one, also after a lost connection. */
  open(token, begin) {
    this.token = token;
    this.begin = begin;
    clearTimeout(this.timer);
    const old = this.socket;
    this.connect();
    old?.close();
  }

  connect() {
    const address = new URL("/api", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.hash = "";
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.addEventListener("open", async () => {
      try {
        const hello = await this.request("hello", { token: this.token });
        this.tries = 0;
        this.change("open");
        await this.begin(hello);
      } catch (error) {
        if (socket.readyState === WebSocket.OPEN) this.change("refused", error.message);
      }
    });
    socket.addEventListener("message", ({ data }) => this.take(JSON.parse(data)));
    socket.addEventListener("close", ({ code }) => this.closed(socket, code));
  }

  closed(socket, code) {
    if (socket !== this.socket) return;
    for (const { reject } of this.waiting.values()) reject(new RemoteError({ code: -32000, message: "The connection to the preview was lost." }));
    this.waiting.clear();
    if (code === 1008) { this.change("refused"); return; }
    this.change("lost");
    const wait = WAITS[Math.min(this.tries, WAITS.length - 1)];
    this.tries += 1;
    this.timer = setTimeout(() => this.connect(), wait);
  }

  /** Try to connect now, without waiting. */
  retry() {
    clearTimeout(this.timer);
    if (this.socket.readyState === WebSocket.CLOSED) this.connect();
  }

  change(state, why = "") {
    this.state = state;
    this.onState(state, why);
  }

  take(message) {
    if (message.method === undefined) {
      const waiting = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      if (message.error) waiting?.reject(new RemoteError(message.error));
      else waiting?.resolve(message.result);
    } else if (message.id === undefined) {
      for (const listener of this.heard.get(message.method) ?? []) listener(message.params ?? {});
    } else this.reply(message);
  }

  async reply({ id, method, params }) {
    const answer = this.answers.get(method);
    if (!answer) { this.send({ id, error: { code: -32601, message: `The page has no ${method}` } }); return; }
    try {
      this.send({ id, result: (await answer(params ?? {})) ?? {} });
    } catch (error) {
      this.send({ id, error: { code: error.code ?? -32000, message: String(error.message ?? error) } });
    }
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
  }

  notify(method, params) { this.send({ method, params }); }

  /** Send a request to the preview; rejects with RemoteError. */
  request(method, params = {}) {
    if (this.socket?.readyState !== WebSocket.OPEN) return Promise.reject(new RemoteError({ code: -32000, message: "There is no connection to the preview." }));
    const id = (this.last += 1);
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.send({ id, method, params });
    });
  }
}

export const api = new Api();
