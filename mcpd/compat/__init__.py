"""Runs servers that were written for other MCP libraries, unchanged and without those libraries.

`mcpd serve old_server.py` makes `import mcp.server.fastmcp` and its like find modules that are defined here: the same
names and behavior, over mcpd's own protocol and transports. In other programs, call `install()` before the first such
import. Servers of mcpd load nothing of this package. Its models are pydantic's: install `mcpd-server[compat]`. The
projects are not affiliated.

Start reading with `install`, which finds the modules, and `names`, which maps their names. `types` are the models of
`mcp.types`. `lowlevel` is the server with a handler for each method, on which all others are built: `sdk` has FastMCP
and MCPServer of the official SDK, and `fastmcp` the library of that name. `serving` is shared by both. Changes of
mcpd's own protocol or transports do not belong here.

To add a library, add a package with its classes, a table in `names`, and a line in `LIBRARIES` of `install`. A server
class has `__mcpd_server__()`, which returns the `mcpd.Server` that serves it. Its `run()` calls
`install.current_program()`.
"""

from __future__ import annotations

from .install import install, uninstall

__all__ = ["install", "uninstall"]
