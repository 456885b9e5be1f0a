"""What a server is made of: what it offers, how requests are handled, and how it is served.

`registry/` has the catalog, `functions/` makes JSON callables of Python functions and knows nothing of MCP, `handlers/`
has a function for each method, `context/` is what handlers and authors use to answer and ask. Transports are elsewhere.
Start reading in `app.py` (what authors call), then `core.py` (what transports use) and `serving.py`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpd.server.app import Server as Server

__all__ = ["Server"]


def __getattr__(name: str) -> Any:
    """Load `Server` when it is first used, as most modules of this package are used without it."""
    if name != "Server":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mcpd.server.app import Server

    return Server
