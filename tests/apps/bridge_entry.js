// The official host's side of MCP Apps as one script for a test page: everything it exports, and the core's envelope.
export * from "@modelcontextprotocol/ext-apps/app-bridge";
export { JSONRPCMessageSchema, CallToolResultSchema, ListToolsResultSchema } from "@modelcontextprotocol/core";
