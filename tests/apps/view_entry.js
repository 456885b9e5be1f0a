// The official View's side of MCP Apps as one script for a test page.
export { App, PostMessageTransport } from "@modelcontextprotocol/ext-apps";
