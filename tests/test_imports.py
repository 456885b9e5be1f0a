"""What may import what: the packages, the dependencies (D8), the start of a server."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import Child
from support.source_code import parsed

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "mcpd"

CORE = {"anyio", "click", "msgspec", "websockets"}
# What extras bring, and the few files that may import each.
EXTRAS: dict[str, set[str]] = {
    "aiohttp": {"auth", "client", "sources"},
    "cryptography": {"auth", "server"},
    "docutils": {"sources"},
    "html_to_markdown": {"sources"},
    "httptools": {"server"},
    "jiter": {"apps"},
    "joserfc": {"auth", "client"},
    "jsonschema": {"compat"},
    "jsonschema_rs": {"server"},
    "keyring": {"client"},
    "latex2mathml": {"sources"},
    "markdown_it": {"sources"},
    "mdit_py_plugins": {"sources"},
    "multidict": {"client"},
    "nh3": {"sources"},
    "opentelemetry": {"server"},
    "playwright": {"apps"},
    "publicsuffixlist": {"server"},
    "pypdf": {"sources"},
    "rapidfuzz": {"sources"},
    "pytest": {"testing"},
    "redis": {"server"},
    "fsspec": {"server"},
    "referencing": {"sources"},
    "ruamel": {"cli"},
    "selectolax": {"sources", "apps"},
    "typing_extensions": {"cli", "client"},  # anyio brings it before Python 3.13; the command hands it on to msgspec
    "uvloop": {"server"},
    "yaml": {"sources"},
    "watchfiles": {"sources"},
    "yarl": {"auth", "client", "sources"},
}
# Used where the user has them installed, never required.
WELCOME = {"attr", "attrs", "httpx", "pydantic", "pydantic_core", "starlette"}
STANDARD = {*sys.stdlib_module_names, "annotationlib"}  # that one since Python 3.14


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """The absolute imports of a file, wherever in it they stand: module and line."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno


def test_the_core_needs_four_packages_and_extras_stay_in_their_rooms() -> None:
    wrong = []
    for _, path in modules():
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name, line in imported(path):
            top = name.partition(".")[0]
            if top in STANDARD or top in CORE | WELCOME | {"mcpd"} or room in EXTRAS.get(top, ()):
                continue
            wrong.append(f"{path.relative_to(REPOSITORY)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_pyproject_names_the_same_four() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {requirement.split(">")[0] for requirement in project["dependencies"]} == CORE
    assert set(project["optional-dependencies"]) == {
        "all",
        "apps",
        "auth",
        "client",
        "compat",
        "docs",
        "files",
        "http",
        "install",
        "otel",
        "keyring",
        "openapi",
        "redis",
        "schema",
        "test",
        "watch",
        "yaml",
    }


def unmeasured(child: Child) -> dict[str, str]:
    """The environment of a child that loads nothing but what it was asked to: coverage would load half of Python."""
    return {name: value for name, value in child.env.items() if not name.startswith("COVERAGE_")}


def test_imports_point_down(child: Child) -> None:
    # In a process of its own: it sets up logging anew, which silences the loggers that other tests listen to.
    done = subprocess.run(
        [child.python, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"],
        cwd=REPOSITORY, env=unmeasured(child), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


EACH_ALONE = """
import importlib, os, sys
import mcpd

# What is not ours is loaded once, and not in each child: only our own modules are to be first.
reading, writing = os.pipe()
if not os.fork():
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except BaseException:
            pass
    with open(writing, "w") as found:
        found.write("\\n".join(name for name in sys.modules if name.partition(".")[0] != "mcpd"))
    os._exit(0)
os.close(writing)
with open(reading) as found:
    foreign = found.read().splitlines()
for name in foreign:
    try:
        importlib.import_module(name)
    except ImportError:
        pass  # a module that another one has put there
assert "asyncio" in foreign

failed = 0
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    failed += os.waitpid(child, 0)[1] != 0
sys.exit(failed != 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks an interpreter for each module")
@pytest.mark.slow
@pytest.mark.timeout(420)  # every module in a process of its own, on a machine that may be busy
def test_each_module_imports_first(child: Child) -> None:
    """No module works only because another one was imported before it: there is no import cycle."""
    names = [name for name, _ in modules() if not name.endswith("__main__")]
    assert "mcpd.errors" in names
    done = subprocess.run(
        [child.python, "-W", "error", "-c", EACH_ALONE, *names],
        env=unmeasured(child), capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


ON_WINDOWS = """
import asyncio, os, select, signal, socket, subprocess, sys

import aiohttp, anyio, click, httptools, websockets.server

sys.modules.update(dict.fromkeys(("fcntl", "grp", "pwd", "resource", "termios")))
for module, names in (
    (os, "fork getuid killpg register_at_fork writev O_NOCTTY O_NONBLOCK O_NOFOLLOW"),
    (select, "poll"),
    (signal, "SIGALRM SIGHUP SIGKILL pthread_sigmask setitimer"),
    (socket, "AF_UNIX MSG_DONTWAIT"),
):
    for name in names.split():
        delattr(module, name)
sys.platform = "win32"
import mcpd.cli.commands.call, mcpd.cli.commands.install, mcpd.cli.commands.serve
import mcpd.cli.install.files, mcpd.server.http.listener, mcpd.server.serving

mcpd.cli.install.files.read("no such file.json")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="takes away what only some systems have")
def test_what_windows_lacks_is_not_needed_at_the_start(child: Child) -> None:
    """`mcpd install` writes entries for hosts on Windows, which start `mcpd serve` there."""
    subprocess.run([child.python, "-c", ON_WINDOWS], env=unmeasured(child), timeout=60, check=True)


# What `mcpd serve --stdio` must not pay for (issue: at most 1.6 times the raw floor from spawn to first answer).
# Each is loaded at one seam, by the command, transport or extra that needs it.
NOT_FOR_STDIO = {
    "click", "email", "http", "httptools", "importlib.metadata", "jsonschema_rs", "opentelemetry",
    "publicsuffixlist", "pydantic", "redis", "sqlite3", "urllib.request", "uvloop", "watchfiles", "websockets",
}  # fmt: skip
# Of ours: what most servers never need, or not before somebody calls.
OURS_NOT_FOR_STDIO = {
    "mcpd.protocol.channel", "mcpd.cli.commands", "mcpd.cli.group", "mcpd.cli.target_errors",
    "mcpd.server.dispatcher.observing", "mcpd.server.dispatcher.outgoing",
    "mcpd.server.dispatcher.subscriptions", "mcpd.server.observe", "mcpd.server.functions.arguments",
    "mcpd.server.registry.prompts", "mcpd.server.registry.options", "mcpd.server.functions.threads",
    "mcpd.server.http_backend", "mcpd.transports.memory",
    "mcpd.protocol.types.interaction", "mcpd.protocol.wire.headers",
}  # fmt: skip
# And what servers need none of whose functions takes a Context.
NOT_FOR_PLAIN_SERVERS = {"mcpd.server.context.context", "mcpd.server.extensions.files"}

PLAIN_SERVER = """
from mcpd import Server

server = Server("plain")

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
def echo_in_a_thread(text: str) -> str:
    return text

@server.resource("notes://today")
async def today() -> str:
    return "nothing"
"""


def loaded_at_start(child: Child, *target: str) -> set[str]:
    """The modules that are loaded when `mcpd serve --stdio` has answered `initialize`."""
    hello = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
        b'"clientInfo":{"name":"t","version":"1"}}}\n'
    )
    done = subprocess.run(
        [child.python, "-X", "importtime", "-m", "mcpd", "serve", "--stdio", *target],
        input=hello, env=unmeasured(child), capture_output=True, timeout=100, check=False,
    )  # fmt: skip
    assert b'"protocolVersion":"2025-11-25"' in done.stdout, done.stderr[-2000:]
    lines = done.stderr.decode().splitlines()
    loaded = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "msgspec" in loaded, "the list of imports was not read"
    return loaded


def test_a_stdio_server_loads_only_what_it_uses(child: Child) -> None:
    """OBS-09: of opentelemetry, and of what watches a server, nothing."""
    assert not loaded_at_start(child) & (NOT_FOR_STDIO | OURS_NOT_FOR_STDIO)
    named = OURS_NOT_FOR_STDIO | NOT_FOR_PLAIN_SERVERS
    assert all(find_spec(name) for name in named), "one of them is another module now"


def test_a_plain_server_loads_less(child: Child, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN_SERVER, encoding="utf-8")
    loaded = loaded_at_start(child, str(tmp_path / "plain.py"))
    assert "mcpd.server.functions.signature" in loaded
    assert not loaded & (NOT_FOR_STDIO | OURS_NOT_FOR_STDIO | NOT_FOR_PLAIN_SERVERS)


def test_a_folder_loads_only_what_it_uses(child: Child, tmp_path: Path) -> None:
    for path, text in [
        ("tools/greet.py", "async def greet(name: str) -> str:\n    return name\n"),
        ("resources/note.txt", "note"),
        ("prompts/ask.md", "+++\ndescription = 'Ask.'\n+++\nAsk {{what}}"),
        ("docs/page.md", "# Page\n"),
        ("mcpd.toml", ""),
    ]:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    loaded = loaded_at_start(child, str(tmp_path))
    assert {"mcpd.sources.prompts", "mcpd.sources.docs.reader_app", "mcpd.sources.resources"} <= loaded
    assert not loaded & (NOT_FOR_STDIO | OURS_NOT_FOR_STDIO | {"difflib", "yaml"})
