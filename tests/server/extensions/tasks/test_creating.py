"""When a call becomes a task, and what its client hears then, over every transport.

Spec: tasks-extension, capability negotiation and task creation.
"""

from __future__ import annotations

import asyncio
import base64
import re
from typing import Any

import pytest
from support.clock import turns, until
from support.http_peer import modern, serving
from support.http_wire import http_wire
from support.task_stage import TAKES, TASKS, TaskStage, answer, begin, entered, get, status, wait_for
from support.wires import LEGACY, META, MODERN, each_version, envelope, memory_wire, stdio_wire, websocket_wire

from mcpd import Context, MiddlewareRequest, Server
from mcpd.errors import InternalError, RegistrationError

each_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])
REQUIRED = {"requiredCapabilities": {"extensions": {TASKS: {}}}}


# ----------------------------------------------------------------------------- negotiation


async def test_discover_has_the_extension_if_some_tool_can_be_a_task() -> None:
    """TASK-001, S26-205: and never the capability of 2025-11-25."""
    server = Server("t")
    server.add_tool(lambda: "", name="never")
    async with memory_wire(server, MODERN) as wire:
        assert "extensions" not in (await wire.result("server/discover"))["capabilities"]
        server.add_tool(lambda: "", name="auto", task="auto")
        assert (await wire.result("server/discover"))["capabilities"]["extensions"] == {TASKS: {}}
        server.remove_tool("auto")
        capabilities = (await wire.result("server/discover"))["capabilities"]
        assert "extensions" not in capabilities
        assert "tasks" not in capabilities


@pytest.mark.parametrize("version", LEGACY)
async def test_initialize_has_the_capability_in_one_version(version: str) -> None:
    """TASK-002, TASK-003, TASK-010, S25-113, S26-207: the extension is none of a session, even if it offers it."""
    stage = TaskStage()
    async with memory_wire(stage.server) as wire:
        capabilities = (await wire.open(version, TAKES))["capabilities"]
        assert "extensions" not in capabilities
        expected = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        assert capabilities.get("tasks") == (expected if version == "2025-11-25" else None)
        if version == "2025-11-25":
            # What the client offers as the extension makes no call a task.
            assert (await wire.call("quick"))["content"][0]["text"] == "at once"


@pytest.mark.parametrize("open_wire", [stdio_wire, websocket_wire, http_wire])
async def test_tasks_are_listed_only_for_known_requestors(open_wire: Any) -> None:
    """TASK-004: an anonymous client over HTTP could be anybody."""
    stage = TaskStage()
    async with open_wire(stage.server) as wire:
        opened = await wire.open("2025-11-25")
        assert ("list" in opened["capabilities"]["tasks"]) == (open_wire is not http_wire)
        if open_wire is http_wire:
            assert (await wire.error("tasks/list"))["code"] == -32601


@each_wire
async def test_only_the_envelope_of_the_request_counts(open_wire: Any) -> None:
    """TASK-005, TASK-006, S26-036, S26-188: an auto tool runs to its end inside a request that declares nothing."""
    stage = TaskStage()
    async with stage.wire(open_wire) as wire:
        task_id = await begin(wire, "auto")
        undeclared = wire.ask("tools/call", {"name": "auto", "arguments": {}}, meta=envelope())
        await entered(stage, 2)
        await turns()
        stage.gate.set()
        assert (await wire.answer(undeclared))["result"]["content"][0]["text"] == "done"
        assert (await wait_for(wire, task_id))["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize(
    "capabilities", [{}, {"tasks": {"requests": {"tools": {"call": {}}}}}, {"extensions": {TASKS: 1}}]
)
async def test_a_required_tool_refuses_a_client_without_tasks(capabilities: dict[str, Any]) -> None:
    """TASK-007, TASK-008, S26-189, S26-206: before its function is entered; the older capability does not count."""
    stage = TaskStage()
    async with serving(stage.server) as port:
        call = {"name": "work", "arguments": {}}
        got = await port.ask(modern("tools/call", call, meta=envelope(capabilities=capabilities)))
        assert got.status == 400
        assert (got.code, got.error["data"]) == (-32021, REQUIRED)
        assert stage.entered == []


async def test_the_member_task_means_nothing_since_2026() -> None:
    """TASK-009, S26-204: neither on tools that are never a task nor on others."""
    stage = TaskStage()
    async with stage.wire() as wire:
        for tool, text in (("greet", "Hello, you!"), ("quick", "at once")):
            result = await wire.result("tools/call", {"name": tool, "arguments": {}, "task": {"ttl": 1000}})
            assert result["content"][0]["text"] == text


@each_version
async def test_without_a_task_tool_there_are_no_methods(version: str) -> None:
    """TASK-011."""
    server = Server("t")
    server.add_tool(lambda: "", name="never")
    async with memory_wire(server, version) as wire:
        for method in ("get", "update", "cancel", "result", "list"):
            error = await wire.error(f"tasks/{method}", {"taskId": "x", "inputResponses": {}})
            assert error["code"] == -32601


async def test_faults_are_found_in_their_order() -> None:
    """TASK-012: envelope, headers, version, method, params, capability, id."""
    stage = TaskStage()
    takes = envelope(capabilities=TAKES)
    bare = {key: value for key, value in takes.items() if not key.endswith("clientCapabilities")}
    async with serving(stage.server) as port:

        async def code(
            method: str, params: dict[str, Any], meta: dict[str, Any], **headers: str | None
        ) -> tuple[int, int]:
            got = await port.ask(
                modern(method, params, {name.replace("_", "-"): v for name, v in headers.items()}, meta=meta)
            )
            return got.status, got.code

        # Each request has all faults from one on, and is refused for the first.
        other = {**envelope(), f"{META}protocolVersion": "2030-01-01"}
        assert await code("tasks/nothing", {"taskId": 7}, bare, Mcp_Method="x") == (400, -32602)
        assert await code("tasks/nothing", {"taskId": 7}, other, Mcp_Method="x") == (400, -32020)
        assert await code("tasks/nothing", {"taskId": 7}, other, MCP_Protocol_Version="2030-01-01") == (400, -32022)
        assert await code("tasks/get", {"taskId": 7}, bare, Mcp_Name="x") == (400, -32602)
        assert await code(
            "tasks/get", {"taskId": "x"}, {**takes, f"{META}protocolVersion": "2030-01-01"}, Mcp_Name="y"
        ) == (400, -32020)
        assert await code("tasks/nothing", {"taskId": 7}, envelope()) == (404, -32601)
        assert await code("tasks/get", {"taskId": 7}, envelope(), Mcp_Name=None) == (200, -32602)
        assert await code("tasks/get", {"taskId": "x"}, envelope()) == (400, -32021)
        assert await code("tasks/get", {"taskId": "x"}, takes) == (200, -32602)


@pytest.mark.parametrize(
    "options",
    [
        {"task": "maybe"},
        {"task_after": 1},
        {"retry": True},
        {"task": "auto", "task_after": -1},
        {"task": "auto", "retry": -1},
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError):
        Server("t").add_tool(lambda: "", name="tool", **options)


# -------------------------------------------------------------------------------- creation


@each_wire
async def test_a_call_is_answered_with_a_task(open_wire: Any) -> None:
    """TASK-013, TASK-014, TASK-015, TASK-018, TASK-021, S26-190, S26-192, S26-193: flat, found at once, with times."""
    stage = TaskStage()
    async with stage.wire(open_wire) as wire:
        task = await wire.result("tools/call", {"name": "work", "arguments": {}})
        task_id = task.pop("taskId")
        assert set(task) == {"resultType", "_meta", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}
        assert (task["resultType"], task["status"]) == ("task", "working")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", task["createdAt"])
        assert task["createdAt"] <= task["lastUpdatedAt"]
        assert (await get(wire, task_id))["status"] == "working"
        stage.gate.set()
        assert (await wait_for(wire, task_id))["status"] == "completed"


async def test_nothing_but_a_tool_call_becomes_a_task() -> None:
    """TASK-016, S26-191."""
    stage = TaskStage()
    stage.server.add_text("test://a", "a", name="a")
    stage.server.add_prompt(lambda: "", name="p")
    async with stage.wire() as wire:
        task_id = await begin(wire, "work")
        for method, params in {
            "tools/list": {},
            "resources/list": {},
            "resources/read": {"uri": "test://a"},
            "prompts/get": {"name": "p"},
            "server/discover": {},
            "tasks/get": {"taskId": task_id},
            "tasks/cancel": {"taskId": task_id},
        }.items():
            assert (await wire.result(method, params))["resultType"] == "complete"


@each_wire
async def test_questions_before_and_inside_a_task(open_wire: Any) -> None:
    """TASK-017: first rounds without an id; then the task has keys of its own, and goes on where it stood."""
    stage = TaskStage()
    call = {"name": "later", "arguments": {}}
    async with stage.wire(open_wire) as wire:
        first = await wire.result("tools/call", call)
        assert first["resultType"] == "input_required"
        assert "taskId" not in first
        (key,) = first["inputRequests"]
        responses = {key: {"action": "accept", "content": {"name": "Ada"}}}
        again = {**call, "inputResponses": responses, "requestState": first["requestState"]}
        task = await wire.result("tools/call", again)
        assert (task["resultType"], task["statusMessage"]) == ("task", "for Ada")
        assert not {"requestState", "inputRequests"} & set(task)
        asked = await wait_for(wire, task["taskId"], "input_required")
        await answer(wire, task["taskId"], **{next(iter(asked["inputRequests"])).replace("-", "_"): "Bob"})
        assert (await wait_for(wire, task["taskId"]))["result"]["content"][0]["text"] == "Ada, Bob"
        assert stage.entered == ["later", "later"]


async def test_ids_cannot_be_guessed() -> None:
    """TASK-019, S26-208, S25-138: 32 random bytes, in which nothing is encoded."""
    stage = TaskStage()
    async with stage.wire() as wire:
        ids = [await begin(wire, "work") for _ in range(8)]
        raw = [base64.urlsafe_b64decode(task_id + "=") for task_id in ids]
        assert {len(one) for one in raw} == {32}
        assert len({one[:4] for one in raw}) == len({one[-4:] for one in raw}) == 8


async def test_what_ends_in_time_is_answered_as_ever() -> None:
    """TASK-020."""
    stage = TaskStage()
    async with stage.wire() as wire:
        result = await wire.call("quick")
        assert (result["resultType"], result["content"][0]["text"]) == ("complete", "at once")
        assert stage.tasks.runs == {}


@pytest.mark.parametrize("tool", ["returns", "raises"])
async def test_work_that_ends_as_it_would_become_a_task(tool: str) -> None:
    """TASK-020: whichever comes first, the client receives the outcome."""
    server = Server("t")

    @server.tool(task="auto", task_after=0)
    async def returns(number: int) -> str:
        await turns(number)
        return "done"

    @server.tool(task="auto", task_after=0)
    async def raises(number: int) -> str:
        await turns(number)
        raise InternalError("broken")

    async with memory_wire(server, MODERN, capabilities=TAKES) as wire:
        for number in range(8):
            answer = await wire.request("tools/call", {"name": tool, "arguments": {"number": number}})
            if "taskId" in answer.get("result", {}):
                answer = await wait_for(wire, answer["result"]["taskId"], "completed", "failed")
            said = answer["error"]["message"] if tool == "raises" else answer["result"]["content"][0]["text"]
            assert said == ("broken" if tool == "raises" else "done")


async def test_the_seed_is_working_whatever_has_happened() -> None:
    """TASK-021, TASK-028: arguments that do not fit, and work that ends at once, are no other seed."""
    stage = TaskStage()
    async with stage.wire() as wire:
        for tool, arguments in (("fails", {}), ("breaks", {}), ("work", {"text": 7})):
            seed = await wire.result("tools/call", {"name": tool, "arguments": arguments})
            assert seed["status"] == "working"
            await wait_for(wire, seed["taskId"], "completed", "failed")


async def test_unknown_and_hidden_tools_are_no_tasks() -> None:
    """TASK-015: their error is the answer to the call."""
    stage = TaskStage()
    stage.server.disable(names="work")
    async with stage.wire() as wire:
        for name in ("work", "nothing"):
            assert (await wire.error("tools/call", {"name": name}))["code"] == -32602


async def test_middleware_sees_the_final_result() -> None:
    """A middleware surrounds the whole work, also when its call was answered long ago."""
    stage = TaskStage()
    seen: list[str] = []

    @stage.server.middleware("tools/call")
    async def watch(request: MiddlewareRequest, call_next: Any) -> Any:
        result = await call_next(request)
        seen.append(result.content[0].text)
        return result

    async with stage.wire() as wire:
        task_id = await begin(wire, "work")
        assert seen == []
        stage.gate.set()
        await wait_for(wire, task_id)
        assert seen == ["done"]


async def test_what_a_tool_sees_inside_a_task() -> None:
    """Its id, the client of the request, and the headers without credentials, after the request is gone."""
    stage = TaskStage()
    secret = {"Authorization": "Bearer hunter2", "X-Trace": "seven"}
    async with serving(stage.server) as port:
        meta = envelope(capabilities=TAKES)
        seed = (await port.ask(modern("tools/call", {"name": "work", "arguments": {}}, dict(secret), meta=meta))).json
        ctx = stage.contexts[0]
        assert ctx.task_id == seed["result"]["taskId"]
        assert ctx.transport == "http"
        assert ctx.headers["x-trace"] == "seven"
        assert "authorization" not in ctx.headers
        assert ctx.client_info is not None
        assert not ctx.is_cancelled
        stage.gate.set()
        await until(lambda: ctx.is_cancelled)


async def test_outside_a_task_there_is_no_id_and_nothing_becomes_one() -> None:
    server = Server("t")

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.become_task("no")
        return str(ctx.task_id)

    async with memory_wire(server, MODERN, capabilities=TAKES) as wire:
        assert await wire.text("tool") == "None"


async def test_plain_functions_become_tasks_too() -> None:
    """TASK-020: the thread is not disturbed."""
    stage = TaskStage()
    async with stage.wire() as wire:
        task_id = await begin(wire, "plain")
        assert await status(wire, task_id) == "working"
        stage.thread_gate.set()
        assert (await wait_for(wire, task_id))["result"]["content"][0]["text"] == "from a thread"
        assert stage.entered == ["plain"]


@each_wire
async def test_a_client_that_leaves_before_the_task_leaves_none(open_wire: Any) -> None:
    """TASK-047: the call ends."""
    server = Server("t")
    began, ended = asyncio.Event(), asyncio.Event()

    @server.tool(task="auto", task_after=3600)
    async def tool() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with open_wire(server, MODERN, capabilities=TAKES) as wire:
        request_id = wire.ask("tools/call", {"name": "tool", "arguments": {}})
        await began.wait()
        wire.cancel(request_id)
        await ended.wait()
