"""`mcpd doctor` and programs: broken servers of every kind, each told by its own step."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpd.cli.doctor import dialogue, dialogue as child
from mcpd.cli.doctor.program import try_command
from mcpd.cli.doctor.report import Report, Step
from mcpd.client.targets.named import CommandTarget

GOOD: dict[str, Any] = {
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bed", "version": "1"},
    "versions": ["2025-11-25", "2025-06-18"],
    "tools": [
        {
            "name": "look",
            "description": "Look.",
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
        }
    ],
    "call": {"content": []},
}

SERVER = """
import json, os, signal, sys, time
HOW = json.loads(HOW)
ANSWERS = HOW.get("answers", {})
def say(text):
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()
exec(HOW.get("first", ""))
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked.get("method"), asked.get("params") or {}
    if "id" not in asked:
        continue
    exec(HOW.get("each", ""))
    if method in ANSWERS:
        answer = ANSWERS[method]
    elif method == "initialize":
        wanted = params["protocolVersion"]
        version = wanted if wanted in HOW["versions"] else (HOW["versions"] + [None])[0]
        answer = {"result": {"protocolVersion": version, "capabilities": HOW["capabilities"],
                             "serverInfo": HOW["serverInfo"], "instructions": HOW.get("instructions")}}
    elif method == "tools/list":
        answer = {"result": {"tools": HOW["tools"]}}
    elif method == "tools/call":
        answer = {"result": HOW["call"]}
    else:
        answer = {"error": {"code": -32601, "message": "Method not found"}}
    if answer is not None:
        say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}))
exec(HOW.get("last", ""))
"""


def program(**how: Any) -> CommandTarget:
    """A server that is as good as possible, but for what is said."""
    return CommandTarget((sys.executable, "-c", f"HOW = {json.dumps(GOOD | how)!r}\n{SERVER}"))


async def tried(target: CommandTarget, timeout: float = 20.0) -> list[Step]:
    report = Report()
    await try_command(target, report, timeout)
    return report.steps


def of(steps: list[Step], name: str) -> Step:
    """The step of this name; of several the worst."""
    found = [step for step in steps if step.name == name]
    assert found, [step.name for step in steps]
    return next((step for step in found if step.status == "problem"), found[0])


def troubles(steps: list[Step]) -> list[tuple[str, str]]:
    return [(step.name, step.status) for step in steps if step.status in ("warning", "problem")]


async def test_a_good_server_has_no_trouble() -> None:
    steps = await tried(program())
    assert troubles(steps) == []
    assert [step.name for step in steps] == [
        "found", "started", "first answer", "name", "tools", "schemas", "call", "unknown method", "stdout clean", "end",
        "as hosts start it", "versions", "extensions",
    ]  # fmt: skip
    versions = of(steps, "versions")
    assert versions.text == "2025-11-25, 2025-06-18"
    assert "2026-07-28 (no: error -32601: Method not found)" in versions.advice
    assert "2025-03-26 (offers 2025-11-25)" in versions.advice
    assert of(steps, "first answer").seconds is not None


async def test_our_own_server_has_none_either() -> None:
    steps = await tried(CommandTarget((sys.executable, "-m", "mcpd", "serve", "--stdio")))
    assert troubles(steps) == []
    assert of(steps, "versions").text.startswith("2026-07-28, 2025-11-25, ")
    assert of(steps, "extensions").text == "io.modelcontextprotocol/ui"
    assert of(steps, "call").text == "server_info answered"


# ------------------------------------------------------------------------------ it does not start


@pytest.mark.parametrize(
    ("first", "text", "advice"),
    [
        (
            "raise SystemExit(3)",
            "instead of answering the first request (initialize) (exit code 3)",
            "in a terminal",
        ),
        ("sys.exit('no key: set API_KEY')", "its stderr says: no key: set API_KEY", "fix the error on stderr"),
        (
            "os.close(1)\ntime.sleep(60)",
            "closed its stdout instead of answering the first request",
            "option to speak MCP",
        ),
        ("say('Usage: bed [file]')\nraise SystemExit(0)", "ended instead of answering", "is it a server, or does it"),
        ("os.kill(os.getpid(), 11)", "(it crashed: SIGSEGV)", "in a terminal"),
    ],
)
async def test_it_ends_before_it_answers(first: str, text: str, advice: str) -> None:
    steps = await tried(program(first=first))
    assert text in of(steps, "started").text
    assert advice in of(steps, "started").advice
    assert "versions" not in [step.name for step in steps]


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("ModuleNotFoundError: No module named 'pandas.core'", "python -m pip install pandas"),
        ("Error: Cannot find module '/srv/index.js'", "/srv/index.js is missing. Is the path right?"),
    ],
)
async def test_what_a_server_misses_is_named(said: str, advice: str) -> None:
    steps = await tried(program(first=f"sys.exit({said!r})"))
    assert advice in of(steps, "started").advice


async def test_it_hangs() -> None:
    steps = await tried(program(first="sys.stderr.write('waiting for the database\\n')\ntime.sleep(60)"), 0.5)
    assert of(steps, "started").text == (
        "the server did not answer the first request (initialize) within 0.5 s; "
        "its stderr says: waiting for the database"
    )


async def test_it_is_no_server() -> None:
    steps = await tried(CommandTarget(("cat",)))
    assert "sends back its input" in of(steps, "started").text


async def test_it_floods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialogue, "MAX_GARBAGE_BYTES", 10_000)
    steps = await tried(program(first="while True: say('y' * 100)"))
    assert "writes too much that is not a message" in of(steps, "started").text
    assert of(steps, "stdout clean").status == "problem"

    monkeypatch.setattr(child, "MAX_LINE_BYTES", 1024 * 1024)
    steps = await tried(program(first="while True: os.write(1, b'x' * 100000)"))
    assert "a line of more than 1 MiB" in of(steps, "started").text


async def test_a_flood_on_stderr_does_not_hold_it_up() -> None:
    steps = await tried(program(first="sys.stderr.write('x' * 3_000_000)"))
    assert troubles(steps) == [("stderr", "warning")]


# ------------------------------------------------------------------------------ what it does wrong


async def test_banners_are_named() -> None:
    steps = await tried(program(first="say('Bed server v1 \\x1b[31mready\\n\\n[]')"))
    step = of(steps, "stdout clean")
    assert step.status == "problem"
    assert step.text == '3 lines are not messages, the first of them: "Bed server v1 \\x1b[31mready"'
    assert "stderr" in step.advice
    assert troubles(steps) == [("stdout clean", "problem")]


@pytest.mark.parametrize(
    ("versions", "status", "text"),
    [
        (["1999-01-01"], "problem", "supports no known version"),
        ([], "problem", "(offers None)"),
        (["2024-11-05"], "warning", "2024-11-05; 2026-07-28 (no: "),
    ],
)
async def test_versions_that_nobody_speaks(versions: list[str], status: str, text: str) -> None:
    step = of(await tried(program(versions=versions)), "versions")
    assert step.status == status
    assert text in step.text


async def test_a_server_of_new_versions_only() -> None:
    """It refuses `initialize`, and needs what each request says of the client."""
    result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "extensions": {"com.example/x": {}}},
              "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new", "version": "2"}}}  # fmt: skip
    refusal = {"error": {"code": -32601, "message": "no such method"}}
    each = "assert method == 'initialize' or 'io.modelcontextprotocol/protocolVersion' in params['_meta']"
    array = [GOOD["tools"][0] | {"outputSchema": {"type": "array"}}]
    answers = {"initialize": refusal, "server/discover": {"result": result}}
    steps = await tried(program(answers=answers, each=each, tools=array))
    assert of(steps, "name").text == "new 2"
    assert of(steps, "versions").text == "2026-07-28"
    assert of(steps, "extensions").text == "com.example/x"
    assert troubles(steps) == []


async def test_tools_that_hosts_refuse() -> None:
    tools = [
        {"name": "a b", "description": "A.", "inputSchema": {"type": "object"}},
        {
            "name": "b",
            "description": "B.",
            "inputSchema": {"properties": {"x[]": {}}},
            "outputSchema": {"type": "array"},
        },
        {"description": "no name"},
        7,
    ]
    steps = [step for step in await tried(program(tools=tools)) if step.name == "schemas"]
    told = "\n".join(f"{step.status}: {step.text}" for step in steps)
    assert "warning: tool a b: its name" in told
    assert 'problem: tool b: its inputSchema is not of "type": "object"' in told
    assert 'problem: tool b: its outputSchema is not of "type": "object"' in told
    assert "warning: tool b: its arguments 'x[]'" in told
    assert told.count("has no name") == 2
    assert [step.status for step in steps] == sorted(step.status for step in steps)  # problems first


async def test_many_problems_are_counted() -> None:
    tools = [{"name": f"t {number}", "description": "T.", "inputSchema": {"type": "object"}} for number in range(30)]
    steps = [step for step in await tried(program(tools=tools)) if step.name == "schemas"]
    assert len(steps) == 11
    assert steps[-1].text == "20 more like these"
    assert len(steps[-1].details["problems"]) == 20


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"result": {"tools": [], "nextCursor": "x"}}, "never ends"),
        ({"result": {"tool": []}}, "answers tools/list with no list 'tools'"),
        ({"error": {"code": -32603, "message": "boom"}}, "answers tools/list with error -32603: boom"),
        (None, "did not answer tools/list within 1 s"),
    ],
)
async def test_lists_that_cannot_be_had(answer: Any, text: str) -> None:
    step = of(await tried(program(answers={"tools/list": answer}), 1.0), "tools")
    assert step.status == "problem"
    assert text in step.text


async def test_lists_have_pages_and_resources_uris() -> None:
    each = (
        "if method == 'resources/list':\n"
        "    at = int(params.get('cursor', 0))\n"
        "    ANSWERS[method] = {'result': {'resources': [{'uri': 'notes.txt', 'name': 'n'}],\n"
        "        **({'nextCursor': str(at + 1)} if at < 2 else {})}}"
    )
    steps = await tried(program(each=each, capabilities={"resources": {}}))
    assert of(steps, "resources").text == "resource notes.txt: its URI has no scheme: clients drop it"
    assert [step.text for step in steps if step.name == "resources"][0] == "3 on 3 pages"


@pytest.mark.parametrize(
    ("call", "status", "text"),
    [
        ({"content": [{"type": "text", "text": "no key"}], "isError": True}, "warning", "look failed: no key"),
        ({}, "problem", "its result has no list `content`"),
        ({"resultType": "input_required"}, "ok", "requests input"),
    ],
)
async def test_the_call(call: Any, status: str, text: str) -> None:
    step = of(await tried(program(call=call)), "call")
    assert step.status == status
    assert text in step.text


async def test_no_tool_is_called_that_might_do_harm() -> None:
    tools = [
        {"name": "a", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": False}},
        {"name": "b", "inputSchema": {"type": "object"}},
        {"name": "c", "inputSchema": {"type": "object", "required": ["x"]}, "annotations": {"readOnlyHint": True}},
    ]
    steps = await tried(program(tools=tools, each="assert method != 'tools/call'"))
    assert of(steps, "call").status == "skipped"


async def test_what_it_asks_itself_is_answered() -> None:
    each = (
        "if method == 'tools/list':\n"
        "    say(json.dumps({'jsonrpc': '2.0', 'id': 'p', 'method': 'ping'}))\n"
        "    assert 'result' in json.loads(sys.stdin.readline())"
    )
    steps = await tried(program(each=each))
    assert troubles(steps) == []


async def test_unknown_methods() -> None:
    steps = await tried(program(answers={"mcpd/unknown": {"result": {}}}))
    assert of(steps, "unknown method").text == "is answered as if it were known"
    steps = await tried(program(answers={"mcpd/unknown": None, "server/discover": None}), 0.5)
    assert of(steps, "unknown method").text == "the server did not answer mcpd/unknown within 0.5 s"


async def test_answers_that_nobody_asked_for() -> None:
    steps = await tried(program(each="say(json.dumps({'id': 999, 'result': {}}))"))
    assert "belong to no request" in of(steps, "stdout clean").text


@pytest.mark.parametrize(
    ("how", "status", "text"),
    [
        ({"last": "raise SystemExit(4)"}, "warning", "with exit code 4"),
        ({"last": "time.sleep(600)"}, "warning", "SIGTERM ended it"),
        (
            {"first": "signal.signal(signal.SIGTERM, signal.SIG_IGN)", "last": "time.sleep(600)"},
            "problem",
            "was killed",
        ),
        ({"last": "import subprocess; subprocess.Popen(['sleep', '600'])"}, "warning", "left processes behind"),
    ],
)
async def test_ends(monkeypatch: pytest.MonkeyPatch, how: dict[str, str], status: str, text: str) -> None:
    monkeypatch.setattr("mcpd.transports.child.GRACE_SECONDS", 0.3)
    step = of(await tried(program(**how)), "end")
    assert step.status == status
    assert text in step.text


async def test_a_slow_start_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcpd.cli.doctor import program as commands

    monkeypatch.setattr(commands, "_SLOW_SECONDS", 0.0)
    step = of(await tried(program()), "first answer")
    assert step.status == "warning"
    assert "Codex gives up" in step.advice


async def test_it_needs_what_hosts_do_not_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GARDEN_KEY", "1")
    needs = "if 'GARDEN_KEY' not in os.environ: sys.exit('GARDEN_KEY is not set')"
    step = of(await tried(program(first=needs)), "as hosts start it")
    assert step.status == "warning"
    assert step.text.endswith("its stderr says: GARDEN_KEY is not set")
    given = program(first=needs)
    assert troubles(await tried(CommandTarget(given.command, {"GARDEN_KEY": "2"}))) == []
    step = of(await tried(program(first="assert os.getcwd() != '/', 'not here'")), "as hosts start it")
    assert step.text.endswith("AssertionError: not here")


async def test_who_says_nothing_of_itself() -> None:
    steps = await tried(program(serverInfo={}, capabilities={}, instructions="x" * 3000))
    assert troubles(steps) == [("name", "warning"), ("instructions", "warning"), ("offers", "warning")]


# -------------------------------------------------------------------------- there is nothing to start


async def found(*command: str, **how: Any) -> Step:
    (step, *_) = await tried(CommandTarget(command, **how))
    assert step.name == "found"
    return step


async def test_what_is_not_there(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("", encoding="utf-8")
    script = tmp_path / "script"
    script.write_text("#!/nowhere/python\n", encoding="utf-8")
    script.chmod(0o755)
    of_env = tmp_path / "of_env"
    of_env.write_text("#!/usr/bin/env -S no-such-interpreter x\n", encoding="utf-8")
    of_env.chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    for step, text, advice in [
        (await found("no-such-program-at-all"), "no such program: no-such-program-at-all", "install it"),
        (await found("of_enf", env=env), "no such program: of_enf", "did you mean of_env?"),
        (await found(str(tmp_path / "gone")), "no such file:", "write the absolute path"),
        (await found(str(tmp_path / "link")), "is a link whose target is missing", "repair the link"),
        (await found(str(tmp_path)), "is a folder", "name the program"),
        (await found(str(plain)), "is not executable", f"chmod +x {plain}"),
        (await found(str(script)), "needs /nowhere/python, which does not exist", "install /nowhere/python"),
        (await found(str(of_env)), "needs no-such-interpreter, which does not exist", "install"),
        (await found("~/bin/x"), "hosts do not replace ~", "write"),
        (await found("cat", cwd=str(tmp_path / "none")), "no such folder:", "correct `cwd`"),
        (await found("cat x.py"), "'cat x.py'. This is a whole command line", "write cat as the command, and x.py"),
        (await found("${NOPE}/x"), "no such file: ${NOPE}/x", "set the variable"),
        (await found(sys.executable, "none.py"), f"no such file: none.py in {os.getcwd()}", "correct the path"),
    ]:
        assert step.status == "problem"
        assert text in step.text
        assert advice in step.advice


async def test_paths_that_only_hold_here(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("raise SystemExit", encoding="utf-8")
    step = await found(sys.executable, "server.py", cwd=str(tmp_path))
    assert step.status == "warning"
    assert step.advice == f"in a host's configuration write {tmp_path / 'server.py'}"


async def test_what_cannot_be_started(tmp_path: Path) -> None:
    """It may be run, and is no program."""
    program = tmp_path / "odd"
    program.write_bytes(b"\x00\x01\x02")
    program.chmod(0o755)
    steps = await tried(CommandTarget((str(program),)))
    assert of(steps, "started").text == "it cannot be started: Exec format error"
