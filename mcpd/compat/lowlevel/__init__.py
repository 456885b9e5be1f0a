"""`mcp.server.lowlevel` of version 1 of the official SDK: a server that is a handler for each method."""
