"""Requests and answers with a server's process, one at a time, beside all else that it writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from mcpd import __version__
from mcpd.client.targets.named import CommandTarget
from mcpd.doctor.child import Child
from mcpd.doctor.last_words import ending
from mcpd.protocol.types.base import META
from mcpd.protocol.versions import table
from mcpd.transports.child import Ending

WITH_HANDSHAKE, WITHOUT_HANDSHAKE = table.NEWEST_LEGACY, table.SUPPORTED[0]
"""The versions that a server is greeted in: what most hosts speak, and the newest."""

MOST_GARBAGE_BYTES = 1024 * 1024
"""So much on stdout that is no message is looked at; then the server is not read any more."""

_MOST_SHOWN = 5
_END_SECONDS = 0.5
_OURSELVES = {"name": "mcpd-doctor", "version": __version__}


class Answer(Struct, frozen=True):
    """What a server answered: a result, or an error."""

    seconds: float
    result: dict[str, Any] | None = None
    error: str = ""
    """Code and message."""
    code: int | None = None
    size: int = 0
    """Bytes of the whole message."""


class NoAnswer(Exception):
    """None came. The text goes behind `the server`."""


class Peer(Protocol):
    """Someone who answers requests: a process, or what runs behind a URL."""

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Answer:
        """Ask, and wait. Raises NoAnswer."""


class Dialogue:
    """One process, asked by one caller. `version` is set once one is agreed on: requests of some say it each time."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.child: Child
        self.envelope: str | None = None
        """The version that each request has to say, if it is one of those without a handshake."""
        self.capabilities: Mapping[str, Any] | None = None
        """What each request then says of us."""
        self.garbage: list[str] = []
        """The first lines on stdout that were no messages."""
        self.garbage_lines = 0
        self.strange_answers = 0
        """Answers that nobody has asked for."""
        self.asked: list[str] = []
        """Requests of the server's own, by method."""
        self._garbage_bytes = 0
        self._last_id = 0
        self._waiting: asyncio.Future[tuple[dict[str, Any], int]] | None = None
        self._replies: set[asyncio.Task[None]] = set()

    async def start(
        self, target: CommandTarget, *, as_hosts_do: bool = False, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the process; see `Child.start`. Raises OSError, ValueError."""
        self.child = await Child.start(target, self._take, as_hosts_do=as_hosts_do, environment=environment)

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Answer:
        """Ask, and wait for the answer. Raises NoAnswer."""
        self._last_id += 1
        members = dict(params or {})
        if self.envelope is not None:
            members = modern_params(self.envelope, params, self.capabilities)
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method}
        if members:
            message["params"] = members
        answered: asyncio.Future[tuple[dict[str, Any], int]] = asyncio.get_running_loop().create_future()
        self._waiting = answered
        began = time.monotonic()

        watching = asyncio.ensure_future(self._write_and_watch(encode(message)))
        waits: set[asyncio.Future[Any]] = {answered, watching}
        done, _ = await asyncio.wait(waits, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
        self._waiting = None
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        if not answered.done():
            answered.cancel()
            raise NoAnswer(self._why(method) if done else f"did not answer {method} within {self.timeout:g} s")
        return _read(*answered.result(), time.monotonic() - began)

    async def notify(self, method: str) -> None:
        """Tell it something that needs no answer."""
        self.child.write(encode({"jsonrpc": "2.0", "method": method}))

    async def end(self) -> Ending:
        """End the process."""
        ending = await self.child.end()
        for task in self._replies:
            task.cancel()
        return ending

    async def _write_and_watch(self, line: bytes) -> None:
        self.child.write(line)
        await self.child.is_over.wait()
        # Most close their stdout by ending, which shows a moment later.
        with suppress(TimeoutError):
            await asyncio.wait_for(self.child.process.wait(), _END_SECONDS)

    def _why(self, method: str) -> str:
        if self.child.flood:
            return f"is not read any more: {self.child.flood}"
        code = self.child.process.returncode
        if code is None:
            return f"closed its stdout instead of answering {method}"
        return f"ended instead of answering {method} ({ending(code)})"

    def _take(self, line: bytes) -> bool:
        """One line of stdout; whether to read on."""
        try:
            message = decode(line)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            message = None
        for each in message if isinstance(message, list) and message else [message]:
            if isinstance(each, dict) and ("method" in each or "result" in each or "error" in each):
                self._take_message(each, len(line))
            else:
                self._note_garbage(line)
        return self._garbage_bytes <= MOST_GARBAGE_BYTES

    def _take_message(self, message: dict[str, Any], size: int) -> None:
        if "method" in message:
            if "id" in message:
                self.asked.append(str(message["method"])[:100])
                reply = asyncio.create_task(self._reply(message))
                self._replies.add(reply)
                reply.add_done_callback(self._replies.discard)
        elif self._waiting is not None and not self._waiting.done() and message.get("id") == self._last_id:
            self._waiting.set_result((message, size))
        else:
            self.strange_answers += 1

    async def _reply(self, message: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": -32601, "message": "the doctor answers nothing"}
        self.child.write(encode(answer))

    def _note_garbage(self, line: bytes) -> None:
        self.garbage_lines += 1
        self._garbage_bytes += len(line) + 1
        if len(self.garbage) < _MOST_SHOWN:
            self.garbage.append(line[:200].decode("utf-8", "backslashreplace"))


def has_handshake(version: str) -> bool:
    """Whether a session of this version begins with `initialize`."""
    return version in table.LEGACY


def initialize_params(version: str, capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The params of `initialize`; without capabilities as a host that can do little sends them."""
    return {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": _OURSELVES}


def modern_params(
    version: str, params: Mapping[str, Any] | None = None, capabilities: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Params with what each request says of its client in versions without a handshake."""
    meta = {
        f"{META}protocolVersion": version,
        f"{META}clientInfo": _OURSELVES,
        f"{META}clientCapabilities": capabilities or {},
    }
    return {**(params or {}), "_meta": meta}


def _read(message: dict[str, Any], size: int, seconds: float) -> Answer:
    if "error" not in message:
        result = message.get("result")
        return Answer(seconds, result if isinstance(result, dict) else None, size=size)
    error = message["error"] if isinstance(message["error"], dict) else {}
    code = error.get("code")
    text = f"error {code}: {error.get('message')}"
    return Answer(seconds, error=text, code=code if isinstance(code, int) else None, size=size)
