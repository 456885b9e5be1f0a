"""The `mcpd` command as people use it, rightly and wrongly: what it prints, where, and its exit code."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Child

import mcpd
from mcpd.cli.group import _COMMANDS

Run = Callable[..., "subprocess.CompletedProcess[str]"]

CLEAN = 'from mcpd import Server\nserver = Server("garden")\n@server.tool\ndef f() -> str:\n    "F."\n    return "f"\n'

HELLO = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    '"clientInfo":{"name":"t","version":"1"}}}\n'
)


@pytest.fixture
def run(child: Child, tmp_path: Path) -> Run:
    """run("check", "server.py"): the finished process, started in an empty folder."""

    def start(*arguments: str, input: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            child.mcpd(*arguments), input=input, env={**child.env, **(env or {})}, cwd=tmp_path,
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    return start


# ------------------------------------------------------------------------------------------ help


def test_without_a_command_it_helps(run: Run) -> None:
    done = run()
    assert done.returncode == 0
    assert "check" in done.stdout
    assert "serve" in done.stdout
    assert done.stdout == run("--help").stdout


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"mcpd {mcpd.__version__}\n"


def test_help_of_serve_is_complete(run: Run) -> None:
    text = run("serve", "--help").stdout
    for word in ("MCPD_TOKEN ", "MCPD_STATE_KEY", "MCP_APPS_ENABLED=false", "MCPD_LOG_LEVEL", "Exit codes"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 120
    assert "\b" not in text


def test_help_of_check_names_the_exit_codes(run: Run) -> None:
    assert "Exit codes" in run("check", "--help").stdout.replace("\n  ", " ")


# --------------------------------------------------------------------------------- wrong uses


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serv"], "no command 'serv'; did you mean serve?"),
        (["frobnicate"], f"no command 'frobnicate'; the commands are {', '.join(sorted(_COMMANDS))}"),
        (["run"], "no command 'run'; to serve a file on stdio: mcpd serve --stdio server.py"),
        (["run", "-v", "a.py"], "to serve a file on stdio: mcpd serve --stdio a.py"),
        (["dev", "a.py"], "to try a file in a page: mcpd preview a.py"),
        (["inspect", "a.py"], "to list everything with all schemas: mcpd list --verbose a.py"),
        (["add", "a.py"], "to add a file to a host: mcpd install HOST a.py"),
        (["tools", "a.py"], "to list the tools of a server: mcpd list a.py tools"),
        (["version"], "write mcpd --version"),
        (["server.py"], "server.py is not a command; to serve it: mcpd serve --stdio server.py"),
        (["--stdio"], "no option --stdio; write it after the command: mcpd serve --stdio"),
        (["--verbos"], "no option --verbos; did you mean --version?"),
        (["serve", "--stido"], "no option --stido; did you mean --stdio?"),
        (["serve", "--port", "8080"], "no option --port; write mcpd serve --http :PORT"),
        (["serve", "--transport", "stdio"], "write mcpd serve --stdio, --ws ADDR or --http ADDR"),
        (["serve", "--ws"], "for example --ws :8080"),
        (["serve", "--stdio", "--log-level", "loud"], "see mcpd serve --help"),
        (["serve", "--grace", "soon"], "see mcpd serve --help"),
        (["serve", "--grace", "nan"], "'nan' is not a number of seconds; see mcpd serve --help"),
        (["serve", "--session-timeout", "nan"], "'nan' is not a number of seconds; see mcpd serve --help"),
        (["serve", "--stdio=3"], "'--stdio' does not take a value; see mcpd serve --help"),
        (["check", "--yaml"], "no option --yaml; see mcpd check --help"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_and_2(run: Run, words: list[str], said: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("mcpd: ")
    assert line.endswith(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "--stdio", "nosuch.py"], "nosuch.py: no such file"),
        (["serve", "--ws", "8080"], "Address '8080'"),
        (["serve", "--ws", "0.0.0.0:0"], "can be reached from other machines"),
        (["serve", "--http", ":8080", "--ws", ":8080"], "--http and --ws cannot share :8080: leave out --ws"),
        (["serve", "--ws", ":0", "--token-file", "nosuch"], "--token-file nosuch: No such file or directory"),
        (["serve", "--ws", ":0", "--token-file", "/dev/null"], "--token-file /dev/null: the file is empty"),
        (["check", "nosuch.py"], "nosuch.py: no such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_1(run: Run, words: list[str], said: str) -> None:
    done = run(*words)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("mcpd: ")
    assert said in line


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["sever.py"], 1, "sever.py: no such file; did you mean server.py? See mcpd serve --help"),
        (["grden"], 1, "grden: no such file; did you mean garden? See mcpd serve --help"),
        (["nosuch:x"], 1, "no module 'nosuch' in FOLDER or installed; see mcpd serve --help"),
        (["broken.py"], 1, "broken.py cannot be imported: ZeroDivisionError"),
        (["server.py", "--stido"], 2, "no option --stido; did you mean --stdio?"),
        (["server.py", "--frob"], 2, "no option --frob; see mcpd serve --help"),
        (["server.py"], 1, "stdin is empty, so no client can connect"),
        (["--workers", "two", "server.py"], 2, "--workers: 'two' is not a whole number of 1 or more; see mcpd serve"),
        (["--max-memory", "lots", "server.py"], 2, "--max-memory: 'lots' is not a size"),
    ],
)
def test_an_empty_stdin_hides_no_mistake(child: Child, tmp_path: Path, words: list[str], code: int, said: str) -> None:
    (tmp_path / "server.py").write_text(CLEAN)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "garden").mkdir()
    done = subprocess.run(
        child.mcpd("serve", *words), stdin=subprocess.DEVNULL, env=child.env, cwd=tmp_path,
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stderr.startswith(f"mcpd: {said.replace('FOLDER', str(tmp_path))}")
    assert done.stderr.count("\n") == 1


def test_a_wrong_value_of_a_variable_names_the_variable(run: Run) -> None:
    done = run("serve", "--stdio", env={"MCPD_GRACE": "soon"})
    assert (done.returncode, done.stderr) == (
        2,
        "mcpd: MCPD_GRACE: 'soon' is not a number of 0 or more; see mcpd serve --help\n",
    )


def test_debug_shows_where_a_target_failed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("def inner():\n    1 / 0\n\n\ninner()\n")
    for words in (["check"], ["serve", "--stdio"]):
        assert "Traceback" not in run(*words, "fails.py").stderr
        assert "Traceback" in run(*words, "fails.py", "--log-level", "debug").stderr


# ---------------------------------------------------------------------------------------- check


def test_check_lists_what_there_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "garden.py").write_text(
        'from mcpd import Server\n'
        'server = Server("garden", version="2")\n'
        "@server.tool\ndef water(bed: str) -> str:\n    'Water a bed.'\n"
        "@server.resource('bed://{name}')\ndef bed(name: str) -> str: ...\n"
        "@server.prompt\ndef plan(season: str) -> str:\n    'Plan a season.'\n"
    )  # fmt: skip
    done = run("check", "garden.py")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout == (
        "garden 2\n"
        "tools (1)\n  water  Water a bed.\n"
        "resource templates (1)\n  bed://{name}\n"
        "prompts (1)\n  plan  Plan a season.\n"
    )  # fmt: skip


def test_check_names_every_problem(run: Run, tmp_path: Path) -> None:
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "dash.html").write_bytes(b"\xff\xfe")
    (tmp_path / "bad.py").write_text(
        'from mcpd import Server\n'
        'server = Server("bad")\n'
        'server.add_apps("apps")\n'
        '@server.tool(ui="ui://bad/nowhere")\ndef show() -> str: ...\n'
    )  # fmt: skip
    done = run("check", "bad.py")
    assert done.returncode == 1
    problems = [line for line in done.stderr.splitlines() if line.startswith("mcpd: problem: ")]
    assert any("dash.html" in line for line in problems)
    assert any("ui://bad/nowhere" in line for line in problems)


def test_a_reader_that_has_seen_enough(child: Child) -> None:
    """`mcpd check | true`: no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            child.mcpd("check", "--demo"),
            stdout=writer,
            stderr=subprocess.PIPE,
            env=child.env,
            timeout=100,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 1


# ---------------------------------------------------------------------------------------- serve


@pytest.mark.parametrize("words", [["serve", "--stdio"], ["serve"], ["serve", "--grace", "1", "--stdio"]])
def test_a_program_that_starts_it_gets_stdio(run: Run, words: list[str]) -> None:
    """Without click, with it, and with no transport named: the same answer, and nothing for people."""
    done = run(*words, input=HELLO)
    assert done.returncode == 0
    assert done.stderr == ""
    assert '"serverInfo"' in done.stdout


def test_in_the_background_it_says_that_nobody_can_talk_to_it(child: Child) -> None:
    done = subprocess.run(
        child.mcpd("serve"), stdin=subprocess.DEVNULL, env=child.env, capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 1
    assert b"add for example --http :8080 or --ws :8080" in done.stderr


def on_a_terminal(child: Child, *arguments: str, until: bytes, then: Callable[[int, int], object]) -> tuple[str, int]:
    """What is printed on a terminal, and the exit code. `then` ends the process (its id, the terminal) at a text."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        child.mcpd(*arguments), stdin=theirs, stdout=theirs, stderr=theirs,
        env=child.env, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            seen += chunk
            if until in seen and process.poll() is None:
                then(process.pid, ours)
                until = b"\0"
        return seen.decode(), process.wait(timeout=100)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_in_a_terminal_it_listens(child: Child) -> None:
    """A newcomer's `mcpd serve` is not left waiting for JSON on the keyboard. The port may be taken: also an answer."""
    seen, code = on_a_terminal(child, "serve", until=b"mcpServers", then=lambda pid, _: os.kill(pid, signal.SIGINT))
    listens = "listening on http://127.0.0.1:8080/mcp" in seen and "WebSocket on ws://127.0.0.1:8080/mcp" in seen
    assert (listens and code == 0) or (":8080 is in use" in seen and code == 1)


def test_stdio_in_a_terminal_says_so(child: Child) -> None:
    seen, code = on_a_terminal(
        child, "serve", "--stdio", until=b"Ctrl-C", then=lambda _, terminal: os.write(terminal, b"\x04")
    )
    assert "mcpd: serving the demo server of mcpd on stdio" in seen
    assert code == 0


def test_listening_says_where_and_how_to_point_claude_desktop_at_it(child: Child, tmp_path: Path) -> None:
    (tmp_path / "garden.py").write_text(CLEAN)
    process = subprocess.Popen(
        child.mcpd("serve", "--ws", ":0", "garden.py"),
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=child.env, cwd=tmp_path,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        said = [process.stderr.readline().decode() for _ in range(8)]
        process.terminate()
        rest = process.stderr.read().decode()
        assert process.wait(timeout=100) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert re.fullmatch(r"mcpd: listening on ws://127\.0\.0\.1:\d+/mcp \(Ctrl-C stops it\)\n", said[0])
    assert f'"{tmp_path / "garden.py"}"' in said[7]
    assert rest == "INFO mcpd: stopping: the process received SIGTERM\n"


# ------------------------------------------------------------------- what check and serve say of a server


BAD = """
from mcpd import Server
server = Server("bad")
class Bed: ...
@server.tool(name="water.now")
def water(bed, minutes: int = "long") -> bytes: return b""
@server.tool
def find() -> Bed:
    "Find a bed."
    return Bed()
"""
UGLY = """
from mcpd import Server
server = Server("ugly")
@server.tool
def water(bed: str) -> str: return bed
"""


def test_warnings_are_no_errors_unless_they_are_asked_to_be(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ugly.py").write_text(UGLY)
    done = run("check", "ugly.py")
    assert done.returncode == 0
    assert done.stderr == "mcpd: warning: tool water: no description: models choose tools by it; write a docstring\n"
    strict = run("check", "--strict", "ugly.py")
    assert (strict.returncode, strict.stderr) == (1, done.stderr)
    (tmp_path / "clean.py").write_text(CLEAN)
    assert run("check", "--strict", "clean.py").returncode == 0
    assert run("check", "--strict", "--demo").returncode == 0


def test_check_fails_for_what_will_fail(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    done = run("check", "bad.py")
    assert done.returncode == 1
    assert done.stderr.count("mcpd: problem: ") == 1
    assert done.stderr.count("mcpd: warning: ") == 4


def test_verbose_shows_schemas(run: Run, tmp_path: Path) -> None:
    (tmp_path / "garden.py").write_text(
        "from mcpd import Server\nserver = Server('g')\n@server.tool\ndef dig(deep: int) -> float:\n    'Dig.'\n"
        "@server.prompt\ndef plan(season: str) -> str:\n    'Plan.'\n"
    )
    brief, long = run("check", "garden.py"), run("check", "--verbose", "garden.py")
    assert "integer" not in brief.stdout
    assert long.returncode == 0
    for word in ("input", '"deep"', '"integer"', "output", '"number"', "arguments", '"season"'):
        assert word in long.stdout


@pytest.mark.parametrize("words", [["--ws", ":0"], ["--http", ":0"]])
def test_serve_says_in_one_line_that_there_are_problems(child: Child, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    said = told_by(child, tmp_path, "serve", *words, "bad.py")
    assert said[-1] == "mcpd: 1 problem and 4 warnings; to list them: mcpd check bad.py"


def told_by(child: Child, folder: Path, *words: str) -> list[str]:
    """The lines on stderr of a server, up to what it says last of all when it listens."""
    process = subprocess.Popen(
        child.mcpd(*words), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=child.env, cwd=folder, text=True
    )
    assert process.stderr is not None
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line.rstrip("\n"))
            if "to list them: mcpd check" in line or ("mcpServers" in line and "bad.py" not in words):
                process.terminate()
        assert process.wait(timeout=100) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    return [line for line in said if not line.startswith("INFO mcpd: stopping: ")]


@pytest.mark.slow
def test_on_stdio_it_says_so_after_the_first_answers(child: Child, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    process = subprocess.Popen(
        child.mcpd("serve", "--stdio", "bad.py"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child.env, cwd=tmp_path, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(HELLO)
        process.stdin.flush()
        assert '"serverInfo"' in process.stdout.readline()
        process.stdin.write('{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n')
        process.stdin.flush()
        assert '"id":2' in process.stdout.readline()
        assert process.stderr.readline() == "mcpd: 1 problem and 4 warnings; to list them: mcpd check bad.py\n"
        process.stdin.close()
        assert process.wait(timeout=100) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ws", ":0", "--stateless"], "--stateless has no effect: it requires HTTP; add --http"),
        (["--ws", ":0", "--session-timeout", "5"], "--session-timeout has no effect: it requires HTTP"),
        (["--stdio", "--insecure"], "--insecure has no effect: it requires --http or --ws"),
        (["--stdio", "--allow-host", "a.example"], "--allow-host has no effect: it requires --http or --ws"),
    ],
)
def test_an_option_without_effect_says_so(child: Child, tmp_path: Path, words: list[str], said: str) -> None:
    if words[0] == "--stdio":
        done = subprocess.run(
            child.mcpd("serve", *words),
            input=HELLO,
            env=child.env,
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        lines = done.stderr.splitlines()
    else:
        lines = told_by(child, tmp_path, "serve", *words)
    assert lines[0].startswith(f"mcpd: {said}")
    assert sum("has no effect" in line for line in lines) == 1


def test_an_option_with_an_effect_says_nothing(child: Child, tmp_path: Path) -> None:
    lines = told_by(child, tmp_path, "serve", "--http", ":0", "--stateless", "--allow-host", "a.example")
    assert not any("has no effect" in line for line in lines)


NEWS = """
import logging, sys, types
from mcpd import Server
logging.getLogger("own").info("own news")
source = "import logging\\nlogging.getLogger('httpx').info('GET https://a.example/?key=secret')\\n"
source += "logging.getLogger('httpx').warning('third warning')\\n"
exec(compile(source, "/usr/lib/python3/site-packages/httpx/_client.py", "exec"))
server = Server("garden")
"""


def test_what_others_packages_call_news_is_not_logged(run: Run, tmp_path: Path) -> None:
    """httpx logs each URL at level info, with the secrets that are in some; at debug it is asked for."""
    (tmp_path / "news.py").write_text(NEWS)
    done = run("serve", "--stdio", "news.py")
    assert "INFO own: own news" in done.stderr
    assert "WARNING httpx: third warning" in done.stderr
    assert "secret" not in done.stderr
    assert "secret" in run("serve", "--stdio", "news.py", "--log-level", "debug").stderr


def test_a_syntax_error_shows_its_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\nif x:\n    y = (1,, 2)\n")
    for words in (["check"], ["serve", "--stdio"]):
        done = run(*words, "broken.py")
        assert done.returncode == 1
        assert done.stderr == (
            "mcpd: broken.py cannot be imported: SyntaxError: invalid syntax (line 3)\n    y = (1,, 2)\n           ^\n"
        )


GUARDED = """
from mcpd import Server
server = Server("guarded")

@server.tool(scopes=["garden.write"])
def water(bed: str) -> str:
    "Water a bed."
    return bed
"""


def started(child: Child, folder: Path, last: str, *words: str) -> list[str]:
    """The lines on stderr of a server that serves with these words, up to the one that has `last` in it."""
    process = subprocess.Popen(
        child.mcpd("serve", "--http", ":0", *words), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=child.env,
        cwd=folder, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line.rstrip("\n"))
            if last in line:
                break
    finally:
        process.terminate()
        process.wait(timeout=100)
        process.stderr.close()
    return said


def test_a_token_without_scopes_where_tools_need_them(run: Run, child: Child, tmp_path: Path) -> None:
    (tmp_path / "guarded.py").write_text(GUARDED)
    file = tmp_path / "tokens.toml"
    file.write_text('[ada]\ntoken = "0123456789abcdef"\n')
    file.chmod(0o600)
    problem = "mcpd: problem: token of ada: it has no scopes, but these tools need some: water; add scopes in a "
    done = run("check", "guarded.py", "--tokens-file", "tokens.toml")
    assert (done.returncode, done.stderr.startswith(problem)) == (1, True)
    said = started(child, tmp_path, "problem", "guarded.py", "--tokens-file", "tokens.toml")
    assert said[-1].startswith(problem)
    file.write_text('[ada]\ntoken = "0123456789abcdef"\nscopes = ["garden.write"]\n')
    assert run("check", "guarded.py", "--tokens-file", "tokens.toml").returncode == 0


def test_a_warning_comes_once_from_several_workers(child: Child, tmp_path: Path) -> None:
    (tmp_path / "warns.py").write_text(
        "import logging, warnings\nfrom mcpd import Server\nwarnings.warn('of Python')\n"
        "logging.getLogger('mine').warning('of the log')\nserver = Server('warns')\n"
    )
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o644)
    said = started(child, tmp_path, "3 workers", "--workers", "3", "--token-file", "token", "warns.py")
    for warning in ("UserWarning: of Python", "of the log", "chmod 600 token"):
        assert sum(warning in line for line in said) == 1, said


def test_a_log_in_json_has_no_lines_to_copy(child: Child, tmp_path: Path) -> None:
    (tmp_path / "ugly.py").write_text(UGLY)
    said = [
        json.loads(line)["message"]
        for line in started(child, tmp_path, "to list them: mcpd check", "--log-format", "json", "ugly.py")
    ]
    assert [line.partition(" on ")[0] for line in said[:2]] == ["mcpd: listening", "mcpd: listening for WebSocket"]
    assert said[2:] == ["mcpd: 1 warning; to list them: mcpd check ugly.py"]


def test_a_short_key_is_not_blamed_on_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "clean.py").write_text(CLEAN)
    for words in (["check"], ["serve", "--stdio"]):
        done = run(*words, "clean.py", env={"MCPD_STATE_KEY": "short"})
        said = "mcpd: MCPD_STATE_KEY: the key must have at least 16 bytes; make one with: openssl rand -hex 32\n"
        assert (done.returncode, done.stderr) == (1, said)


def test_check_names_the_demo_server(run: Run) -> None:
    assert run("check").stderr == "mcpd: no server was named, so this is the demo server of mcpd\n"
    assert run("check", "--demo").stderr == ""
