"""Logs in with an official Python client, `mcp` 1 or 2, and calls tools: `python login_python.py ERA URL APPROVE`.

ERA is "legacy" or "2026-07-28", which `mcp` 1 does not know. APPROVE is the program that is the user and the browser.
The client is let in, calls `who`; calls `save`, for which it has to ask for more; and calls `who` once more when its
token has expired. Prints what the tools said, and what the client asked for and got.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

ERA, URL, APPROVE = sys.argv[1:4]
SECOND = version("mcp").startswith("2")
CALLBACK = "http://127.0.0.1:1/callback"
if SECOND:
    import httpx2 as httpx
    from mcp import Client
    from mcp.client.auth import AuthorizationCodeResult
else:
    import httpx


class Kept:
    """What the client keeps."""

    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


class User:
    """Who is sent to a page, and back."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.said: dict[str, str] = {}

    async def open(self, url: str) -> None:
        self.asked.append(sorted(parse_qs(urlsplit(url).query).get("scope", [""])[0].split()))
        done = await anyio.run_process([sys.executable, APPROVE, "--print", url], stderr=subprocess.STDOUT)
        back = urlsplit(done.stdout.decode().strip())
        self.said = {name: values[0] for name, values in parse_qs(back.query).items()}

    async def result(self) -> Any:
        if SECOND:
            return AuthorizationCodeResult(**self.said)
        return self.said["code"], self.said["state"]


@asynccontextmanager
async def connected(http: Any) -> AsyncIterator[tuple[Any, str]]:
    """What calls tools, and the version that was agreed on."""
    if SECOND:
        async with Client(streamable_http_client(URL, http_client=http), mode=ERA, cache=None) as client:
            yield client, client.protocol_version
        return
    async with streamable_http_client(URL, http_client=http) as (read, write, *_):
        async with ClientSession(read, write) as session:
            yield session, (await session.initialize()).protocolVersion


async def main() -> None:
    kept, user = Kept(), User()
    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": "official-python",
            "redirect_uris": [CALLBACK],
            "grant_types": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_method": "none",
        }
    )
    auth = OAuthClientProvider(URL, metadata, kept, user.open, user.result)
    async with httpx.AsyncClient(auth=auth, timeout=30, follow_redirects=True) as http:
        async with connected(http) as (client, protocol):

            async def call(tool: str) -> Any:
                return json.loads((await client.call_tool(tool, {})).content[0].text)

            first, second, before = await call("who"), await call("save"), kept.tokens
            auth.context.token_expiry_time = 1.0
            third = await call("who")
    report = {
        "client": f"mcp {version('mcp')}",
        "protocol": protocol,
        "said": [first, second, third],
        "asked": user.asked,
        "refreshed": kept.tokens.access_token != before.access_token,
    }
    print(json.dumps(report))


anyio.run(main)
