"""The high-level servers of the official SDK: `FastMCP` of version 1 and `MCPServer` of version 2.

Both turn functions into tools, resources and prompts, and are served by the low-level server. `components`
are those of version 1, and `mcpserver` has what version 2 does in another way. Start reading with `server`.
"""
