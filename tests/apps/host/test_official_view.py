"""The official App class as the judge: it parses every message of ours with its own schemas, in strict mode."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from support.host_stage import SETTINGS, Stage

from mcpd.apps.host.view import ViewPhase
from mcpd.apps.host.view.context import HostContext
from mcpd.apps.host.view.events import (
    AppToolAnswered,
    AppToolsListed,
    Ask,
    Closed,
    Finding,
    Forward,
    Live,
    Logged,
    SizeChanged,
    TeardownRequested,
)

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
SDK = HERE.parent

RESULTS: dict[str, Any] = {
    "tools/call": {"content": [{"type": "text", "text": "fresh"}]},
    "resources/read": {"contents": [{"uri": "notes://1", "text": "n"}]},
    "resources/list": {"resources": []},
}


def node() -> str:
    own = HERE.parent.parent.parent / ".tools" / "bin" / "node"
    found = str(own) if own.exists() else shutil.which("node")
    if found is None or not (SDK / "node_modules" / "@modelcontextprotocol" / "ext-apps").is_dir():
        pytest.skip("needs the official View code: npm ci in tests/apps")
    return found


async def run(denials: Any) -> tuple[Stage, list[tuple[str, Any]]]:
    """One life: what the View reported, in order."""
    stage = Stage(structs.replace(SETTINGS, has_proxy=False, denials=denials))
    view = stage.view
    process = await asyncio.create_subprocess_exec(
        node(),
        HERE / "official_view.mjs",
        SDK,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    view.partial_input({"city": "Be"})
    view.tool_input({"city": "Berlin"})
    program = Program(stage, process.stdin)
    while stage.state is not ViewPhase.GONE:
        line = await process.stdout.readline()
        assert line, (await process.stderr.read()).decode()
        view.receive(line.strip(), stage.now)
        await program.act()
    process.stdin.close()
    reports = [json.loads(line) for line in (await process.stderr.read()).splitlines()]
    await process.wait()
    return stage, [(what, value) for what, value in reports]


class Program:
    """An obliging embedding program: does what it is asked and delivers what the View is told."""

    def __init__(self, stage: Stage, view_input: asyncio.StreamWriter) -> None:
        self.stage = stage
        self.view_input = view_input
        self.delivered = 0

    async def act(self) -> None:
        stage, view = self.stage, self.stage.view
        for forward in stage.take(Forward):
            if forward.wants_progress:
                view.progress(forward.ask_id, 0.5, 1, "half")
                await self.deliver()
                await asyncio.sleep(0.05)  # its SDK takes progress for late if the answer comes in the same read
            view.answer(forward.ask_id, RESULTS[forward.method])
        for ask in stage.take(Ask):
            view.answer(ask.ask_id)
        for _ in stage.take(Live):
            view.tool_result({"content": [{"type": "text", "text": "21"}], "_meta": {"k": 1}})
            view.context_changed(HostContext(theme="light"))
        for _ in stage.take(TeardownRequested):
            view.list_app_tools(stage.now)
        for listed in stage.take(AppToolsListed):
            view.call_app_tool(listed.tools[0].name, {}, stage.now)
        for answered in stage.take(AppToolAnswered):
            assert answered.result is not None
            view.teardown(answered.result.content[0].text, stage.now)  # type: ignore[union-attr]
        await self.deliver()

    async def deliver(self) -> None:
        self.stage.drain()
        for message in self.stage.told[self.delivered :]:
            self.view_input.write(json.dumps(message).encode() + b"\n")
        self.delivered = len(self.stage.told)
        await self.view_input.drain()


@pytest.mark.parametrize("denials", ["error", "result"])
async def test_the_official_view_lives_a_whole_life(denials: str) -> None:
    """Seed sections 4 to 6 as an official View sees them."""
    stage, reports = await run(denials)
    heard = dict(reports)
    assert "error" not in heard
    order = [what for what, _ in reports]
    assert [what for what in order if what in ("partial", "input", "result", "teardown")] == [
        "partial",
        "input",
        "result",
        "teardown",
    ]
    assert heard["handshake"]["host"] == {"name": "stage", "version": "1"}
    assert heard["handshake"]["context"]["availableDisplayModes"] == ["inline", "fullscreen"]
    assert heard["input"] == {"arguments": {"city": "Berlin"}}
    assert heard["result"] == {"content": [{"type": "text", "text": "21"}], "_meta": {"k": 1}}
    assert ("context", {"theme": "light"}) in reports
    assert heard["progress"]["progress"] == 0.5
    assert heard["call"]["content"] == [{"type": "text", "text": "fresh"}]
    assert heard["model-only"]["code"] == -32602
    assert heard["read"] == RESULTS["resources/read"]
    assert heard["resources"] == RESULTS["resources/list"]
    for name in ("link", "message", "model context", "download"):
        assert heard[name] == {}, name
    assert heard["javascript"].get("isError" if denials == "result" else "code") in (True, -32000)
    assert heard["mode"] == {"mode": "fullscreen"}
    assert heard["mode in context"] == "fullscreen"
    assert stage.only(Logged).data == {"a": 1}
    assert stage.only(SizeChanged) == SizeChanged(None, 20)
    assert stage.only(Closed) == Closed("look called", clean=True)
    assert {finding.rule for finding in stage.take(Finding)} == {"visibility", "denied"}
