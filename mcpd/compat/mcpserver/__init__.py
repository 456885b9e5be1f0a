"""`mcp.server.mcpserver` and the low-level server of version 2 of the official SDK."""
