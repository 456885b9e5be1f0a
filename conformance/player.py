"""Transcripts: exchanges written by hand from the specification, read, and played against a server.

A transcript file holds several exchanges, each on a connection of its own:

    # a comment; rules that an exchange shows are cited in comments
    --- name of the exchange
    @open {"sampling": {}}                    the opening of the folder's version, with these client capabilities
    > {"jsonrpc": "2.0", "id": 1, …}          client to server
    >> {"jsonrpc": …                          the same, but these very characters, which may be no JSON
    < {"jsonrpc": "2.0", "id": 1, …}          server to client: the next message has to match
    <| {…}                                    neighbours with a bar may come in any order

`@open` initializes a legacy connection. In 2026-07-28 there is nothing to open: from there on each request
that has no `_meta` of its own gets the envelope. At the end the server has to be silent.

What the server sends has to be equal to what is written, but for these:

    "$string" "$integer" "$number" "$boolean" "$object" "$array" "$base64" "$any"     a value of that kind
    "$$name"                    a value to remember; further on the same value, also in what the client sends
    {…, "$more": true}          an object that may have further members
    […, "$more"]                an array that may have further items
    {"$has": […]}               an array that has these items, among others and in any order
    "$identity"                 {"io.modelcontextprotocol/serverInfo": …} of the fixture server

Nothing here knows a transport: `play` is given a wire, which has `send(bytes)` and `receive()`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

__all__ = ["FOLDER", "Exchange", "Mismatch", "Wire", "exchanges", "match", "play"]

FOLDER = Path(__file__).resolve().parent / "transcripts"
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
CLIENT = {"name": "transcript", "version": "1.0.0"}
IDENTITY = {
    f"{META}serverInfo": {
        "name": "everything",
        "version": "1.0.0",
        "title": "Everything",
        "description": "One of everything, for conformance tests",
        "websiteUrl": "https://example.com/everything",
        "icons": [{"src": "https://example.com/everything.png", "mimeType": "image/png", "sizes": ["48x48"]}],
    }
}


class Wire(Protocol):
    """What a transport has to give."""

    def send(self, message: bytes) -> None:
        """Send one message, whatever is in it."""

    def receive(self) -> Awaitable[Any]:
        """The server's next message, decoded."""


class Line(NamedTuple):
    """One line: its number in the file, its mark and what stands behind."""

    number: int
    mark: str
    text: str


class Exchange(NamedTuple):
    """One connection's worth of lines."""

    path: Path
    name: str
    lines: list[Line]

    @property
    def version(self) -> str:
        """The protocol version, by the folder's name."""
        return self.path.parent.name

    def __repr__(self) -> str:
        return f"{self.version}/{self.path.stem}: {self.name}"

    def messages(self) -> Iterator[tuple[str, Any]]:
        """(mark, message) of each line that holds JSON; for looking at a transcript without playing it."""
        for line in self.lines:
            if line.mark in (">", "<", "<|"):
                yield line.mark, json.loads(line.text)


class Mismatch(AssertionError):
    """The server said something else."""


def exchanges(folder: Path = FOLDER) -> list[Exchange]:
    """All exchanges of all transcripts."""
    found = [exchange for path in sorted(folder.glob("*/*.jsonl")) for exchange in _read(path)]
    assert found, f"no transcripts in {folder}"
    return found


def _read(path: Path) -> Iterator[Exchange]:
    current: Exchange | None = None
    for number, text in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        mark, _, rest = text.partition(" ")
        if not text or mark.startswith("#"):
            continue
        if mark == "---":
            if current is not None:
                yield current
            current = Exchange(path, rest, [])
        elif mark in (">", ">>", "<", "<|", "@open") and current is not None:
            current.lines.append(Line(number, mark, rest))
        else:
            raise ValueError(f"{path}:{number}: cannot make anything of this line")
    if current is not None:
        yield current


# ------------------------------------------------------------------------------------- matching

_KINDS: dict[str, Any] = {
    "$string": lambda value: isinstance(value, str),
    "$integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "$number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "$boolean": lambda value: isinstance(value, bool),
    "$object": lambda value: isinstance(value, dict),
    "$array": lambda value: isinstance(value, list),
    "$base64": lambda value: isinstance(value, str) and bool(base64.b64decode(value, validate=True)),
    "$any": lambda value: True,
}


def match(pattern: Any, value: Any, known: dict[str, Any], where: str = "$") -> None:
    """Raise Mismatch, naming the place, unless the value is what the pattern says. Remembers values in `known`."""
    if isinstance(pattern, str) and pattern.startswith("$"):
        _match_placeholder(pattern, value, known, where)
    elif isinstance(pattern, dict):
        _match_object(pattern, value, known, where)
    elif isinstance(pattern, list):
        _match_array(pattern, value, known, where)
    elif type(pattern) is not type(value) or pattern != value:
        raise Mismatch(f"at {where}: expected {json.dumps(pattern)}, got {json.dumps(value)}")


def _match_placeholder(pattern: str, value: Any, known: dict[str, Any], where: str) -> None:
    if pattern == "$identity":
        match(IDENTITY, value, known, where)
    elif pattern.startswith("$$"):
        if pattern in known:
            match(known[pattern], value, {}, where)
        known[pattern] = value
    elif not _KINDS[pattern](value):
        raise Mismatch(f"at {where}: expected {pattern[1:]}, got {json.dumps(value)}")


def _match_object(pattern: dict[str, Any], value: Any, known: dict[str, Any], where: str) -> None:
    if "$has" in pattern:
        _match_members(pattern["$has"], value, known, where)
        return
    if not isinstance(value, dict):
        raise Mismatch(f"at {where}: expected an object, got {json.dumps(value)}")
    wanted = pattern.keys() - {"$more"}
    if missing := wanted - value.keys():
        raise Mismatch(f"at {where}: no {', '.join(sorted(missing))} in {json.dumps(value)}")
    if "$more" not in pattern and (surplus := value.keys() - wanted):
        raise Mismatch(f"at {where}: {', '.join(sorted(surplus))} should not be in {json.dumps(value)}")
    for key in wanted:
        match(pattern[key], value[key], known, f"{where}.{key}")


def _match_array(pattern: list[Any], value: Any, known: dict[str, Any], where: str) -> None:
    if not isinstance(value, list):
        raise Mismatch(f"at {where}: expected an array, got {json.dumps(value)}")
    wanted = [item for item in pattern if item != "$more"]
    if len(value) < len(wanted) or (len(value) > len(wanted) and len(wanted) == len(pattern)):
        raise Mismatch(f"at {where}: expected {len(wanted)} items, got {json.dumps(value)}")
    for index, item in enumerate(wanted):
        match(item, value[index], known, f"{where}[{index}]")


def _match_members(patterns: list[Any], value: Any, known: dict[str, Any], where: str) -> None:
    if not isinstance(value, list):
        raise Mismatch(f"at {where}: expected an array, got {json.dumps(value)}")
    for pattern in patterns:
        problems = []
        for item in value:
            try:
                match(pattern, item, known, where)
                break
            except Mismatch as problem:
                problems.append((_likeness(pattern, item), str(problem)))
        else:
            nearest = max(problems, default=(0, "it is empty"))[1]
            raise Mismatch(f"{where} has no {json.dumps(pattern)}; the nearest item: {nearest}")


def _likeness(pattern: Any, item: Any) -> int:
    """How many members are equal: of several items that do not match, the one meant is the most alike."""
    if isinstance(pattern, dict) and isinstance(item, dict):
        return sum(item.get(key) == value for key, value in pattern.items())
    return 0


def _filled(value: Any, known: dict[str, Any]) -> Any:
    """What the client sends, with the values remembered so far."""
    if isinstance(value, str) and value.startswith("$$"):
        return known[value]
    if isinstance(value, dict):
        return {key: _filled(item, known) for key, item in value.items()}
    return [_filled(item, known) for item in value] if isinstance(value, list) else value


# -------------------------------------------------------------------------------------- playing


async def play(exchange: Exchange, wire: Wire) -> None:
    """Play one exchange. Raises Mismatch, naming file and line, where the server says something else."""
    known: dict[str, Any] = {}
    envelope: dict[str, Any] | None = None
    lines = list(exchange.lines)
    while lines:
        line = lines.pop(0)
        if line.mark == ">>":
            wire.send(line.text.encode())
        elif line.mark == ">":
            _send(wire, _filled(json.loads(line.text), known), envelope)
        elif line.mark == "@open":
            envelope = await _open(exchange.version, json.loads(line.text or "{}"), wire)
        else:
            group = [line]
            while line.mark == "<|" and lines and lines[0].mark == "<|":
                group.append(lines.pop(0))
            await _expect(exchange, group, wire, known)
    # Nothing more is on its way: the next message answers what is asked only now.
    method = "server/discover" if exchange.version == MODERN else "ping"
    params = {"_meta": _envelope({})} if exchange.version == MODERN else {}
    _send(wire, {"jsonrpc": "2.0", "id": "the end", "method": method, "params": params}, None)
    rest = await wire.receive()
    if rest.get("id") != "the end":
        raise Mismatch(f"{exchange!r}: after its last line came {json.dumps(rest)}")


async def _expect(exchange: Exchange, group: list[Line], wire: Wire, known: dict[str, Any]) -> None:
    patterns = [(line.number, json.loads(line.text)) for line in group]
    while patterns:
        message = await wire.receive()
        problems = []
        for entry in patterns:
            remembered = dict(known)
            try:
                match(entry[1], message, remembered)
            except Mismatch as problem:
                problems.append(f"  line {entry[0]}: {problem}")
                continue
            known.update(remembered)
            patterns.remove(entry)
            break
        else:
            told = "\n".join(problems)
            raise Mismatch(f"{exchange!r} ({exchange.path.name}), got {json.dumps(message)}\n{told}")


def _send(wire: Wire, message: Any, envelope: dict[str, Any] | None) -> None:
    if envelope is not None and isinstance(message, dict) and "id" in message and "method" in message:
        params = message.get("params", {})
        if f"{META}protocolVersion" not in params.get("_meta", {}):
            params = {**params, "_meta": {**envelope, **params.get("_meta", {})}}
            message = {**message, "params": params}
    wire.send(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode())


def _envelope(capabilities: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{META}protocolVersion": MODERN,
        f"{META}clientInfo": CLIENT,
        f"{META}clientCapabilities": capabilities,
    }


async def _open(version: str, capabilities: dict[str, Any], wire: Wire) -> dict[str, Any] | None:
    if version == MODERN:
        return _envelope(capabilities)
    params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": CLIENT}
    _send(wire, {"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params}, None)
    answer = await wire.receive()
    if answer.get("id") != "open" or answer.get("result", {}).get("protocolVersion") != version:
        raise Mismatch(f"initialize in {version} gave {json.dumps(answer)}")
    _send(wire, {"jsonrpc": "2.0", "method": "notifications/initialized"}, None)
    return None
