// Runs a scenario with the client of the official TypeScript SDK of the 1.x line, `@modelcontextprotocol/sdk`:
// legacy era only, over stdio, WebSocket or Streamable HTTP.
//
//   echo '{"target": {"url": "ws://127.0.0.1:8080/"}, "steps": []}' | node ts_sdk_client.mjs

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema
} from '@modelcontextprotocol/sdk/types.js';
import { answerOf, capabilitiesOf, read, steps, versionOf, write } from './scenario.mjs';

const SCHEMAS = {
  'sampling/createMessage': CreateMessageRequestSchema,
  'elicitation/create': ElicitRequestSchema,
  'roots/list': ListRootsRequestSchema
};

const version = versionOf('@modelcontextprotocol/sdk');
const scenario = await read();
const heard = [];
const asked = [];

const client = new Client({ name: 'official-typescript-1', version }, { capabilities: capabilitiesOf(scenario) });
for (const [method, result] of Object.entries(scenario.answers)) {
  client.setRequestHandler(SCHEMAS[method], request => {
    asked.push({ method, params: request.params ?? null });
    return answerOf(result);
  });
}
client.heard = heard;
client.fallbackNotificationHandler = async notification => void heard.push(notification);
client.onerror = error => heard.push({ error: error.message });
client.callToolWith = (params, options) => client.callTool(params, undefined, options);
client.callAsTask = async (params, options) => {
  const statuses = [];
  for await (const message of client.experimental.tasks.callToolStream(params, undefined, options)) {
    if (message.type === 'result') return { statuses, ttl: options.task.ttl, result: message.result, listed: true };
    if (message.type === 'error') throw message.error;
    statuses.push(message.task.status);
  }
};

function transportTo({ command, url }) {
  if (!url) {
    return new StdioClientTransport({
      command: command[0],
      args: command.slice(1),
      env: process.env,
      stderr: 'inherit'
    });
  }
  return url.startsWith('ws')
    ? new WebSocketClientTransport(new URL(url))
    : new StreamableHTTPClientTransport(new URL(url));
}

const transport = transportTo(scenario.target);
// The client keeps the negotiated version to itself; the transport is told it.
let protocol = null;
const original = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = told => {
  protocol = told;
  original?.(told);
};
await client.connect(transport);
const done = await steps(client, scenario);
write({
  client: `@modelcontextprotocol/sdk ${version}`,
  protocol,
  server: client.getServerVersion() ?? null,
  capabilities: client.getServerCapabilities(),
  instructions: client.getInstructions() ?? null,
  steps: done,
  asked,
  heard
});
await client.close();
