"""Tasks of 2025-11-25: `tasks/result` and `tasks/list`, the status notification, and questions as real requests.

A question is sent on an open `tasks/result` of its task. Without one it is sent outside of requests, if the client that
created the task receives such messages now; otherwise it waits for a `tasks/result`.
Spec: 2025-11-25 basic/utilities/tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from msgspec import Raw
from msgspec.json import Decoder, encode

from mcpd.errors import ConnectionLost, InternalError, InvalidParams, LocalProtocolError, MethodNotFound, RemoteError
from mcpd.protocol.envelope import read_params
from mcpd.protocol.session import Call
from mcpd.protocol.types.base import NO_JSON, Result
from mcpd.protocol.types.tasks import (
    IMMEDIATE_RESPONSE,
    RELATED_TASK,
    LegacyCreateTaskResult,
    ListTasksParams,
    ListTasksResult,
    TaskParams,
    TaskRequest,
)
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.peer import Peer
from mcpd.server.registry.entries import make_cursor, read_cursor
from .forms import TaskForm
from .peer import Run
from .record import Ask, Record, StoredError, legacy, params_of
from .registry import Tasks, unknown

_PAGE = 100
# The range of the time that a client may wish for, in milliseconds; JSON has numbers that are too large for a float.
_SHORTEST, _LONGEST = 1000, 10**12
_read_request = Decoder(TaskRequest).decode
_STATUS = "notifications/tasks/status"
_decode_members = Decoder(dict[str, Raw]).decode


async def result(tasks: Tasks, exchange: Exchange, params: TaskParams) -> Result:
    """Wait for the end of a task, ask its questions meanwhile, and return what the call would have returned."""
    task_id = params.task_id
    if await tasks.find_for(task_id, exchange) is None:
        raise unknown()
    changed = asyncio.Event()

    def watcher(_: Record | None) -> None:
        changed.set()

    own: dict[str, asyncio.Task[None]] = {}
    tasks.watch(task_id, watcher)
    results = tasks.results.setdefault(task_id, [])
    results.append(exchange)
    try:
        while True:
            changed.clear()
            record = await tasks.read(task_id)
            if record is None:
                raise unknown()
            if record.is_final:
                break
            own.update(_ask_open(tasks, record, exchange.peer, exchange.call))
            await changed.wait()
    finally:
        tasks.unwatch(task_id, watcher)
        results.remove(exchange)
        if not results:
            tasks.results.pop(task_id, None)
        for asking in own.values():
            asking.cancel()

    return await _outcome(tasks, record)


async def _outcome(tasks: Tasks, record: Record) -> Result:
    outcome = await tasks.store.outcome(record)
    if outcome is None:
        raise InternalError(f"The task was {record.status}: {record.message or 'there is no result'}")
    if outcome.has_failed:
        raise StoredError(outcome)
    made = outcome.read()
    made.meta = {**(made.meta if isinstance(made.meta, dict) else {}), RELATED_TASK: {"taskId": record.id}}
    return made


async def list_tasks(tasks: Tasks, exchange: Exchange, params: ListTasksParams) -> Result:
    """Return one page of the tasks that `tasks/get` finds for the sender, oldest first (TASK-068)."""
    if not tasks.is_known(exchange):
        raise MethodNotFound("Method not found: tasks are listed only for clients that have logged in")
    after = "" if params.cursor is None else read_cursor(params.cursor)
    await tasks.open()
    has_place = params.cursor is None or bool(after)
    entries = await tasks.store.ids_of(tasks.owner(exchange), after, _PAGE) if has_place else None
    if entries is None:
        raise InvalidParams("cursor: not a cursor of this server; start again without a cursor")
    found = [await tasks.find_for(task_id, exchange) for _, task_id in entries]
    now = tasks.clock()
    following = make_cursor(entries[-1][0]) if len(entries) == _PAGE else None
    return ListTasksResult(tasks=[legacy(one, now) for one in found if one is not None], next_cursor=following)


# -- its form ------------------------------------------------------------------------------------


class _Legacy(TaskForm):
    # The client decides, by `params.task`, and is notified of changes.
    def capability(self, tasks: Tasks, exchange: Exchange, extensions: dict[str, Any]) -> dict[str, Any] | None:
        own: dict[str, Any] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        return {"list": {}, **own} if tasks.is_known(exchange) else own

    def is_taken(self, call: Call) -> bool:
        return call.params.task is not NO_JSON

    def wish(self, call: Call) -> tuple[bool, float | None]:
        raw = call.params.task
        if raw is NO_JSON:
            return False, None
        request: TaskRequest = read_params(_read_request, raw)
        if request.ttl is None:
            return True, None
        return True, min(max(request.ttl, _SHORTEST), _LONGEST) / 1000

    def seed(self, record: Record, immediate: str) -> Result:
        task = legacy(record, record.created)
        task.status = "working"
        return LegacyCreateTaskResult(task=task, meta={IMMEDIATE_RESPONSE: immediate} if immediate else None)

    def seen(self, record: Record, now: float) -> Result:
        return legacy(record, now)

    async def found(self, tasks: Tasks, record: Record) -> Result:
        return legacy(record, tasks.clock())

    async def cancelled(self, tasks: Tasks, record: Record, cancelled: Record | None) -> Result:
        if cancelled is None:
            latest = await tasks.read(record.id) or record
            raise InvalidParams(f"Cannot cancel the task: it has ended already, with status {latest.status}")
        return legacy(cancelled, tasks.clock())

    def stays(self, call: Call) -> bool:
        # A client without a session cannot receive anything later.
        return not call.session.opening.is_stateless

    def say(self, tasks: Tasks, run: Run, peer: Peer, method: str, params: Any) -> Coroutine[Any, Any, None] | None:
        assert run.record is not None
        if method in ("notifications/progress", "notifications/message"):
            params.meta = {RELATED_TASK: {"taskId": run.record.id}}
        results = tasks.results.get(run.record.id)
        if results:
            return results[-1].peer.notify_nowait(method, params, results[-1].call)
        return peer.notify_nowait(method, params) if _hears(peer) else None

    def changed(self, tasks: Tasks, run: Run, record: Record, *, is_new: bool) -> None:
        peer = run.real
        for (task_id, key), asking in list(tasks.asking.items()):
            if task_id == record.id and key not in record.asks:
                asking.cancel()  # it was answered in another way, or the task has ended
        if peer is None or not _hears(peer):
            return
        if is_new:
            pause = peer.notify_nowait(_STATUS, legacy(record, tasks.clock()))
            if pause is not None:
                pause.close()  # a task changes its status too seldom to wait for the client

        if not tasks.results.get(record.id):
            _ask_open(tasks, record, peer, run.call)


FORM = _Legacy()


def _hears(peer: Peer) -> bool:
    # Whether a client can receive messages outside of its requests now.
    return peer.channel.is_multiplexed or getattr(peer.channel, "is_listening", False)


# -- questions -----------------------------------------------------------------------------------


def _ask_open(tasks: Tasks, record: Record, peer: Peer, call: Call) -> dict[str, asyncio.Task[None]]:
    # Ask the open questions that are not being asked yet, as far as this client supports them.
    begun: dict[str, asyncio.Task[None]] = {}
    for key, ask in record.asks.items():
        place = record.id, key
        if place not in tasks.asking and _takes(call, ask):
            begun[key] = tasks.asking[place] = asyncio.ensure_future(_ask(tasks, record, key, peer, call))
            begun[key].add_done_callback(partial(_asked, tasks, place))
    return begun


def _asked(tasks: Tasks, place: tuple[str, str], asking: asyncio.Task[None]) -> None:
    if tasks.asking.get(place) is asking:
        del tasks.asking[place]


def _takes(call: Call, ask: Ask) -> bool:
    kind = ask.method.partition("/")[0]
    return ask.method in call.version.server_requests and getattr(call.client.capabilities, kind, None) is not None


async def _ask(tasks: Tasks, record: Record, key: str, peer: Peer, call: Call) -> None:
    ask = record.asks[key]
    params: dict[str, Any] = _decode_members(encode(call.version.shape(params_of(ask))))
    params["_meta"] = {RELATED_TASK: {"taskId": record.id}}
    try:
        answer = await peer.request(ask.method, params, call, None)
    except RemoteError as error:
        await tasks.questions.refuse(record, key, f"The client did not answer {ask.method}: {error.message}")
    except (ConnectionLost, LocalProtocolError):
        pass  # the question stays open
    else:
        await tasks.questions.answer(record, {key: answer})
