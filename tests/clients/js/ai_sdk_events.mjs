// Vercel's AI SDK as a client of events: it subscribes with a webhook, and does what each line of its input says.

import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { createInterface } from "node:readline";
import { createMCPClient, experimental_createMCPEventWebhook as createWebhook } from "@ai-sdk/mcp";

const [certificate, token] = process.argv.slice(2);
const say = (record) => console.log(JSON.stringify(record));

const kept = new Map();
const store = {
  get: async (key) => kept.get(key),
  getById: async (id) => [...kept.values()].find((each) => each.id === id),
  set: async (subscription) => void kept.set(subscription.key, subscription),
  update: async (key, patch) => void kept.set(key, { ...kept.get(key), ...patch }),
  delete: async (key) => void kept.delete(key),
};
const webhook = createWebhook({
  store,
  onEvent: async ({ event }) => say({ event }),
  onTerminated: async ({ termination }) => say({ termination }),
});

const pem = readFileSync(certificate);
const server = createServer({ cert: pem, key: pem }, async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const url = `https://${request.headers.host}${request.url}`;
  const asked = new Request(url, { method: request.method, headers: request.headers, body: Buffer.concat(parts) });
  const answer = await webhook(asked);
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  response.end(Buffer.from(await answer.arrayBuffer()));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const origin = `https://localhost:${server.address().port}`;
say({ origin });

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const url = (await lines.next()).value;
const headers = { Authorization: `Bearer ${token}` };
const client = await createMCPClient({ transport: { type: "http", url, headers }, experimental_events: { store } });
const events = client.experimental_events;
say({ listed: (await events.list()).events });
const given = { name: "incident.created", arguments: { severity: "P1" } };
const { id, ...more } = await events.subscribe({ ...given, delivery: { mode: "webhook", url: `${origin}/hooks` } });
say({ subscribed: { id, ...more } });

for (let line = await lines.next(); !line.done; line = await lines.next()) {
  if (line.value === "refresh") say({ refreshed: await events.refresh({ id }) });
  if (line.value === "unsubscribe") {
    await events.unsubscribe({ id });
    say({ left: kept.size });
  }
}
await client.close();
server.closeAllConnections();
server.close();
