"""Questions of tasks, which wait in the record for their answers.

The node that runs a task waits for the answers. An answer that arrives at another node is put into the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Raw, Struct
from msgspec.json import decode, encode

from mcpd.errors import RequestTimeout, ToolError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.server.backplane.base import BackplaneAway
from .record import NEWEST, Ask, Record

if TYPE_CHECKING:
    from mcpd.server.context.questions import Question, Timeout

# How many times a question is repeated if the answer does not fit (TASK-042).
_MOST_AGAIN = 3
_NOTHING: Mapping[str, Any] = MappingProxyType({})

T = TypeVar("T")


class _Open(Struct, gc=False):
    key: str
    name: str


class _Asked(Struct, eq=False):
    # Questions that were asked together, the keys and names of the open ones, and the future that gets all answers.
    # Many may wait for hours, so they are small.
    questions: Mapping[str, Question]
    future: asyncio.Future[dict[str, Any]]
    answers: Mapping[str, Any] = _NOTHING
    open: tuple[_Open, ...] = ()
    again: int = 0

    def name_of(self, key: str) -> str | None:
        return next((each.name for each in self.open if each.key == key), None)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def finish(self) -> None:
        # Give the answers if there are all of them.
        if len(self.answers) == len(self.questions) and not self.future.done():
            self.future.set_result({name: self.answers[name] for name in self.questions})


class Questions:
    """The questions of the tasks of one node. `read`, `change` and `log` are those of `Tasks`."""

    def __init__(
        self,
        read: Callable[[str], Coroutine[Any, Any, Record | None]],
        change: Callable[[str, Callable[[Record], bool]], Coroutine[Any, Any, Record | None]],
        log: Callable[[Record, str], object],
    ) -> None:
        self._read = read
        self._change = change
        self._log = log
        # The questions of this node, by task.
        self.asked: dict[str, tuple[_Asked, ...]] = {}

    async def ask(
        self,
        task_id: str,
        questions: Mapping[str, Question],
        timeout: Timeout = "default",
        kept: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Put questions into a task, and return the answers by name (TASK-024).

        `kept` is the state of the tool, which a task that runs again gets back. Raises RequestTimeout after `timeout`
        seconds, by default when the task has waited for as long as it may.
        """
        asked = _Asked(questions, asyncio.get_running_loop().create_future())
        timer = None
        self.asked[task_id] = (*self.asked.get(task_id, ()), asked)
        try:
            await self._put(task_id, asked, kept)
            if timeout is not None and timeout != "default":
                timer = asyncio.get_running_loop().call_later(timeout, asked.fail, _late(timeout))
            del questions, kept, timeout  # a coroutine that waits holds less
            return await asked.future
        finally:
            if timer is not None:
                timer.cancel()
            await self._leave(task_id, asked)

    async def _leave(self, task_id: str, asked: _Asked) -> None:
        # These questions have no waiter any more: close those that are open.
        left = tuple(each for each in self.asked.pop(task_id, ()) if each is not asked)
        if left:
            self.asked[task_id] = left
        if asked.future.done() and not asked.future.cancelled():
            asked.future.exception()  # marks it as retrieved
        if asked.open:
            with suppress(BackplaneAway):
                await self._change(task_id, partial(_close, [each.key for each in asked.open]))

    async def _put(self, task_id: str, asked: _Asked, kept: dict[str, Any] | None) -> None:
        record = await self._read(task_id)
        for name, raw in ({} if record is None or record.restart is None else record.restart.answers).items():
            if name in asked.questions:
                with suppress(*MALFORMED):  # it was answered on another node, but the answer was not read
                    asked.answers = {**asked.answers, name: asked.questions[name].read(raw)}

        asked.finish()

        def step(record: Record) -> bool:
            if record.is_final:
                return False
            asked.open = ()  # another node has changed the record meanwhile, so this is another attempt
            for name in asked.questions:
                if name not in asked.answers:
                    _put_one(record, asked, name)
            if record.restart is not None and kept:
                record.restart.kept = as_json(kept)
            record.status = "input_required"
            return True

        if not asked.future.done():
            record = await self._change(task_id, step)
            if record is None:
                raise asyncio.CancelledError("the task has ended")
            self._log(record, "asked")

    async def answer(self, record: Record, answers: Mapping[str, Raw]) -> Record | None:
        """Accept answers to open questions; others are ignored (TASK-039). Returns None if no question was open."""
        read: dict[str, Any] = {}

        def step(record: Record) -> bool:
            read.clear()
            keys = [key for key in answers if key in record.asks and not record.is_final]
            for key in keys:
                ask = record.asks.pop(key)
                if record.restart is not None:
                    record.restart.answers[ask.name] = bytes(answers[key])
                if not self._accept(record, key, answers[key], read):
                    record.answers = {**(record.answers or {}), key: bytes(answers[key])}
            record.status = "input_required" if record.asks else "working"
            return bool(keys)

        changed = await self._change(record.id, step)
        if changed is not None:
            self._log(changed, "answered")
            self._deliver(record.id, read)
        return changed

    async def refuse(self, record: Record, key: str, why: str) -> None:
        """Close a question that the client has refused to answer."""
        read: dict[str, Any] = {key: ToolError(why)}

        def step(record: Record) -> bool:
            if not _close([key], record):
                return False
            if self._asked_by(record.id, key) is None:
                record.refusals = {**(record.refusals or {}), key: why}
            return True

        if await self._change(record.id, step) is not None:
            self._deliver(record.id, read)

    async def take(self, record: Record) -> Record | None:
        """Accept answers that clients have sent to other nodes. Returns None if nobody here waits for them."""
        read: dict[str, Any] = {}

        def step(record: Record) -> bool:
            read.clear()
            if record.is_final:
                return False
            for key, raw in list((record.answers or {}).items()):
                if self._accept(record, key, raw, read):
                    record.answers = _without(record.answers, key)
            for key, why in list((record.refusals or {}).items()):
                if self._asked_by(record.id, key) is not None:
                    record.refusals, read[key] = _without(record.refusals, key), ToolError(why)
            if record.asks:
                record.status = "input_required"
            return bool(read)

        changed = await self._change(record.id, step)
        if changed is not None:
            self._deliver(record.id, read)
        return changed

    def _asked_by(self, task_id: str, key: str) -> _Asked | None:
        return next((asked for asked in self.asked.get(task_id, ()) if asked.name_of(key) is not None), None)

    def _accept(self, record: Record, key: str, raw: Raw | bytes, read: dict[str, Any]) -> bool:
        # Read an answer if it is awaited here; repeat the question if the answer does not fit (TASK-042).
        asked = self._asked_by(record.id, key)
        if asked is None:
            return False
        name = asked.name_of(key)
        assert name is not None
        question = asked.questions[name]
        try:
            read[key] = question.read(raw)
        except MALFORMED as error:
            if record.restart is not None:
                record.restart.answers.pop(name, None)
            if asked.again < _MOST_AGAIN:
                read[key] = _AGAIN
                _put_one(record, asked, name)
            else:
                read[key] = ToolError(f"The client's answer to {question.method} cannot be used: {explain(error)}")

        return True

    def _deliver(self, task_id: str, read: dict[str, Any]) -> None:
        for key, value in read.items():
            asked = self._asked_by(task_id, key)
            if asked is None:
                continue
            name = asked.name_of(key)
            assert name is not None
            asked.open = tuple(each for each in asked.open if each.key != key)
            if value is _AGAIN:
                asked.again += 1
            elif isinstance(value, ToolError):
                asked.fail(value)
            else:
                asked.answers = {**asked.answers, name: value}
                asked.finish()

    def give_up(self, task_id: str, seconds: float) -> None:
        """End the questions of a task that has waited for this time."""
        for asked in self.asked.get(task_id, ()):
            asked.fail(_late(seconds))


_AGAIN = object()


def _late(seconds: float) -> RequestTimeout:
    return RequestTimeout(f"The client did not answer within {seconds:g} s")


def _put_one(record: Record, asked: _Asked, name: str) -> None:
    # Ask under a new key. Waiting begins before the client can send an answer.
    question, key = asked.questions[name], record.next_key(name)
    record.asks[key] = Ask(name, question.method, encode(NEWEST.shape(question.params)))
    if asked.name_of(key) is None:
        asked.open += (_Open(key, name),)


def _close(keys: list[str], record: Record) -> bool:
    # Close open questions. Returns False if none is open.
    open_keys = [key for key in keys if key in record.asks and not record.is_final]
    for key in open_keys:
        del record.asks[key]
    record.status = record.status if record.is_final else "input_required" if record.asks else "working"
    return bool(open_keys)


def as_json(kept: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a tool as it is stored. Raises ToolError."""
    try:
        return decode(encode(kept), type=dict[str, Any])
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise ToolError(f"ctx.state cannot be kept with the task, because it is not JSON: {error}") from None


def _without(items: dict[str, T] | None, key: str) -> dict[str, T] | None:
    return {each: value for each, value in (items or {}).items() if each != key} or None
