"""Sends single HTTP requests as hosts do, and returns the whole response, including what a client would not show."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from mcpd.client.http.options import HttpOptions
from mcpd.client.http.pool import Body, HttpPool
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import ConfigurationError, HttpError, TransportError
from mcpd.protocol.wire.sse import SseReader
from mcpd.transports.challenge import said_in
from .dialogue import NoAnswer, has_handshake, initialize_params, modern_params

MAX_BYTES = 4 * 1024 * 1024
_BOTH = "application/json, text/event-stream"


class Reply(Struct, frozen=True):
    status: int
    # With lower-case names.
    headers: dict[str, str]
    body: bytes
    # Seconds until its head arrived.
    head_seconds: float
    # Its URL, after redirects.
    url: str

    @property
    def kind(self) -> str:
        """The media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def opening(self) -> dict[str, Any] | None:
        """The result of the first request of a conversation; None if that failed."""
        result = (message_in(self.body, self.kind) or {}).get("result")
        return result if isinstance(result, dict) else None

    @property
    def first_line(self) -> str:
        """The first line of its body, for people."""
        return said_in(self.body)


class Web:
    """The server at a URL. `timeout` is how many seconds each request may take."""

    def __init__(self, target: UrlTarget, timeout: float) -> None:
        self.target = target
        self.timeout = timeout

    @property
    def has_token(self) -> bool:
        """Whether requests carry credentials."""
        return any(name.lower() == "authorization" for name in self.target.headers)

    async def greet(self, version: str, headers: Mapping[str, str] | None = None, *, url: str | None = None) -> Reply:
        """Send the first request of a host that speaks this version. Raises NoAnswer."""
        if has_handshake(version):
            return await self._post("initialize", initialize_params(version), headers or {}, url=url)
        return await self.post_modern(version, "server/discover", headers=headers, url=url)

    async def post_modern(
        self,
        version: str,
        method: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        url: str | None = None,
    ) -> Reply:
        """Send a request in a version without a handshake. Raises NoAnswer."""
        fields = {"MCP-Protocol-Version": version, "Mcp-Method": method, **(headers or {})}
        return await self._post(method, modern_params(version, params), fields, url=url)

    async def _post(self, method: str, params: dict[str, Any], headers: Mapping[str, str], *, url: str | None) -> Reply:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        fields = {"Content-Type": "application/json", "Accept": _BOTH, **headers}
        return await self.ask("POST", fields, encode(message), url=url)

    async def ask(
        self,
        method: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        url: str | None = None,
        until: Callable[[bytes], bool] | None = None,
    ) -> Reply:
        """Send a request. Raises NoAnswer.

        An event stream is read until its first response, or until `until` returns true for its bytes.
        """
        target = self.target if url is None else replace(self.target, url=url)
        options = HttpOptions(socket=target.socket, verify=True if target.ca_file is None else target.ca_file)
        began = time.monotonic()
        try:
            link = HttpPool(target.url, options, target.headers)
            await link.open()
            try:
                async with asyncio.timeout(self.timeout):
                    reply = await link.request(method, link.url, headers or {}, body)
                head = time.monotonic() - began
                fields = {name.lower(): value for name, value in reply.headers.items()}
                if until is None:
                    is_stream = fields.get("content-type", "").startswith("text/event-stream")
                    until = lambda data: is_stream and message_in(data, "text/event-stream") is not None  # noqa: E731
                data, content = b"", Body(reply, link)
                with suppress(TimeoutError, TransportError):
                    async with asyncio.timeout(max(self.timeout - head, 0.1)):
                        while len(data) < MAX_BYTES and not until(data) and (chunk := await content.read()):
                            data += chunk
                where = str(reply.url)
                reply.close()
            finally:
                await link.aclose()
        except TimeoutError:
            raise NoAnswer(f"did not answer within {self.timeout:g} s") from None
        except HttpError as error:
            raise NoAnswer(f"redirects the request: {error}") from None
        except (TransportError, ConfigurationError) as error:
            raise NoAnswer(f"did not answer: {error}") from None

        return Reply(reply.status, fields, data, head, where)


def message_in(body: bytes, kind: str) -> dict[str, Any] | None:
    """Return the first response in a body: its JSON object, or the object in an event."""
    is_stream = kind == "text/event-stream"
    for text in [event.data for event in SseReader(MAX_BYTES).feed(body)] if is_stream else [body]:
        try:
            found = decode(text)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(found, dict) and ("result" in found or "error" in found):
            return found
    return None
