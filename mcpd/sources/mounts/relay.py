"""Passes one request on to a mounted server, and its result back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.json import Decoder
from msgspec.structs import asdict

from mcpd.errors import ProtocolError, RemoteError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.types.base import CacheableResult, ProgressParams, RawResult, Result
from mcpd.protocol.types.features import CallToolResult, GetPromptResult, ReadResourceResult

if TYPE_CHECKING:
    from mcpd.client.session import OnProgress
    from mcpd.server.context.exchange import Exchange
    from .upstream import Connection


class _ReadResult(CacheableResult, kw_only=True):
    # Text and blob contents have no tag that distinguishes them.
    contents: list[dict[str, Any]]


_RESULTS: dict[str, type[Result]] = {
    "tools/call": CallToolResult, "prompts/get": GetPromptResult, "resources/read": _ReadResult,
}  # fmt: skip


class UpstreamError(ProtocolError):
    """The error of a mounted server, with its code, message and data."""

    def __init__(self, error: RemoteError) -> None:
        super().__init__(error.message, error.data)
        self.code = error.code  # type: ignore[misc]


async def forward(connection: Connection, method: str, params: dict[str, Any], exchange: Exchange) -> Result:
    """Send a request to a mounted server, and return its result.

    `params` have the names and URIs of that server. Raises UpstreamError, ConnectionLost and RequestTimeout.
    """
    members = {name: value for name, value in params.items() if name != "_meta"}
    timeout = connection.settings.timeout or None
    try:
        raw = await connection.client.request(method, members, timeout=timeout, on_progress=_progress(exchange))
    except RemoteError as error:
        raise UpstreamError(error) from None
    return _shaped(connection, method, raw, exchange)


def _progress(exchange: Exchange) -> OnProgress | None:
    meta = exchange.call.meta
    if meta is None or meta.progress_token is None:
        return None
    token = meta.progress_token

    def report(progress: float, total: float | None, message: str | None) -> None:
        params = ProgressParams(progress_token=token, progress=progress, total=total, message=message)
        pause = exchange.peer.notify_nowait("notifications/progress", params, exchange.call)
        if pause is not None:
            pause.close()

    return report


def _shaped(connection: Connection, method: str, raw: Raw, exchange: Exchange) -> Result:
    # Without a change of version or names, the result stays as it is.
    kind = _RESULTS.get(method)
    is_same = exchange.call.version is connection.session.version
    has_uri = connection.prefix.is_used and b'"uri"' in bytes(raw)
    if kind is None or (is_same and not has_uri):
        return RawResult(raw=raw)
    try:
        result: Any = Decoder(kind).decode(raw)
    except MALFORMED:
        return RawResult(raw=raw)
    prefix = connection.prefix
    if isinstance(result, CallToolResult):
        result.content = [prefix.content(block) for block in result.content]
    elif isinstance(result, _ReadResult):
        contents = [prefix.content(each) for each in result.contents]
        return ReadResourceResult(**{**asdict(result), "contents": contents})
    elif isinstance(result, GetPromptResult):
        for message in result.messages:
            message.content = prefix.content(message.content)
    return result  # type: ignore[no-any-return]
