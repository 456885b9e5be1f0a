"""Every message of all three parties, in the order in which it passed: host and server, host and Views.

Bounded: of more than so many messages, or bytes, the oldest are forgotten. Windows of what passes a filter are given by
their place in it, and found without a look at the others: what passes is noted once, when it comes or is asked for.
"""

from __future__ import annotations

import asyncio
import sys
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import decode

from mcpd.apps.preview.messages import TraceFilter, TraceGet
from mcpd.client.channels import ChannelWatcher
from mcpd.errors import McpdError, ProtocolError
from mcpd.protocol.jsonrpc import MALFORMED, Id
from mcpd.transports.recorder import Head, Line, Recording, head_of, header, to_record

MAX_ENTRIES = 50_000
MAX_BYTES = 64 * 1024 * 1024
CUT_BYTES = 64 * 1024
MAX_WINDOW = 1000
GIST_CHARACTERS = 160
_TELL_SECONDS = 0.05
_MAX_OPEN = 1024


class TraceEntry(Struct, frozen=True):
    """One message; `at` in seconds since the trace began. `method` of an answer is that of its request."""

    n: int
    at: float
    sender: str
    receiver: str
    kind: str
    method: str | None
    id: Id | None
    data: bytes
    gist: str = ""
    """The beginning of its params, result or error, for a list."""
    note: str = ""


class _View:
    """What passes one filter: the numbers of the entries, and up to which was looked."""

    def __init__(self, wanted: TraceFilter) -> None:
        self.numbers: list[int] = []
        self.seen = 0
        self._parties = None if wanted.parties is None else frozenset(wanted.parties)
        self._methods = None if wanted.methods is None else [part.lower() for part in wanted.methods]
        self._kinds = None if wanted.kinds is None else frozenset(wanted.kinds)
        self._text = (wanted.text or "").lower().encode()

    def passes(self, entry: TraceEntry) -> bool:
        """Whether it is wanted; the quick questions come first."""
        if self._kinds is not None and entry.kind not in self._kinds:
            return False
        if self._parties is not None and not self._concerns(entry):
            return False
        if self._methods is not None:
            method = (entry.method or "").lower()
            if not any(part in method for part in self._methods):
                return False
        return not self._text or self._text in entry.data.lower()

    def _concerns(self, entry: TraceEntry) -> bool:
        """`view` stands for all Views."""
        wanted = self._parties or frozenset()
        ends = (entry.sender, entry.receiver)
        return any(end in wanted or ("view" in wanted and end.startswith("view:")) for end in ends)


class Trace:
    """The messages of one preview. `tell` is called, at most 20 times a second, with how many there have been."""

    def __init__(self, tell: Callable[[int], None] = lambda total: None) -> None:
        self.total = 0
        """How many there have been; the numbers of entries begin at 0."""
        self._tell = tell
        self._entries: list[TraceEntry | None] = []
        self._forgotten = 0
        """How many of the first are not kept any more."""
        self._bytes = 0
        self._began = time.monotonic()
        self._header = header(["mcpd", *sys.argv[1:]], Recording())
        self._open: OrderedDict[tuple[str, str, Id], str] = OrderedDict()
        """The methods of requests that were not answered yet, by who asked whom."""
        self._views: OrderedDict[bytes, _View] = OrderedDict()

        self._timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------------- writing

    def add(self, sender: str, receiver: str, data: bytes, note: str = "") -> None:
        """A message passes now. `host`, `server` and `view:<id>` are the parties."""
        head = head_of(data)
        kind, method, request_id = self._what(sender, receiver, head)
        at = round(time.monotonic() - self._began, 4)
        gist = _gist(head)
        self._append(TraceEntry(self.total, at, sender, receiver, kind, method, request_id, data, gist, note))

    def say(self, sender: str, receiver: str, note: str) -> None:
        """Something else happened between the two: what came was no message, or nothing will come."""
        at = round(time.monotonic() - self._began, 4)
        self._append(TraceEntry(self.total, at, sender, receiver, "invalid", None, None, b"", note=note))

    def _append(self, entry: TraceEntry) -> None:
        self.total += 1
        self._entries.append(entry)
        self._bytes += len(entry.data)
        while self._bytes > MAX_BYTES or self.total - self._forgotten > MAX_ENTRIES:
            self._forget_first()

        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TELL_SECONDS, self._tell_now)

    def _forget_first(self) -> None:
        place = self._forgotten - (self.total - len(self._entries))
        first = self._entries[place]
        assert first is not None
        self._bytes -= len(first.data)
        self._entries[place] = None
        self._forgotten += 1

        if place >= MAX_ENTRIES:  # in one piece, now and then
            del self._entries[: place + 1]

    def _what(self, sender: str, receiver: str, head: Head | None) -> tuple[str, str | None, Id | None]:
        if head is None:
            return "invalid", None, None

        request_id = head.id if isinstance(head.id, (int, str)) else None
        if isinstance(head.method, str):
            if request_id is None:
                return "notification", head.method, None
            self._open[sender, receiver, request_id] = head.method
            if len(self._open) > _MAX_OPEN:
                self._open.popitem(last=False)
            return "request", head.method, request_id

        if not (bytes(head.result) or bytes(head.error)):
            return "invalid", None, request_id
        method = None if request_id is None else self._open.pop((receiver, sender, request_id), None)
        return "error" if bytes(head.error) else "response", method, request_id

    def _tell_now(self) -> None:
        self._timer = None
        self._tell(self.total)

    def close(self) -> None:
        """Tell nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------------------------- reading

    def get(self, asked: TraceGet) -> dict[str, Any]:
        """What a page shows: `total` of those that pass, the place of the `first`, and the `entries`."""
        if asked.masked and asked.whole is None and asked.start == 0:
            return {**self._window(asked), "header": self._header}
        return self._window(asked)

    def _window(self, asked: TraceGet) -> dict[str, Any]:
        if asked.whole is not None:
            found = self._entry(asked.whole)
            entries = [] if found is None else [self._whole(found, None, asked)]
            return {"total": self.total, "first": asked.whole, "entries": entries}

        count = max(0, min(asked.count, MAX_WINDOW))
        wanted = asked.filter
        if wanted is None or wanted == TraceFilter():
            first = max(asked.start, self._forgotten)
            numbers: Sequence[int] = range(first, min(first + count, self.total))
            return {"total": self.total, "first": first, "entries": self._all(numbers, asked)}

        view = self._view_of(wanted)
        gone = bisect_left(view.numbers, self._forgotten)
        first = max(asked.start, gone)
        numbers = view.numbers[first : first + count]
        return {"total": len(view.numbers), "first": first, "entries": self._all(numbers, asked)}

    def _all(self, numbers: Iterable[int], asked: TraceGet) -> list[dict[str, Any]]:
        found = [entry for number in numbers if (entry := self._entry(number)) is not None]
        if asked.brief:
            return [{**_facts(entry), "preview": entry.gist} for entry in found]
        return [self._whole(entry, CUT_BYTES, asked) for entry in found]

    def _whole(self, entry: TraceEntry, most: int | None, asked: TraceGet) -> dict[str, Any]:
        """An entry with its message; for a file as `mcpd trace show` reads it, without secrets."""
        if not asked.masked:
            return _shown(entry, most)
        return {**_recorded(entry, most), "n": entry.n}

    def _entry(self, number: int) -> TraceEntry | None:
        place = number - (self.total - len(self._entries))
        return self._entries[place] if self._forgotten <= number < self.total else None

    def _view_of(self, wanted: TraceFilter) -> _View:
        key = repr(wanted).encode()
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _View(wanted)
            if len(self._views) > 8:
                self._views.popitem(last=False)

        self._views.move_to_end(key)
        begin, offset = max(view.seen, self._forgotten), self.total - len(self._entries)
        for entry in islice(self._entries, begin - offset, None):
            if entry is not None and view.passes(entry):
                view.numbers.append(entry.n)
        view.seen = self.total
        return view


def _gist(head: Head | None) -> str:
    if head is None:
        return ""
    for member in (head.params, head.error, head.result):
        if part := bytes(memoryview(member)[: 4 * GIST_CHARACTERS]):
            return part.decode(errors="ignore")[:GIST_CHARACTERS]
    return ""


def _recorded(entry: TraceEntry, most: int | None) -> dict[str, Any]:
    """An entry as a record of a file, cut to `most` bytes."""
    parties = {"from": entry.sender, "to": entry.receiver}
    if not entry.data:
        return {"t": entry.at, "event": "note", **parties, "text": entry.note}
    size = len(entry.data)
    record = to_record(entry.sender, Line(entry.data, size), entry.at, Recording(max_bytes=most or size))
    return {**record, **parties, "note": entry.note} if entry.note else {**record, **parties}


def _facts(entry: TraceEntry) -> dict[str, Any]:
    """An entry as JSON, without its message."""
    facts: dict[str, Any] = {
        "n": entry.n,
        "time": entry.at,
        "from": entry.sender,
        "to": entry.receiver,
        "kind": entry.kind,
        "method": entry.method,
        "id": entry.id,
        "bytes": len(entry.data),
    }
    if entry.note:
        facts["note"] = entry.note
    return facts


def _shown(entry: TraceEntry, most: int | None) -> dict[str, Any]:
    """An entry as JSON, its message cut to `most` bytes; None for the whole."""
    shown = _facts(entry)
    if most is not None and len(entry.data) > most:
        shown |= {"cut": True, "text": entry.data[:most].decode(errors="replace")}
    elif _is_json(entry.data):
        shown["message"] = Raw(entry.data)
    else:
        shown["text"] = entry.data.decode(errors="replace")

    return shown


def _is_json(data: bytes) -> bool:
    try:
        data.decode()
        decode(data, type=Raw)
    except MALFORMED:
        return False
    return True


class ServerWatcher(ChannelWatcher):
    """Writes down what host and server say to each other."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def sent(self, frame: bytes) -> None:
        self._trace.add("host", "server", frame)

    def received(self, frame: bytes) -> None:
        self._trace.add("server", "host", frame)

    def unreadable(self, error: ProtocolError) -> None:
        self._trace.say("server", "host", error.message)

    def ended(self, error: McpdError | None) -> None:
        self._trace.say("server", "host", "the connection has ended" if error is None else str(error))

    def failed(self, request_id: Id | None, error: McpdError) -> None:
        self._trace.say("server", "host", str(error))
