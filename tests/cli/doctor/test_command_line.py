"""`mcpd doctor` as people and programs use it: lines, colours, JSON, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Child

from mcpd.cli.commands.doctor import _advice_on, _find
from mcpd.cli.doctor.report import Report
from mcpd.cli.talk.connecting import ServerOptions

GARDEN = '''
from mcpd import Server
server = Server("garden", version="3")
@server.tool
def water(bed: str) -> str:
    """Water a bed."""
    return "wet"
'''


def doctor(child: Child, *words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        child.mcpd("doctor", *words),
        env=child.env | env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_a_file(child: Child, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(GARDEN, encoding="utf-8")
    done = doctor(child, "server.py", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == "testing server.py\n"
    lines = done.stdout.splitlines()
    assert "✓ name                garden 3" in lines
    assert lines[-1] == "It works."
    assert "\x1b" not in done.stdout


def test_as_json(child: Child, tmp_path: Path) -> None:
    banner = ["sh", "-c", 'printf "ban\\342\\200\\256ner\\n"; exec "$@"', "sh", *child.mcpd("serve", "--stdio")]
    done = doctor(child, "--json", "--env", "X=1", "--", *banner, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == ""
    assert all(line.isprintable() for line in done.stdout.splitlines())
    said = json.loads(done.stdout)
    assert said["works"] is False
    (bad,) = (step for step in said["steps"] if step["status"] == "problem")
    assert bad["name"] == "stdout clean"
    assert bad["details"]["lines"] == ["ban\u202ener"]


def test_no_secret_of_a_command_is_shown(child: Child, tmp_path: Path) -> None:
    """What doctor prints is sent to others; so are errors."""
    secrets = ["--api-key", "s3cr3t-a", "--token=s3cr3t-b", "--header", "Authorization: Bearer s3cr3t-cc"]
    command = [sys.executable, "-c", "raise SystemExit('broken')", *secrets]
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": command[0], "args": command[1:]}}}))
    for words in (["doctor", "--", *command], ["doctor", "--json", "--", *command], ["list", "--", *command]):
        done = subprocess.run(
            child.mcpd(*words), env=child.env, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 1
        assert "broken" in done.stdout + done.stderr
        assert "s3cr3t" not in done.stdout + done.stderr
        assert "--api-key" in done.stdout + done.stderr


def test_nothing_of_that_name(child: Child, tmp_path: Path) -> None:
    done = doctor(child, "servr.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "✗ found               servr.py: no such file" in done.stdout
    assert "Traceback" not in done.stderr
    done = doctor(child, "--json", "servr.py", cwd=tmp_path)
    assert json.loads(done.stdout)["steps"][0]["status"] == "problem"
    assert done.returncode == 1


def test_an_entry_of_a_file(child: Child, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(GARDEN, encoding="utf-8")
    entry = {"command": sys.executable, "args": ["-m", "mcpd", "serve", "--stdio", str(tmp_path / "server.py")]}
    (tmp_path / "m.json").write_text(json.dumps({"mcpServers": {"bed": entry}}), encoding="utf-8")
    done = doctor(child, "m.json:bed", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = doctor(child, "m.json:bad", cwd=tmp_path)
    assert done.returncode == 1
    assert "bed" in done.stdout


def test_our_own_server_behind_urls(child: Child, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(GARDEN, encoding="utf-8")
    words = child.mcpd("serve", "--http", "127.0.0.1:0", "server.py")
    with subprocess.Popen(words, env=child.env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = next(found[0] for line in server.stderr if (found := re.search(r"http://[\d.:]+/mcp", line)))
        for target in (url, url.replace("http", "ws"), url.removesuffix("mcp")):
            done = doctor(child, target)
            is_there = not target.endswith("/")
            assert done.returncode == (0 if is_there else 1), done.stdout
            assert "Traceback" not in done.stderr
            assert ("✓ name                garden 3" in done.stdout) is is_there
        assert f"→ it is at {url}" in done.stdout
        server.terminate()


def test_wrong_use(child: Child, tmp_path: Path) -> None:
    for words, text in [
        (["a.py", "--", "b"], "not both"),
        (["--"], "after --"),
        (["--timeout", "x"], "--timeout"),
        (["--env", "X", "--", "cat"], "write --env NAME=VALUE"),
        (["-H", "a:b", "--", "cat"], "-H is for servers at a URL"),
        (["--env", "a=b", "http://127.0.0.1:1/mcp"], "--env is for programs"),
    ]:
        done = doctor(child, *words, cwd=tmp_path)
        assert done.returncode == 2, words
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_on_a_terminal_there_are_colours_and_no_long_lines(child: Child) -> None:
    for extra, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        ours, theirs = os.openpty()
        words = child.mcpd("doctor", "--", "no-such-program-anywhere", "x" * 30)
        env = child.env | {"COLUMNS": "70", "PATH": "/usr/bin:/a/rather/long/path/of/folders/that/does/not/fit"}
        with subprocess.Popen(words, env=env | extra, stdout=theirs, stderr=subprocess.DEVNULL) as process:
            os.close(theirs)
            said = b""
            try:
                while data := os.read(ours, 65536):
                    said += data
            except OSError:  # Linux says so at the end
                pass
            os.close(ours)
        assert process.returncode == 1
        text = said.decode()
        assert ("\x1b[31m✗" in text) is is_coloured
        assert max(len(line) for line in text.splitlines()) <= 80


def test_where_signs_cannot_be_printed_there_are_words(child: Child) -> None:
    done = doctor(child, "--", "no-such-program-anywhere", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.stdout.startswith("PROBLEM found")


def test_the_json_has_no_secret_of_the_target(child: Child) -> None:
    done = doctor(child, "--json", "http://user:secret@127.0.0.1:1/mcp?token=secret")
    assert "secret" not in done.stdout + done.stderr
    assert json.loads(done.stdout)["target"] == "http://…@127.0.0.1:1/mcp?…"


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("broken.json", '{"mcpServers": {"a": {"command": "x"', "correct the file there"),
        ("empty.json", "", "add servers to the file"),
        ("none.json", '{"servers": {}}', "add servers to the file"),
    ],
)
def test_a_file_with_errors_is_told_what_to_mend(name: str, text: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    report = Report(lambda step: None)
    assert _find(ServerOptions(target=f"{tmp_path / name}:a"), report) is None
    assert advice in report.steps[0].advice
    assert "http://HOST:PORT/mcp" in _advice_on("http://127.0.0.1:99999/mcp is not a URL: Port out of range 0-65535")
    assert "mcpd install --list" in _advice_on("cursor:x: Cursor has no configuration file at …")
