"""A server is started as each host starts it, before anything is written: broken ones of every kind say why."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.raw_http import Asked, as_json, raw_server, reply

from mcpd.cli.install.checks import limit_warnings
from mcpd.cli.install.launch import Offers, passed_variables, verify_target, withheld_variables
from mcpd.client.targets.hosts import HOSTS
from mcpd.client.targets.named import CommandTarget, UrlTarget

SPY = """
import json, os, sys
{first}
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        seen = {{"env": dict(os.environ), "cwd": os.getcwd(), "terminal": os.isatty(0)}}
        seen["leads"] = os.getsid(0) == os.getpid()
        result = {{"protocolVersion": "2025-11-25", "capabilities": {capabilities},
                  "serverInfo": {{"name": json.dumps(seen), "version": "1"}}}}
        print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": result}}), flush=True)
    elif "id" in asked:
        error = {{"code": -32601, "message": "Method not found"}}
        print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "error": error}}), flush=True)
"""

MINE = {
    "HOME": "/home/me", "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TZ": "UTC", "PLAIN": "1", "MCPD_TOKEN": "t",
    "OPENAI_API_KEY": "k", "MCPD_STATE_KEY": "s",
}  # fmt: skip


def script(first: str = "", capabilities: str = "{}") -> CommandTarget:
    text = SPY.format(first=first, capabilities=capabilities)
    return CommandTarget((sys.executable, "-S", "-c", text), {"OWN": "1"})


def served(*words: str) -> CommandTarget:
    return CommandTarget((sys.executable, "-m", "mcpd", "serve", "--stdio", *words))


async def seen_by(host: str, target: CommandTarget | None = None, **how: Any) -> dict[str, Any]:
    verdict = await verify_target(target or script(), HOSTS.get(host), environment=MINE, **how)
    assert verdict.works, verdict.lines
    found: dict[str, Any] = json.loads(verdict.offers.name)
    for name in ("LC_CTYPE", "__CF_USER_TEXT_ENCODING"):  # what Python and macOS add
        found["env"].pop(name, None)
    return found


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("claude-desktop", "HOME PATH"),
        ("cursor", "HOME PATH"),
        ("codex", "HOME LANG PATH TZ"),
        ("gemini-cli", "HOME LANG PATH PLAIN TZ"),
        ("claude-code", " ".join(sorted(MINE))),
        ("opencode", " ".join(sorted(MINE))),
        ("", "HOME PATH"),
    ],
)
async def test_each_host_gives_its_own_variables(host: str, names: str) -> None:
    seen = await seen_by(host)
    assert set(seen["env"]) == {*names.split(), "OWN"}
    assert (seen["cwd"], seen["terminal"], seen["leads"]) == ("/", False, True)


async def test_what_the_entry_says_goes_before(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    seen = await seen_by("codex", env_vars=["OPENAI_API_KEY", "NOT_SET"], project=str(tmp_path))
    assert seen["env"]["OPENAI_API_KEY"] == "k"
    assert seen["cwd"] == str(tmp_path)
    plain = script()
    seen = await seen_by("", CommandTarget(plain.command, {"HOME": "/else"}, str(tmp_path / "deep")))
    assert (seen["cwd"], seen["env"]["HOME"]) == (str(tmp_path / "deep"), "/else")


def test_what_a_host_keeps_back() -> None:
    assert withheld_variables(HOSTS["gemini-cli"], MINE) == ["MCPD_STATE_KEY", "MCPD_TOKEN", "OPENAI_API_KEY"]
    assert withheld_variables(HOSTS["claude-code"], MINE) == []
    assert withheld_variables(HOSTS["codex"], MINE, names=["MCPD_TOKEN"]) == ["MCPD_STATE_KEY", "OPENAI_API_KEY"]
    assert passed_variables(HOSTS["claude-desktop"], MINE, platform="darwin")["PATH"] == "/usr/bin:/bin:/usr/sbin:/sbin"
    assert passed_variables(HOSTS["claude-code"], MINE, platform="darwin") == MINE
    windows = {"APPDATA": "a", "SYSTEMROOT": "c", "HOME": "/h", "PATH": "p"}
    assert set(passed_variables(HOSTS["codex"], windows, platform="win32")) == {"APPDATA", "SYSTEMROOT", "PATH"}


async def test_our_starter_is_shown_with_all_that_it_has() -> None:
    words = (sys.executable, "-m", "mcpd", "serve", "--stdio")
    verdict = await verify_target(CommandTarget(words), HOSTS["claude-desktop"])
    assert verdict.works
    assert verdict.tools
    assert verdict.offers.apps
    assert set(verdict.offers.apps) < set(verdict.tools)
    assert 0 < verdict.seconds < 60
    shown = "\n".join(verdict.lines)
    assert shown.startswith("started: mcpd ")
    assert f"tools ({len(verdict.tools)}): {verdict.tools[0]}" in shown
    assert "apps (" in shown
    assert "resource templates (1)" in shown


@pytest.mark.parametrize(
    ("first", "why", "tail"),
    [
        ("sys.stderr.write('one\\ntwo: \\x1b[31mno key\\n'); sys.exit(3)", "exit code 3", "two: \x1b[31mno key"),
        ("raise RuntimeError('no bed')", "exit code 1", "RuntimeError: no bed"),
        ("import time; time.sleep(60)", "did not answer initialize within 1.5 s", None),
        ("os.close(1); import time; time.sleep(60)", "closed its stdout", None),
    ],
)
async def test_a_server_that_does_not_start(first: str, why: str, tail: str | None) -> None:
    verdict = await verify_target(script(first), timeout=1.5 if "within" in why else 30)
    assert not verdict.works
    assert why in verdict.error
    assert verdict.advice
    assert (verdict.stderr_tail[-1] if verdict.stderr_tail else None) == tail
    shown = "\n".join(verdict.lines)
    assert shown.startswith("it does not start: ")
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (CommandTarget(("/nowhere/python",)), "no such file: /nowhere/python"),
        (CommandTarget((sys.executable, "/nowhere/server.py")), "no such file: /nowhere/server.py"),
        (CommandTarget((sys.executable,), cwd="/nowhere"), "no such folder: /nowhere"),
        (CommandTarget(("cat",)), "sends back its input"),
        (served("/nowhere/server.py"), "/nowhere/server.py"),
    ],
)
async def test_commands_that_are_none(target: CommandTarget, why: str) -> None:
    verdict = await verify_target(target)
    assert not verdict.works
    assert why in "\n".join(verdict.lines)


async def test_text_on_stdout_is_told_and_no_reason_to_give_up() -> None:
    verdict = await verify_target(script("print('Welcome!', flush=True)"))
    assert verdict.works
    assert "Welcome!" in verdict.lines[-1]


async def test_lists_that_fail() -> None:
    # Said to be there, and not known: hosts go on without prompts, and show no server without its tools.
    assert (await verify_target(script(capabilities='{"prompts": {}, "resources": {}}'))).works
    verdict = await verify_target(script(capabilities='{"tools": {}}'))
    assert "tools/list" in verdict.error


async def test_urls() -> None:
    def answer(request: Asked) -> bytes:
        if request.method != "POST":
            return reply(405)
        asked = request.message
        if "id" not in asked:
            return reply(202)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "shed", "version": "2"},
            },
            "tools/list": {"tools": [{"name": "dig", "inputSchema": {"type": "object"}}]},
        }
        if asked["method"] in results:
            return as_json({"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]})
        error = {"code": -32601, "message": "Method not found"}
        return as_json({"jsonrpc": "2.0", "id": asked["id"], "error": error})

    async with raw_server(answer) as server:
        verdict = await verify_target(UrlTarget(f"{server.url}/mcp"))
        assert verdict.works, verdict.lines
        assert (verdict.offers.name, verdict.tools) == ("shed", ("dig",))
    verdict = await verify_target(UrlTarget("http://127.0.0.1:9/mcp?secret=1"))
    assert verdict.lines[0].startswith("it cannot be reached: ")
    assert not verdict.works
    assert "secret" not in "\n".join(verdict.lines)


def test_where_limits_bite() -> None:
    page = {"name": "chart", "_meta": {"ui": {"resourceUri": "ui://x"}}}
    offers = Offers(
        instructions="é" * 1500,
        tools=(page, {"name": "n" * 118}, *({"name": f"t{each}", "description": "d" * 3000} for each in range(101))),
        prompts=({"name": "p"},),
    )
    found = "\n".join(limit_warnings(HOSTS["claude-code"], "garden", offers, 20.0))
    for words in ("n" * 118, "can have 115 characters", "3,000 bytes", "t0, t1, t2 and 98 more", "chart", "30 s"):
        assert words in found
    found = "\n".join(limit_warnings(HOSTS["codex"], "garden", offers, 6.0))
    assert "512 characters" in found
    assert "10 s" in found
    assert "this host accepts 100" in "\n".join(limit_warnings(HOSTS["windsurf"], "garden", offers))
    assert not [*limit_warnings(HOSTS["claude-desktop"], "garden", offers)]
    assert not [*limit_warnings(HOSTS["claude-code"], "garden", Offers(tools=({"name": "dig"},)), 1.0)]
