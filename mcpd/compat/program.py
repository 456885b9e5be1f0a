"""Who serves a server when its program calls `run()`: `mcpd serve` if it loaded the program, or the program itself.

`mcpd serve` takes over before the program's own code runs. Its options for transports and addresses then override
the program's options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from msgspec import Struct

if TYPE_CHECKING:
    from mcpd.server.app import Server
    from mcpd.server.settings import Settings


@runtime_checkable
class ForeignServer(Protocol):
    """A server object of another library."""

    def __mcpd_server__(self) -> Server:
        """Return mcpd's server for it, the same one each time."""


class ServeRequest(Struct, frozen=True, kw_only=True):
    """How a program asks to be served: over stdio, or over HTTP at `host`, `port` and `path`."""

    transport: Literal["stdio", "http"] = "stdio"
    host: str = "127.0.0.1"
    port: int = 8000
    path: str = "/mcp"
    stateless: bool = False

    def settings(self) -> Settings:
        """Return the settings of `mcpd.run` for this."""
        from mcpd.server.settings import Settings

        if self.transport == "stdio":
            return Settings(stdio=True)
        from mcpd.server.http.core import HttpSettings

        host = f"[{self.host}]" if ":" in self.host else self.host
        return Settings(
            http=f"{host}:{self.port}", http_settings=HttpSettings(path=self.path, stateless=self.stateless)
        )


class Program(Protocol):
    """Serves the servers of a program."""

    def run(self, server: Server, request: ServeRequest) -> None:
        """Serve until stopped. Blocks."""

    async def serve(self, server: Server, request: ServeRequest) -> None:
        """Serve until stopped, in the running event loop."""


class _Standalone:
    """The program serves itself, as with `python old_server.py`."""

    def run(self, server: Server, request: ServeRequest) -> None:
        from mcpd.server.serving import run

        run(server, request.settings())

    async def serve(self, server: Server, request: ServeRequest) -> None:
        from mcpd.server.serving import serve_here

        await serve_here(server, request.settings())


_current: list[Program] = [_Standalone()]


def current() -> Program:
    """Return who serves a server whose program calls `run()`."""
    return _current[-1]


def is_taken_over() -> bool:
    """Return whether `mcpd serve` serves, and not the program itself."""
    return not isinstance(current(), _Standalone)


def take_over(program: Program) -> None:
    """Let `program` serve every server whose program calls `run()`."""
    _current[:] = [program]
