"""What tools in processes do with their contexts: relayed to the real request, in every version (PROC-07)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.clock import until
from support.process_stage import is_alive, pools, wire_to
from support.wires import CLIENT_INFO, LEGACY, MODERN, Wire, each_version

from mcpd import Principal, Server
from mcpd.protocol.principal import Origin

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs fork and /proc"),
    pytest.mark.medium,
]

ALL: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {"listChanged": False}}
ANSWERS: dict[str, Any] = {
    "elicitation/create": {"action": "accept", "content": {"value": "Ada"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "a tale"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///books"}]},
}
ASKING = [version for version in LEGACY if version >= "2025-06-18"]  # earlier versions have no elicitation
BOTH = pytest.mark.parametrize("suffix", ["", "_later"])


@BOTH
@each_version
async def test_what_is_said_and_seen(processes: Server, version: str, suffix: str) -> None:
    """PROC-07, and the order of what is sent."""
    async with wire_to(processes, version) as wire:
        meta = {"progressToken": "t", "com.example/mark": [1]}
        if version == MODERN:
            meta["io.modelcontextprotocol/logLevel"] = "info"
        result = await wire.call(f"report{suffix}", meta)
        sent = [(each["method"], each["params"]) for each in wire.heard]
        told = [params["progress"] for method, params in sent if method == "notifications/progress"]
        assert told == [1, 2, 3]
        assert sent[-1][0] == "notifications/message"
        assert sent[-1][1]["data"] == {"at": "work"}
        seen = json.loads(result["content"][0]["text"])
        assert seen.pop("id") >= 1000
        assert seen == {
            "version": version,
            "client": CLIENT_INFO["name"],
            "transport": "memory",
            "meta": [1],
            "user": "",
            "lifespan": True,
            "is_cancelled": False,
        }


@BOTH
@pytest.mark.parametrize("version", ASKING)
async def test_questions_are_requests(processes: Server, version: str, suffix: str) -> None:
    """PROC-07 on a legacy session: the function waits where it stands."""
    async with wire_to(processes, version, capabilities=ALL) as wire:
        request = wire.ask("tools/call", {"name": f"ask{suffix}", "arguments": {}})
        for method, answer in ANSWERS.items():
            question = await wire.receive()
            assert question["method"] == method
            wire.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        result = (await wire.answer(request))["result"]
        assert result["content"][0]["text"] == "Ada a tale 1 1"
        await wire.quiet()


async def test_a_question_that_a_call_has_left(processes: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that waits for the answer does not take the next call for it."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    async with wire_to(processes, ASKING[-1], capabilities=ALL) as wire:
        request = wire.ask("tools/call", {"name": "leave_a_question", "arguments": {}})
        asked = {question["method"]: question["id"] for question in (await wire.receive(), await wire.receive())}
        answer = ANSWERS["elicitation/create"]
        wire.send({"jsonrpc": "2.0", "id": asked["elicitation/create"], "result": answer})
        await wire.answer(request)
        for number in range(3):
            assert await wire.text("add", a=number, b=1) == str(number + 1)


@BOTH
async def test_questions_are_rounds(processes: Server, suffix: str) -> None:
    """PROC-07 in 2026-07-28: the function ends and runs again, in a process that is used again; its state is kept."""
    async with wire_to(processes, MODERN, capabilities=ALL) as wire:
        pid = await wire.text("pid")
        params: dict[str, Any] = {"name": f"ask{suffix}", "arguments": {}}
        for key, (method, answer) in zip(("name", "told", "roots"), ANSWERS.items(), strict=True):
            result = await wire.result("tools/call", params)
            assert result["resultType"] == "input_required"
            (asked,) = result["inputRequests"].items()
            assert (asked[0], asked[1]["method"]) == (key, method)
            params = {**params, "requestState": result["requestState"], "inputResponses": {key: answer}}
        result = await wire.result("tools/call", params)
        assert result["content"][0]["text"] == "Ada a tale 1 4"
        assert await wire.text("pid") == pid


async def test_a_declined_question_and_an_answer_that_does_not_fit(processes: Server) -> None:
    async with wire_to(processes, "2025-11-25", capabilities=ALL) as wire:
        for answer, said in (
            ({"action": "decline"}, "The user declined"),
            ({"action": "accept", "content": {"value": 3}}, "The client's answer to elicitation/create cannot be used"),
        ):
            request = wire.ask("tools/call", {"name": "ask", "arguments": {}})
            question = await wire.receive()
            wire.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
            result = (await wire.answer(request))["result"]
            assert result["isError"] is True
            assert said in result["content"][0]["text"]


@each_version
async def test_a_client_that_cannot_be_asked(processes: Server, version: str) -> None:
    async with wire_to(processes, version) as wire:
        assert await wire.text("can_ask") == "false"
        answer = await wire.request("tools/call", {"name": "ask", "arguments": {}})
        if version == MODERN:
            assert answer["error"]["code"] == -32021
            assert answer["error"]["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}
        else:
            assert "does not offer" in answer["result"]["content"][0]["text"]
    async with wire_to(processes, version, capabilities={"sampling": {}}) as wire:
        assert await wire.text("can_ask") == "true"


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_visit_ends_the_call(processes: Server, version: str) -> None:
    async with wire_to(processes, version, capabilities={"elicitation": {"url": {}}}) as wire:
        answer = await wire.request("tools/call", {"name": "visit", "arguments": {}})
        if version == MODERN:
            assert answer["result"]["inputRequests"]["visit"]["params"]["url"] == "https://example.com/sign-in"
        else:
            assert answer["error"]["code"] == -32042
            assert answer["error"]["data"]["elicitations"][0]["url"] == "https://example.com/sign-in"


async def test_dependencies_are_opened_in_the_process(processes: Server) -> None:
    async with wire_to(processes, "2025-11-25") as wire:
        assert await wire.text("depends") == "value"
        assert [each["params"]["data"] for each in wire.heard] == ["opened", "inside", "closed"]


async def test_progress_without_end_is_thinned_out(processes: Server) -> None:
    """As many as 20 at once, and the last of the others."""
    async with wire_to(processes, "2025-11-25") as wire:
        await wire.call("count", {"progressToken": "t"}, most=1000)
        told = [each["params"]["progress"] for each in wire.heard]
        assert told[:20] == list(range(1, 21))
        assert told[-1] == 1000
        assert len(told) < 500


async def test_the_last_progress_does_not_wait_for_the_end(processes: Server) -> None:
    async with wire_to(processes, "2025-11-25") as wire:
        params = {"name": "count_and_work", "arguments": {"most": 100}}
        request = wire.ask("tools/call", params, meta={"progressToken": "t"})
        while (await wire.receive())["params"]["progress"] < 100:
            pass
        wire.cancel(request)


async def test_a_state_that_is_not_json(processes: Server) -> None:
    async with wire_to(processes, MODERN, capabilities=ALL) as wire:
        result = await wire.call("keep_what_is_not_json")
        assert result["isError"] is True
        assert "ctx.state cannot be kept until the next round" in result["content"][0]["text"]
    async with wire_to(processes, "2025-11-25", capabilities=ALL) as wire:
        request = wire.ask("tools/call", {"name": "keep_what_is_not_json", "arguments": {}})
        question = await wire.receive()
        wire.send({"jsonrpc": "2.0", "id": question["id"], "result": ANSWERS["elicitation/create"]})
        assert (await wire.answer(request))["result"]["content"][0]["text"] == "Ada"


# -- the user, extensions, threads of the tool ---------------------------------------------------


async def test_the_user_and_the_headers(processes: Server) -> None:
    async def upstream() -> str:
        return "a token"

    user = Principal("ada", issuer="https://i", client="c", scopes=["read"], claims={"team": ["x"]}, expires=9e9)
    fields = [(b"X-Shelf", b"3"), (b"Authorization", b"Bearer secret")]
    origin = Origin("memory", user.with_upstream(upstream), fields)
    async with wire_to(processes, MODERN) as wire:
        wire.connection.channel.origin = lambda request_id=None: origin
        trace = "0af7651916cd43dd8448eb211c80319c"
        result = await wire.call("who", {"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
        assert result["structuredContent"] == {
            "user": ["ada", "https://i", "c", ["read"], ["x"]],
            "headers": {"x-shelf": "3"},
            "may": [True, False],
            "token": "a token",
            "trace": trace,
        }
        assert await wire.text("who_later") == "a token"
        error = await wire.error("tools/call", {"name": "needs", "arguments": {}})
        assert error["data"] == {"error": "insufficient_scope", "scope": "write"}


async def test_notifications_of_extensions(processes: Server) -> None:
    offer = {"extensions": {"com.example/notes": {}}, "elicitation": {"url": {}}}
    async with wire_to(processes, "2025-11-25", capabilities=offer) as wire:
        said = await wire.text("tell")
        assert said == "com.example/notes/unknown is not a notification of an extension of this server"
        assert [(each["method"], each["params"]) for each in wire.heard] == [
            ("com.example/notes/found", {"text": "here"}),
            ("notifications/elicitation/complete", {"elicitationId": "visit-1"}),
        ]


async def test_the_context_in_threads_of_a_worker(processes: Server) -> None:
    async with wire_to(processes, "2025-11-25", capabilities={"sampling": {}}) as wire:
        result = await wire.call("in_threads", {"progressToken": "t"})
        assert result["content"][0]["text"] == "true"
        assert [each["params"]["progress"] for each in wire.heard] == [1, 2]
        assert await wire.text("own_threads") == "40"


# -- tasks ---------------------------------------------------------------------------------------

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}}


async def polled(wire: Wire, task: str, status: str) -> dict[str, Any]:
    """The task, once it has this status."""
    while (found := await wire.result("tasks/get", {"taskId": task}))["status"] != status:
        assert found["status"] in ("working", "input_required"), found
    return dict(found)


@BOTH
async def test_a_call_becomes_a_task(processes: Server, suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    """PROC-07, TASK-040: the function goes on where it stands, and its question waits there."""
    caplog.set_level("INFO", "mcpd.tasks")
    async with wire_to(processes, MODERN, capabilities=TASKS) as wire:
        made = await wire.call(f"become{suffix}")
        assert (made["resultType"], made["status"], made["statusMessage"]) == ("task", "working", "on it")
        task = made["taskId"]
        found = await polled(wire, task, "input_required")
        assert found["inputRequests"].keys() == {"which"}
        assert "at work" in caplog.text
        await wire.result(
            "tasks/update",
            {"taskId": task, "inputResponses": {"which": {"action": "accept", "content": {"value": "this"}}}},
        )
        found = await polled(wire, task, "completed")
        assert found["result"]["content"][0]["text"] == f"None {task} this"
        assert found["statusMessage"] == "frame (3 of 40)"


async def test_a_cancelled_task_ends_its_process(processes: Server, tmp_path: Path) -> None:
    """PROC-01, TASK-046."""
    mark = tmp_path / "mark"
    async with wire_to(processes, MODERN, capabilities=TASKS) as wire:
        task = (await wire.call("spin_in_task", mark=str(mark)))["taskId"]
        await until(lambda: mark.exists() and mark.read_text())
        pid = int(mark.read_text())
        await wire.result("tasks/cancel", {"taskId": task})
        await until(lambda: not is_alive(pid))
        assert (await wire.result("tasks/get", {"taskId": task}))["status"] == "cancelled"


async def test_a_task_that_is_handed_over(processes: Server) -> None:
    async with wire_to(processes, MODERN, capabilities=TASKS) as wire:
        task = (await wire.call("hand_over"))["taskId"]
        await until(lambda: pools() and not pools()[0]._users)  # the function has ended
        await processes.tasks.finish(task, "by somebody else")
        found = await polled(wire, task, "completed")
        assert found["result"]["content"][0]["text"] == "by somebody else"
