"""How a FastMCP server is served: `run`, its coroutines, ASGI applications, and routes beside the endpoint."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from mcpd.compat import program
from mcpd.compat.fastmcp.settings import settings
from mcpd.compat.lowlevel.server import Server
from mcpd.compat.program import Wanted

if TYPE_CHECKING:
    from mcpd.server import Server as McpdServer

__all__ = ["Serving"]

F = TypeVar("F", bound=Callable[..., Any])

_SSE = "mcpd: SSE, the transport of 2024, is served as Streamable HTTP; clients connect to {path}"


class Serving(ABC):
    """The part of `FastMCP` that has to do with transports."""

    _mcp_server: Server[Any, Any]
    _routes: list[tuple[str, list[str], Callable[..., Any]]]

    @abstractmethod
    def __mcpd_server__(self) -> McpdServer:
        """The server of ours that serves this one."""

    def run(self, transport: str | None = None, show_banner: bool | None = None, **options: Any) -> None:
        """Serve until stopped; blocks. Under `mcpd serve` its options say how, and not what is given here."""
        program.current().run(self.__mcpd_server__(), self._wanted(transport, options))

    async def run_async(self, transport: str | None = None, show_banner: bool | None = None, **options: Any) -> None:
        """`run` in the event loop that runs."""
        await program.current().serve(self.__mcpd_server__(), self._wanted(transport, options))

    async def run_stdio_async(self, show_banner: bool = True, **options: Any) -> None:
        """`run_async("stdio")`."""
        await self.run_async("stdio")

    async def run_http_async(self, show_banner: bool = True, transport: str = "http", **options: Any) -> None:
        """`run_async("http")`."""
        await self.run_async(transport, **options)

    async def run_streamable_http_async(self, **options: Any) -> None:
        """`run_async("streamable-http")`."""
        await self.run_async("streamable-http", **options)

    async def run_sse_async(self, **options: Any) -> None:
        """`run_async("sse")`."""
        await self.run_async("sse", **options)

    def _wanted(self, transport: str | None, options: dict[str, Any]) -> Wanted:
        transport = transport or settings.transport
        if transport == "stdio":
            return Wanted()
        if transport not in ("http", "sse", "streamable-http"):
            raise ValueError(f"Unknown transport: {transport}")
        path = options.get("path") or settings.streamable_http_path
        if transport == "sse":
            print(_SSE.format(path=path), file=sys.stderr, flush=True)  # noqa: T201 - for people
        stateless = options.get("stateless_http")
        return Wanted(
            transport="http",
            host=options.get("host") or settings.host,
            port=options.get("port") or settings.port,
            path=path,
            stateless=settings.stateless_http if stateless is None else stateless,
        )

    # -- ASGI --------------------------------------------------------------------------------

    def http_app(self, path: str | None = None, middleware: Any = None, **options: Any) -> Any:
        """This server as an ASGI application, with its endpoint at `path`; `middleware` is Starlette's."""
        from mcpd.server.http import HttpSettings

        stateless = options.get("stateless_http")
        app: Any = self.__mcpd_server__().asgi_app(
            settings=HttpSettings(
                path=path or settings.streamable_http_path,
                stateless=settings.stateless_http if stateless is None else stateless,
            )
        )
        for one in reversed(middleware or []):
            app = one.cls(app, *getattr(one, "args", ()), **getattr(one, "kwargs", {}))
        return app

    def streamable_http_app(self, path: str | None = None, **options: Any) -> Any:
        """`http_app`."""
        return self.http_app(path, **options)

    def sse_app(self, path: str | None = None, **options: Any) -> Any:
        """`http_app`: SSE is served as Streamable HTTP."""
        print(_SSE.format(path=settings.streamable_http_path), file=sys.stderr, flush=True)  # noqa: T201
        return self.http_app(None, **options)

    def custom_route(
        self, path: str, methods: list[str], name: str | None = None, include_in_schema: bool = True
    ) -> Callable[[F], F]:
        """Register what answers another path, with Starlette's request and response."""

        def register(function: F) -> F:
            self._routes.append((path, methods, function))
            return function

        return register
