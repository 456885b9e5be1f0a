"""`mcpd preview` as a process: what it prints, what it follows, and that it ends with all it started."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.clock import until
from support.preview_stage import Api
from websockets.asyncio.client import connect

SERVER = '''from mcpd import Server
server = Server("garden")
server.app("bed", """<!doctype html><meta charset=utf-8><title>WORD</title>""")

@server.tool(ui="ui://garden/bed")
async def show_bed() -> str:
    return "beans"
'''


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode().strip()


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.covered
async def test_a_file_is_followed_and_nothing_is_left(child: Child, tmp_path: Path) -> None:
    """The View of a changed document is stale, shown again it is the new one; with Ctrl-C the server ends too."""
    file = tmp_path / "server.py"
    file.write_text(SERVER.replace("WORD", "one"))
    # Without a screen no browser is opened, and that is said.
    has_screen = sys.platform in ("darwin", "win32")
    command = child.mcpd("preview", *(["--no-open"] if has_screen else []), str(file))
    env = {name: value for name, value in child.env.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=env, cwd=tmp_path, stdout=pipe, stderr=pipe)
    try:
        found = re.fullmatch(r"http://mcpd\.localhost:(\d+)/#([\w-]{32})", await _line(process))
        assert found is not None
        port, token = int(found[1]), found[2]
        url, origin = f"ws://mcpd.localhost:{port}/api", f"http://mcpd.localhost:{port}"
        async with connect(url, origin=origin, host="127.0.0.1", port=port, proxy=None) as socket:  # type: ignore[arg-type]
            api = Api(socket)
            hello = (await api.request("hello", token=token))["result"]
            assert "server.py" in hello["target"]
            assert hello["server"]["name"] == "garden"
            await api.request("tools/call", callId="1", name="show_bed")
            info = (await api.request("view/open", callId="1"))["result"]

            file.write_text(SERVER.replace("WORD", "two and more"))
            async with asyncio.timeout(60):
                stale = (await api.until("view/stale"))["params"]
            assert stale["viewId"] == info["viewId"]
            again = (await api.request("view/reload", viewId=info["viewId"]))["result"]
            assert again["sha256"] != info["sha256"]
            children: Any = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            pids = [int(word) for word in children.read_text().split()] if children.exists() else []
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            _, said = await process.communicate()
        assert process.returncode == 130
        assert b"Traceback" not in said
        assert (b"open the address yourself" in said) is not has_screen
        for pid in pids:
            await until(partial(_is_gone, pid))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_what_cannot_be_previewed_is_one_line(child: Child, tmp_path: Path) -> None:
    for words, said, code in (
        (["preview", "none.py"], b"none.py", 1),
        (["preview", "--allow", "gun"], b"--allow gun: the permissions are camera, microphone", 2),
        (["preview", "--port", "70000"], b"--port", 2),
    ):
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *child.mcpd(*words), env=child.env, cwd=tmp_path, stdout=pipe, stderr=pipe
        )
        async with asyncio.timeout(60):
            out, error = await process.communicate()
        assert process.returncode == code, error
        assert out == b""
        assert said in error
        assert len(error.splitlines()) == 1, error
