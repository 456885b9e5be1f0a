// A server of the official TypeScript SDK, version 2, in both eras: `serve_ts_sdk.mjs stdio`, or over HTTP on $PORT.
// Its own everything server is in its repository alone, not on npm: this one has what that has, under the same names,
// and a tool that says what has become of calls that were given up.
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

import { toNodeHandler } from '@modelcontextprotocol/node';
import {
  acceptedContent, createMcpHandler, fromJsonSchema, inputRequired, McpServer, ResourceTemplate,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const text = (said) => ({ content: [{ type: 'text', text: said }] });
const object = (properties, required = []) => fromJsonSchema({ type: 'object', properties, required });
const NAME = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };

let ended = 0;
let notify = null; // over HTTP one server is made for each request; what it tells goes through the handler

function build() {
  const server = new McpServer(
    { name: 'typescript-sdk', version: '2' },
    { capabilities: { tools: { listChanged: true }, resources: { subscribe: true }, prompts: {}, logging: {} } },
  );
  const tool = (name, properties, run, required) =>
    server.registerTool(name, { description: name, inputSchema: object(properties, required) }, run);

  tool('test_simple_text', {}, async () => text('This is a simple text response for testing.'));
  tool('test_error_handling', {}, async () => { throw new Error('This tool intentionally returns an error'); });
  tool('test_x_mcp_header', { region: { type: 'string', 'x-mcp-header': 'Region' } }, async ({ region }, ctx) =>
    text(`region=${region} header=${ctx.http?.req?.headers.get('mcp-param-region') ?? 'none'}`));
  tool('test_tool_with_progress', {}, async (_, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (const progress of progressToken === undefined ? [] : [0, 50, 100]) {
      await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
    }
    return text('done');
  });
  tool('test_tool_with_logging', {}, async (_, ctx) => {
    await ctx.mcpReq.log('info', 'Tool execution started');
    return text('logged');
  });
  tool('test_input_required_result_elicitation', {}, async (_, ctx) => {
    const name = acceptedContent(ctx.mcpReq.inputResponses, 'user_name')?.name;
    if (name !== undefined) return text(`Hello, ${name}!`);
    const asked = inputRequired.elicit({ message: 'What is your name?', requestedSchema: NAME });
    return inputRequired({ inputRequests: { user_name: asked }, requestState: 'first round' });
  });
  tool('test_trigger_tool_change', {}, async () => {
    if (notify === null) server.sendToolListChanged(); else notify.toolsChanged();
    return text('changed');
  });
  tool('slow', {}, async (_, ctx) => {
    try {
      await sleep(30_000, undefined, { signal: ctx.mcpReq.signal });
    } finally {
      ended += 1;
    }
    return text('slept');
  });
  tool('ended', {}, async () => text(`${ended} ended`));

  const contents = (uri) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: `This is ${uri.href}` }] });
  server.registerResource('static', 'test://static-text', { mimeType: 'text/plain' }, async (uri) => contents(uri));
  const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
  server.registerResource('template', template, { mimeType: 'text/plain' }, async (uri) => contents(uri));

  const argsSchema = object({ arg1: { type: 'string' }, arg2: { type: 'string' } }, ['arg1', 'arg2']);
  server.registerPrompt('test_prompt_with_arguments', { description: 'A prompt', argsSchema }, async (given) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `${given.arg1} and ${given.arg2}` } }],
  }));
  return server;
}

if (process.argv[2] === 'stdio') {
  serveStdio(build);
} else {
  const handler = createMcpHandler(build);
  notify = handler.notify;
  const port = Number(process.env.PORT);
  createServer(toNodeHandler(handler)).listen(port, '127.0.0.1', () => console.log(`listening on ${port}`));
}
