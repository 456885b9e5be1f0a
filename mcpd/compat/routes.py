"""`custom_route`: HTTP beside the endpoint, answered with Starlette's request and response."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mcpd.errors import ConfigurationError

if TYPE_CHECKING:
    from mcpd.server import Server
    from mcpd.server.registry.routes import RouteRequest

__all__ = ["add"]

_FRAMING = frozenset(("content-length", "content-type", "transfer-encoding", "connection"))


def add(server: Server, routes: Iterable[tuple[str, list[str], Callable[..., Any]]]) -> None:
    """Serve these beside the endpoint, for everybody: paths, methods, and functions of a request.

    Raises ConfigurationError where Starlette is not installed, whose requests they take.
    """
    for path, methods, function in routes:
        _need_starlette(path)
        server.route(path, methods=[method.upper() for method in methods], public=True)(_answers(function))


def _need_starlette(path: str) -> None:
    try:
        import starlette.requests  # noqa: F401
    except ImportError:
        import sys

        raise ConfigurationError(
            f"custom_route({path!r}) takes Starlette's requests: {sys.executable} -m pip install starlette"
        ) from None


def _answers(function: Callable[..., Any]) -> Callable[[RouteRequest], Any]:
    async def answer(request: RouteRequest) -> Any:
        from starlette.requests import Request

        from mcpd.server.registry.routes import RouteResponse

        scope = _scope(request)
        parts: list[bytes] = []
        start: dict[str, Any] = {}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": request.body, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            elif message["type"] == "http.response.body":
                parts.append(bytes(message.get("body", b"")))

        response = await function(Request(scope, receive))
        await response(scope, receive, send)
        pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in start.get("headers", ())]
        return RouteResponse(
            b"".join(parts),
            status=start["status"],
            headers=[(name, value) for name, value in pairs if name not in _FRAMING],
            content_type=dict(pairs).get("content-type", "application/octet-stream"),
        )

    return answer


def _scope(request: RouteRequest) -> dict[str, Any]:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    return {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": request.root_path,
        "query_string": request.query_string.encode("latin-1"),
        "headers": headers,
        "path_params": dict(request.params),
        "client": (request.client, 0) if request.client else None,
        "server": None,
        "state": {},
    }
