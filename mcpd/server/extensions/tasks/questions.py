"""Questions of tasks: they wait in the record, and whoever asked waits for the answers.

The node that runs a task waits for the answers. An answer that arrives at another node is put into the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Raw
from msgspec.json import decode, encode

from mcpd.errors import RequestTimeout, ToolError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.server.backplane.base import BackplaneAway
from .record import NEWEST, Ask, Record

if TYPE_CHECKING:
    from mcpd.server.context.questions import Question

# How many times a question is repeated if the answer does not fit (TASK-042).
_MOST_AGAIN = 3

T = TypeVar("T")


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
        self._waiting: dict[tuple[str, str], asyncio.Future[Raw]] = {}

    async def ask(
        self, task_id: str, questions: Mapping[str, Question], kept: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Put questions into a task, and return the answers by name (TASK-024).

        `kept` is the state of the tool, which a task that runs again gets back.
        """
        record = await self._read(task_id)
        known = {} if record is None or record.restart is None else record.restart.answers
        answers = {name: question.read(known[name]) for name, question in questions.items() if name in known}
        left = {name: question for name, question in questions.items() if name not in known}
        if left:
            keys = await self._put(task_id, left, kept)
            if len(keys) == 1:
                ((name, key),) = keys.items()
                answers[name] = await self._answer(task_id, name, left[name], key)
                return answers if len(answers) == 1 else {name: answers[name] for name in questions}
            works = {
                name: asyncio.ensure_future(self._answer(task_id, name, left[name], key)) for name, key in keys.items()
            }
            try:
                await asyncio.wait(works.values(), return_when=asyncio.FIRST_EXCEPTION)
                answers.update({name: await work for name, work in works.items()})
            finally:
                for work in works.values():
                    work.cancel()
        return {name: answers[name] for name in questions}

    async def _put(
        self, task_id: str, questions: Mapping[str, Question], kept: dict[str, Any] | None = None
    ) -> dict[str, str]:
        # Ask under new keys, and return them by name. Waiting begins before the client can send an answer.
        keys: dict[str, str] = {}

        def step(record: Record) -> bool:
            if record.is_final:
                return False
            for name, question in questions.items():
                key = keys[name] = record.next_key(name)
                record.asks[key] = Ask(name, question.method, encode(NEWEST.shape(question.params)))
                if (task_id, key) not in self._waiting:
                    self._waiting[task_id, key] = asyncio.get_running_loop().create_future()
            if record.restart is not None and kept:
                record.restart.kept = _as_json(kept)
            record.status = "input_required"
            return True

        record = await self._change(task_id, step)
        if record is None:
            raise asyncio.CancelledError("the task has ended")
        self._log(record, "asked")
        return keys

    async def _answer(self, task_id: str, name: str, question: Question, key: str) -> Any:
        for again in range(_MOST_AGAIN + 1):
            try:
                raw = await self._waiting[task_id, key]
            except (Exception, asyncio.CancelledError):
                with suppress(BackplaneAway):
                    await self._change(task_id, partial(_close, key))  # nobody waits for an answer any more
                raise
            finally:
                del self._waiting[task_id, key]
            try:
                return question.read(raw)
            except MALFORMED as error:
                if again == _MOST_AGAIN:
                    text = f"The client's answer to {question.method} cannot be used: {explain(error)}"
                    raise ToolError(text) from None
            key = (await self._put(task_id, {name: question}))[name]
        raise AssertionError

    async def answer(self, record: Record, answers: Mapping[str, Raw]) -> Record | None:
        """Accept answers to open questions; others are ignored (TASK-039). Returns None if no question was open."""
        taken: dict[str, Raw] = {}

        def step(record: Record) -> bool:
            taken.clear()
            for key in [key for key in answers if key in record.asks and not record.is_final]:
                ask = record.asks.pop(key)
                taken[key] = answers[key]
                if record.restart is not None:
                    record.restart.answers[ask.name] = bytes(answers[key])
                if (record.id, key) not in self._waiting:
                    record.answers = {**(record.answers or {}), key: bytes(answers[key])}
            if not record.asks:
                record.status = "working"
            return bool(taken)

        changed = await self._change(record.id, step)
        if changed is not None:
            self._log(changed, "answered")
            for key, raw in taken.items():
                self._deliver(record.id, key, raw)
        return changed

    async def refuse(self, record: Record, key: str, why: str) -> None:
        """Close a question that the client has refused to answer."""

        def step(record: Record) -> bool:
            if not _close(key, record):
                return False
            if (record.id, key) not in self._waiting:
                record.refusals = {**(record.refusals or {}), key: why}
            return True

        if await self._change(record.id, step) is not None:
            self._deliver(record.id, key, ToolError(why))

    async def take(self, record: Record) -> None:
        """Accept answers that clients have sent to other nodes."""
        answers, refusals = record.answers or {}, record.refusals or {}

        def step(record: Record) -> bool:
            record.answers = _without(record.answers, [key for key in answers if (record.id, key) in self._waiting])
            record.refusals = _without(record.refusals, [key for key in refusals if (record.id, key) in self._waiting])
            return not record.is_final

        if await self._change(record.id, step) is not None:
            for key, raw in answers.items():
                self._deliver(record.id, key, Raw(raw))
            for key, why in refusals.items():
                self._deliver(record.id, key, ToolError(why))

    def _deliver(self, task_id: str, key: str, answer: Raw | Exception) -> None:
        waiting = self._waiting.get((task_id, key))
        if waiting is None or waiting.done():
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(Raw(bytes(answer)))  # a copy: the message that contains it may be large

    def give_up(self, task_id: str, seconds: float) -> None:
        """End the questions of a task that has waited for this time."""
        for of, key in list(self._waiting):
            if of == task_id:
                self._deliver(task_id, key, RequestTimeout(f"The client did not answer within {seconds:g} s"))


def _close(key: str, record: Record) -> bool:
    # Close an open question. Returns False if it is not open.
    if record.is_final or record.asks.pop(key, None) is None:
        return False
    record.status = "input_required" if record.asks else "working"
    return True


def _as_json(kept: dict[str, Any]) -> dict[str, Any]:
    try:
        return decode(encode(kept), type=dict[str, Any])
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise ToolError(f"ctx.state cannot be kept with the task, because it is not JSON: {error}") from None


def _without(items: dict[str, T] | None, keys: list[str]) -> dict[str, T] | None:
    left = {key: value for key, value in (items or {}).items() if key not in keys}
    return left or None
