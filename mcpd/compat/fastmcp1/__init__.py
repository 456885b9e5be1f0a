"""`mcp.server.fastmcp` of version 1 of the official SDK: functions as tools, resources and prompts."""
