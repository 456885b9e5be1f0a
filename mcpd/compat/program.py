"""Who serves a server when its program calls `run()`: `mcpd serve`, if it loaded the program, else the program itself.

`mcpd serve` takes over before the program's own code runs: what it says of transports and addresses goes before what
the program says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from msgspec import Struct

if TYPE_CHECKING:
    from mcpd.server import Server
    from mcpd.server.serving import Settings

__all__ = ["Program", "Served", "Wanted", "current", "is_taken_over", "take_over"]


@runtime_checkable
class Served(Protocol):
    """A server object of another library."""

    def __mcpd_server__(self) -> Server:
        """The server of ours that serves it; the same one each time."""


class Wanted(Struct, frozen=True, kw_only=True):
    """How a program wants to be served: over stdio, or over HTTP at `host`, `port` and `path`."""

    transport: Literal["stdio", "http"] = "stdio"
    host: str = "127.0.0.1"
    port: int = 8000
    path: str = "/mcp"
    stateless: bool = False

    def settings(self) -> Settings:
        """The same in our words."""
        from mcpd.server.serving import Settings

        if self.transport == "stdio":
            return Settings(stdio=True)
        from mcpd.server.http import HttpSettings

        host = f"[{self.host}]" if ":" in self.host else self.host
        return Settings(
            http=f"{host}:{self.port}", http_settings=HttpSettings(path=self.path, stateless=self.stateless)
        )


class Program(Protocol):
    """Who serves."""

    def run(self, server: Server, wanted: Wanted) -> None:
        """Serve until stopped; blocks."""

    async def serve(self, server: Server, wanted: Wanted) -> None:
        """The same in the event loop that runs."""


class _Itself:
    """The program serves itself, as `python old_server.py` does."""

    def run(self, server: Server, wanted: Wanted) -> None:
        from mcpd.server.serving import run

        run(server, wanted.settings())

    async def serve(self, server: Server, wanted: Wanted) -> None:
        from mcpd.server.serving import serve_here

        await serve_here(server, wanted.settings())


_current: list[Program] = [_Itself()]


def current() -> Program:
    """Who serves what calls `run()` now."""
    return _current[-1]


def is_taken_over() -> bool:
    """Whether `mcpd serve` serves, and not the program itself."""
    return not isinstance(current(), _Itself)


def take_over(program: Program) -> None:
    """From now on `program` serves what calls `run()`."""
    _current[:] = [program]
