"""MCP Apps, the server's part: extension `io.modelcontextprotocol/ui`. The host's part is `mcpd.apps.host`."""
