"""mcpd: an MCP daemon and library. The names that stay; everything else is a room of its own.

Loaded by attribute access, so that `import mcpd` costs nothing that is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Context as Context
    from .errors import McpdError as McpdError
    from .errors import ToolError as ToolError
    from .server import Server as Server

__version__ = "0.1.0"

__all__ = ["Context", "McpdError", "Server", "ToolError", "__version__"]

_HOMES = {"Context": "context", "McpdError": "errors", "Server": "server", "ToolError": "errors"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
