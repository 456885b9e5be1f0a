"""Every message between host and server and between host and Views, in the order in which they passed.

The trace is bounded: when there are too many messages or bytes, the oldest are dropped. A page reads windows of the
entries that pass a filter. Each entry is tested once for each filter, when it is first needed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import decode

from mcpd.client.channels import ChannelWatcher
from mcpd.errors import McpdError, ProtocolError
from mcpd.protocol.jsonrpc import MALFORMED, Id
from mcpd.transports.recorder import Head, Line, Recording, head_of, header, to_record
from .messages import TraceFilter, TraceGet

MAX_ENTRIES = 50_000
MAX_BYTES = 64 * 1024 * 1024
CUT_BYTES = 64 * 1024
MAX_WINDOW = 1000
GIST_CHARACTERS = 160
_NOTIFY_SECONDS = 0.05
_MAX_OPEN = 1024


class TraceEntry(Struct, frozen=True):
    """One message. `at` is in seconds since the trace began. The `method` of an answer is the method of its request."""

    n: int
    at: float
    sender: str
    receiver: str
    kind: str
    method: str | None
    id: Id | None
    data: bytes
    gist: str = ""
    """The beginning of the params, result or error, for a list."""
    note: str = ""


class _FilteredView:
    def __init__(self, wanted: TraceFilter) -> None:
        self.numbers: list[int] = []
        self.seen = 0
        self._parties = None if wanted.parties is None else frozenset(wanted.parties)
        self._methods = None if wanted.methods is None else [part.lower() for part in wanted.methods]
        self._kinds = None if wanted.kinds is None else frozenset(wanted.kinds)
        self._text = (wanted.text or "").lower().encode()

    def passes(self, entry: TraceEntry) -> bool:
        # The fast tests come first.
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
        # In a filter, `view` means all Views.
        wanted = self._parties or frozenset()
        ends = (entry.sender, entry.receiver)
        return any(end in wanted or ("view" in wanted and end.startswith("view:")) for end in ends)


class Trace:
    """The messages of one preview. `notify` receives the number of entries, at most 20 times a second."""

    def __init__(self, notify: Callable[[int], None] = lambda total: None) -> None:
        self.total = 0
        """How many entries there have been. Their numbers begin at 0."""
        self._notify = notify
        self._entries: deque[TraceEntry] = deque()
        self._bytes = 0
        self._began = time.monotonic()
        self._header = header(["mcpd", *sys.argv[1:]], Recording())
        # The methods of unanswered requests, by sender, receiver and id.
        self._open: OrderedDict[tuple[str, str, Id], str] = OrderedDict()
        self._views: OrderedDict[bytes, _FilteredView] = OrderedDict()

        self._timer: asyncio.TimerHandle | None = None

    @property
    def _dropped(self) -> int:
        return self.total - len(self._entries)

    # ------------------------------------------------------------------------------------- writing

    def add(self, sender: str, receiver: str, data: bytes, note: str = "") -> None:
        """Add a message that passes now. The parties are `host`, `server` and `view:<id>`."""
        head = head_of(data)
        kind, method, request_id = self._classify(sender, receiver, head)
        gist = _gist(head)
        entry = TraceEntry(self.total, self._now(), sender, receiver, kind, method, request_id, data, gist, note)
        self._append(entry)

    def add_note(self, sender: str, receiver: str, note: str) -> None:
        self._append(TraceEntry(self.total, self._now(), sender, receiver, "invalid", None, None, b"", note=note))

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 4)

    def _append(self, entry: TraceEntry) -> None:
        self.total += 1
        self._entries.append(entry)
        self._bytes += len(entry.data)
        while self._bytes > MAX_BYTES or len(self._entries) > MAX_ENTRIES:
            self._bytes -= len(self._entries.popleft().data)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_NOTIFY_SECONDS, self._notify_now)

    def _classify(self, sender: str, receiver: str, head: Head | None) -> tuple[str, str | None, Id | None]:
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

    def _notify_now(self) -> None:
        self._timer = None
        self._notify(self.total)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------------------------- reading

    def get(self, asked: TraceGet) -> dict[str, Any]:
        """Return a window for the page: the `total` of entries that pass, the `first` place, and the `entries`."""
        if asked.whole is not None:
            found = self._entry(asked.whole)
            entries = [] if found is None else [self._entry_json(found, None, asked)]
            return {"total": self.total, "first": asked.whole, "entries": entries}

        # All numbers that pass, also of entries that have been dropped.
        numbers = range(self.total) if asked.filter in (None, TraceFilter()) else self._view_of(asked.filter).numbers
        first = max(asked.start, bisect_left(numbers, self._dropped))
        window = numbers[first : first + max(0, min(asked.count, MAX_WINDOW))]
        found_entries = [entry for number in window if (entry := self._entry(number)) is not None]
        if asked.brief:
            entries = [{**_summary(entry), "preview": entry.gist} for entry in found_entries]
        else:
            entries = [self._entry_json(entry, CUT_BYTES, asked) for entry in found_entries]

        answer = {"total": len(numbers), "first": first, "entries": entries}
        return {**answer, "header": self._header} if asked.masked and asked.start == 0 else answer

    def _entry_json(self, entry: TraceEntry, max_bytes: int | None, asked: TraceGet) -> dict[str, Any]:
        # Return an entry with its message, or for a file as a record of `mcpd trace` with masked secrets.
        if not asked.masked:
            return _shown(entry, max_bytes)
        return {**_recorded(entry, max_bytes), "n": entry.n}

    def _entry(self, number: int) -> TraceEntry | None:
        return self._entries[number - self._dropped] if self._dropped <= number < self.total else None

    def _view_of(self, wanted: TraceFilter) -> _FilteredView:
        key = repr(wanted).encode()
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _FilteredView(wanted)
            if len(self._views) > 8:
                self._views.popitem(last=False)

        self._views.move_to_end(key)
        unseen = islice(self._entries, max(view.seen - self._dropped, 0), None)
        view.numbers += [entry.n for entry in unseen if view.passes(entry)]
        view.seen = self.total
        return view


def _gist(head: Head | None) -> str:
    if head is None:
        return ""
    for member in (head.params, head.error, head.result):
        if part := bytes(memoryview(member)[: 4 * GIST_CHARACTERS]):
            return part.decode(errors="ignore")[:GIST_CHARACTERS]
    return ""


def _recorded(entry: TraceEntry, max_bytes: int | None) -> dict[str, Any]:
    # Return an entry as a record of a file, cut to `max_bytes`.
    parties = {"from": entry.sender, "to": entry.receiver}
    if not entry.data:
        return {"t": entry.at, "event": "note", **parties, "text": entry.note}
    size = len(entry.data)
    record = to_record(entry.sender, Line(entry.data, size), entry.at, Recording(max_bytes=max_bytes or size))
    return {**record, **parties, "note": entry.note} if entry.note else {**record, **parties}


def _summary(entry: TraceEntry) -> dict[str, Any]:
    # Return an entry as JSON without its message.
    summary: dict[str, Any] = {
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
        summary["note"] = entry.note
    return summary


def _shown(entry: TraceEntry, max_bytes: int | None) -> dict[str, Any]:
    # Return an entry as JSON with its message, cut to `max_bytes`.
    shown = _summary(entry)
    if max_bytes is not None and len(entry.data) > max_bytes:
        shown |= {"cut": True, "text": entry.data[:max_bytes].decode(errors="replace")}
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
    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def sent(self, frame: bytes) -> None:
        self._trace.add("host", "server", frame)

    def received(self, frame: bytes) -> None:
        self._trace.add("server", "host", frame)

    def unreadable(self, error: ProtocolError) -> None:
        self._trace.add_note("server", "host", error.message)

    def ended(self, error: McpdError | None) -> None:
        self._trace.add_note("server", "host", "the connection has ended" if error is None else str(error))

    def failed(self, request_id: Id | None, error: McpdError) -> None:
        self._trace.add_note("server", "host", str(error))
