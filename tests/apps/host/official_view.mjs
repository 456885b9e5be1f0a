// A View made with the official App class of MCP Apps. Its channel is stdin and stdout, one message a line;
// what it heard and what its calls came to are JSON lines on stderr, for test_official_view.py.
//
// node official_view.mjs <folder with node_modules>

import readline from "node:readline";
import { pathToFileURL } from "node:url";

const sdk = `${process.argv[2]}/node_modules/@modelcontextprotocol/ext-apps/dist/src/app-with-deps.js`;
const { App } = await import(pathToFileURL(sdk));

class LineTransport {
  async start() {
    readline.createInterface({ input: process.stdin }).on("line", (line) => this.onmessage?.(JSON.parse(line)));
  }
  async send(message) {
    process.stdout.write(JSON.stringify(message) + "\n");
  }
  async close() {
    process.stdin.destroy();
  }
}

const report = (what, value) => process.stderr.write(JSON.stringify([what, value ?? null]) + "\n");

async function call(name, action) {
  try {
    report(name, await action());
  } catch (error) {
    report(name, { code: error.code, message: error.message });
  }
}

const capabilities = { tools: { listChanged: true }, availableDisplayModes: ["inline", "fullscreen"] };
const app = new App({ name: "official", version: "1" }, capabilities, { autoResize: false, strict: true });
app.ontoolinputpartial = (params) => report("partial", params);
app.ontoolinput = (params) => report("input", params);
app.ontoolresult = (params) => report("result", params);
app.ontoolcancelled = (params) => report("cancelled", params);
app.onhostcontextchanged = (params) => report("context", params);
app.onerror = (error) => report("error", String(error));
app.onlisttools = async () => ({
  tools: [{ name: "look", inputSchema: { type: "object" }, annotations: { readOnlyHint: true } }],
});
app.oncalltool = async ({ name }) => ({ content: [{ type: "text", text: `${name} called` }] });
app.onteardown = async () => {
  report("teardown");
  return {};
};

const text = [{ type: "text", text: "hi" }];
await call("connect", () => app.connect(new LineTransport()));
report("handshake", { host: app.getHostVersion(), capabilities: app.getHostCapabilities(), context: app.getHostContext() });
await call("call", () =>
  app.callServerTool({ name: "refresh", arguments: { a: 1 } }, { onprogress: (at) => report("progress", at) }));
await call("model-only", () => app.callServerTool({ name: "delete_all", arguments: {} }));
await call("read", () => app.readServerResource({ uri: "notes://1" }));
await call("resources", () => app.listServerResources());
await call("link", () => app.openLink({ url: "https://example.com" }));
await call("javascript", () => app.openLink({ url: "javascript:alert(1)" }));
await call("message", () => app.sendMessage({ role: "user", content: text }));
await call("model context", () => app.updateModelContext({ content: text, structuredContent: { a: 1 } }));
await call("mode", () => app.requestDisplayMode({ mode: "fullscreen" }));
report("mode in context", app.getHostContext()?.displayMode);
await call("download", () =>
  app.downloadFile({ contents: [{ type: "resource", resource: { uri: "file:///a.txt", text: "x" } }] }));
await call("log", () => app.sendLog({ level: "info", data: { a: 1 } }));
await call("size", () => app.sendSizeChanged({ width: 10, height: 20 }));
await call("goodbye", () => app.requestTeardown({}));
