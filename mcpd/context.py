"""What a tool, resource or prompt is given beside its arguments: the request it serves, and ways to talk back.

A `Context` looks the same in every protocol version. It belongs to one request and is of no use after it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol, TypeVar

from msgspec import UNSET, Raw
from msgspec.json import Decoder

from .jsonrpc import MALFORMED, Id
from .session import Call, Client
from .types.lifecycle import ClientCapabilities, Implementation
from .types.notifications import LOG_LEVELS, LogLevel, LogMessageParams, ProgressParams

__all__ = ["Context", "Peer"]

T = TypeVar("T")


class Peer(Protocol):
    """The connection as a context sees it."""

    loop: asyncio.AbstractEventLoop

    async def notify(self, method: str, params: Any, about: Call | None = None) -> None:
        """Send a notification, as part of `about`; dropped if that is answered or the version has none such."""


class _MetaOnly(Protocol):
    meta: dict[str, Any] | None


class Context:
    """One request: who asks, in which version, and how to report, log and ask back.

    In an `async def` tool its methods are awaited. In a plain function, which runs in a thread, the same
    calls do their work at once and give nothing to wait for: `ctx.progress(0.5)`.
    """

    __slots__ = ("_call", "_peer")

    def __init__(self, call: Call, peer: Peer) -> None:
        self._call = call
        self._peer = peer

    @property
    def request_id(self) -> Id:
        """The JSON-RPC id, with its type."""
        return self._call.id

    @property
    def method(self) -> str:
        """The request's method, e.g. `tools/call`."""
        return self._call.method

    @property
    def protocol_version(self) -> str:
        """The protocol version of this request, e.g. `2026-07-28`."""
        return self._call.version.name

    @property
    def client_info(self) -> Implementation | None:
        """The client's name and version, None if it did not say."""
        return self._call.client.info

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client offers for this request."""
        return self._call.client.capabilities

    @property
    def client(self) -> Client:
        """Identity and capabilities together."""
        return self._call.client

    @property
    def is_cancelled(self) -> bool:
        """Whether the client gave the request up. An async tool is stopped; a plain one should look now and then."""
        return not self._call.is_open

    @property
    def meta(self) -> dict[str, Any]:
        """The request's `_meta` as it came, {} if there is none."""
        raw = self._call.raw
        try:
            return _decode_meta(raw).get("_meta") or {}
        except MALFORMED:
            return {}

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Tell the client how far the request has come.

        `progress` has to rise; a value that does not is dropped. Without a progress token from the client
        nothing is sent. Spec: 2026-07-28 basic/patterns/progress.
        """
        return self._do(self._progress(progress, total, message))

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        call = self._call
        token = None if call.meta is None else call.meta.progress_token
        if token is None or (call.last_progress is not None and progress <= call.last_progress):
            return
        call.last_progress = progress
        params = ProgressParams(progress_token=token, progress=progress, total=total, message=message)
        await self._peer.notify("notifications/progress", params, call)

    def log(self, level: LogLevel, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client, if it wants messages of this level.

        `data` is any JSON value; put nothing secret in it. Spec: 2026-07-28 server/utilities/logging.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"log level {level!r} is none of {', '.join(LOG_LEVELS)}")
        return self._do(self._log(level, data, logger))

    async def _log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        wanted = self._call.log_level
        if wanted is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(wanted):
            return
        params = LogMessageParams(level=level, data=UNSET if data is UNSET else data, logger=logger)
        await self._peer.notify("notifications/message", params, self._call)

    def debug(self, data: Any) -> Awaitable[None]:
        """`log("debug", data)`."""
        return self.log("debug", data)

    def info(self, data: Any) -> Awaitable[None]:
        """`log("info", data)`."""
        return self.log("info", data)

    def warning(self, data: Any) -> Awaitable[None]:
        """`log("warning", data)`."""
        return self.log("warning", data)

    def error(self, data: Any) -> Awaitable[None]:
        """`log("error", data)`."""
        return self.log("error", data)

    def _do(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """`work` to be awaited on the event loop's thread; from another thread it is done when this returns."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._peer.loop:
            return work
        return _Done(asyncio.run_coroutine_threadsafe(work, self._peer.loop).result())


class _Done(Awaitable[T]):
    """A value that is there already, for code that awaits it all the same."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __await__(self) -> Any:
        return self.value
        yield  # pragma: no cover  # makes this a generator


_decode_meta = Decoder(dict[str, Any]).decode
