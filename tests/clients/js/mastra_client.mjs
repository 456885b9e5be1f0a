// Mastra: `MCPClient`, whose tools hold arguments and results against their schemas.

import { MCPClient } from "@mastra/mcp";
import { main, ToolFailed } from "./calling.mjs";

await main(async ({ url, command }) => {
  const server = url ? { url: new URL(url) } : { command: command[0], args: command.slice(1), stderr: "inherit" };
  const client = new MCPClient({ id: "tester", servers: { server } });
  const found = await client.listToolsWithErrors();
  for (const error of Object.values(found.errors)) throw new Error(error);
  const tools = {};
  for (const [name, tool] of Object.entries(found.tools)) {
    const call = async (args) => {
      const result = await tool.execute(args, {});
      if (result?.error && "message" in result) throw new ToolFailed(result.message);
      if (result?.isError) throw new ToolFailed(JSON.stringify(result.content));
      return result;
    };
    tools[name.replace(/^server_/, "")] = { call, facts: { description: tool.description } };
  }
  return { tools, close: () => client.disconnect() };
});
