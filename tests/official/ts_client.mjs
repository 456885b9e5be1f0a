// Runs a scenario with the official TypeScript client, `@modelcontextprotocol/client`, which knows both eras.
//
//   echo '{"target": {"command": ["mcpd", "serve", "--stdio"]}, "era": "auto", "steps": []}' | node ts_client.mjs

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { answerOf, capabilitiesOf, read, steps, versionOf, write } from './scenario.mjs';

const version = versionOf('@modelcontextprotocol/client');
const scenario = await read();
const mode = { legacy: 'legacy', auto: 'auto', pin: { pin: '2026-07-28' } }[scenario.era];
const heard = [];
const asked = [];

const client = new Client(
  { name: 'official-typescript', version },
  { capabilities: capabilitiesOf(scenario), versionNegotiation: { mode } }
);
for (const [method, result] of Object.entries(scenario.answers)) {
  client.setRequestHandler(method, request => {
    asked.push({ method, params: request.params ?? null });
    return answerOf(result);
  });
}
client.heard = heard;
client.fallbackNotificationHandler = async notification => void heard.push(notification);
client.onerror = error => heard.push({ error: error.message });
client.callToolWith = (params, options) => client.callTool(params, options);

const { command, url } = scenario.target;
const transport = url
  ? new StreamableHTTPClientTransport(new URL(url))
  : new StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env, stderr: 'inherit' });
await client.connect(transport);
const done = await steps(client, scenario);
write({
  client: `@modelcontextprotocol/client ${version}`,
  protocol: client.getNegotiatedProtocolVersion(),
  server: client.getServerVersion() ?? null,
  capabilities: client.getServerCapabilities(),
  instructions: client.getInstructions() ?? null,
  steps: done,
  asked,
  heard
});
await client.close();
