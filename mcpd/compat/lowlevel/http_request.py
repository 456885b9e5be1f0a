"""The HTTP request that brought a request, as servers look at it: Starlette's, where that is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mcpd.protocol.principal import Origin

__all__ = ["Headers", "HttpRequest", "request_of"]


class Headers(Mapping[str, str]):
    """Headers by name, in any case."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._fields


class HttpRequest:
    """What is known of it where Starlette is not installed: its headers. It has no body, no query and no address."""

    method = "POST"

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.headers = Headers(fields)
        self.query_params: Mapping[str, str] = {}


def request_of(origin: Origin) -> Any:
    """The request with all its headers, credentials too: these servers read them here. None where there is none."""
    if origin.transport not in ("http", "websocket"):
        return None
    try:
        from starlette.requests import Request
    except ImportError:
        pairs = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in origin.fields)
        return HttpRequest(dict(pairs))
    headers = [(name.lower(), value) for name, value in origin.fields]
    return Request(
        {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers, "scheme": "http"}
    )
