"""A server: what it offers, how requests are handled, and how it is served.

Start reading in `app.py` (what authors call), then `core.py` (what connections use) and `serving.py`; `settings.py` has
the options of serving. `registry/` has the catalog, `functions/` makes JSON callables of Python functions, `handlers/`
has a function for each method, `context/` is the request that they work on, and `dispatcher/` runs them. `http/` is the
HTTP endpoint, `extensions/` has the built-in extensions, `processes/` runs tools in processes of their own, `observe/`
has metrics and traces, and `backplane/` the state that several servers share. All other transports are in
`mcpd.transports`, and the protocol without I/O is in `mcpd.protocol`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import Server as Server

__all__ = ["Server"]


def __getattr__(name: str) -> Any:
    """Load `Server` when it is first used, as most modules of this package are used without it."""
    if name != "Server":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .app import Server

    return Server
