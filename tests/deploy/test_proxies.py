"""The files of `deploy/`, as they are but for their ports: three processes with Redis behind nginx, HAProxy and Caddy,
each request to whichever is next."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.http_peer import Port, Session, call, modern
from support.redis_server import NEEDS_REDIS
from support.service_stage import NodeProcess, missing, service, speak_by_every_transport

pytestmark = [pytest.mark.nightly, NEEDS_REDIS]

SERVER = """
import asyncio, os
from msgspec import Struct
from mcpd import Context, Server

server = Server("garden")

class Name(Struct):
    name: str

@server.tool
async def pid() -> str:
    return str(os.getpid())

@server.tool
async def ask(*, ctx: Context) -> str:
    answer = await ctx.elicit("Who?", Name, key="name")
    return f"Hello, {answer.content.name}!" if answer.is_accepted else answer.action

@server.tool
async def hang(*, ctx: Context) -> str:
    await ctx.progress(os.getpid())
    await asyncio.sleep(600)
    return "never"
"""


def text(answer: Any) -> str:
    assert answer.status == 200, answer.body
    return str(answer.messages[-1]["result"]["content"][0]["text"])


@pytest.mark.parametrize("name", ["nginx", "haproxy", "caddy"])
async def test_any_process_behind_a_proxy(name: str, child: Child, tmp_path: Path) -> None:
    """SCALE-01, SCALE-08, SCALE-09, SCALE-12, SCALE-14."""
    if missing(name):
        pytest.skip(f"{name} is not installed")
    (tmp_path / "server.py").write_text(SERVER)
    with service(child.python, child.env, tmp_path, tmp_path / "server.py", proxies=[name]) as served:
        port, processes = served.at(name), {str(node.pid): node for node in served.nodes}
        session = await port.open(capabilities={"elicitation": {}})
        served = {text(await session.ask("tools/call", {"name": "pid"})) for _ in range(12)}
        modern = {text(await port.modern("tools/call", {"name": "pid"})) for _ in range(12)}
        assert served == modern == set(processes)

        for _ in range(3):  # the answer comes to another process than asked
            peer = await session.start(call("tools/call", {"name": "ask"}, 5))
            await peer.head()
            question = await peer.message()
            result = {"action": "accept", "content": {"name": "Ada"}}
            assert (await session.post({"jsonrpc": "2.0", "id": question["id"], "result": result})).status == 202
            assert (await peer.message())["result"]["content"][0]["text"] == "Hello, Ada!"
            peer.abort()

        await _kill_in_a_call(session, processes)
        refused = await _refused_of_9(session, port, processes)
        if name == "caddy":
            # Its kept connections to the process that is gone: the first requests on those may be refused.
            async with asyncio.timeout(30):
                while refused:
                    refused = await _refused_of_9(session, port, processes)
        assert not refused
        assert (await port.ask(session.delete())).status == 204
        await _gone_everywhere(session)
        for peer in port._peers:
            peer.abort()


@pytest.mark.parametrize("name", ["nginx", "nginx-tls", "nginx-container", "haproxy", "caddy"])
async def test_every_transport_behind_a_proxy(name: str, child: Child, tmp_path: Path) -> None:
    """Also over TLS, and in the container of the proxy but for the names of the nodes."""
    program, is_tls = name.partition("-")[0], name == "nginx-tls"
    if missing(program):
        pytest.skip(f"{program} is not installed")
    (tmp_path / "server.py").write_text(SERVER)
    options = ["--allow-host", "mcp.example.com"]
    with service(child.python, child.env, tmp_path, tmp_path / "server.py", proxies=[name], options=options) as served:
        tls = ssl.create_default_context(cafile=tmp_path / name / "fullchain.pem") if is_tls else None
        await speak_by_every_transport(served.proxies[name], "mcp.example.com" if is_tls else "localhost", tls=tls)


async def _kill_in_a_call(session: Session, processes: dict[str, NodeProcess]) -> None:
    """kill -9 of the process that works on a call: its client's resumption ends, and does not hang."""
    params = {"name": "hang", "_meta": {"progressToken": 1}}
    peer = await session.start(call("tools/call", params, 6))
    await peer.head()
    first = await peer.event()
    assert first is not None
    processes.pop(str(int((await peer.message())["params"]["progress"]))).kill()
    with contextlib.suppress(ValueError, asyncio.IncompleteReadError, ConnectionError):
        while await peer.event() is not None:  # a proxy ends the stream, or cuts it off
            pass

    async with asyncio.timeout(30):
        answer = await session.port.ask(session.get(first["id"]))
    assert answer.status in (200, 405), answer.body


async def _gone_everywhere(session: Session) -> None:
    """The processes are told that the session has ended; when they hear of it is the machine's matter."""
    refused = 0
    async with asyncio.timeout(30):
        while refused < 6:
            refused = refused + 1 if (await session.ask("ping")).status == 404 else 0


async def _refused_of_9(session: Session, port: Port, processes: dict[str, NodeProcess]) -> list[tuple[int, bytes]]:
    """Of nine calls of either era those that no process has answered."""
    refused = []
    for _ in range(9):
        legacy = await session.ask("tools/call", {"name": "pid"})
        newest = await port.ask(modern("tools/call", {"name": "pid"}))
        for answer in (legacy, newest):
            if answer.status == 200:
                assert text(answer) in processes
            else:
                refused.append((answer.status, answer.body))
    return refused
