"""The login server in an application that another one has mounted below a path, whose root is not ours."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from conftest import REPOSITORY
from support.login_stage import PASSWORD, users_file

from mcpd import Client, Context, OAuth, Server
from mcpd.auth.server.login_server import LoginServer
from mcpd.auth.server.settings import Settings, UserFile

pytestmark = pytest.mark.slow

APPROVE = str(REPOSITORY / "conformance" / "approve.py")


@asynccontextmanager
async def mounted(users: Path) -> AsyncIterator[tuple[str, list[str]]]:
    """The URL of the endpoint below /apps/garden, and what the root was asked for."""
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/apps/garden/mcp"
        auth = LoginServer(Settings(users=UserFile(file=str(users))), public_url=url)
        server = Server("garden", auth=auth)

        @server.tool
        async def who(ctx: Context) -> str:
            return ctx.user.subject

        inner = server.asgi_app()

        async def outer(scope: Any, receive: Any, send: Any) -> None:
            """As Starlette mounts: the whole path stays, `root_path` says how much of it is the mount's."""
            if scope["path"].startswith("/apps/garden/"):
                await inner({**scope, "root_path": "/apps/garden"}, receive, send)
                return
            asked.append(scope["path"])
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

        process = uvicorn.Server(uvicorn.Config(outer, lifespan="off", log_config=None))
        running = asyncio.ensure_future(process.serve(sockets=[listening]))
        try:
            yield url, asked
        finally:
            process.should_exit = True
            await running
            auth.close()


async def test_a_client_logs_in_without_the_help_of_the_root(tmp_path: Path) -> None:
    """AUTH-004, AUTH-120, AUTH-164: from 401 to an answer; each place that is looked at before is not there."""
    returned: list[str] = []

    async def visit(page: str) -> None:
        environment = {**os.environ, "MCPD_LOGIN": f"ana:{PASSWORD}"}
        browser = await asyncio.create_subprocess_exec(
            sys.executable, APPROVE, "--print", page, stdout=-1, env=environment
        )
        returned.append((await browser.communicate())[0].decode().strip())

    async with mounted(users_file(tmp_path)) as (url, asked):
        auth = OAuth(
            store="memory", open_url=visit, wait_callback=lambda: returned[-1], redirect="http://127.0.0.1:9/callback"
        )
        async with asyncio.timeout(60), Client(url, auth=auth) as client:
            assert await client.call("who") == "ana"
    assert asked == [
        "/.well-known/oauth-authorization-server/apps/garden",
        "/.well-known/openid-configuration/apps/garden",
    ]
