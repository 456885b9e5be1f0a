"""How a FastMCP server is served: `run`, its coroutines, and ASGI applications."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from mcpd.compat import program
from mcpd.compat.lowlevel.server import Server
from mcpd.compat.program import Wanted

if TYPE_CHECKING:
    from mcpd.compat.fastmcp1.settings import Settings
    from mcpd.server import Server as McpdServer

__all__ = ["Serving"]

F = TypeVar("F", bound=Callable[..., Any])

_SSE = "mcpd: SSE, the transport of 2024, is served as Streamable HTTP; clients connect to {path}"


class Serving(ABC):
    """The part of `FastMCP` that has to do with transports."""

    settings: Settings
    _token_verifier: Any = None
    _is_announced = False
    _mcp_server: Server[Any, Any]

    @abstractmethod
    def __mcpd_server__(self) -> McpdServer:
        """The server of ours that serves this one."""

    def run(
        self, transport: Literal["stdio", "sse", "streamable-http"] = "stdio", mount_path: str | None = None
    ) -> None:
        """Serve until stopped; blocks. Under `mcpd serve` its options say how, and not what is given here."""
        program.current().run(self.__mcpd_server__(), self._wanted(transport))

    async def run_stdio_async(self) -> None:
        """`run("stdio")` in the event loop that runs."""
        await self._serve("stdio")

    async def run_sse_async(self, mount_path: str | None = None) -> None:
        """`run("sse")` in the event loop that runs."""
        await self._serve("sse")

    async def run_streamable_http_async(self) -> None:
        """`run("streamable-http")` in the event loop that runs."""
        await self._serve("streamable-http")

    async def _serve(self, transport: str) -> None:
        await program.current().serve(self.__mcpd_server__(), self._wanted(transport))

    def _wanted(self, transport: str) -> Wanted:
        settings = self.settings
        if transport == "stdio":
            return Wanted()
        if transport not in ("sse", "streamable-http"):
            raise ValueError(f"Unknown transport: {transport}")
        path = settings.streamable_http_path
        if transport == "sse":
            print(_SSE.format(path=path), file=sys.stderr, flush=True)  # noqa: T201 - for people
        return Wanted(
            transport="http", host=settings.host, port=settings.port, path=path, stateless=settings.stateless_http
        )

    # -- ASGI --------------------------------------------------------------------------------

    def streamable_http_app(self) -> Any:
        """This server as an ASGI application, with its endpoint at `settings.streamable_http_path`."""
        from mcpd.compat.fastmcp1.asgi import application

        return application(self.__mcpd_server__(), self.settings)

    def sse_app(self, mount_path: str | None = None) -> Any:
        """`streamable_http_app`: SSE is served as Streamable HTTP."""
        print(_SSE.format(path=self.settings.streamable_http_path), file=sys.stderr, flush=True)  # noqa: T201
        return self.streamable_http_app()

    @property
    def session_manager(self) -> Any:
        """What applications that mount several servers start: `async with mcp.session_manager.run()`."""
        from mcpd.compat.fastmcp1.asgi import SessionManager

        return SessionManager(self.__mcpd_server__())

    def custom_route(
        self, path: str, methods: list[str], name: str | None = None, include_in_schema: bool = True
    ) -> Callable[[F], F]:
        """Register what answers another path, with Starlette's request and response."""

        def register(function: F) -> F:
            from mcpd.compat.routes import add

            add(self.__mcpd_server__(), [(path, methods, function)])
            return function

        return register

    # -- who may call ------------------------------------------------------------------------

    def _take_authentication(self, provider: Any, verifier: Any) -> None:
        """Keep who checks tokens. Raises ValueError for settings that contradict each other."""
        if self.settings.auth is not None:
            if provider and verifier:
                raise ValueError("Cannot specify both auth_server_provider and token_verifier")
            if not provider and not verifier:
                raise ValueError("Must specify either auth_server_provider or token_verifier when auth is enabled")
        elif provider or verifier:
            raise ValueError("Cannot specify auth_server_provider or token_verifier without auth settings")
        if provider:
            raise NotImplementedError(
                "auth_server_provider: mcpd is no authorization server; run that as its own, and give a token_verifier"
            )
        self._token_verifier = verifier
        if verifier:
            from mcpd.compat.auth import authenticator

            self._mcp_server.authenticate = authenticator(verifier, self.settings.auth)

    def _announce_authorization(self, server: McpdServer) -> None:
        """Let clients find who issues tokens, once."""
        if self._token_verifier and not self._is_announced:
            from mcpd.compat.auth import add_metadata

            self._is_announced = True
            add_metadata(server, self.settings.auth)
