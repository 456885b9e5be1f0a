"""The high-level servers of the official SDK: `FastMCP` of version 1 and `MCPServer` of version 2.

Both turn functions into tools, resources and prompts, and are served by the low-level server. A class of version 2 has
a 2 behind its name and differs from its base class in a few points: plain functions run in threads, clients do not
receive the messages of unexpected exceptions, and functions may return requests for input. Start reading with `server`.
"""
