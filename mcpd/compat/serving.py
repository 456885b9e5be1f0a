"""The base of all servers that turn functions into tools: `HighLevelServer`, and its settings.

The class has the server's identity, the ways to run it, its ASGI application and its custom HTTP routes. Settings are
arguments of a constructor, environment variables (FASTMCP_…), or defaults.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json

from mcpd.compat.lowlevel.server import Server
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from .install import current_program, refuse_overrides

if TYPE_CHECKING:
    from mcpd.server.app import Server as McpdServer
    from mcpd.server.http.core import HttpSettings
    from mcpd.server.settings import Settings
    from mcpd.transports.routes import RouteRequest

FASTMCP_VERSION = "4.2.3"
"""The version of `fastmcp` whose lists and results are reproduced."""


class TransportSecuritySettings(BaseModel):
    """Allowed hosts and origins. mcpd checks them itself: `--allow-host`, `--allow-origin`."""

    model_config = ConfigDict(defer_build=True)

    enable_dns_rebinding_protection: bool = True
    allowed_hosts: list[str] = []
    allowed_origins: list[str] = []


class _Settings(BaseModel):
    """Settings that the libraries share. A program may change them before it runs."""

    model_config = ConfigDict(arbitrary_types_allowed=True, defer_build=True)

    debug: bool = False
    log_level: str = "INFO"
    host: str = "127.0.0.1"
    port: int = 8000
    sse_path: str = "/sse"
    message_path: str = "/messages/"
    streamable_http_path: str = "/mcp"
    json_response: bool = False
    stateless_http: bool = False

    @classmethod
    def load(cls, arguments: dict[str, Any]) -> Self:
        # Returns the arguments of a constructor, completed by the environment. Raises pydantic's ValidationError, and
        # TypeError for an unknown one.
        if unknown := [name for name in arguments if name not in cls.model_fields]:
            raise TypeError(f"FastMCP.__init__() got an unexpected keyword argument {unknown[0]!r}")
        values = dict(arguments)
        for name, field in cls.model_fields.items():
            text = os.environ.get(f"FASTMCP_{name.upper()}")
            # Arguments of the constructor go before the environment.
            if text is not None and name not in arguments and field.annotation is not Any:
                is_list = field.annotation == list[str]
                values[name] = from_json(text) if is_list else text.upper() if name == "log_level" else text

        # Defaults alone need no validation, for which pydantic would build a validator.
        return cls(**values) if values else cls.model_construct()


class SdkSettings(_Settings):
    """`Settings` of the official SDK."""

    model_config = ConfigDict(extra="forbid")

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    mount_path: str = "/"
    warn_on_duplicate_resources: bool = True
    warn_on_duplicate_tools: bool = True
    warn_on_duplicate_prompts: bool = True
    dependencies: list[str] = []
    lifespan: Any = None
    auth: Any = None
    transport_security: Any = None


class FastMCPSettings(_Settings):
    """`fastmcp.settings`. Unknown settings are kept and have no effect."""

    model_config = ConfigDict(extra="allow")

    transport: Literal["stdio", "http", "sse", "streamable-http"] = "stdio"
    test_mode: bool = False
    log_enabled: bool = True
    mask_error_details: bool = False
    strict_input_validation: bool = False
    show_server_banner: bool = True
    deprecation_warnings: bool = True
    decorator_mode: str = "function"


def __getattr__(name: str) -> Any:
    if name != "settings":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = settings = FastMCPSettings.load({})
    return settings


def get_logger(name: str) -> logging.Logger:
    return logging.getLogger(name)


def configure_logging(level: str = "INFO", **_: Any) -> None:
    """Show log messages of this level and above, unless logging is configured already."""
    logging.basicConfig(level=level, format="%(message)s")


log = logging.getLogger("mcpd")

F = TypeVar("F", bound=Callable[..., Any])

_FRAMING = frozenset(("content-length", "content-type", "transfer-encoding", "connection"))
"""Headers of a response that mcpd sets itself."""


class HighLevelServer:
    """A server whose tools, resources and prompts are functions. It is served by the low-level server within."""

    library: ClassVar[str]  # its name in messages
    settings: Any  # for options that a program does not pass to `run`
    _mcp_server: Server[Any, Any]
    _routes: list[tuple[str, list[str], Callable[..., Any]]]

    def __mcpd_server__(self) -> McpdServer:
        ours = next(kind for kind in type(self).__mro__ if kind.__module__.startswith(f"{__package__}."))
        refuse_overrides(self, ours, self.library)
        server = self._mcp_server.__mcpd_server__()
        self._add_routes(server)
        return server

    # -- identity ----------------------------------------------------------------------------

    name = property(attrgetter("_mcp_server.name"))
    version = property(attrgetter("_mcp_server.version"))
    website_url = property(attrgetter("_mcp_server.website_url"))
    icons = property(attrgetter("_mcp_server.icons"))

    @property
    def instructions(self) -> str | None:
        return self._mcp_server.instructions

    @instructions.setter
    def instructions(self, text: str | None) -> None:
        self._mcp_server.instructions = text

    # -- running -----------------------------------------------------------------------------

    def run(self, transport: str | None = None, show_banner: Any = None, **options: Any) -> None:
        """Serve until stopped. Blocks. Under `mcpd serve`, the options of that command apply instead."""
        current_program().run(self.__mcpd_server__(), self._run_settings(transport, options))

    async def _run_async(self, transport: str | None, options: dict[str, Any]) -> None:
        await current_program().serve(self.__mcpd_server__(), self._run_settings(transport, options))

    async def run_stdio_async(self, show_banner: bool = True, **options: Any) -> None:
        await self._run_async("stdio", options)

    async def run_sse_async(self, mount_path: str | None = None, **options: Any) -> None:
        await self._run_async("sse", options)

    async def run_streamable_http_async(self, **options: Any) -> None:
        await self._run_async("streamable-http", options)

    def _option(self, options: dict[str, Any], name: str) -> Any:
        value = options.get(name)
        return getattr(self.settings, name, None) if value is None else value

    def _path(self, options: dict[str, Any]) -> str:
        return str(options.get("path") or self._option(options, "streamable_http_path"))

    def _run_settings(self, transport: str | None, options: dict[str, Any]) -> Settings:
        from mcpd.server.settings import Settings

        transport = transport or getattr(self.settings, "transport", "stdio")
        if transport == "stdio":
            return Settings(stdio=True)
        if transport not in ("http", "sse", "streamable-http"):
            raise ValueError(f"Unknown transport: {transport}")

        if transport == "sse":
            _announce_sse(self._path(options))
        host = self._option(options, "host")
        # IPv6 addresses have brackets in a URL.
        address = f"[{host}]" if ":" in host else host
        return Settings(http=f"{address}:{self._option(options, 'port')}", http_settings=self._http_settings(options))

    def _http_settings(self, options: dict[str, Any]) -> HttpSettings:
        from mcpd.server.http.core import HttpSettings

        return HttpSettings(path=self._path(options), stateless=self._option(options, "stateless_http"))

    # -- ASGI --------------------------------------------------------------------------------

    def streamable_http_app(self, path: str | None = None, **options: Any) -> Any:
        """Return this server as an ASGI application. `streamable_http_path` or `path` is its endpoint."""
        options = {"path": path, **options}
        settings = self._http_settings(options)
        security = self._option(options, "transport_security")
        if security is None:
            return self.__mcpd_server__().asgi_app(settings=settings)

        is_guarded = security.enable_dns_rebinding_protection
        app = self.__mcpd_server__().asgi_app(
            allowed_hosts=[host.removesuffix(":*") for host in security.allowed_hosts] if is_guarded else [],
            allowed_origins=[origin.removesuffix(":*") for origin in security.allowed_origins],
            settings=settings,
        )
        # mcpd checks hosts and origins by default. These settings may switch that off.
        app.guard.checks_source = is_guarded
        return app

    def sse_app(self, path: str | None = None, **options: Any) -> Any:
        """Return `streamable_http_app()`, since SSE is served as Streamable HTTP."""
        _announce_sse(self._path(options))
        return self.streamable_http_app(**options)

    @property
    def session_manager(self) -> Any:
        """For applications that mount several servers: `async with mcp.session_manager.run()`."""
        server = self.__mcpd_server__()

        @asynccontextmanager
        async def run() -> AsyncIterator[None]:
            await server.open()
            try:
                yield
            finally:
                await server.aclose()

        return SimpleNamespace(run=run)

    # -- routes ------------------------------------------------------------------------------

    def custom_route(
        self, path: str, methods: list[str], name: str | None = None, include_in_schema: bool = True
    ) -> Callable[[F], F]:
        """Register a function that serves another path, with Starlette's request and response."""

        def register(function: F) -> F:
            self._routes.append((path, methods, function))
            if self._mcp_server.served is not None:
                self._add_routes(self._mcp_server.served)
            return function

        return register

    def _add_routes(self, server: McpdServer) -> None:
        routes, self._routes = self._routes, []
        if routes and find_spec("starlette") is None:
            raise ConfigurationError(f"custom_route needs Starlette: {sys.executable} -m pip install starlette")

        for path, methods, function in routes:
            server.route(path, methods=[method.upper() for method in methods], public=True)(_route(function))


def _announce_sse(path: str) -> None:
    log.warning("SSE, the transport of 2024, is served as Streamable HTTP; clients connect to %s", printable(path))


def _route(function: Callable[..., Any]) -> Callable[[RouteRequest], Any]:
    # Returns a route of mcpd for a function of Starlette's request, by way of ASGI.
    async def answer(request: RouteRequest) -> Any:
        from starlette.requests import Request

        from mcpd.transports.routes import RouteResponse

        scope = _scope(request)
        start: dict[str, Any] = {}
        parts: list[bytes] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": request.body, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            elif message["type"] == "http.response.body":
                parts.append(bytes(message.get("body", b"")))

        response = await function(Request(scope, receive))
        await response(scope, receive, send)
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in start["headers"]]
        return RouteResponse(
            b"".join(parts),
            status=start["status"],
            headers=[(name, value) for name, value in headers if name not in _FRAMING],
            # Starlette always sets one, but an author's response may lack it.
            content_type=dict(headers).get("content-type", "application/octet-stream"),
        )

    return answer


def _scope(request: RouteRequest) -> dict[str, Any]:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    return {
        "type": "http",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "root_path": request.root_path,
        "query_string": request.query_string.encode("latin-1"),
        "headers": headers,
        "path_params": dict(request.params),
        "client": (request.client, 0) if request.client else None,
    }
