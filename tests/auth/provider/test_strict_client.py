"""The strictest client of others, oauth4webapi, with tokens that are bound to a key.

At a certified authorization server, and at our own. Nothing of mcpd makes or checks a proof there but what is judged.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY
from support.http_peer import serving
from support.login_stage import PASSWORD, users_file
from support.oidc_provider import FOLDER, NODE, free_port, provider

from mcpd import Context, Server
from mcpd.auth.base import Auth
from mcpd.auth.issuers import Introspection, Jwt
from mcpd.auth.server.login_server import LoginServer
from mcpd.transports.guards import Access

pytestmark = pytest.mark.slow

APPROVE = str(REPOSITORY / "conformance" / "approve.py")


@asynccontextmanager
async def judged(kind: str, folder: Path, **options: Any) -> AsyncIterator[str]:
    """The URL of a server that takes bound tokens: of itself, or of others as JWTs, or as what it has to ask about."""
    server = Server("judged")

    @server.tool
    async def who(ctx: Context) -> str:
        return json.dumps([ctx.user.subject, sorted(ctx.user.scopes)])

    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    auth: Auth
    with ExitStack() as stack:
        if kind == "embedded":
            users_file(folder)
            (folder / "auth.toml").write_text('[sign-in.users]\nfile = "users.toml"\n', encoding="utf-8")
            login = LoginServer(str(folder / "auth.toml"), public_url=url, scopes=["use"], **options)
            stack.callback(login.close)
            auth = login
        else:
            form = "opaque" if kind == "opaque" else "jwt"
            there = stack.enter_context(provider(url, ["use"], format=form, nonce=True))
            if kind == "opaque":
                credentials = {"client_id": "server", "client_secret": "s" * 32}
                auth = Introspection(there.issuer, public_url=url, scopes=["use"], **credentials, **options)
            else:
                auth = Jwt(there.issuer, public_url=url, scopes=["use"], **options)
        access = Access(authenticate=auth)
        async with serving(server, access=access, address=f"127.0.0.1:{port}"):
            yield url


@pytest.mark.parametrize("nonces", [False, True], ids=["", "nonces"])
@pytest.mark.parametrize("kind", ["embedded", "jwt", "opaque"])
async def test_bound_tokens(kind: str, nonces: bool, tmp_path: Path) -> None:
    """AUTH-043, AUTH-053, AUTH-100, AUTH-106, AUTH-110, AUTH-113, AUTH-155; RFC 9207, 9449, 9728 as it reads them."""
    if not (FOLDER / "node_modules" / "oauth4webapi").exists():
        pytest.skip("needs oauth4webapi: make setup-test installs it")
    async with judged(kind, tmp_path, dpop="require", dpop_nonces=nonces) as url:
        process = await asyncio.create_subprocess_exec(
            NODE, FOLDER / "strict_client.mjs", url, sys.executable, APPROVE,
            env={"MCPD_LOGIN": f"ana:{PASSWORD}"}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, errors.decode()

    report = json.loads(out)
    assert report["said"] == [["ana" if kind == "embedded" else "ada", ["use"]]] * 2
    assert report["type"] == "dpop"
    assert report["nonces"] == (kind != "embedded") + nonces
    assert report["resource"]["dpop_bound_access_tokens_required"] is True
    for status, challenge in (report["bearer"], report["bare"]):
        assert status == 401
        assert challenge.startswith("DPoP ")
    assert report["wrong"] == [401, "invalid_dpop_proof"]
    assert report["ended"] == "invalid_grant"
