"""`custom_route`: a function of Starlette's request and response, as a route of ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ..errors import RegistrationError
from ..registry.routes import RouteRequest, RouteResponse

if TYPE_CHECKING:
    from ..server import Server

__all__ = ["add_route"]


def add_route(server: Server, path: str, methods: Collection[str], function: Callable[..., Any]) -> None:
    """Serve it on the port of the endpoint; nobody is asked who they are. Needs Starlette: RegistrationError."""
    try:
        from starlette.requests import Request
    except ImportError:
        raise RegistrationError(f"custom_route {path!r} needs Starlette: pip install starlette") from None

    async def handle(request: RouteRequest) -> RouteResponse:
        scope = _scope(request)
        response = function(Request(scope, _receive(request.body)))
        if inspect.isawaitable(response):
            response = await response
        return await _sent(response, scope)

    server.route(path, methods=tuple(methods), public=True)(handle)


def _scope(request: RouteRequest) -> dict[str, Any]:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    return {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": request.method,
        "path": request.path,
        "root_path": request.root_path,
        "query_string": request.query_string.encode("latin-1"),
        "headers": headers,
        "path_params": dict(request.params),
        "client": (request.client, 0) if request.client else None,
        "server": None,
    }


def _receive(body: bytes) -> Callable[[], Any]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _sent(response: Any, scope: dict[str, Any]) -> RouteResponse:
    """What an ASGI response sends, as one answer."""
    parts: list[bytes] = []
    head: dict[str, Any] = {}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            head.update(message)
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await response(scope, _receive(b""), send)
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.get("headers", ())]
    kind = next((value for name, value in fields if name.lower() == "content-type"), None)
    others = [(name, value) for name, value in fields if name.lower() not in ("content-type", "content-length")]
    return RouteResponse(b"".join(parts), head["status"], others, kind)
