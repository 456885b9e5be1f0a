// Vercel's AI SDK: `createMCPClient`, the tools as `generateText` gets them.

import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as StdioTransport } from "@ai-sdk/mcp/mcp-stdio";
import { content, main } from "./calling.mjs";

await main(async ({ url, command }) => {
  const transport = url
    ? { type: "http", url }
    : new StdioTransport({ command: command[0], args: command.slice(1), stderr: "inherit" });
  const client = await createMCPClient({ transport });
  const tools = {};
  for (const [name, tool] of Object.entries(await client.tools())) {
    const schema = await tool.inputSchema.jsonSchema;
    const call = async (input) => {
      const result = await tool.execute(input, { toolCallId: "1", messages: [] });
      const forModel = await tool.toModelOutput?.({ toolCallId: "1", input, output: result });
      return { ...content(result), forModel };
    };
    tools[name] = { call, facts: { schema, description: tool.description } };
  }
  return { tools, close: () => client.close() };
});
