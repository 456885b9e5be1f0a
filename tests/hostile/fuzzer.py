"""Messages made of real ones, mutated; and what may be answered to each, read by nobody of ours.

The seeds are what the client says in conformance/transcripts. `Fuzzer(seed, version)` gives the same messages each
time. `read` says of the bytes of a message what JSON-RPC wants back: exactly one answer for a request with an id,
none for a notification, at most an error for what is neither.
"""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["META", "MODERN", "VERSIONS", "Expected", "Fuzzer", "envelope", "key_of", "read"]

VERSIONS = ("2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
MODERN = VERSIONS[-1]
META = "io.modelcontextprotocol/"
CAPABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
TRANSCRIPTS = Path(__file__).resolve().parent.parent.parent / "conformance" / "transcripts"

# Tools that fail on purpose with what nobody meant, never end, or make as long a list as they are told to.
_LEFT_OUT = ("crash", "wait_for_ever", "structured_list")

Key = tuple[type, Any]


def envelope() -> dict[str, Any]:
    """The `_meta` of a request of the modern version."""
    return {
        f"{META}protocolVersion": MODERN,
        f"{META}clientInfo": {"name": "fuzzer", "version": "1"},
        f"{META}clientCapabilities": CAPABILITIES,
    }


@functools.cache
def seeds(version: str) -> list[Any]:
    """What clients of this version say in the transcripts."""
    found = []
    for path in sorted((TRANSCRIPTS / version).glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("> ") and not any(name in line for name in _LEFT_OUT):
                message = json.loads(line[2:])
                if version == MODERN and isinstance(message, dict) and "id" in message and "method" in message:
                    params = message.setdefault("params", {})
                    params["_meta"] = {**envelope(), **params.get("_meta", {})}
                found.append(message)
    assert len(found) > 20, version
    return found


# ------------------------------------------------------------------------------------- what may come back


class Expected(NamedTuple):
    """What one frame may be answered with. `exact` are ids that have one answer each, `perhaps` those that may.

    `errors` is how many errors without an id there may be; `cancels` are ids that may go unanswered from here on.
    """

    exact: tuple[Key, ...] = ()
    perhaps: tuple[Key, ...] = ()
    errors: int = 0
    cancels: tuple[Key, ...] = ()


_ANYTHING = Expected(errors=1)


def key_of(value: Any) -> Key | None:
    """An id with its type, None for what is none. A lone surrogate is U+FFFD."""
    if isinstance(value, str):
        return str, value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return (int, value) if type(value) is int else None


class _Pairs(list[tuple[str, Any]]):
    """An object's members as they came, those that came twice too."""

    def all(self, name: str) -> list[Any]:
        return [value for key, value in self if key == name]


def read(data: bytes, version: str) -> Expected | None:
    """What this frame may be answered with; None if that cannot be said, and it had better not be sent."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_Pairs, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        # No JSON, or no UTF-8 in a part that nobody reads: what looks like an id in it may be read as one.
        return None if b"cancelled" in data else Expected(perhaps=tuple(_ids_in(data)), errors=1)
    if isinstance(value, list) and not isinstance(value, _Pairs) and version == "2025-03-26" and value:
        parts = [_read_one(part, data) for part in value]
        if any(part is None for part in parts):
            return None
        known = [part for part in parts if part is not None]
        return Expected(
            tuple(key for part in known for key in part.exact),
            tuple(key for part in known for key in part.perhaps),
            sum(part.errors for part in known),
            tuple(key for part in known for key in part.cancels),
        )
    return _read_one(value, data)


_ID = re.compile(r'"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")')


def _ids_in(data: bytes) -> Iterator[Key]:
    for found in _ID.findall(data.decode(errors="replace")):
        try:
            key = key_of(json.loads(found, strict=False))
        except ValueError:
            continue
        if key is not None:
            yield key


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _read_one(value: Any, data: bytes) -> Expected | None:
    if not isinstance(value, _Pairs):
        return _ANYTHING
    names = [name for name, _ in value]
    ids = tuple(key for key in map(key_of, value.all("id")) if key is not None)
    is_clear = len(set(names)) == len(names) and _depth(data) < 100
    method = value.all("method")
    if not is_clear or value.all("jsonrpc") != ["2.0"] or len(method) != 1 or not isinstance(method[0], str):
        return None if b"cancelled" in data else Expected(perhaps=ids, errors=1)
    if "id" not in names:
        if method[0] != "notifications/cancelled":
            return Expected()
        params = value.all("params")[0] if "params" in names else None
        given_up = params.all("requestId") if isinstance(params, _Pairs) else []
        return Expected(cancels=tuple(key for key in map(key_of, given_up) if key is not None))
    if not ids:
        return _ANYTHING
    if method[0] == "subscriptions/listen":  # answered when it ends
        return Expected(perhaps=ids)
    return Expected(exact=ids)


def _depth(data: bytes) -> int:
    """At most so deep is it nested."""
    return data.count(b"[") + data.count(b"{")


# ---------------------------------------------------------------------------------------------- making them


class _Verbatim(str):
    """JSON text that stands as it is, whether it is any or not."""

    __slots__ = ()


_AGAIN = "\0again\0"


def dump(value: Any) -> str:
    """As JSON text; a key may stand twice, and a `_Verbatim` be anything."""
    if isinstance(value, _Verbatim):
        return str(value)
    if isinstance(value, dict):
        members = (f"{json.dumps(str(key).removeprefix(_AGAIN))}:{dump(member)}" for key, member in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=isinstance(value, str) and bool(re.search("[\ud800-\udfff\x7f]", value)))


HOSTILE: list[Any] = [
    None, True, False, 0, -1, 1.5, "", "x", [], {}, [[]], {"": {}}, "\x00", "\n\r\x1b[2J", "\u202e\u2028", "\ud800",
    "a\udfffb", "x" * 3000, "../../etc/passwd", "%s%n%r{0}", "__class__", 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1,
    10**30, 1e308, [None] * 50, {f"k{n}": n for n in range(50)}, ["a", 1, None, {}],
    *map(_Verbatim, (
        "1e999", "-1e400", "9" * 4000, "-0", "1.0", "1e2", "NaN", "Infinity", "[" * 40 + "]" * 40,
        '{"a":' * 40 + "1" + "}" * 40, "[" * 3000 + "]" * 3000, '"\\ud83d"', '"\\udc00\\ud800"', "", "01", "tru", "'x'",
        "/*x*/1",
    )),
]  # fmt: skip

_CHARACTERS = ["\ud800", "\x00", "é", "\U0001f600", '"', "\\", "\u202e"]

BROKEN = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x00", b"\xef\xbb\xbf", b"\x1b", b"\xc0\xaf"]

METHODS = [
    "ping", "initialize", "tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read",
    "resources/subscribe", "resources/unsubscribe", "prompts/list", "prompts/get", "completion/complete",
    "logging/setLevel", "server/discover", "subscriptions/listen", "notifications/initialized",
    "notifications/progress", "notifications/roots/list_changed",
    "sampling/createMessage", "elicitation/create", "roots/list", "rpc.discover",
    "tools/call ", "TOOLS/CALL", "", "\ud800",
]  # fmt: skip


class Fuzzer:
    """Messages of one connection, in a version. Ids are seldom used twice."""

    def __init__(self, seed: str, version: str) -> None:
        self.random = random.Random(seed)
        self.version = version
        self._seeds = seeds(version)
        self._count = 0

    def message(self) -> tuple[bytes, Expected]:
        """One frame without a newline in it, and what it may be answered with."""
        while True:
            data = self._make()
            expected = read(data, self.version)
            if expected is not None and data.strip():
                return data, expected

    def answer(self, request: dict[str, Any]) -> bytes:
        """What the client says to a request of the server: always something that ends it, seldom what was wanted."""
        results: list[Any] = [
            {"action": "accept", "content": {"name": "x"}}, {"action": "decline"}, {"roots": []}, {},
            {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"},
        ]  # fmt: skip
        result = self._mutated({"result": self.random.choice(results)}).get("result")
        if self.random.random() < 0.3 or not isinstance(result, dict):
            return dump({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -1, "message": "no"}}).encode()
        data = dump({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        try:
            json.loads(data, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return dump({"jsonrpc": "2.0", "id": request["id"], "result": {}}).encode()
        return data

    # -- one message ---------------------------------------------------------------------------

    def _make(self) -> bytes:
        choice = self.random
        if choice.random() < 0.05:
            message: Any = [self._one() for _ in range(choice.randrange(9))]
        else:
            message = self._one()
        data = dump(message).encode("utf-8", "surrogatepass")
        if choice.random() < 0.1:
            data = choice.choice(self._BYTES)(self, data)
        return data.replace(b"\n", b" ")

    def _one(self) -> Any:
        choice = self.random
        message = _copy(choice.choice(self._seeds))
        if not isinstance(message, dict):
            return message
        if "id" in message and "method" in message:
            message["id"] = self._id()
        for _ in range(choice.choice((0, 1, 1, 1, 2, 3, 6))):
            message = self._mutated(message)
        if choice.random() < 0.03:
            message["method"] = choice.choice(METHODS)
        return message

    def _id(self) -> Any:
        self._count += 1
        kind = self.random.random()
        if kind < 0.7:
            return self._count
        if kind < 0.9:
            return f"id {self._count}"
        odd: list[Any] = [0, "", -self._count, 2**63 + self._count, 10**30, f"\ud800{self._count}", "i" * 2000,
                          1.5, True, None, [], {}, self._count - 1, str(self._count), "é\u202e"]  # fmt: skip
        return self.random.choice(odd)

    def _mutated(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message with one thing changed somewhere in it; what it is made of stays a dict at the top."""
        choice = self.random
        places = list(_places(message))
        if not places:
            return message
        holder, name = choice.choice(places)
        kind = choice.randrange(6)
        if kind == 0:
            del holder[name]
        elif kind == 1 and isinstance(holder, dict):
            holder[_AGAIN + name] = _copy(choice.choice([holder[name], choice.choice(HOSTILE)]))
        elif kind == 2:
            other = choice.choice(list(_places(choice.choice(self._seeds))) or [({"x": 1}, "x")])
            holder[name] = _copy(other[0][other[1]])
        elif kind == 3 and isinstance(holder, dict):
            holder[choice.choice(["unknown", "_meta", "id", "params", "cursor", "jsonrpc", "result"])] = _copy(
                choice.choice(HOSTILE)
            )
        elif kind == 4 and isinstance(holder[name], str):
            text = holder[name]
            at = choice.randrange(len(text) + 1)
            holder[name] = (
                text[:at] + choice.choice(["\ud800", "\x00", "é", "\U0001f600", '"', "\\", "\u202e"]) + text[at:]
            )
        else:
            holder[name] = _copy(choice.choice(HOSTILE))
        return message

    # -- its bytes -----------------------------------------------------------------------------

    def _flip(self, data: bytes) -> bytes:
        at = self.random.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << self.random.randrange(8))]) + data[at + 1 :]

    def _insert(self, data: bytes) -> bytes:
        at = self.random.randrange(len(data) + 1)
        return data[:at] + self.random.choice(BROKEN) + data[at:]

    def _cut(self, data: bytes) -> bytes:
        return data[: self.random.randrange(1, len(data) + 1)]

    def _splice(self, data: bytes) -> bytes:
        other = dump(self.random.choice(self._seeds)).encode("utf-8", "surrogatepass")
        return self._cut(data) + other[self.random.randrange(len(other)) :]

    _BYTES: tuple[Callable[[Fuzzer, bytes], bytes], ...] = (_flip, _insert, _cut, _splice)


def _places(value: Any) -> Any:
    """Everything in a message, as (holder, key or index)."""
    if isinstance(value, (dict, list)):
        for name in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, name
            yield from _places(value[name])


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(member) for name, member in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
