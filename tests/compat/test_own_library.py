"""Servers that run with the library that they were written for, in a child process of `mcpd serve`.

The library is a small one of this name, which is only there for these processes.
"""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest
from compat.test_programs import MESSAGES, run, write
from conftest import Child
from support.wires import LEGACY, process_wire

from mcpd.cli.needs import Needs, read_needs

LIBRARY = {
    "fastmcp/__init__.py": "from .server.server import FastMCP\n",
    "fastmcp/server/__init__.py": "",
    "fastmcp/server/transforms.py": "class Namespace:\n    def __init__(self, name): self.name = name\n",
    "fastmcp/server/server.py": """
        import asyncio, json, os, sys

        class FastMCP:
            def __init__(self, name, auth=None):
                self.name, self.tools, self.prefix = name, {}, ""

            def add_transform(self, transform):
                self.prefix = transform.name + "_"

            def tool(self, function):
                self.tools[self.prefix + function.__name__] = function
                return function

            def run(self, transport="stdio", **options):
                asyncio.run(self.run_http_async() if transport == "http" else self.run_stdio_async())

            async def run_http_async(self, **options):
                raise SystemExit("served a port")

            async def run_stdio_async(self):
                for line in sys.stdin:
                    message = json.loads(line)
                    if "id" in message:
                        given = {"jsonrpc": "2.0", "id": message["id"], **self.answer(message)}
                        sys.stdout.buffer.write(json.dumps(given).encode() + b"\\n")
                        sys.stdout.buffer.flush()

            def answer(self, message):
                params = message.get("params", {})
                if message["method"] == "initialize":
                    info = {"name": self.name, "version": "9"}
                    return {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                                       "serverInfo": info}}
                if message["method"] == "tools/list":
                    tools = [{"name": each, "inputSchema": {"type": "object"}} for each in self.tools]
                    return {"result": {"tools": tools}}
                if message["method"] == "tools/call":
                    text = self.tools[params["name"]](**params["arguments"])
                    return {"result": {"content": [{"type": "text", "text": text}]}}
                return {"error": {"code": -32601, "message": "Method not found"}}
    """,
    "fastmcp-3.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: fastmcp\nVersion: 3.9\n",
}

SERVER = """
    import sys, subprocess
    with open("runs.txt", "a") as file:
        file.write("run ")
    print("printed at the import")
    from fastmcp import FastMCP
    from fastmcp.server.transforms import Namespace
    mcp = FastMCP("theirs")
    mcp.add_transform(Namespace("x"))

    @mcp.tool
    def echo(text):
        print("printed in a call")
        subprocess.run(["echo", "by a child"])
        return f"{text} {sys.argv[1:]}"
"""
CALL = {"name": "x_echo", "arguments": {"text": "hi"}}
CALLED = [*MESSAGES[:2], {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": CALL}]


@pytest.fixture
def library(child: Child, tmp_path: Path) -> Child:
    """The child's environment, with the library installed."""
    for name, text in LIBRARY.items():
        write(tmp_path / "site-packages", name, text)
    path = os.pathsep.join([child.env["PYTHONPATH"], str(tmp_path / "site-packages")])
    child.env["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    return Child(child.python, {**child.env, "PYTHONPATH": path})


def needs(folder: Path, text: str, **others: str) -> Needs:
    for name, other in others.items():
        write(folder, f"{name}.py", other)
    return read_needs([str(write(folder, "old.py", text))], str(folder))


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("from fastmcp.server.transforms import Namespace\nNamespace('x')", "fastmcp.server.transforms.Namespace"),
        ("import fastmcp.server.proxy as p\np.ProxyProvider()", "fastmcp.server.proxy.ProxyProvider"),
        ("import mcp.types\nmcp.types.NotYet", "mcp.types.NotYet"),
        ("from mcp import types as t\ndef f():\n    return t.NotYet()", "mcp.types.NotYet"),
        ("from mcp.client.stdio import stdio_client\ndef f():\n    stdio_client()", "mcp.client.stdio.stdio_client"),
        ("from fastmcp import FastMCP\nmcp = FastMCP.as_proxy('http://x')", "FastMCP.as_proxy"),
        ("from fastmcp import FastMCP\nmcp = FastMCP('x', auth=login())", "FastMCP(auth=…)"),
        ("from fastmcp import FastMCP\n@mcp.tool(app=True)\ndef f(): ...", "tool(app=…)"),
        ("from fastmcp import FastMCP\nclass A(FastMCP):\n def _list_prompts(self): 1", "an override of _list_prompts"),
        ("try:\n    from mcp.server import No\nexcept ImportError:\n    raise SystemExit(1)\nNo()", "mcp.server.No"),
        ("from helper import f", "fastmcp.server.proxy.A"),
        ("from package import part", "fastmcp.server.proxy.A"),
    ],
)  # fmt: skip
def test_what_is_missing_is_found_without_running_the_code(tmp_path: Path, text: str, missing: str) -> None:
    bad = "from fastmcp.server.proxy import A\nA()\n"
    write(tmp_path, "package/__init__.py", "")
    write(tmp_path, "package/part.py", "from .inner import *")
    write(tmp_path, "package/inner.py", bad)
    assert needs(tmp_path, f"{text}\n", helper=bad).missing.startswith(f"{missing} (")


@pytest.mark.parametrize(
    "text",
    [
        "from fastmcp import FastMCP, Context, settings\nfrom fastmcp.tools.tool import TextContent\nsettings.port",
        "import mcp.types as types\nfrom mcp.server import Server, stdio\nstdio.stdio_server()\ntypes.Tool",
        "import mcp.types\nmcp = make()\nmcp.run()",
        "from mcp.server.fastmcp import FastMCP\nFastMCP('x', auth=settings(), token_verifier=mine())",
        "from fastmcp import FastMCP\nFastMCP('x', auth=None)\nserver.auth",
        # Imported, and not needed.
        "from mcp.server import NotYet\ndef f(a: NotYet | None = None) -> 'NotYet': ...",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from mcp.server import NotYet\n    NotYet()",
        "try:\n    from mcp.server import NotYet\n    NotYet\nexcept ImportError:\n    pass",
        "from mcp.server.sse import SseServerTransport\ndef main():\n    SseServerTransport('/')",
        "from mcp.server import NotYet\nif __name__ == '__main__':\n    NotYet()",
        "def broken(:",
    ],
)
def test_what_is_not_needed_or_is_here_is_not_missing(tmp_path: Path, text: str) -> None:
    assert needs(tmp_path, f"{text}\n").missing == ""


RUNS = "INFO mcpd: old.py runs with its own library, fastmcp 3.9"


def test_a_server_that_needs_its_library_runs_once_and_with_it(library: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", SERVER + "    if __name__ == '__main__':\n        mcp.run('http')\n")
    answers, stderr, code = run(library, tmp_path, "serve", "--stdio", "old.py", "--", "a", messages=CALLED)
    assert [each["id"] for each in answers] == [1, 2]  # nothing else is on stdout
    assert answers[0]["result"]["serverInfo"] == {"name": "theirs", "version": "9"}
    assert answers[1]["result"]["content"] == [{"type": "text", "text": "hi ['a']"}]
    assert (tmp_path / "runs.txt").read_text() == "run "
    assert code == 0
    why = "mcpd.compat has no fastmcp.server.transforms.Namespace (old.py, line 9)"
    assert stderr.splitlines()[0] == f"{RUNS}, because {why}"
    assert "mcpd check" not in stderr
    assert "printed in a call" in stderr
    assert "by a child" in stderr


PLAIN = """
    from fastmcp import FastMCP
    mcp = FastMCP("plain")

    @mcp.tool
    def x_echo(text):
        return text
"""
NEEDS_LATER = PLAIN + "    from importlib import import_module\n    import_module('fastmcp.server.auth').JWTVerifier\n"


@pytest.mark.parametrize(
    ("text", "options", "said", "name"),
    [
        (PLAIN, (), "", "plain"),
        (PLAIN, ("--library", "always"), f"{RUNS}\n", "plain"),
        (PLAIN, ("--library", "never"), "", "plain"),
        (SERVER, ("--library", "never"), "to run the server with fastmcp itself: --library always", None),
        (NEEDS_LATER, (), "to run the server with fastmcp itself: --library always", None),
        ("from mcpd import Server\nfrom fastmcp.server import later\nlater.Thing\n", (), "--library always", None),
    ],
)
def test_options_choose(
    text: str, options: tuple[str, ...], said: str, name: str | None, library: Child, tmp_path: Path
) -> None:
    write(tmp_path, "old.py", text)
    answers, stderr, _ = run(library, tmp_path, "serve", "--stdio", *options, "old.py", messages=CALLED)
    assert (answers[0]["result"]["serverInfo"]["name"] if answers else None) == name
    assert said in stderr
    assert ("runs with its own library" in stderr) is ("runs" in said)


def test_a_library_that_is_not_installed(child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", PLAIN)
    answers, stderr, code = run(child, tmp_path, "serve", "--stdio", "--library", "always", "old.py")
    assert (answers, code) == ([], 1)
    assert "--library always: fastmcp is not installed where mcpd runs" in stderr


PROGRAM = """
    import argparse, sys
    from .tools import made

    async def run(word):
        await made(word).run_http_async(port=9)

    def main():
        import asyncio
        parser = argparse.ArgumentParser()
        parser.add_argument("--word")
        asyncio.run(run(parser.parse_args().word))
"""
TOOLS = """
    from fastmcp import FastMCP
    from fastmcp.server.transforms import Namespace

    def made(word):
        mcp = FastMCP("program")
        mcp.add_transform(Namespace("x"))
        @mcp.tool
        def echo(text):
            return text + word
        return mcp
"""


@pytest.mark.parametrize("target", ["old-server", "old_server", "old_server:main", "old_server.tools:made"])
@pytest.mark.parametrize("place", ["beside", ".venv", "active"])
def test_a_program_runs_with_the_python_of_its_library(
    target: str, place: str, child: Child, library: Child, tmp_path: Path
) -> None:
    site = tmp_path / "site-packages"
    if place != "beside":
        environment = tmp_path / (".venv" if place == ".venv" else "other")
        venv.create(environment, symlinks=True)
        (site,) = environment.glob("lib/python3*/site-packages")
        (tmp_path / "site-packages" / "fastmcp").rename(site / "fastmcp")
        library = Child(child.python, {**child.env, "VIRTUAL_ENV": str(environment) if place == "active" else ""})
        if target == "old-server":
            return  # commands are found beside mcpd only
    write(site, "old_server/__init__.py", "from .app import main\n")
    write(site, "old_server/app.py", PROGRAM)
    write(site, "old_server/tools.py", TOOLS.replace("made(word)", "made(word='!')"))
    write(site, "old_server-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: old-server\nVersion: 1\n")
    write(site, "old_server-1.dist-info/entry_points.txt", "[console_scripts]\nold-server = old_server:main\n")
    answers, stderr, _ = run(
        library, tmp_path, "serve", "--stdio", target, "--", "--word", "!", messages=CALLED
    )  # fmt: skip
    assert answers[1]["result"]["content"][0]["text"] == "hi!", stderr
    assert stderr.count("runs with its own library, fastmcp") == 1


def test_its_own_authorization_does_not_protect_a_port(library: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", PLAIN.replace('"plain"', '"plain", auth=object()'))
    command = library.mcpd("serve", "--http", "127.0.0.1:0", "old.py")
    done = subprocess.run(
        command, cwd=tmp_path, env=library.env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "old.py: its own authorization (auth=) has no effect here" in done.stderr


def test_check_and_call(library: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", SERVER)
    done = [
        subprocess.run(library.mcpd(*words), cwd=tmp_path, env=library.env, capture_output=True, text=True, check=False)
        for words in (("check", "old.py"), ("call", "old.py", "x_echo", "text=hi"))
    ]
    assert done[0].stdout.splitlines()[1:] == ["tools (1)", "  x_echo"]
    assert done[1].stdout == "hi []\n"
    assert [each.returncode for each in done] == [0, 0]


def test_it_is_served_together_with_others(library: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", SERVER)
    (tmp_path / "again").mkdir()
    write(tmp_path / "again", "old.py", SERVER)
    write(
        tmp_path,
        "mine.py",
        "from mcpd import Server\nserver = Server('mine')\n@server.tool\ndef mow() -> str:\n    return 'x'\n",
    )
    call = {"name": "old-2_x_echo", "arguments": {"text": "hi"}}
    asked = [*MESSAGES[:2], {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}]
    words = ("serve", "--stdio", "mine.py", "old.py", "again/old.py")
    answers, _, _ = run(
        library, tmp_path, *words, messages=[*asked, {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}]
    )
    by_id = {each["id"]: each for each in answers}
    assert [tool["name"] for tool in by_id[3]["result"]["tools"]] == ["mow", "old_x_echo", "old-2_x_echo"]
    assert by_id[2]["result"]["content"][0]["text"] == "hi []"


async def test_it_is_restarted_when_its_files_change(library: Child, tmp_path: Path) -> None:
    path = write(tmp_path, "old.py", SERVER.replace("Namespace(", "helper.named("))
    write(tmp_path, "helper.py", "from fastmcp.server.transforms import Namespace\ndef named(x): return Namespace(x)\n")
    path.write_text("import helper\n" + path.read_text())
    async with process_wire(library, "--reload", "old.py", cwd=tmp_path) as wire:
        await wire.open(LEGACY[-1])
        assert [tool["name"] for tool in (await wire.result("tools/list"))["tools"]] == ["x_echo"]
        (tmp_path / "helper.py").write_text(
            (tmp_path / "helper.py").read_text().replace("Namespace(x)", "Namespace('y')")
        )
        assert (await wire.receive())["method"] == "notifications/tools/list_changed"
        assert [tool["name"] for tool in (await wire.result("tools/list"))["tools"]] == ["y_echo"]
        assert await wire.text("y_echo", text="hi") == "hi []"
