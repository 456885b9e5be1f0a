"""The commands that ask a server, in pipes: what each prints, where, and its exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import REPOSITORY, Child
from support.talk_server import DOT, HOSTILE

from mcpd.cli.talk.connecting import ServerOptions, run as run_work
from mcpd.cli.talk.terminal import Terminal
from mcpd.protocol.versions.table import SUPPORTED

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]

SERVER = str(REPOSITORY / "tests" / "support" / "talk_server.py")


@pytest.fixture
def run(child: Child, tmp_path: Path) -> Run:
    """run("call", SERVER, "dot"): the finished process, in an empty folder; nothing on stdin but `input`."""

    def start(*words: str, input: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            child.mcpd(*words), input=input, env={**child.env, **(env or {})}, cwd=tmp_path,
            capture_output=True, timeout=100, check=False,
        )  # fmt: skip
        assert b"Traceback" not in done.stderr
        return done

    return start


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    """The one line on stderr."""
    (line,) = done.stderr.decode().splitlines()
    return line


# ---------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("name", ["call", "complete", "completion", "list", "ping", "prompt", "read", "watch"])
def test_help(run: Run, name: str) -> None:
    done = run(name, "--help")
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert max(map(len, text.splitlines())) <= 120
    assert "\b" not in text
    if name != "completion":
        assert "Exit codes: 0 done, 1 the server or the call failed, 2 wrong use, 3 login required" in " ".join(
            text.split()
        )
        assert "-- COMMAND ARGUMENTS" in text


# ---------------------------------------------------------------------------------------- list


@pytest.mark.parametrize("version", SUPPORTED)
def test_list_in_each_version(run: Run, version: str) -> None:
    done = run("list", SERVER, "--protocol", version)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0] == f"talk 1.0 (protocol {version})"
    plant = "bed: string, season: spring|autumn, rows: integer = 1, what?: string[]|null  Plant something in a bed."
    assert f"  plant     {plant}" in lines
    assert any(line.split() == ["bed://{name}", "text/plain", "What", "grows", "in", "a", "bed."] for line in lines)
    assert any(line.split() == ["plan", "season", "Plan", "a", "season."] for line in lines)
    assert b"\x1b" not in done.stdout


OLD = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "server/discover":
        sys.exit("unknown method")
    result = {"tools": [{"name": "dig", "inputSchema": {"type": "object"}}]}
    if message["method"] == "initialize":
        info = {"name": "old", "version": "1"}
        offers = {"tools": None, "prompts": None, "resources": {}}
        result = {"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info}
    if message["method"].startswith(("prompts/", "resources/")):
        error = {"code": -32601, "message": "Method not found"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
    elif message["method"] == "tools/call" and message["params"].get("arguments"):
        result = {"content": [{"type": "text", "text": "dug"}], "isError": "false"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    elif message["method"] == "tools/call":
        error = {"code": -32603, "message": "Internal error", "data": {"details": "disk is full", "token": "s3cret"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
    elif "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_a_server_that_ends_at_the_probe_is_started_again(run: Run) -> None:
    """As every older server on the Rust SDK does; its `tools` are offered though null."""
    done = run("list", "tools", "--", sys.executable, "-c", OLD)
    assert done.returncode == 0, done.stderr
    assert b"dig" in done.stdout


def test_one_list_that_is_missing_hides_no_other(run: Run) -> None:
    done = run("list", "--", sys.executable, "-c", OLD)
    assert done.returncode == 0, done.stderr
    assert b"dig" in done.stdout
    assert b"the server declares prompts, but has no method to list them" in done.stderr
    assert run("list", "prompts", "--", sys.executable, "-c", OLD).returncode == 1


def test_false_as_text_is_false(run: Run) -> None:
    done = run("call", "dig", "deep=true", "--", sys.executable, "-c", OLD)
    assert (done.returncode, done.stdout) == (0, b"dug\n"), done.stderr


def test_the_data_of_an_error_are_shown(run: Run) -> None:
    done = run("call", "dig", "--", sys.executable, "-c", OLD)
    assert done.returncode == 1
    assert b'Internal error (code -32603); {"details":"disk is full"' in done.stderr
    assert b"s3cret" not in done.stderr


def test_list_one_kind_verbosely(run: Run) -> None:
    text = run("list", SERVER, "tools", "--verbose").stdout.decode()
    assert "talk 1.0" not in text
    assert "The second paragraph is for --verbose." in text
    assert '"description": "Name of the bed."' in text
    assert "prompts" not in text
    assert "season" in run("list", SERVER, "prompts").stdout.decode()


def test_list_of_the_starter_and_its_apps(run: Run) -> None:
    assert run("list").stdout.startswith(b"mcpd ")
    assert b"apps_diagnostics" in run("list", "apps").stdout
    done = run("list", SERVER, "apps")
    assert (done.returncode, done.stdout, said(done)) == (0, b"", "mcpd: the server offers nothing of this kind")


def test_the_page_of_an_app_is_read_by_the_address_that_list_shows(run: Run) -> None:
    resources = json.loads(run("list", "resources", "--json").stdout)["resources"]
    uri = next(one["uri"] for one in resources if one["uri"].startswith("ui://"))
    assert "?v=" in uri
    pages = [run("read", each).stdout for each in (uri, uri.partition("?")[0])]
    assert pages[0] == pages[1]
    assert b"<html" in pages[0].lower()


def test_list_as_json(run: Run) -> None:
    (line,) = run("list", SERVER, "--json").stdout.splitlines()
    found = json.loads(line)
    assert {"server", "protocolVersion", "tools", "apps", "resources", "resourceTemplates", "prompts"} == set(found)
    assert found["server"]["name"] == "talk"
    assert {"plant", "hostile"} <= {tool["name"] for tool in found["tools"]}


# ---------------------------------------------------------------------------------------- call


@pytest.mark.parametrize("version", SUPPORTED)
def test_call_in_each_version(run: Run, version: str) -> None:
    done = run("call", SERVER, "plant", "bed=south", "season=spring", "rows=2", "--protocol", version)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == {"name": "south", "plants": ["spring", "spring"]}


def test_call_the_starter_and_a_command(run: Run, child: Child) -> None:
    assert run("call", "echo", "text=hi").stdout == b"hi\n"
    assert run("call", "add", "a=1", "b=2").stdout == b"3.0\n"
    assert run("call", "echo", "text=hi", "--", *child.mcpd("serve", "--stdio")).stdout == b"hi\n"


def test_call_with_json_from_stdin(run: Run) -> None:
    assert run("call", "echo", "-", input=b'{"text": "piped"}').stdout == b"piped\n"
    assert run("call", "echo", "text=@-", input=b"a file").stdout == b"a file\n"


def test_call_gives_the_raw_result(run: Run) -> None:
    (line,) = run("call", SERVER, "plant", "bed=a", "season=autumn", "--json").stdout.splitlines()
    assert json.loads(line)["structuredContent"] == {"name": "a", "plants": ["autumn"]}


def test_a_tool_that_fails(run: Run) -> None:
    done = run("call", SERVER, "plant", "bed=none", "season=spring")
    assert (done.returncode, done.stdout) == (1, b"")
    assert said(done) == "There is no bed\\x1b[2J 'none'."
    done = run("call", SERVER, "plant", "bed=none", "season=spring", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["isError"] is True
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["call", SERVER, "plnt"], "mcpd: no tool plnt; did you mean plant?"),
        (["call", SERVER, "zzz"], "mcpd: no tool zzz; the tools are plant, hostile, mixed,"),
        (["call", SERVER], "mcpd: which tool? the tools are plant,"),
        (["call", SERVER, "plant", "bd=a"], "mcpd: no argument bd; did you mean bed?"),
        (["call", SERVER, "plant", "bed=a", "season=sprin"], "mcpd: season: 'sprin' is not allowed; did"),
        (["call", SERVER, "plant", "rows=x"], "mcpd: rows: 'x' is not of type integer"),
        (
            ["call", SERVER, "plant"],
            "mcpd: plant needs bed=… (string: Name of the bed.), season=… (spring|autumn)",
        ),
        (["call", "echo", "hello", "there"], "mcpd: 'there': write an argument of the tool as name=value"),
        (["call", "echo", "--text=hi"], "mcpd: no option --text; write an argument of the tool as text=…"),
        (["call", "echo", "--"], "mcpd: write the command of a server after --, for example -- npx -y some-server"),
        (["call", "echo", "--env", "x", "--", "y"], "mcpd: --env …: write --env NAME=VALUE"),
        (["call", "echo", "-H", "A: b"], "mcpd: -H is for servers at a URL; to set variables of a program, use --env"),
        (["list", SERVER, "tool"], "mcpd: cannot list 'tool'; did you mean tools?"),
        (["list", "a.py", "b", "tools"], "mcpd: leave out 'a.py'"),
        (["read"], "mcpd: which resource? mcpd list resources lists their URIs"),
        (["read", SERVER], f"mcpd: which resource? mcpd list {SERVER} resources lists their URIs"),
        (["read", SERVER, "talk://dot.pgn"], "mcpd: Resource not found: talk://dot.pgn; did you mean talk://dot.png?"),
        (["apps", "fm"], "mcpd: mcpd apps has no command 'fm'; write mcpd apps test …"),
        (["prompt", SERVER, "plon"], "mcpd: no prompt plon; did you mean plan?"),
        (["prompt", SERVER, "plan"], "mcpd: plan needs season=…"),
        (["prompt", SERVER, "plan", "sezon=x"], "mcpd: no argument sezon; did you mean season?"),
        (["complete", SERVER, "prompt", "plan"], "mcpd: write mcpd complete TARGET prompt NAME ARGUMENT VALUE"),
        (["complete", SERVER, "promt", "plan", "a", "b"], "mcpd: 'promt': did you mean prompt?"),
        (["apps", "test", "--call", 'a={"b":"\udcff"}'], "mcpd: --call a={"),
        (["apps", "test", "--call", "a=" + "[" * 3000], "mcpd: --call a=[[["),
        (["watch", "--call", "'"], "mcpd: --call: No closing quotation"),
        (["watch", "--demo", "--call", "nosuch"], "mcpd: --call: no tool nosuch; the tools are echo"),
        (["ping", "a.py", "--", "b"], "mcpd: leave out 'a.py': the command after -- is the server"),
        (["ping", "--count", "0"], "mcpd: --count: 0 is not a whole number of 1 or more; see mcpd ping --help"),
        (["completion", "tcsh"], "mcpd: SHELL: 'tcsh' is not one of bash, zsh, fish"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_and_2(run: Run, words: list[str], line: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, b"")
    lines = [each for each in done.stderr.decode().splitlines() if not each.startswith("mcpd: watching")]
    assert len(lines) == 1
    assert lines[0].startswith(line)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["list", "nosuch.py"], "mcpd: nosuch.py: no such file"),
        (["list", "--", "no-such-program"], "mcpd: no-such-program cannot be started: there is no such program"),
        (["list", "--", "true"], "mcpd: "),
        (["list", "http://127.0.0.1:9/mcp", "--token-file", "nosuch"], "mcpd: --token-file: nosuch: No such file"),
        (["call", SERVER, "hang", "--timeout", "0.2"], "mcpd: the server did not answer tools/call"),
        (["read", SERVER, "note://nosuch"], "mcpd: the server answered with an error: Resource not found"),
        (["complete", SERVER, "prompt", "nosuch", "x", "y"], "mcpd: the server answered with an error: "),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_1(run: Run, words: list[str], line: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (1, b"")
    beside = ("cancelled at the server", "mcpd: 1 of 2: half")
    lines = [each for each in done.stderr.decode().splitlines() if each not in beside]
    assert len(lines) == 1
    assert lines[0].startswith(line)


def test_a_server_that_dies_is_one_line_that_says_what_to_do(run: Run) -> None:
    done = run("call", SERVER, "die")
    assert (done.returncode, done.stdout) == (1, b"")
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("mcpd: ")
    assert f"mcpd doctor {SERVER}" in last


def test_files_are_saved_and_never_overwritten(run: Run, tmp_path: Path) -> None:
    done = run("call", SERVER, "mixed", "--output", "out/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == ["text", "a note", "bed://south  south  (text/plain, 12 bytes)"]
    assert run("call", SERVER, "mixed", "--output", "out").returncode == 0
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        "mixed-2.png", "mixed-2.wav", "mixed.png", "mixed.wav", "pass-wd-2.tar", "pass-wd.tar",
    ]  # fmt: skip
    assert (tmp_path / "out" / "mixed.png").read_bytes() == DOT


def test_bytes_go_to_a_pipe_or_to_the_file_that_was_named(run: Run, tmp_path: Path) -> None:
    assert run("call", SERVER, "dot").stdout == DOT
    assert run("read", SERVER, "talk://dot.png").stdout == DOT
    done = run("read", SERVER, "talk://dot.png", "-o", "here.png")
    assert said(done) == f"mcpd: image/png, {len(DOT)} bytes: saved as here.png"
    assert (tmp_path / "here.png").read_bytes() == DOT
    done = run("call", SERVER, "dot", "-o", "/dev/null/x")
    assert done.returncode == 1
    assert "name another folder with --output DIR" in said(done)


def test_nothing_is_said_to_be_nothing(run: Run) -> None:
    done = run("call", SERVER, "nothing")
    assert (done.returncode, done.stdout) == (0, b"")
    assert said(done) == "mcpd: nothing is done; it returned nothing"


def test_text_reaches_a_pipe_as_it_is(run: Run) -> None:
    assert run("call", SERVER, "hostile").stdout.decode() == HOSTILE + "\n"
    assert run("read", SERVER, "talk://hostile").stdout.decode() == HOSTILE + "\n"


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("tool", "line", "answer"),
    [
        (["water", "minutes=3"], "mcpd: A talk asks: Water for 3 minutes?\\x1b[2J\\n", "decline"),
        (["pay"], "mcpd: A talk asks you to visit https://xn--bcher-kva.example/pay: Pay first.", "decline"),
        (["think"], "mcpd: A talk asks for the answer of a model; declined", None),
    ],
)  # fmt: skip
def test_questions_are_declined_and_said(
    run: Run, version: str, tool: list[str], line: str, answer: str | None
) -> None:
    done = run("call", SERVER, *tool, "--protocol", version)
    assert done.stderr.decode().startswith(line)
    if answer is not None:
        assert (done.returncode, done.stdout.decode()) == (0, f"{answer}\n")
    else:
        assert done.returncode == 1


def test_the_log_of_the_server_is_shown_from_a_level_on(run: Run) -> None:
    done = run("call", SERVER, "complain", "--log-level", "info")
    assert done.stdout == b"logged\n"
    assert done.stderr.decode().splitlines() == ["info: all is well", "warning: it is dry\\x1b[2J"]
    assert run("call", SERVER, "complain", "--log-level", "error").stderr == b""


def test_a_server_that_breaks_the_rules_is_told_once(run: Run, child: Child) -> None:
    serve = " ".join(child.mcpd("serve", "--stdio"))
    done = run("call", "echo", "text=hi", "--", "sh", "-c", f"echo banner; echo banner; exec {serve}")
    assert (done.returncode, done.stdout) == (0, b"hi\n")
    assert said(done).startswith("mcpd: the server sent an invalid message: Parse error: ")


def test_an_unknown_resource_suggests_templates(run: Run, tmp_path: Path) -> None:
    (tmp_path / "beds.py").write_text(
        'from mcpd import Server\nserver = Server("beds")\n'
        '@server.resource("bed://{name}")\ndef bed(name: str) -> str:\n    return name\n'
        '@server.resource("note://one")\ndef one() -> str:\n    return "1"\n'
    )
    assert said(run("read", "beds.py", "bed:/north")).endswith("bed:/north; did you mean bed://{name}?")
    assert "the resources are note://one, bed://{name}" in said(run("read", "beds.py", "herbs://mint"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
def test_output_that_cannot_be_written_is_one_line(child: Child, tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            child.mcpd("list", SERVER), env=child.env, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=full,
            stderr=subprocess.PIPE, text=True, timeout=100, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "mcpd: No space left on device\n")


def test_a_mistake_of_ours_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(terminal: Terminal) -> int:
        raise ZeroDivisionError("by\nzero")

    assert run_work(work, ServerOptions()) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"mcpd: this is a bug in mcpd: ZeroDivisionError: by\\nzero at test_in_pipes\.py:\d+; please report it with .*",
        line,
    )


@pytest.fixture
def url(child: Child, tmp_path: Path) -> Iterator[str]:
    """The URL of the same server behind HTTP, with WebSocket on the same port."""
    process = subprocess.Popen(
        child.mcpd("serve", "--http", "127.0.0.1:0", SERVER), env=child.env, cwd=tmp_path, stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stderr is not None
        yield next(found[0] for line in process.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+/mcp", line)))
        process.terminate()
        process.stderr.read()


def test_servers_behind_urls(run: Run, url: str) -> None:
    for place in (url, url.replace("http:", "ws:")):
        assert run("read", place, "bed://south").stdout == b"bed south\n"
        done = run("call", place, "steps", "-H", "X-Of-Mine: 1", "--protocol", "2025-11-25")
        assert (done.returncode, done.stdout) == (0, b"done\n")
        assert b"mcpd: 3 of 3: step 3" in done.stderr.splitlines()[-1]
    done = run("list", f"{url}s")
    assert done.returncode == 1
    assert "HTTP 404" in said(done)
    assert f"mcpd doctor {url}s" in said(done)


# ------------------------------------------------------------------------ read, prompt, complete, ping


@pytest.mark.parametrize("version", SUPPORTED)
def test_read_and_prompt_in_each_version(run: Run, version: str) -> None:
    assert run("read", SERVER, "bed://south", "--protocol", version).stdout == b"bed south\n"
    done = run("prompt", SERVER, "plan", "season=spring", "--protocol", version)
    assert done.stdout == b"[user]\nPlan spring.\n[assistant]\nBeans.\n"


def test_read_and_prompt_as_json(run: Run) -> None:
    (line,) = run("read", SERVER, "bed://south", "--json").stdout.splitlines()
    assert json.loads(line)["contents"][0]["text"] == "bed south"
    (line,) = run("prompt", SERVER, "plan", "season=spring", "--json").stdout.splitlines()
    assert json.loads(line)["messages"][1]["role"] == "assistant"


def test_complete(run: Run, tmp_path: Path) -> None:
    assert run("complete", SERVER, "prompt", "plan", "season", "sp").stdout == b"spring\n"
    assert run("complete", SERVER, "prompt", "plan", "season").stdout == b"spring\nautumn\n"
    (line,) = run("complete", SERVER, "prompt", "plan", "season", "a", "--json").stdout.splitlines()
    assert json.loads(line)["completion"]["values"] == ["autumn"]
    (tmp_path / "bare.py").write_text('from mcpd import Server\nserver = Server("bare")\n')
    done = run("complete", "bare.py", "prompt", "x", "y")
    assert (done.returncode, said(done)) == (1, "mcpd: the server does not support completion")


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_ping(run: Run, version: str) -> None:
    lines = run("ping", SERVER, "-c", "2", "-i", "0", "--protocol", version).stdout.decode().splitlines()
    assert lines[0].startswith(f"talk 1.0 (protocol {version}), ready after ")
    assert [line.partition(":")[0] for line in lines[1:3]] == ["1", "2"]
    assert lines[3].startswith("2 of 2 answered; ")
    found = json.loads(run("ping", SERVER, "-c", "3", "-i", "0", "--json").stdout)
    assert len(found["times"]) == 3
    assert found["failed"] == 0


# --------------------------------------------------------------------------------------- watch


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_watch_tells_of_a_call_until_ctrl_c(child: Child, tmp_path: Path, version: str) -> None:
    words = ["watch", SERVER, "bed://south", "--call", "steps count=2", "--json", "--protocol", version]
    process = subprocess.Popen(
        child.mcpd(*words), env=child.env, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    found = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [each["event"] for each in found] == ["progress", "progress", "result"]
    assert (found[1]["progress"], found[1]["total"]) == (2, 2)
    assert "Traceback" not in rest


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_watch_tells_of_changes(child: Child, tmp_path: Path, version: str) -> None:
    words = ["watch", SERVER, "talk://dot.png", "--call", "change", "--json", "--protocol", version]
    process = subprocess.Popen(
        child.mcpd(*words), env=child.env, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    found = {each["event"]: each for each in (json.loads(process.stdout.readline()) for _ in range(3))}
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert found["updated"]["uri"] == "talk://dot.png"
    assert found["changed"]["list"] == "tools"
    assert found["result"]["tool"] == "change"


def test_watch_as_text(child: Child, tmp_path: Path) -> None:
    process = subprocess.Popen(
        child.mcpd("watch", SERVER, "--call", "complain"), env=child.env, cwd=tmp_path, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline().split(maxsplit=2)[1:] for _ in range(3)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert lines == [
        ["log", "info: all is well\n"],
        ["log", "warning: it is dry\\x1b[2J\n"],
        ["result", "complain is done\n"],
    ]


# -------------------------------------------------------------------------------------- endings


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_call_that_is_ended_is_cancelled_at_the_server(
    child: Child, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = subprocess.Popen(
        child.mcpd("call", SERVER, "hang", "--log-level", "debug"), env=child.env, cwd=tmp_path,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    while "begun" not in process.stderr.readline():  # progress comes first
        assert process.poll() is None
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert err == "cancelled at the server\n"


def test_a_closed_pipe_is_no_traceback(child: Child, tmp_path: Path) -> None:
    process = subprocess.Popen(
        child.mcpd("list", SERVER, "--json"), env=child.env, cwd=tmp_path, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(60) == 1


def test_stdout_that_is_closed(child: Child, tmp_path: Path) -> None:
    line = 'exec "$@" >&-'
    done = subprocess.run(
        ["sh", "-c", line, "sh", *child.mcpd("call", "--demo", "echo", "text=hi")], env=child.env, cwd=tmp_path,
        capture_output=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


# ----------------------------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run: Run, shell: str) -> None:
    done = run("completion", shell)
    assert done.returncode == 0
    assert b"_MCPD_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("mcpd ca", {"call"}),
        (f"mcpd call {SERVER} pl", {"plant"}),
        ("mcpd call ec", {"echo"}),
        (f"mcpd call {SERVER} plant se", set()),
        ("mcpd call nosuch.py pl", set()),
        (f"mcpd list {SERVER} to", {"tools"}),
        (f"mcpd prompt {SERVER} p", {"plan"}),
        (f"mcpd read {SERVER} talk://d", {"talk://dot.png"}),
        ("mcpd call --ti", {"--timeout"}),
    ],
)
def test_words_that_complete(run: Run, line: str, found: set[str]) -> None:
    env = {"_MCPD_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    done = run(env=env)
    lines = done.stdout.decode().splitlines()
    assert {line.removeprefix("plain,") for line in lines if line.startswith("plain,")} == found
    assert done.stderr == b""


def test_progress_in_a_pipe_goes_to_stderr(run: Run) -> None:
    done = run("call", "--demo", "count_slowly", "steps=2")
    assert (done.returncode, done.stdout) == (0, b"Counted to 2\n")
    lines = done.stderr.decode().splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in (lines[0], lines[-1])] == ["1 of 2", "2 of 2"]


def test_a_page_of_documents_is_printed_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "book" / "docs").mkdir(parents=True)
    (tmp_path / "book" / "docs" / "units.md").write_text("# Units\n\nMetres and feet.\n")
    done = run("call", "book", "read_docs_page", "path=units.md")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().count("Metres and feet.") == 1
    assert done.stdout.startswith(b"Units")
    assert b'"headings"' not in done.stdout
