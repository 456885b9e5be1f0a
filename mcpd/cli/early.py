"""`mcpd connect URL` until its first call: what the manifest knows is answered with little of mcpd loaded.

A host starts all of its servers, waits for their lists, and never calls most of them. So until a request comes that the
manifest cannot answer, the process is small, and the host does not wait for modules that it may never need. The rest of
mcpd then reads `initialize` again, and its answer, which the host has, is dropped (`StdioListener`).

Only plain messages of a legacy client are answered here: all others, and all faults, are left to the rest of mcpd.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

from msgspec import Raw

from mcpd.client.targets.named import read_url
from mcpd.errors import ProtocolError
from mcpd.protocol.budget import SMALL
from mcpd.protocol.envelope import has_no_envelope, read_initialize
from mcpd.protocol.jsonrpc import MALFORMED, Id, Notification, Request, Result, decode, encode
from mcpd.protocol.types.base import InitializeResult
from mcpd.protocol.versions.table import Version, negotiate
from mcpd.sources.mounts.manifest import Manifest, load

# What was read, and the id of the request at its beginning if that was answered.
Received: TypeAlias = "tuple[bytes, Id | None]"

_MEMBERS: Mapping[str, str] = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
_READ_BYTES = 65536
_MOST_BYTES = 65536

_NOTHING = Raw(b"{}")


class _Stopped(Exception):
    """A signal has ended the process."""


def wait_for_call(url: str) -> Received | None:
    """Answer requests on stdin until one needs the server. Return what was received; None at the end of stdin.

    Raises ConfigurationError for an invalid URL.
    """
    known = load(read_url(url))
    if known is None or known.info is None or not all(map(_is_pipe, (0, 1))):
        return b"", None
    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(each, _stop) for each in signals]
    try:
        return _Desk(known).run()
    except _Stopped as stopped:
        print(f"INFO mcpd: stopping: the process received {stopped}", file=sys.stderr)
        return None
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def _stop(number: int, frame: Any) -> NoReturn:
    raise _Stopped(signal.Signals(number).name)


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class _Desk:
    def __init__(self, known: Manifest) -> None:
        self._known = known
        self._version: Version | None = None
        self._opened_by: Id | None = None
        # `initialize`, then `notifications/initialized`.
        self._opening: list[bytes] = []

    def run(self) -> Received | None:
        rest = b""
        while True:
            line, end, after = rest.partition(b"\n")
            if end:
                answer = self._answer(line)
                if answer is None:
                    break
                _write(answer)
                rest = after
            elif len(rest) > _MOST_BYTES:
                break
            else:
                select.select([0], [], [])  # the host may have made the descriptor non-blocking
                chunk = os.read(0, _READ_BYTES)
                if not chunk and not rest:
                    return None
                if not chunk:
                    break
                rest += chunk

        return b"".join(b"%b\n" % line for line in self._opening) + rest, self._opened_by

    def _answer(self, line: bytes) -> bytes | None:
        # Return the answer, b"" for a message that needs none, or None if the rest of mcpd must read the message.
        try:
            message = decode(line)
            is_opened = isinstance(message, Notification) and message.method == "notifications/initialized"
            if is_opened and len(self._opening) == 1:
                self._opening.append(line)
                return b""
            result = self._result(message) if isinstance(message, Request) else None
        except (ProtocolError, *MALFORMED):
            return None

        if result is None or not isinstance(message, Request):
            return None
        if not self._opening:
            self._opening.append(line)
            self._opened_by = message.id
        return encode(Result(message.id, result)) + b"\n"

    def _result(self, request: Request) -> Any:
        # Return the result in the shape of the version; None for a request that is not answered here.
        known = self._known
        if not self._opening:
            if request.method != "initialize" or len(bytes(request.params)) > SMALL:
                return None
            params = read_initialize(request.params)
            if known.info is None or not has_no_envelope(params.meta):
                return None
            version = self._version = negotiate(params.protocol_version)
            result = InitializeResult(
                protocol_version=version.name, capabilities=known.capabilities, server_info=known.info,
                instructions=known.instructions,
            )  # fmt: skip
            return version.shape_result(result, _NOTHING)

        if bytes(request.params) not in (b"", b"{}"):
            return None
        if request.method == "ping":
            return _NOTHING
        listed = known.lists.get(request.method)
        if (
            listed is None
            or not listed.is_plain
            or len(self._opening) < 2
            or self._version is None
            or listed.version != self._version.name
        ):
            return None

        page = {name: value for name, value in listed.page.items() if name != "nextCursor"}
        return {**page, _MEMBERS[request.method]: listed.entries} if request.method in _MEMBERS else None


def _write(data: bytes) -> None:
    while data:
        select.select([], [1], [])
        try:
            data = data[os.write(1, data) :]
        except BlockingIOError:
            pass  # the rest is larger than what is free
