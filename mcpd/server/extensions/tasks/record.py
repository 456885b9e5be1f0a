"""The record that is kept of a task, and its forms on the wire in 2026-07-28 and 2025-11-25.

A record has the form of the newest version. It has no credentials, and arguments only if the task may run again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any

from msgspec import UNSET, Raw, Struct
from msgspec.json import Decoder as JsonDecoder
from msgspec.msgpack import Decoder, Encoder

from mcpd.errors import ProtocolError
from mcpd.protocol.envelope import SERVER_INFO
from mcpd.protocol.jsonrpc import encode, replace_lone_surrogates
from mcpd.protocol.types.base import Result
from mcpd.protocol.types.features import AnyValue, CallToolResult
from mcpd.protocol.types.interaction import (
    CreateMessageParams,
    ElicitFormParams,
    ElicitUrlParams,
    InputRequest,
    ListRootsParams,
)
from mcpd.protocol.types.tasks import FINAL, CreateTaskResult, DetailedTask, LegacyTask, TaskError, TaskStatus
from mcpd.protocol.versions import table

# Records are kept in the form of this version.
NEWEST = table.get(table.MODERN[-1])

# The age of a task up to which an interval of polls is used, in seconds, and the interval in milliseconds.
_POLLS = ((10.0, 500), (120.0, 2000), (float("inf"), 5000))
_POLL_FOR_INPUT = 1000

# The most characters of a status message. It outlives the work, and is often made of what the client has sent.
_MOST_SAID = 1000


class Ask(Struct, omit_defaults=True, gc=False):
    """An open question: the author's name for it, and its request as JSON."""

    name: str
    method: str
    params: bytes


class Restart(Struct, omit_defaults=True):
    """The data to run a task again: the call, the capabilities of its client, and its answers so far."""

    version: str
    arguments: bytes
    capabilities: bytes
    kept: dict[str, Any] = {}
    answers: dict[str, bytes] = {}


class Outcome(Struct, omit_defaults=True, gc=False):
    """How a task ended: the JSON of a result of the newest version, or an error."""

    result: bytes = b""
    # Whether the structured content may be any value; older versions get it as a member of an object.
    has_any: bool = False
    is_error: bool = False
    code: int = 0
    message: str = ""
    data: bytes = b""

    @property
    def size(self) -> int:
        """The bytes that it takes, roughly."""
        return len(self.result) + len(self.message) + len(self.data)

    @property
    def has_failed(self) -> bool:
        """Whether it is an error."""
        return not self.result

    @property
    def error(self) -> TaskError:
        """The error of a failed task."""
        return TaskError(code=self.code, message=self.message, data=_decode_json(self.data) if self.data else None)

    def read(self) -> CallToolResult:
        """Return the result, for clients of any version."""
        result: CallToolResult = _decode_result(self.result)
        if isinstance(result.meta, dict) and result.meta.pop(SERVER_INFO, None) and not result.meta:
            result.meta = None
        if self.has_any:
            result.structured_content = AnyValue(result.structured_content)
        return result


class StoredError(ProtocolError):
    """The error of a failed task, with its code."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message, outcome.error.data)
        self.code = outcome.code  # type: ignore[misc]


class Record(Struct, kw_only=True, omit_defaults=True, gc=False):
    """One task. Times are in seconds since 1970."""

    id: str = ""
    # A digest of the principal that may use the task; "" if the id is all that a client needs.
    owner: str
    # The name of the server that has the tool, because several servers can be served together.
    server: str
    tool: str
    # The node that runs the task; "" if it was handed over.
    node: str = ""
    created: float
    updated: float
    # Seconds from creation to expiry, as clients see it.
    ttl: float
    # The time that a client of 2025-11-25 requested, in seconds.
    wish: float | None = None
    status: TaskStatus = "working"
    message: str | None = None
    is_tool_error: bool = False
    asks: dict[str, Ask] = {}
    # The keys of all questions so far.
    used: tuple[str, ...] = ()
    # Answers, and errors of clients, that the node which runs the task has not read yet.
    answers: dict[str, bytes] | None = None
    refusals: dict[str, str] | None = None
    attempt: int = 1
    retries: int = 0
    restart: Restart | None = None
    # A small outcome, or the key of a large one.
    outcome: Outcome | None = None
    place: str = ""

    @property
    def is_final(self) -> bool:
        """Whether the task has ended."""
        return self.status in FINAL

    @property
    def ends(self) -> bool:
        """Whether its end is fixed: it has ended, or another system must end it in time."""
        return self.is_final or not self.node

    def life(self, now: float) -> float:
        """Return the seconds from its creation to its end. They grow while it works longer."""
        age = now - self.created
        return self.ttl if self.ends or age < self.ttl else self.ttl * (1 + age // self.ttl)

    def is_over(self, now: float) -> bool:
        """Whether it has expired."""
        return self.ends and now >= self.created + self.ttl

    def next_key(self, name: str) -> str:
        """Return a key for a question. No other question of this task ever gets the same key (TASK-041)."""
        key, number = name, len(self.used)
        while key in self.used:
            number += 1
            key = f"{name}-{number}"
        self.used += (key,)
        return key

    def end(self, status: TaskStatus, now: float, keep: float) -> None:
        """Enter a final status; it is kept for `keep` seconds, or as long as its client requested."""
        now = max(now, self.updated)  # the clock may have been set back
        self.status, self.updated = status, now
        age = now - self.created
        self.ttl = self.wish if self.wish is not None and self.wish > age else age + keep
        self.asks, self.answers, self.refusals, self.restart, self.node = {}, None, None, None, ""


def short(message: str | None) -> str | None:
    """Return a status message without its end, if it is very long."""
    return message if message is None or len(message) <= _MOST_SAID else f"{message[: _MOST_SAID - 1]}…"


def owner_of(principal: str) -> str:
    """Return a digest of a principal for the record (TASK-078); "" for an anonymous one."""
    return sha256(b"task\0" + principal.encode()).hexdigest()[:32] if principal else ""


encode_record = Encoder().encode
decode_record = Decoder(Record).decode
encode_outcome = Encoder().encode
decode_outcome = Decoder(Outcome).decode
_decode_json = JsonDecoder().decode
_decode_result = JsonDecoder(CallToolResult).decode


def outcome_of(result: Result, identity: Raw) -> Outcome:
    """Return the outcome of a call that was answered."""
    shape = NEWEST.shape_result
    try:
        raw = encode(shape(result, identity))
    except (UnicodeEncodeError, TypeError):  # as in `Session.respond`
        raw = encode(shape(replace_lone_surrogates(result), identity))
    content = getattr(result, "structured_content", UNSET)
    return Outcome(raw, isinstance(content, AnyValue), getattr(result, "is_error", None) is True)


def error_outcome(error: ProtocolError) -> Outcome:
    """Return the outcome of a call that failed with a JSON-RPC error."""
    data = b"" if error.data is None else encode(error.data)
    return Outcome(code=error.code, message=error.message, data=data)


# -- on the wire -------------------------------------------------------------------------------


@lru_cache(16)
def stamp(seconds: float) -> str:
    """Return a time as RFC 3339 in UTC, with milliseconds (TASK-018)."""
    return f"{_whole(int(seconds))}.{int(seconds % 1 * 1000):03d}Z"


@lru_cache(16)
def _whole(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:-6]


def poll_interval(record: Record, now: float) -> int | None:
    """Return the milliseconds after which a client should ask again; None for a task that has ended."""
    if record.is_final:
        return None
    if record.status == "input_required":
        return _POLL_FOR_INPUT
    age = now - record.created
    return next(interval for until, interval in _POLLS if age < until)


def steady_until(record: Record, now: float) -> float:
    """Return the time until which a task without changes looks the same to clients."""
    age = now - record.created
    poll = next(until for until, _ in _POLLS if age < until)
    return record.created + min(poll, record.life(now))


def created(record: Record) -> CreateTaskResult:
    """Return the answer to a call of 2026-07-28 that became this task (TASK-021)."""
    return CreateTaskResult(
        result_type="task", task_id=record.id, status="working", status_message=record.message,
        created_at=stamp(record.created), last_updated_at=stamp(record.updated),
        ttl_ms=_milliseconds(record.ttl), poll_interval_ms=_POLLS[0][1],
    )  # fmt: skip


def detailed(record: Record, outcome: Outcome | None, now: float) -> DetailedTask:
    """Return a task with its result, error or questions, for 2026-07-28."""
    task = DetailedTask(
        task_id=record.id, status=record.status, status_message=record.message, created_at=stamp(record.created),
        last_updated_at=stamp(record.updated), ttl_ms=_milliseconds(record.life(now)),
        poll_interval_ms=poll_interval(record, now),
    )  # fmt: skip
    if record.status == "input_required":
        task.input_requests = {
            key: InputRequest(method=ask.method, params=Raw(ask.params)) for key, ask in record.asks.items()
        }
    elif outcome is not None and record.status == "completed":
        task.result = Raw(outcome.result)
    elif outcome is not None and record.status == "failed":
        task.error = outcome.error

    return task


def legacy(record: Record, now: float) -> LegacyTask:
    """Return a task for 2025-11-25, in which a task whose tool failed is failed (TASK-064)."""
    return LegacyTask(
        task_id=record.id, status="failed" if record.is_tool_error else record.status, status_message=record.message,
        created_at=stamp(record.created), last_updated_at=stamp(record.updated),
        ttl=_milliseconds(record.life(now)), poll_interval=poll_interval(record, now),
    )  # fmt: skip


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def params_of(ask: Ask) -> Any:
    """Return the params of a question as a struct, for versions with other fields."""
    kind: type = {"sampling/createMessage": CreateMessageParams, "roots/list": ListRootsParams}.get(
        ask.method, ElicitUrlParams if _decode_mode(ask.params).mode == "url" else ElicitFormParams
    )
    return JsonDecoder(kind).decode(ask.params)


class _Mode(Struct):
    mode: str | None = None


_decode_mode = JsonDecoder(_Mode).decode
