"""The programs in the pages about clients do what the pages say."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest
from conftest import REPOSITORY, Child
from support.documentation import page_modules

from mcpd import Client, ClientGroup
from mcpd.errors import ConfigurationError, ConnectionLost

__all__ = ["page_modules"]

Load = Callable[..., list[ModuleType]]


async def test_the_program_calls_a_tool_reads_a_note_and_makes_a_function(page_modules: Load) -> None:
    (program,) = page_modules("client", "program")
    assert await program.plant() == ["beans", "the south bed is full"]
    assert await program.look() == (["plant"], "Water the beans.")
    assert await program.as_function() == ["beans"]


async def test_a_url_where_no_server_listens(page_modules: Load) -> None:
    (remote,) = page_modules("client", "remote")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answer = await remote.forecast(f"http://127.0.0.1:{port}/mcp", "secret", "Bern")
    assert answer.startswith(f"not reached: http://127.0.0.1:{port}/mcp: no server listens on 127.0.0.1:{port}")


SERVER = """import os

from mcpd import Server

server = Server("garden")


@server.tool
def water(bed: str) -> str:
    return f"watered {bed}"


@server.tool
def crash() -> str:
    os._exit(3)
"""


async def test_a_file_a_command_and_an_entry_of_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("server.py").write_text(SERVER, encoding="utf-8")
    entry = {"command": sys.executable, "args": ["-m", "mcpd", "serve", "--stdio", "${PLACE:-server.py}"]}
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"garden": entry}}), encoding="utf-8")
    for target in ("server.py", Path("server.py"), "mcp.json:garden", "mcp.json"):
        async with Client(target) as client:
            assert await client.call("water", bed="3") == "watered 3"
    with pytest.raises(ConfigurationError, match=r"sever\.py: no such file; did you mean server\.py\?"):
        await Client("sever.py").open()


async def test_a_server_that_crashes_is_started_again(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    async with Client([sys.executable, "-m", "mcpd", "serve", "--stdio", str(tmp_path / "server.py")]) as client:
        with pytest.raises(ConnectionLost, match="the server has ended with exit code 3"):
            await client.call("crash")
        assert await client.call("water", bed="4") == "watered 4"


def test_the_script_without_asyncio(page_modules: Load, capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = page_modules("client", "script")
    assert script.main() == "hello"
    assert "'echo'" in capsys.readouterr().out
    assert script.shout("hello") == "HELLO"


async def test_the_group_has_the_tools_of_both_servers(page_modules: Load) -> None:
    (group,) = page_modules("client", "group")
    names, soup, page = await group.dinner()
    assert names == ["garden_find", "kitchen_find"]
    assert (soup, page) == ("leek soup", "Water the beans.")
    async with ClientGroup({"garden": group.garden, "gone": ["/no/such/server"]}) as joined:
        assert await joined.call("garden_find", what="leek") == "leek in the north bed"
        assert "/no/such/server" in str(joined.errors["gone"])


@pytest.fixture
def closed() -> Iterator[str]:
    """The URL of a server that accepts no request without a login."""

    class Closed(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Bearer resource_metadata="http://127.0.0.1/metadata"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Closed)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/mcp"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_login_is_required(page_modules: Load, closed: str) -> None:
    (logins,) = page_modules("logging-in", "logins")
    assert await logins.tools(closed) == f"log in first: mcpd login {closed}"
    assert "…" in repr(logins.job._auth)


def test_a_command_says_that_a_login_is_required(closed: str, child: Child) -> None:
    done = subprocess.run(child.mcpd("list", closed), env=child.env, capture_output=True, text=True, check=False)
    page = (REPOSITORY / "docs" / "logging-in.md").read_text(encoding="utf-8")
    assert done.returncode == 3
    assert done.stderr.replace(closed, "https://tools.example.com/mcp") in page


def test_the_commands_print_what_the_page_says(page_modules: Load, child: Child, tmp_path: Path) -> None:
    page_modules("command-line")
    page = (REPOSITORY / "docs" / "command-line.md").read_text(encoding="utf-8")

    def run(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            child.mcpd(*words), env=child.env, cwd=tmp_path, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    code, listed, _ = run("list", "garden.py")
    assert code == 0
    assert f"```text\n{listed}```" in page
    assert run("read", "garden.py", "bed://south")[1] == "south: beans\n"
    assert json.loads(run("call", "--demo", "add", "a=1", "b=2", "--json")[1])["structuredContent"] == 3.0
    assert run("call", "--demo", "ecko", "text=hello") == (2, "", "mcpd: no tool ecko; did you mean echo?\n")
