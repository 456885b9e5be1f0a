"""`Client` logs in to servers that others wrote, which are their own authorization servers.

Run by `make clients`. Of each: a login from the first refusal, what is kept of it, a refresh, and the end.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from clients.foreign.servers import HERE, SECOND
from msgspec.structs import replace

from mcpd import AuthorizationRequired, Client, OAuth
from mcpd.client.auth.logins import log_out, logins
from mcpd.client.auth.store import FileStore, LoginRecords

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

CALLBACK = "http://127.0.0.1:9/callback"


@asynccontextmanager
async def serving(kind: str) -> AsyncIterator[str]:
    """The URL of a server that wants a login."""
    if not Path(SECOND).exists():
        pytest.skip("needs FastMCP and the Python SDK: make clients installs them")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        SECOND, str(HERE / "serve_login.py"), kind, str(port), stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        said = b""
        while b"running on" not in said:
            line = await process.stderr.readline()
            assert line, said.decode()
            said += line
        reading = asyncio.create_task(process.stderr.read())
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()
    await reading


@pytest.mark.parametrize("kind", ["fastmcp", "sdk"])
async def test_a_login_at_a_server_of_others(kind: str, tmp_path: Path) -> None:
    """AUTH-175, AUTH-187, AUTH-209, AUTH-216."""
    returned: list[str] = []

    async def visit(url: str) -> None:
        async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as reply:
            returned.append(reply.headers["Location"])

    store = tmp_path / "auth.json"
    stored = OAuth(interactive=False, store=store)
    async with serving(kind) as url:
        auth = OAuth(open_url=visit, wait_callback=lambda: returned[-1], redirect=CALLBACK, store=store)
        async with Client(url, auth=auth) as client:
            assert "somebody" in repr(await client.call("whoami"))

        async with Client(url, auth=stored) as client:
            await client.list_tools()
        assert len(returned) == 1

        def expire(kept: LoginRecords) -> None:
            kept.logins = [replace(one, expires_at=1.0) for one in kept.logins]

        (before,) = logins(stored)
        FileStore(store).change(expire)
        async with Client(url, auth=stored) as client:
            await client.call("whoami")
        (after,) = logins(stored)
        assert after.access_token != before.access_token
        assert after.granted == ("use",)

        (ended,) = await log_out(stored, url)
        assert ended.problem == ""
        with pytest.raises(AuthorizationRequired):
            async with Client(url, auth=stored):
                pass
        with pytest.raises(Exception, match="401"):
            async with Client(url, auth=after.access_token):
                pass
