// LangChain.js: `MultiServerMCPClient`; a call as a model makes it, and the message that answers it.

import { convertToOpenAITool } from "@langchain/core/utils/function_calling";
import { MultiServerMCPClient } from "@langchain/mcp-adapters";
import { main } from "./calling.mjs";

await main(async ({ url, command }) => {
  const server = url ? { transport: "http", url } : { transport: "stdio", command: command[0], args: command.slice(1) };
  const client = new MultiServerMCPClient({ mcpServers: { server }, throwOnLoadError: true, useStandardContentBlocks: true });
  const tools = {};
  for (const tool of await client.getTools()) {
    const call = async (args) => {
      const message = await tool.invoke({ type: "tool_call", id: "1", name: tool.name, args });
      return { content: message.content, artifact: message.artifact };
    };
    tools[tool.name] = { call, facts: convertToOpenAITool(tool) };
  }
  return { tools, close: () => client.close() };
});
