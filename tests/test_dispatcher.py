"""Calls as they run: at once or in a task, cancelled, reporting, failing; on the wire, over memory and over stdio.

Spec: 2025-11-25 basic/utilities/{cancellation,progress}; 2026-07-28 basic/patterns/{cancellation,progress}.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.wires import MODERN, OpenWire, Wire, each_version, each_wire, envelope, initialize, memory_wire, stdio_wire

from mcpd import Context, Server, ToolError, text
from mcpd.errors import InvalidParams, ResourceNotFound

VERSION = "2025-11-25"


class Workshop:
    """A server with a tool that waits for the test, and a record of what happened to it."""

    def __init__(self) -> None:
        self.server = Server("t")
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.happened: list[str] = []

        @self.server.tool
        async def echo(text: str) -> str:
            return text

        @self.server.tool
        async def wait(ctx: Context) -> str:
            self.entered.set()
            try:
                await self.go.wait()
                self.happened.append("went on")
                return "done"
            except asyncio.CancelledError:
                self.happened.append("cancelled")
                raise
            finally:
                self.happened.append(f"cancelled={ctx.is_cancelled}")


def ask_wait(wire: Wire, request_id: Any = None, token: Any = None) -> Any:
    meta = None if token is None else {"progressToken": token}
    return wire.ask("tools/call", {"name": "wait"}, meta=meta, id=request_id)


# ----------------------------------------------------------------------------------- eager start


async def test_a_tool_that_never_waits_is_answered_in_the_turn_it_arrived_in() -> None:
    """No turn of the event loop is spent on a task that has nothing to wait for."""
    async with memory_wire(Workshop().server, VERSION) as wire:
        connection, sent = wire.connection, []
        connection.channel.send = lambda frame, related_request_id=None, method=None: sent.append(frame)
        connection.receive(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}'
        )
        # From inside a task the first step cannot be run by hand before Python 3.12.
        if not sent:
            await asyncio.sleep(0)
        assert len(sent) == 1
        del connection.channel.send


@each_version
@each_wire
async def test_answers_come_as_they_are_ready_not_in_order(open_wire: OpenWire, version: str) -> None:
    shop = Workshop()
    async with open_wire(shop.server, version) as wire:
        waiting = ask_wait(wire)
        await shop.entered.wait()
        assert await wire.text("echo", text="first") == "first"
        shop.go.set()
        assert (await wire.answer(waiting))["result"]["content"][0]["text"] == "done"


async def test_each_call_runs_in_a_context_of_its_own() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    server = Server("t")

    @server.tool
    async def remember(name: str, wait: bool) -> str:
        before = who.get()
        who.set(name)
        if wait:
            await asyncio.sleep(0)
        return f"{before} {who.get()}"

    @server.tool
    def remember_in_thread(name: str) -> str:
        before = who.get()
        who.set(name)
        return f"{before} {who.get()}"

    async with memory_wire(server, VERSION) as wire:
        for name, wait in (("a", False), ("b", True), ("c", False)):
            assert await wire.text("remember", name=name, wait=wait) == f"nobody {name}"
        for name in "ab":
            assert await wire.text("remember_in_thread", name=name) == f"nobody {name}"
    assert who.get() == "nobody"


@each_wire
async def test_timeouts_and_task_groups_work_from_the_first_step_on(open_wire: OpenWire) -> None:
    """The first step runs by hand: even there the task is the current one."""
    server = Server("t")

    @server.tool
    async def patient() -> str:
        assert asyncio.current_task() is not None
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "no"

    @server.tool
    async def many() -> str:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(0, number)) for number in range(3)]
        return str([task.result() for task in tasks])

    async with open_wire(server, VERSION) as wire:
        assert await wire.text("patient") == "timed out"
        assert await wire.text("many") == "[0, 1, 2]"


async def test_anyio_cancel_scopes_work_in_tools() -> None:
    import anyio

    server = Server("t")

    @server.tool
    async def scoped() -> bool:
        with anyio.move_on_after(0.001) as scope:
            await anyio.sleep_forever()
        return scope.cancelled_caught

    async with memory_wire(server, VERSION) as wire:
        assert await wire.text("scoped") == "true"


# ---------------------------------------------------------------------------------- cancellation


@each_version
@each_wire
async def test_cancelling_stops_the_work_and_nothing_more_is_sent_for_the_id(open_wire: OpenWire, version: str) -> None:
    """S26-049; 2025-11-25 basic/utilities/cancellation. 2024-10-07 had none, but its clients may send it."""
    shop = Workshop()
    async with open_wire(shop.server, version) as wire:
        ask_wait(wire, "w", token="t")
        await shop.entered.wait()
        wire.cancel("w")
        await wire.quiet()
        if version != "2024-10-07":
            assert shop.happened == ["cancelled", "cancelled=True"]
            shop.go.set()
            await wire.quiet()
            # The id is free again.
            shop.entered.clear()
            ask_wait(wire, "w")
            assert (await wire.answer("w"))["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("never_asked", [77, "77", 0, "", None, 1.5, {"a": 1}, True])
@each_version
async def test_cancelling_what_is_not_open_is_ignored(version: str, never_asked: Any) -> None:
    """S25-047, S26-097."""
    async with memory_wire(Workshop().server, version) as wire:
        wire.cancel(never_asked)
        await wire.quiet()
        assert "result" in await wire.request("tools/call", {"name": "echo", "arguments": {"text": ""}}, id=5)
        wire.cancel(5)
        await wire.quiet()


async def test_ids_are_cancelled_by_type_and_value() -> None:
    shop = Workshop()
    async with memory_wire(shop.server, VERSION) as wire:
        ask_wait(wire, 1)
        await shop.entered.wait()
        wire.cancel("1")
        wire.cancel(1.0)
        wire.cancel(True)
        await wire.quiet()
        shop.go.set()
        assert "result" in await wire.answer(1)


async def test_initialize_cannot_be_cancelled() -> None:
    """2025-11-25 basic/utilities/cancellation: "The initialize request MUST NOT be cancelled"."""
    async with memory_wire(Workshop().server) as wire:
        wire.send(initialize(VERSION, 1))
        wire.cancel(1)
        assert (await wire.answer(1))["result"]["protocolVersion"] == VERSION


async def test_an_answer_that_wins_the_race_is_the_only_message() -> None:
    """S25-047: cancel arrives with the work done but before the client saw the answer."""
    shop = Workshop()
    async with memory_wire(shop.server, VERSION) as wire:
        ask_wait(wire, 1)
        await shop.entered.wait()
        shop.go.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        wire.cancel(1)
        assert (await wire.receive())["result"]["content"][0]["text"] == "done"
        await wire.quiet()


async def test_a_cancel_that_wins_the_race_leaves_no_answer() -> None:
    """The work could go on in the same turn in which it is cancelled: it is not answered, whatever it makes of it."""
    shop = Workshop()
    async with memory_wire(shop.server, VERSION) as wire:
        ask_wait(wire, 1)
        await shop.entered.wait()
        shop.go.set()
        wire.connection.receive(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
        await wire.quiet()


async def test_a_tool_that_does_not_stop_is_not_answered_either() -> None:
    server = Server("t")
    stubborn = asyncio.Event()
    cancelled = asyncio.Event()

    @server.tool
    async def deaf(ctx: Context) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
        await ctx.progress(5)
        await stubborn.wait()
        return "too late"

    async with memory_wire(server, VERSION) as wire:
        wire.ask("tools/call", {"name": "deaf"}, id=1, meta={"progressToken": 1})
        await wire.quiet()
        wire.cancel(1)
        await cancelled.wait()
        stubborn.set()
        await wire.quiet()


async def test_a_plain_function_sees_that_it_was_cancelled() -> None:
    server = Server("t")
    entered, looked = asyncio.Event(), threading.Event()
    seen: list[bool] = []

    @server.tool
    def plain(ctx: Context) -> str:
        loop.call_soon_threadsafe(entered.set)
        assert looked.wait(20)
        seen.append(ctx.is_cancelled)
        ctx.progress(1)
        loop.call_soon_threadsafe(left.set)
        return "too late"

    loop, left = asyncio.get_running_loop(), asyncio.Event()
    async with memory_wire(server, VERSION) as wire:
        wire.ask("tools/call", {"name": "plain"}, id=1, meta={"progressToken": "p"})
        await entered.wait()
        wire.cancel(1)
        await wire.quiet()
        looked.set()
        await left.wait()
        assert seen == [True]
        await wire.quiet()


async def test_a_tool_that_is_cancelled_from_inside_is_answered() -> None:
    """Nobody gave this request up, so somebody waits for its answer."""
    server = Server("t")

    @server.tool
    async def unlucky() -> str:
        raise asyncio.CancelledError

    @server.tool
    async def unlucky_child() -> str:
        task = asyncio.ensure_future(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task
        return "never"

    async with memory_wire(server, VERSION) as wire:
        for tool in ("unlucky", "unlucky_child"):
            error = await wire.error("tools/call", {"name": tool})
            assert error["code"] == -32603
            assert "shutting down" not in error["message"]
        await wire.quiet()


async def test_at_the_end_what_still_runs_is_answered_with_an_error() -> None:
    """D11: within the grace time a call may finish; what does not is told so."""
    shop = Workshop()
    async with memory_wire(shop.server, VERSION) as wire:
        ask_wait(wire, 1)
        await shop.entered.wait()
        await wire.connection.finish(0)
        answer = await wire.answer(1)
        assert answer["error"]["code"] == -32603
        assert "shutting down" in answer["error"]["message"]
        assert shop.happened[0] == "cancelled"


@pytest.mark.parametrize("by_client", [False, True])
async def test_a_call_that_is_cancelled_in_the_turn_it_arrived_in_begins_all_the_same(by_client: bool) -> None:
    """Else nobody would answer it, and what it holds would never be awaited."""
    shop = Workshop()
    async with memory_wire(shop.server, VERSION) as wire:
        ask_wait(wire, 1)
        if by_client:
            wire.cancel(1)
            await wire.quiet()
        else:
            asyncio.get_running_loop().call_soon(wire.connection.abort)
            assert (await wire.answer(1))["error"]["code"] == -32603
        assert shop.happened[0] == "cancelled"


async def test_a_client_that_has_hung_up_is_not_told_what_was_stopped() -> None:
    """Its own end may be gone, and it may fail on what still comes."""
    shop = Workshop()

    @shop.server.tool
    async def clings() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            shop.happened.append("clung")
        return "all the same"

    async with memory_wire(shop.server, VERSION) as wire:
        ask_wait(wire, 1)
        wire.ask("tools/call", {"name": "clings"}, id=2)
        await shop.entered.wait()
        wire.connection.closed()
        await wire.connection.finish(0)
        assert {"cancelled", "clung"} <= set(shop.happened)
        assert not wire.connection.session.in_flight
        await wire.connection.channel.aclose()
        assert await wire.end() == []


async def test_within_the_grace_time_a_call_finishes() -> None:
    shop = Workshop()
    async with memory_wire(shop.server, VERSION) as wire:
        ask_wait(wire, 1)
        await shop.entered.wait()
        asyncio.get_running_loop().call_soon(shop.go.set)
        await wire.connection.finish(20)
        assert (await wire.answer(1))["result"]["content"][0]["text"] == "done"


# --------------------------------------------------------------------------------- ids, limits


@each_version
async def test_an_id_that_is_in_use_is_refused_and_the_first_request_is_answered(version: str) -> None:
    """S25-005 from the other side."""
    shop = Workshop()
    async with memory_wire(shop.server, version) as wire:
        for _ in range(2):
            ask_wait(wire, 7)
        await shop.entered.wait()
        refused = await wire.receive()
        assert (refused["id"], refused["error"]["code"]) == (7, -32600)
        shop.go.set()
        assert "result" in await wire.answer(7)
        assert "result" in await wire.request("tools/list", id=7)


@each_version
async def test_over_the_limit_requests_are_refused_until_one_is_answered(version: str) -> None:
    """S25-060, S25-073, S26-110, S26-135: the rate of one client is bounded by how many calls it has open."""
    shop = Workshop()
    shop.server.max_in_flight = 2
    async with memory_wire(shop.server, version) as wire:
        first, second = ask_wait(wire), ask_wait(wire)
        await shop.entered.wait()
        error = await wire.error("tools/list")
        assert error["code"] == -32600
        assert "2" in error["message"]
        shop.go.set()
        await wire.answer(first)
        await wire.answer(second)
        assert "tools" in await wire.result("tools/list")


# -------------------------------------------------------------------------------------- progress


def progress_server() -> Server:
    server = Server("t")

    @server.tool
    async def steps(values: list[float], ctx: Context, total: float | None = None, message: str | None = None) -> str:
        for value in values:
            await ctx.progress(value, total, message)
        return "done"

    @server.tool
    def steps_in_thread(values: list[float], ctx: Context) -> str:
        for value in values:
            ctx.progress(value)
        return "done"

    return server


async def steps(wire: Wire, tool: str, values: list[float], token: Any = "t", **more: Any) -> list[Any]:
    params = {"name": tool, "arguments": {"values": values, **more}}
    await wire.result("tools/call", params, meta=None if token is None else {"progressToken": token})
    heard, wire.heard = wire.heard, []
    assert all(message["method"] == "notifications/progress" for message in heard)
    return [message["params"] for message in heard]


@each_version
@each_wire
@pytest.mark.parametrize("tool", ["steps", "steps_in_thread"])
async def test_progress_rises_strictly_and_comes_before_the_answer(
    open_wire: OpenWire, version: str, tool: str
) -> None:
    """S25-050, S25-051, S25-054; S26-099, S26-100, S26-101."""
    async with open_wire(progress_server(), version) as wire:
        heard = await steps(wire, tool, [0, 1, 1, 0.5, 2.5, -1, 2.5, 3])
        assert [params["progress"] for params in heard] == [0, 1, 2.5, 3]
        assert {params["progressToken"] for params in heard} == {"t"}
        await wire.quiet()


@each_version
async def test_without_a_token_there_is_no_progress(version: str) -> None:
    async with memory_wire(progress_server(), version) as wire:
        assert await steps(wire, "steps", [1, 2], token=None) == []


@each_version
@pytest.mark.parametrize("token", [0, "", "0", 5, "é", 2**60])
async def test_a_token_keeps_its_type(version: str, token: Any) -> None:
    """S25-048, S26-098: 0 and "" are tokens."""
    async with memory_wire(progress_server(), version) as wire:
        (params,) = await steps(wire, "steps", [1], token=token)
        assert params["progressToken"] == token
        assert type(params["progressToken"]) is type(token)


@each_version
async def test_total_and_message_of_progress(version: str) -> None:
    """protocol-versions 3: `message` since 2025-03-26."""
    async with memory_wire(progress_server(), version) as wire:
        (params,) = await steps(wire, "steps", [1], total=4, message="half way")
        assert params["total"] == 4
        assert params.get("message") == ("half way" if version >= "2025-03-26" else None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_progress_that_json_cannot_say_is_not_sent(value: float) -> None:
    server = Server("t")

    @server.tool
    async def odd(ctx: Context) -> str:
        await ctx.progress(value)
        await ctx.progress(1, total=value)
        await ctx.progress(2)
        return "done"

    async with memory_wire(server, VERSION) as wire:
        await wire.call("odd", {"progressToken": 1})
        assert [message["params"] for message in wire.heard] == [
            {"progressToken": 1, "progress": 1},
            {"progressToken": 1, "progress": 2},
        ]


async def test_progress_after_the_answer_is_not_sent() -> None:
    """S26-101: a task that outlives its call has nothing to report to."""
    server = Server("t")
    later: list[asyncio.Task[None]] = []
    answered = asyncio.Event()

    @server.tool
    async def leaves_a_task(ctx: Context) -> str:
        async def report() -> None:
            await answered.wait()
            await ctx.progress(1)
            await ctx.warning("late")

        later.append(asyncio.create_task(report()))
        return "done"

    async with memory_wire(server, VERSION) as wire:
        await wire.call("leaves_a_task", {"progressToken": 1})
        answered.set()
        await later[0]
        await wire.quiet()


@pytest.mark.parametrize("token", [None, 1.5, {}, [], True])
async def test_a_bad_token_is_bad_params(token: Any) -> None:
    async with memory_wire(progress_server(), VERSION) as wire:
        answer = await wire.request(
            "tools/call", {"name": "steps", "arguments": {"values": [1]}}, meta={"progressToken": token}
        )
        if token is None:
            assert "result" in answer
        else:
            assert answer["error"]["code"] == -32602
            assert "progressToken" in answer["error"]["message"]
        assert not wire.heard


@settings(max_examples=25)
@given(st.lists(st.floats(allow_nan=True) | st.integers(-3, 3), max_size=12))
async def test_whatever_a_tool_reports_progress_is_valid_and_rises(values: list[float]) -> None:
    server = Server("t")

    @server.tool
    async def report(ctx: Context) -> str:
        for value in values:
            await ctx.progress(value)
        return "done"

    async with memory_wire(server, MODERN) as wire:
        await wire.call("report", {"progressToken": 1})
        heard = [message["params"]["progress"] for message in wire.heard]
        assert heard == sorted(set(heard))


# --------------------------------------------------------------------------------------- failures


@pytest.fixture
def quiet_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.ERROR, "mcpd"):
        yield caplog


SECRET = "/home/somebody/secret.txt"


class TimeLimit(BaseException):
    """No Exception, so that code which catches those cannot stop it: billiard and others have such."""


def failing_server() -> Server:
    server = Server("t")

    @server.tool
    async def breaks(how: str) -> str:
        return fail(how)

    @server.tool
    def breaks_in_thread(how: str) -> str:
        return fail(how)

    @server.resource("x://{how}")
    async def resource(how: str) -> str:
        return fail(how)

    @server.resource("thread://{how}")
    def resource_in_thread(how: str) -> str:
        return fail(how)

    @server.prompt
    async def prompt(how: str) -> str:
        return fail(how)

    @server.prompt
    def prompt_in_thread(how: str) -> str:
        return fail(how)

    @server.completion("how", prompt="prompt")
    def complete(typed: str) -> list[str]:
        return [fail(typed)]

    def fail(how: str) -> str:
        failure: BaseException = {
            "bug": ZeroDivisionError(SECRET),
            "bare": Exception(),
            "os": FileNotFoundError(2, "No such file", SECRET),
            "tool": ToolError("Try a smaller number"),
            "params": InvalidParams("how: no such way", {"how": how}),
            "resource": ResourceNotFound("x://y"),
            "exit": SystemExit(3),
            "limit": TimeLimit("x"),
            "interrupt": KeyboardInterrupt(),
            "close": GeneratorExit(),
            "told": ExceptionGroup("", [ToolError("Try again"), ExceptionGroup("", [ToolError("Try less")])]),
            "partly told": ExceptionGroup("", [ToolError("Try again"), ValueError("y")]),
            "group": BaseExceptionGroup("several", [TimeLimit("x"), ValueError("y")]),
            "stop": StopIteration("x"),
            "memory": MemoryError(),
            "depth": RecursionError("maximum recursion depth exceeded"),
        }[how]
        raise failure

    return server


NO_EXCEPTIONS = ["exit", "limit", "interrupt", "group"]
TOOLS = pytest.mark.parametrize("tool", ["breaks", "breaks_in_thread"])


@each_version
@TOOLS
@pytest.mark.parametrize("how", [*NO_EXCEPTIONS, "bug", "bare", "os", "stop", "memory", "depth"])
async def test_a_bug_in_a_tool_is_a_clean_result_and_a_traceback_in_the_log(
    version: str, tool: str, how: str, quiet_log: pytest.LogCaptureFixture
) -> None:
    """Architecture 4: no path and no traceback on the wire; not even sys.exit or an interrupt ends the server."""
    async with memory_wire(failing_server(), version) as wire:
        result = await wire.call(tool, how=how)
        assert result["isError"] is True
        (block,) = result["content"]
        assert tool in block["text"]
        assert SECRET not in str(result)
        assert "Traceback" not in str(result)
        (record,) = quiet_log.records
        assert record.exc_info is not None
        assert tool in record.getMessage()
        await wire.quiet()


@each_version
@TOOLS
async def test_a_tool_error_is_its_text_for_the_model(
    version: str, tool: str, quiet_log: pytest.LogCaptureFixture
) -> None:
    async with memory_wire(failing_server(), version) as wire:
        result = await wire.call(tool, how="tool")
        assert result["content"] == [{"type": "text", "text": "Try a smaller number"}]
        assert result["isError"] is True
        if version == "2024-10-07":
            assert result["toolResult"] == "Try a smaller number"
        assert not quiet_log.records


@each_version
@TOOLS
async def test_tool_errors_of_a_task_group_are_their_texts(
    version: str, tool: str, quiet_log: pytest.LogCaptureFixture
) -> None:
    async with memory_wire(failing_server(), version) as wire:
        result = await wire.call(tool, how="told")
        assert result["content"] == [{"type": "text", "text": "Try again\nTry less"}]
        assert result["isError"] is True
        assert not quiet_log.records
        result = await wire.call(tool, how="partly told")
        assert "internal error" in result["content"][0]["text"]
        assert quiet_log.records


@each_version
@TOOLS
async def test_a_protocol_error_of_a_tool_is_a_json_rpc_error(version: str, tool: str) -> None:
    async with memory_wire(failing_server(), version) as wire:
        error = await wire.error("tools/call", {"name": tool, "arguments": {"how": "params"}})
        assert error == {"code": -32602, "message": "how: no such way", "data": {"how": "params"}}


@each_version
@pytest.mark.parametrize("how", [*NO_EXCEPTIONS, "bug", "close", "tool"])
async def test_a_bug_in_a_resource_is_an_internal_error(
    version: str, how: str, quiet_log: pytest.LogCaptureFixture
) -> None:
    async with memory_wire(failing_server(), version) as wire:
        error = await wire.error("resources/read", {"uri": f"x://{how}"})
        assert error["code"] == -32603
        assert SECRET not in str(error)
        assert (error["message"] == "Try a smaller number") == (how == "tool")
        assert bool(quiet_log.records) == (how != "tool")
        await wire.quiet()


@each_version
@pytest.mark.parametrize("how", [*NO_EXCEPTIONS, "bug", "close"])
async def test_whatever_a_plain_resource_or_a_prompt_raises_it_is_answered(version: str, how: str) -> None:
    async with memory_wire(failing_server(), version) as wire:
        for method, params in (
            ("resources/read", {"uri": f"thread://{how}"}),
            ("prompts/get", {"name": "prompt", "arguments": {"how": how}}),
            ("prompts/get", {"name": "prompt_in_thread", "arguments": {"how": how}}),
        ):
            # The same id each time: an answer frees it.
            answer = await wire.request(method, params, id=1)
            assert answer["error"]["code"] == -32603
        await wire.quiet()


@pytest.mark.parametrize("how", [*NO_EXCEPTIONS, "bug"])
async def test_a_completion_that_fails_completes_nothing(how: str) -> None:
    async with memory_wire(failing_server(), MODERN) as wire:
        argument = {"name": "how", "value": how}
        found = await wire.result(
            "completion/complete", {"ref": {"type": "ref/prompt", "name": "prompt"}, "argument": argument}
        )
        assert found["completion"]["values"] == []


@each_version
@TOOLS
async def test_a_tool_that_closes_itself_is_answered(version: str, tool: str) -> None:
    """GeneratorExit unwinds every coroutine on its way, so that only the dispatcher can answer it."""
    async with memory_wire(failing_server(), version) as wire:
        for _ in range(2):
            answer = await wire.request("tools/call", {"name": tool, "arguments": {"how": "close"}}, id=1)
            assert answer["error"]["code"] == -32603
        await wire.quiet()


async def test_a_handler_that_raises_no_exception_is_answered() -> None:
    """Also where nothing of the registry stands between: the last net is the dispatcher's."""
    server = Server("t")

    async def handler(ctx: Context, params: Any) -> Any:
        raise TimeLimit("x")

    server.handlers = {**server.handlers, "ping": handler, "tools/list": handler}
    async with memory_wire(server, VERSION) as wire:
        for method in ("ping", "tools/list"):
            assert (await wire.error(method))["code"] == -32603
        await wire.quiet()


@each_version
async def test_what_cannot_be_written_as_json_is_an_internal_error_not_silence(
    version: str, quiet_log: pytest.LogCaptureFixture
) -> None:
    """Whatever a tool does, its request is answered and its id is free again."""
    server = Server("t")

    @server.tool
    async def surrogate_params() -> str:
        raise InvalidParams("\ud800")

    @server.tool
    async def odd_data() -> str:
        raise InvalidParams("odd", {"data": object()})

    @server.tool
    async def unwritable() -> Any:
        return {"a": object()}

    async with memory_wire(server, version) as wire:
        for tool in ("surrogate_params", "odd_data", "unwritable"):
            answer = await wire.request("tools/call", {"name": tool}, id=1)
            assert "error" in answer or answer["result"]["isError"], answer
            assert quiet_log.records, tool
            quiet_log.clear()
        await wire.quiet()


HALF = "caf\udce9"  # as os.listdir gives a name in Latin-1
WHOLE = "caf\ufffd"


class Markup(str):
    __slots__ = ()


@each_version
@pytest.mark.parametrize("is_async", [True, False])
async def test_half_a_character_is_replaced_wherever_it_stands(version: str, is_async: bool) -> None:
    """Names of files that are no UTF-8 hold such; their tool works all the same."""
    server = Server("t")
    results: dict[str, Any] = {
        "text": HALF,
        "block": text(HALF),
        "blocks": [text(HALF), HALF],
        "data": [HALF, 1],
        "object": {HALF: [HALF]},
        "markup": text(Markup("caf\ufffd")),
    }

    def give(kind: str) -> Any:
        if kind == "error":
            raise ToolError(HALF)
        return results[kind]

    async def give_async(kind: str) -> Any:
        return give(kind)

    server.add_tool(give_async if is_async else give, name="give")
    server.resource("x://{kind}")(give)
    server.prompt(give)
    async with memory_wire(server, version) as wire:
        for kind in [*results, "error"]:
            result = await wire.call("give", kind=kind)
            assert result.get("isError", False) == (kind == "error"), result
            assert all(WHOLE in block["text"] for block in result["content"]), result
            if "structuredContent" in result:
                assert result["structuredContent"] == {WHOLE: [WHOLE]}
        for kind in ("text", "data"):
            (content,) = (await wire.result("resources/read", {"uri": f"x://{kind}"}))["contents"]
            assert WHOLE in content["text"]
        for kind in ("text", "block", "blocks"):
            prompt = await wire.result("prompts/get", {"name": "give", "arguments": {"kind": kind}})
            assert prompt["messages"][0]["content"]["text"] == WHOLE
        await wire.quiet()


@each_version
async def test_a_progress_message_that_cannot_be_written_fails_its_tool_alone(version: str) -> None:
    server = Server("t")

    @server.tool
    async def odd(ctx: Context) -> str:
        await ctx.progress(1, message="\ud800")
        return "done"

    async with memory_wire(server, version) as wire:
        answer = await wire.request("tools/call", {"name": "odd"}, meta={"progressToken": 1})
        assert "result" in answer
        await wire.quiet()


# --------------------------------------------------------------------------------------- threads


@each_wire
async def test_plain_functions_do_not_hold_up_other_calls(open_wire: OpenWire) -> None:
    """Each waits for the next one to be called: if one held up another, none would end."""
    server = Server("t")
    number = 20
    called = [threading.Event() for _ in range(number + 1)]

    @server.tool
    def wait_for_next(this: int) -> str:
        called[this].set()
        return "ok" if called[this + 1].wait(20) else "the next call never came"

    @server.tool
    async def last() -> str:
        called[number].set()
        return "last"

    async with open_wire(server, VERSION) as wire:
        ids = [wire.ask("tools/call", {"name": "wait_for_next", "arguments": {"this": this}}) for this in range(number)]
        assert await wire.text("last") == "last"
        for request_id in ids:
            assert (await wire.answer(request_id))["result"]["content"][0]["text"] == "ok"


async def test_a_plain_function_runs_outside_the_event_loops_thread() -> None:
    server = Server("t")

    @server.tool
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    @server.resource("x://where")
    def resource() -> str:
        return str(threading.current_thread() is threading.main_thread())

    async with memory_wire(server, VERSION) as wire:
        assert await wire.text("where") == "false"
        contents = (await wire.result("resources/read", {"uri": "x://where"}))["contents"]
        assert contents[0]["text"] == "False"


async def test_a_decorated_async_function_is_awaited() -> None:
    """A wrapper that is a plain function hides that a coroutine comes back; it is still one."""
    import functools

    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    server = Server("t")

    @server.tool
    @logged
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    @server.resource("x://{name}")
    @logged
    async def read(name: str) -> str:
        await asyncio.sleep(0)
        return name

    async with memory_wire(server, MODERN) as wire:
        assert (await wire.call("double", n=4))["structuredContent"] == 8
        assert (await wire.result("resources/read", {"uri": "x://y"}))["contents"][0]["text"] == "y"


async def test_many_more_plain_calls_than_threads_are_all_answered() -> None:
    server = Server("t")

    @server.tool
    def square(n: int) -> int:
        return n * n

    async with stdio_wire(server, MODERN) as wire:
        ids = {wire.ask("tools/call", {"name": "square", "arguments": {"n": n}}): n for n in range(300)}
        for request_id, n in ids.items():
            assert (await wire.answer(request_id))["result"]["structuredContent"] == n * n


async def test_contexts_of_two_eras_side_by_side() -> None:
    """Two connections of one server, each in its own version."""
    server = Server("t")

    @server.tool
    async def version(ctx: Context) -> str:
        info = ctx.client_info
        return f"{ctx.protocol_version} {info.name if info else None} {ctx.method} {ctx.request_id!r}"

    async with memory_wire(server, VERSION) as old, memory_wire(server, MODERN) as new:
        for wire, name in ((old, VERSION), (new, MODERN)):
            answer = await wire.request("tools/call", {"name": "version"}, id="x")
            assert answer["result"]["content"][0]["text"] == f"{name} wire tools/call 'x'"


async def test_a_handler_sees_the_meta_of_its_request() -> None:
    server = Server("t")

    @server.tool
    async def meta(ctx: Context) -> Any:
        return ctx.meta

    async with memory_wire(server, VERSION) as wire:
        assert (await wire.call("meta", {"a.b/c": [1]}))["structuredContent"] == {"a.b/c": [1]}
        assert (await wire.call("meta"))["structuredContent"] == {}
    async with memory_wire(server, MODERN) as wire:
        assert (await wire.call("meta"))["structuredContent"] == envelope()
