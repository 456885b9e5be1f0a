"""A server's process, its answers to single requests, and every mistake that it makes.

The channel of the client is not used here, because it skips or repairs the mistakes that a doctor must see.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any, Protocol

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from mcpd import __version__
from mcpd.client.targets.named import CommandTarget
from mcpd.protocol.envelope import SERVER_INFO, Envelope
from mcpd.protocol.printable import printable
from mcpd.protocol.versions import table
from mcpd.transports.child import ChildProcess, Ending
from .report import Report

# A line that is longer is not read to its end.
MAX_LINE_BYTES = 64 * 1024 * 1024

_READ_BYTES = 65536
_STDERR_KEPT = 4096
_LINES = 12

# The variables that hosts built on the official libraries pass to a server, beside the variables of its entry.
PASSED_VARIABLES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")

_EXPLAINS = re.compile(
    r"error|exception|cannot|can't|could not|failed|fatal|denied|refused|not found|no such|unable|required|missing"
    r"|invalid|unknown|not in this registry",
    re.IGNORECASE,
)
_IS_EMPTY = re.compile(r"complete log of this run|^npm error (?:code|A )|--help' for more|^\s*npm (?:warn|notice)")

_NO_PYTHON_MODULE = re.compile(r"(?:ModuleNotFoundError: No module named|no module) '([\w.]{1,100})'")
_NO_NODE_MODULE = re.compile(r"Cannot find (?:module|package) '([^']{1,200})'")
_NO_VARIABLE = re.compile(r"KeyError: '([A-Z][A-Z0-9_]{2,99})'")
_NO_PACKAGE = re.compile(r"'([^']{1,200})' is not in this registry|E404")


def explaining_line(lines: list[str]) -> str:
    """Return the line that best explains a failure, or the last meaningful one. `lines` is not empty."""
    with_words = [line for line in lines if any(map(str.isalnum, line)) and not _IS_EMPTY.search(line)]
    telling = [line for line in with_words if _EXPLAINS.search(line.removeprefix("npm error"))]
    return ([lines[-1]] + with_words[-1:] + telling[-1:])[-1].strip()


def describe_ending(code: int) -> str:
    """Describe how a program ended: its exit code, or the name of the signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
    return f"it crashed: {name}" if -code in _CRASHES else name


_CRASHES = frozenset((signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE))


def advice_for_ending(lines: list[str], code: int) -> str:
    """Return the advice for a program that ended with this exit code and these last lines on stderr."""
    for line in reversed(lines):
        if found := _NO_PYTHON_MODULE.search(line):
            name = found[1].partition(".")[0]
            return f"install {name} for the Python that runs the server: python -m pip install {name}, with that python"
        if found := _NO_NODE_MODULE.search(line):
            return f"{found[1]} is missing. Is the path right? Otherwise run npm install in the server's folder"
        if found := _NO_VARIABLE.search(line):
            name = found[1]
            return (
                f"does it need the variable {name}? Set it with --env {name}=…, and in `env` of a host's configuration"
            )
        if found := _NO_PACKAGE.search(line):
            return "npm does not have this package: is its name right?"

    if lines:
        return "fix the error on stderr, and try again"
    if code == 0:
        return "it ends at once, without an error: is it a server, or does it need an option (such as stdio or serve)?"
    return "start it in a terminal and read what it prints"


# The versions of the first request: the one that most hosts speak, and the newest.
WITH_HANDSHAKE, WITHOUT_HANDSHAKE = table.NEWEST_LEGACY, table.SUPPORTED[0]

# A server that writes more bytes than this to stdout which are not messages is no longer read.
MAX_GARBAGE_BYTES = 1024 * 1024

# A list with more pages is taken to be endless.
MAX_PAGES = 1000

_MAX_SHOWN = 5
_END_SECONDS = 0.5
_OURSELVES = {"name": "mcpd-doctor", "version": __version__}


class Answer(Struct, frozen=True):
    """A server's response: a result, or an error."""

    seconds: float
    result: dict[str, Any] | None = None
    # Code and message.
    error: str = ""
    code: int | None = None
    # The size of the whole message, in bytes.
    size: int = 0


class NoAnswer(Exception):
    """No response arrived. The text follows the words "the server"."""


class Peer(Protocol):
    """Answers requests: a process, or a server behind a URL."""

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Answer:
        """Send a request, and wait for its response. Raises NoAnswer."""


class Dialogue:
    """A server process and one caller that sends it requests, one after the other. Call `end` in any case."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.process: ChildProcess
        # Seconds from the start to the first byte on stdout; None before that.
        self.first_byte: float | None = None
        self.stderr_bytes = 0
        # Why its stdout is no longer read; empty while it is.
        self.flood = ""
        # The version that each request states, in protocol versions without a handshake.
        self.envelope: str | None = None
        # The client capabilities that each request then states.
        self.capabilities: Mapping[str, Any] | None = None
        # The first lines on stdout that were not messages.
        self.garbage: list[str] = []
        self.garbage_lines = 0
        # Responses to requests that were never sent, or that were already answered.
        self.strange_answers = 0
        # The methods of the requests that the server has sent.
        self.asked: list[str] = []
        self._garbage_bytes = 0
        self._last_id = 0
        self._waiting: asyncio.Future[tuple[dict[str, Any], int]] | None = None
        self._began = time.monotonic()
        # Set when nothing more is read from stdout.
        self._is_over = asyncio.Event()
        self._stderr = b""
        self._pipes: list[asyncio.BaseTransport] = []
        self._stdin: asyncio.WriteTransport
        self._reading: list[asyncio.Task[None]] = []

    async def start(self, target: CommandTarget, environment: Mapping[str, str] = os.environ) -> None:
        """Start the process with these variables and the target's own. Raises OSError or ValueError."""
        self._began = time.monotonic()
        self.process = ChildProcess(
            target.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment, **(target.env or {})},
            cwd=target.cwd,
        )
        loop = asyncio.get_running_loop()
        self._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self.process.stdin)
        self._pipes.append(self._stdin)
        stdout, stderr = await self._reader(self.process.stdout), await self._reader(self.process.stderr)
        self._reading = [loop.create_task(self._read_stdout(stdout)), loop.create_task(self._read_stderr(stderr))]

    async def _reader(self, pipe: IO[bytes] | None) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(2 * _READ_BYTES)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._pipes.append(transport)
        return reader

    @property
    def stderr_lines(self) -> list[str]:
        """The last lines on stderr."""
        return [line for line in self._stderr.decode("utf-8", "replace").splitlines() if line.strip()][-_LINES:]

    async def end(self) -> Ending:
        """Close the input of the process, and end it with everything that it has started."""
        try:
            # A pipe with unread data does not close.
            if self._stdin.get_write_buffer_size():
                self._stdin.abort()
            self._stdin.close()
            return await self.process.end()
        finally:
            self.process.kill()
            for task in self._reading:
                task.cancel()
            await asyncio.gather(*self._reading, return_exceptions=True)
            # Processes that were left behind may hold the pipes open.
            for pipe in self._pipes:
                pipe.close()

    async def _read_stdout(self, stdout: asyncio.StreamReader) -> None:
        parts: list[bytes] = []
        size = 0
        try:
            while data := await stdout.read(_READ_BYTES):
                if self.first_byte is None:
                    self.first_byte = time.monotonic() - self._began
                *lines, rest = data.split(b"\n")
                for line in lines:
                    whole = b"".join((*parts, line))
                    parts, size = [], 0
                    if not self._take(whole):
                        self.flood = "it writes too much that is not a message"
                        return
                parts.append(rest)
                size += len(rest)
                if size > MAX_LINE_BYTES:
                    self.flood = f"it wrote a line of more than {MAX_LINE_BYTES // 1024 // 1024} MiB"
                    return
            if rest := b"".join(parts):
                self._take(rest)
        finally:
            self._is_over.set()

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        while data := await stderr.read(_READ_BYTES):
            self.stderr_bytes += len(data)
            self._stderr = (self._stderr + data)[-_STDERR_KEPT:]

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Answer:
        """Send a request, and wait for its response. Raises NoAnswer."""
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

    async def greet(self, capabilities: Mapping[str, Any] | None = None) -> Answer:
        """Begin as a host does: with `initialize` or, if the server refuses that, with `server/discover`.

        Returns the result of either, or the refusal of `initialize`. Raises NoAnswer.
        """
        initialized = await self.request("initialize", initialize_params(WITH_HANDSHAKE, capabilities))
        if initialized.result is not None:
            # Spec: 2025-11-25 basic/lifecycle: the server waits for it before it sends requests of its own.
            self._send(encode({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            return initialized
        self.envelope, self.capabilities = WITHOUT_HANDSHAKE, capabilities
        discovered = await self.request("server/discover")
        return discovered if discovered.result is not None else initialized

    def fault_of(self, opening: Answer) -> str:
        """Return why the first response is not the result of a server."""
        if "initialize" in self.asked:
            return "the program sends back its input, as cat does: it is not a server"
        return f"the server answers initialize with {printable(opening.error) or 'a result that is not an object'}"

    def advice_on_silence(self) -> str:
        """Return the advice for a server that was started but does not answer."""
        code = self.process.returncode
        if code is not None:
            return advice_for_ending(self.stderr_lines, code)
        if self.flood:
            return "write only messages to stdout, and everything else to stderr"
        if self.garbage_lines:
            return "it writes text instead of messages: does it need an option to speak MCP on stdin and stdout?"
        return (
            "does it need an option to speak MCP on stdin and stdout (such as stdio), or does it wait for "
            "a download, a login or a database? Give it longer with --timeout"
        )

    async def _write_and_watch(self, line: bytes) -> None:
        self._send(line)
        await self._is_over.wait()
        # Most servers close their stdout by ending, which shows a moment later.
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), _END_SECONDS)

    def _why(self, method: str) -> str:
        if self.flood:
            return f"is no longer read: {self.flood}"
        code = self.process.returncode
        if code is None:
            return f"closed its stdout instead of answering {method}"
        return f"ended instead of answering {method} ({describe_ending(code)})"

    def _send(self, line: bytes) -> None:
        # If the server does not read it, no answer arrives.
        self._stdin.write(line + b"\n")

    def _take(self, line: bytes) -> bool:
        try:
            message = decode(line)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            message = None
        # Only 2025-03-26 has batches, but a server may send one in any version.
        for each in message if isinstance(message, list) and message else [message]:
            if isinstance(each, dict) and ("method" in each or "result" in each or "error" in each):
                self._take_message(each, len(line))
            else:
                self.garbage_lines += 1
                self._garbage_bytes += len(line) + 1
                if len(self.garbage) < _MAX_SHOWN:
                    self.garbage.append(line[:200].decode("utf-8", "backslashreplace"))

        return self._garbage_bytes <= MAX_GARBAGE_BYTES

    def _take_message(self, message: dict[str, Any], size: int) -> None:
        if "method" in message:
            if "id" in message:
                self.asked.append(str(message["method"])[:100])
                answer: dict[str, Any] = {"error": {"code": -32601, "message": "mcpd doctor answers no requests"}}
                # Spec: 2025-11-25 basic/utilities/ping: a ping is always answered, and promptly.
                if message["method"] == "ping":
                    answer = {"result": {}}
                self._send(encode({"jsonrpc": "2.0", "id": message["id"], **answer}))
        elif self._waiting is not None and not self._waiting.done() and message.get("id") == self._last_id:
            self._waiting.set_result((message, size))
        else:
            self.strange_answers += 1


class EntryList(Struct):
    entries: list[Any]
    pages: int
    # How long all pages took together.
    seconds: float


async def read_list(peer: Peer, method: str, member: str, *, is_optional: bool) -> EntryList:
    """Read all pages of a list. Raises NoAnswer if a page is missing or malformed, or if the list never ends.

    With `is_optional`, the list is empty if the server does not know the method.
    """
    found = EntryList([], 0, 0.0)
    cursors: set[str] = set()
    cursor: Any = None
    while True:
        answer = await peer.request(method, None if cursor is None else {"cursor": cursor})
        found.pages += 1
        found.seconds += answer.seconds
        result = answer.result or {}
        page = result.get(member)
        if not isinstance(page, list):
            if answer.code == -32601 and is_optional:
                return found
            raise NoAnswer(f"answers {method} with {printable(answer.error) or f'no list {member!r}'}")

        found.entries += page
        cursor = result.get("nextCursor")
        if cursor is None:
            return found
        if str(cursor) in cursors or found.pages >= MAX_PAGES:
            raise NoAnswer(f"never ends {method}: the page after cursor {printable(cursor)!r} comes again")
        cursors.add(str(cursor))


def server_info(opening: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name and version of a server in its first result."""
    meta = opening.get("_meta")
    info = opening.get("serverInfo") or (meta.get(SERVER_INFO) if isinstance(meta, dict) else None)
    return info if isinstance(info, dict) else {}


def has_handshake(version: str) -> bool:
    """Return whether a session of this version begins with `initialize`."""
    return version in table.LEGACY


def judge_versions(outcomes: Mapping[str, str], report: Report) -> None:
    """Judge the versions that a server speaks. `outcomes` has the reason for which it refuses each; "" for none."""
    taken = [version for version, why in outcomes.items() if not why]
    text = ", ".join(taken)
    refused = "; ".join(f"{version} {why}" for version, why in outcomes.items() if why)
    if not taken:
        advice = f"answer `initialize` with a version that exists, such as {WITH_HANDSHAKE}"
        text = f"the server supports no known version: {refused}"
        report.fail("versions", text, advice, taken=taken, others=outcomes)
    elif taken[0] == table.SUPPORTED[0] or WITH_HANDSHAKE in taken:
        report.ok("versions", text, advice=refused, taken=taken, others=outcomes)
    else:
        advice = "most hosts use 2025-11-25 but accept it; update the library that the server is built on"
        report.warn("versions", f"{text}; {refused}", advice, taken=taken, others=outcomes)


def initialize_params(version: str, capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the params of `initialize`. Without `capabilities` they declare a host that can do little."""
    return {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": _OURSELVES}


def modern_params(
    version: str, params: Mapping[str, Any] | None, capabilities: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return params that describe the client, as each request does in versions without a handshake."""
    return Envelope(version, _OURSELVES, capabilities or {}).wrap(params or {})


def _read(message: dict[str, Any], size: int, seconds: float) -> Answer:
    if "error" not in message:
        result = message.get("result")
        return Answer(seconds, result if isinstance(result, dict) else None, size=size)
    error = message["error"] if isinstance(message["error"], dict) else {}
    code = error.get("code")
    text = f"error {code}: {error.get('message')}"
    return Answer(seconds, error=text, code=code if isinstance(code, int) else None, size=size)
