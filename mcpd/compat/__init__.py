"""Servers that were written for other libraries, run as they are, without those libraries.

`mcpd serve old_server.py` makes `import mcp.server.fastmcp` and its like find modules of ours, which have the names
and the behaviour of that library over our own protocol and transports: every version, every transport. Elsewhere
`install()` does the same, before the first such import. Nothing of it is loaded by a server of our own. The models are
pydantic's, as in those libraries: `mcpd-server[compat]`. The projects are not affiliated; all that is here is ours.

The parts. `install` finds the modules and says what is missing; `program` is who serves what calls `run()`;
`types/` are the models of `mcp.types`, and `wire` turns them into our structs; `lowlevel/` is the server with a
handler for each method, `fastmcp1/` the SDK's FastMCP, of its version 1, which is built on it, `mcpserver/` its
MCPServer, of version 2, and `fastmcp/` the library of that name.

To add a library: a package here with its classes, and a `names.py` with `MODULES`, from the name of each module that
is to be found to a `Names`: where each of its names lives here, and where the rest is looked for. One line in
`LIBRARIES` of `install` makes it found. Its server classes have `__mcpd_server__()`, which gives the `mcpd.Server`
that serves them, and call `program.current()` in what is their `run()`.
"""

from __future__ import annotations

from mcpd.compat.install import install, uninstall

__all__ = ["install", "uninstall"]
