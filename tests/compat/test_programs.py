"""`mcpd serve` and `mcpd check` on programs that were written for another library: what is run, and with what."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import Child

from mcpd.cli.loading import LIBRARIES
from mcpd.compat.install import LIBRARIES as FOUND

MESSAGES = [
    {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hi"}}},
]  # fmt: skip

FASTMCP = """
    from mcp.server.fastmcp import FastMCP
    mcp = FastMCP("fast")

    @mcp.tool()
    def echo(text: str) -> str:
        return text
"""

LOWLEVEL = """
    import argparse, asyncio, sys
    import mcp.types as types
    from mcp.server import NotificationOptions, Server
    from mcp.server.models import InitializationOptions
    from mcp.server.stdio import stdio_server

    async def serve(word):
        server = Server("low")

        @server.list_tools()
        async def list_tools():
            return [types.Tool(name="echo", description="Echoes", inputSchema={"type": "object"})]

        @server.call_tool()
        async def call_tool(name, arguments):
            return [types.TextContent(type="text", text=arguments["text"] + word)]

        async with stdio_server() as (read, write):
            offered = server.get_capabilities(NotificationOptions(), {})
            await server.run(read, write, InitializationOptions(
                server_name="said", server_version="3", capabilities=offered))
        print("came to its end", file=sys.stderr)

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--word", default="!")
        asyncio.run(serve(parser.parse_args().word))
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def run(
    child: Child, folder: Path, *arguments: str, python: bool = False, messages: list[Any] = MESSAGES
) -> tuple[list[Any], str, int]:
    """The answers over stdio, stderr, and the exit code."""
    command = [child.python, *arguments] if python else child.mcpd(*arguments)
    done = subprocess.run(
        command,
        input="".join(json.dumps(message) + "\n" for message in messages),
        cwd=folder,
        env=child.env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr, done.returncode


def texts(answers: list[Any]) -> list[str]:
    return [block["text"] for block in answers[1]["result"]["content"]]


def test_the_short_list_of_libraries_is_the_whole_one() -> None:
    assert set(LIBRARIES) == set(FOUND)


@pytest.mark.parametrize(
    ("end", "arguments"),
    [
        ("", ()),
        ('\nif __name__ == "__main__":\n    mcp.run(transport="sse")\n', ()),
        ("\nmcp.run()\n", ()),
        ("\ndef main():\n    mcp.run()\n", ()),
        ("\nother = FastMCP('other')\n", ()),
        ("\nother = FastMCP('other')\nmine, mcp = mcp, None\n", (":mine",)),
        ("\ndef make():\n    return mcp\nserver = other = None\n", (":make",)),
    ],
)
def test_a_server_of_functions(end: str, arguments: tuple[str, ...], child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", textwrap.dedent(FASTMCP) + end)
    answers, stderr, code = run(child, tmp_path, "serve", "--stdio", "old.py" + "".join(arguments))
    assert (answers[0]["result"]["serverInfo"]["name"], texts(answers), code) == ("fast", ["hi"], 0), stderr


@pytest.mark.parametrize(
    ("end", "target"),
    [
        ("", ("old.py",)),
        ("", ("old.py:main",)),
        ("main, run = None, main\nif __name__ == '__main__':\n    run()\n", ("old.py",)),
        ("async def main():\n    await serve('!')\n", ("old.py",)),
    ],
)
def test_a_program_that_makes_its_server_itself(
    end: str, target: tuple[str, ...], child: Child, tmp_path: Path
) -> None:
    write(tmp_path, "old.py", textwrap.dedent(LOWLEVEL) + end)
    answers, stderr, code = run(child, tmp_path, "serve", "--stdio", *target)
    assert answers[0]["result"]["serverInfo"] == {"name": "said", "version": "3"}, stderr
    assert (texts(answers), code) == (["hi!"], 0), stderr
    assert "came to its end" in stderr


def test_an_argument_may_be_called_like_a_command(child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", FASTMCP + "    import sys\n    mcp = FastMCP(sys.argv[1])\n    mcp.tool()(echo)\n")
    answers, stderr, code = run(child, tmp_path, "serve", "--stdio", "old.py", "--", "env")
    assert (answers[0]["result"]["serverInfo"]["name"], texts(answers), code) == ("env", ["hi"], 0), stderr


@pytest.mark.parametrize("arguments", [("--word", "?"), ("--", "--word", "?")])
def test_a_package_gets_its_arguments(arguments: tuple[str, ...], child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old_package/__init__.py", LOWLEVEL)
    answers, stderr, code = run(child, tmp_path, "serve", "--stdio", "old_package", *arguments)
    assert (texts(answers), code) == (["hi?"], 0), stderr


def test_a_package_whose_program_is_its_main_module(child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old_package/__init__.py", "")
    write(tmp_path, "old_package/server.py", LOWLEVEL)
    write(tmp_path, "old_package/__main__.py", "import sys\nfrom .server import main\nsys.exit(main())\n")
    answers, stderr, _ = run(child, tmp_path, "serve", "--stdio", "old_package")
    assert texts(answers) == ["hi!"], stderr


def test_a_program_that_ends_with_an_error_says_so(child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", LOWLEVEL)
    answers, stderr, code = run(child, tmp_path, "serve", "--stdio", "old.py", "--", "--wrod", "?")
    assert (answers, code) == ([], 1)
    assert "unrecognized arguments: --wrod" in stderr
    assert "old.py exited in main() (exit code 2)" in stderr


def test_a_script_that_installs_the_names_itself(child: Child, tmp_path: Path) -> None:
    write(
        tmp_path, "old.py", "import mcpd.compat\nmcpd.compat.install()\n" + textwrap.dedent(FASTMCP) + "\nmcp.run()\n"
    )
    answers, stderr, _ = run(child, tmp_path, "old.py", python=True)
    assert texts(answers) == ["hi"], stderr


def test_arguments_that_are_read_at_the_import(child: Child, tmp_path: Path) -> None:
    reads = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--word')\nword = parser.parse_args().word\n"
    )
    changed = textwrap.dedent(FASTMCP).replace("return text", "return text + word")
    write(tmp_path, "old.py", changed.replace("mcp = ", reads + "mcp = "))
    answers, stderr, code = run(child, tmp_path, "serve", "--stdio", "old.py", "--", "--word", "?")
    assert (texts(answers), code) == (["hi?"], 0), stderr


def test_a_program_that_runs_and_ends_at_the_import(child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", textwrap.dedent(FASTMCP) + "mcp.run()\nimport sys\nsys.exit(0)\n")
    answers, stderr, code = run(child, tmp_path, "serve", "--stdio", "old.py")
    assert (texts(answers), code) == (["hi"], 0), stderr


def installed(folder: Path, name: str, **commands: str) -> None:
    """Lay a distribution with commands into a folder, as pip would."""
    write(folder, f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{command.replace('_', '-')} = {place}\n" for command, place in commands.items()]
    write(folder, f"{name}-1.0.dist-info/entry_points.txt", "".join(["[console_scripts]\n", *lines]))
    write(folder, f"{name}/__init__.py", "")
    write(folder, f"{name}/admin.py", "import sys\ndef main():\n    sys.exit('usage: admin COMMAND')\n")
    write(folder, f"{name}/server.py", LOWLEVEL)


@pytest.mark.parametrize(
    ("name", "target"), [("old-server", "old-server"), ("start-old", "old_server"), ("start-old", "start_old")]
)
def test_the_command_of_a_package(name: str, target: str, child: Child, tmp_path: Path) -> None:
    installed(tmp_path, "old_server", old_admin="old_server.admin:main", **{name: "old_server.server:main"})
    child.env["PYTHONPATH"] = str(tmp_path)
    answers, stderr, code = run(child, tmp_path, "serve", "--stdio", target, "--", "--word", "?")
    assert (texts(answers), code) == (["hi?"], 0), stderr
    answers, stderr, _ = run(child, tmp_path, "serve", "--stdio", "--", target, "--word", "?")
    assert texts(answers) == ["hi?"], stderr
    listed = subprocess.check_output(child.mcpd("list", target), cwd=tmp_path, env=child.env, text=True)
    assert "echo" in listed


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("", "old-server has several commands: a, b; name one of them"),
        (
            "import mcp\nimport nosuch\n",
            "old-server cannot be imported: no module 'nosuch' (old_server/server.py, line 2); install it",
        ),
        ("import mcp\n", "old-server cannot be imported: AttributeError: module 'old_server.server' has no attribute"),
        ("import mcp\ndef main(): ...\n", "old-server: main() has neither served nor returned a server"),
    ],
)
def test_a_command_that_does_not_serve(server: str, said: str, child: Child, tmp_path: Path) -> None:
    installed(tmp_path, "old_server", a="old_server.admin:main", b="old_server.server:main")
    write(tmp_path, "old_server/server.py", server)
    child.env["PYTHONPATH"] = str(tmp_path)
    _, stderr, code = run(child, tmp_path, "serve", "--stdio", "old-server")
    (line,) = stderr.splitlines()
    assert line.startswith(f"mcpd: {said}")
    assert code == 1


def test_a_command_that_is_no_target(child: Child, tmp_path: Path) -> None:
    _, stderr, code = run(child, tmp_path, "serve", "--stdio", "sh")
    assert (
        "sh is a command, but not of a Python package that is installed beside mcpd. Any command works after" in stderr
    )
    assert "--: mcpd serve -- sh …, mcpd install HOST -- sh …" in stderr
    assert code == 1


LAZY = """
    import argparse

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--word", default="!")
        word = parser.parse_args().word
        from mcp.server.fastmcp import FastMCP
        mcp = FastMCP("fast")

        @mcp.tool()
        def echo(text: str) -> str:
            return text + word

        mcp.run()
"""


@pytest.mark.parametrize("target", ["old.py", "old.py:main"])
def test_a_program_that_imports_the_library_when_it_runs(target: str, child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", LAZY)
    for words in ((target, "--", "--word", "?"), (target, "--word", "?")):
        answers, stderr, code = run(child, tmp_path, "serve", "--stdio", *words)
        assert (texts(answers), code) == (["hi?"], 0), stderr


def test_arguments_that_are_read_before_the_library_is_imported(child: Child, tmp_path: Path) -> None:
    reads = "import sys\nword = sys.argv[1]\n"
    write(tmp_path, "old.py", reads + textwrap.dedent(FASTMCP).replace("return text", "return text + word"))
    answers, stderr, code = run(child, tmp_path, "serve", "--stdio", "old.py", "--", "?")
    assert (texts(answers), code) == (["hi?"], 0), stderr


STREAMS = """(
            anyio.wrap_file(sys.stdin), anyio.wrap_file(io.TextIOWrapper(sys.stdout.buffer, "utf-8")))"""


@pytest.mark.parametrize(
    ("streams", "said"),
    [(STREAMS, None), ("(None, io.StringIO())", "mcpd serves the stdin and stdout of the process only")],
)
def test_streams_of_its_own(streams: str, said: str | None, child: Child, tmp_path: Path) -> None:
    write(
        tmp_path,
        "old.py",
        "import anyio, io\n" + textwrap.dedent(LOWLEVEL.replace("stdio_server()", f"stdio_server{streams}")),
    )
    answers, stderr, _ = run(child, tmp_path, "serve", "--stdio", "old.py")
    assert said in stderr if said else texts(answers) == ["hi!"], stderr


RUNS = "\nmcp.run()\n"
RUNS_ASYNC = "\nimport asyncio, sys\nasyncio.run(mcp.run_stdio_async())\nsys.exit(0)\n"


SECOND = FASTMCP.replace("fastmcp import FastMCP", "mcpserver import MCPServer").replace("FastMCP(", "MCPServer(")


def test_check_of_lists_that_need_a_client(child: Child, tmp_path: Path) -> None:
    needs = LOWLEVEL.replace("return [types.Tool", "server.request_context; return [types.Tool")
    write(tmp_path, "old.py", needs)
    done = subprocess.run(
        child.mcpd("check", "old.py"),
        cwd=tmp_path,
        env=child.env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert "its lists cannot be read without serving it: LookupError" in line
    assert done.returncode == 1


@pytest.mark.parametrize(
    "text", [FASTMCP, LOWLEVEL, SECOND, textwrap.dedent(FASTMCP) + RUNS, textwrap.dedent(FASTMCP) + RUNS_ASYNC]
)
def test_check_lists_what_it_offers(text: str, child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", text)
    done = subprocess.run(
        child.mcpd("check", "old.py"),
        cwd=tmp_path,
        env=child.env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "tools (1)\n  echo" in done.stdout, done.stderr
    assert done.returncode == 0


def test_without_pydantic_it_says_what_to_install(child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", FASTMCP)
    write(tmp_path, "pydantic.py", "raise ImportError('none')\n")
    _, stderr, code = run(child, tmp_path, "serve", "--stdio", "old.py")
    assert code == 1
    assert "a server of the official SDK needs pydantic: " in stderr
    assert "mcpd-server[compat]" in stderr


def test_a_server_of_our_own_loads_nothing_of_it(child: Child, tmp_path: Path) -> None:
    write(
        tmp_path,
        "new.py",
        """
        import sys
        from mcpd import Server
        server = Server("new")

        @server.tool
        def echo(text: str) -> str:
            return " ".join(name for name in sys.modules if name.startswith(("mcpd.compat", "pydantic"))) or text
        """,
    )
    answers, stderr, _ = run(child, tmp_path, "serve", "--stdio", "new.py")
    assert texts(answers) == ["hi"], stderr


def test_no_compat_leaves_the_names_alone(child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", FASTMCP)
    write(tmp_path, "mcp/__init__.py", "")
    _, stderr, code = run(child, tmp_path, "serve", "--stdio", "--no-compat", "old.py")
    assert code == 1
    assert "no module 'mcp.server'" in stderr
    assert "leave out --no-compat" in stderr


@pytest.mark.parametrize("library", ["fastmcp", "mcp.server.fastmcp", "mcp.server.mcpserver"])
def test_a_template_without_a_scheme(library: str, child: Child, tmp_path: Path) -> None:
    name = "MCPServer" if library.endswith("mcpserver") else "FastMCP"
    text = f"""
        from {library} import {name}
        mcp = {name}("a")

        @mcp.resource("/notes/{{day}}")
        def note(day: str) -> str:
            return day
    """
    write(tmp_path, "old.py", text)
    read = {"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": {"uri": "/notes/3"}}
    answers, stderr, _ = run(child, tmp_path, "serve", "--stdio", "old.py", messages=[*MESSAGES[:2], read])
    (found,) = answers[1]["result"]["contents"]
    assert (found["uri"], found["text"]) == ("/notes/3", "3"), stderr


UNKNOWN = """
    import mcp.types as types
    from mcp.server.{module} import {kind}
    hints = types.ToolAnnotations(readOnlyHint=True, examples=[1])
    block = types.TextContent(type="text", text="a", mine=1, annotations=types.Annotations(priority=1, mine=2))
    other = types.ImageContent(type="image", data="", mimeType="a/b", annotations=types.Annotations(priority=1, mine=2))
    mcp = {kind}("a")
"""
IN_FASTMCP = """
    @mcp.tool(annotations=hints)
    def echo(text: str) -> list: return [block, other]
"""
IN_LOWLEVEL = """
    @mcp.list_tools()
    async def tools(): return [types.Tool(name="echo", inputSchema={"type": "object"}, annotations=hints)]

    @mcp.call_tool()
    async def call(name, arguments): return [block, other]
"""


@pytest.mark.parametrize(
    ("module", "kind", "text"),
    [
        ("fastmcp", "FastMCP", IN_FASTMCP),
        ("lowlevel", "Server", IN_LOWLEVEL),
        ("mcpserver", "MCPServer", IN_FASTMCP),  # version 2 drops them
    ],
)
def test_unknown_members_are_kept(module: str, kind: str, text: str, child: Child, tmp_path: Path) -> None:
    write(tmp_path, "old.py", UNKNOWN.format(module=module, kind=kind) + text)
    messages = [*MESSAGES, {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}]
    answers, stderr, _ = run(child, tmp_path, "serve", "--stdio", "old.py", messages=messages)
    results = {answer["id"]: answer["result"] for answer in answers}
    block, other = results[2]["content"]
    if module == "mcpserver":
        assert results[3]["tools"][0]["annotations"] == {"readOnlyHint": True}, stderr
        assert block == {"type": "text", "text": "a", "annotations": {"priority": 1}}
        return
    assert results[3]["tools"][0]["annotations"] == {"readOnlyHint": True, "examples": [1]}, stderr
    assert block == {"type": "text", "text": "a", "mine": 1, "annotations": {"priority": 1, "mine": 2}}
    assert other["annotations"] == {"priority": 1, "mine": 2}


def test_a_program_with_streams_of_its_own(child: Child, tmp_path: Path) -> None:
    """It reads stdin itself, finds it at its end, and cancels what it serves then."""
    write(tmp_path, "old.py", textwrap.dedent(FASTMCP) + textwrap.dedent("""
        import os, sys, anyio
        from mcp.shared.message import SessionMessage

        async def serve():
            send, receive = anyio.create_memory_object_stream[SessionMessage](0)
            async with anyio.create_task_group() as group:
                group.start_soon(mcp._mcp_server.run, receive, send, mcp._mcp_server.create_initialization_options())
                while await anyio.to_thread.run_sync(os.read, sys.stdin.fileno(), 100):
                    pass
                group.cancel_scope.cancel()

        def main():
            anyio.run(serve)
    """))  # fmt: skip
    answers, stderr, code = run(child, tmp_path, "serve", "--stdio", "old.py:main")
    assert (texts(answers), code) == (["hi"], 0), stderr
