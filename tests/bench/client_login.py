"""How long a login takes, from the first refusal to the first answer: ours, and the official Python client's.

    .venv/bin/python tests/bench/client_login.py --official PYTHON

PYTHON is one that has `mcp` 2.x and `fastmcp`, as `make clients` installs it: a server of theirs is logged in to, with
no page in between, and the official client is run by it. Both take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
SERVER = HERE.parent.parent / "clients" / "foreign" / "serve_login.py"
CALLBACK = "http://127.0.0.1:9/callback"


async def ours(url: str) -> float:
    """Seconds of one login with `mcpd.Client`."""
    import aiohttp

    from mcpd import Client, OAuth

    returned: list[str] = []

    async def visit(page: str) -> None:
        async with aiohttp.ClientSession() as session, session.get(page, allow_redirects=False) as reply:
            returned.append(reply.headers["Location"])

    auth = OAuth(open_url=visit, wait_callback=lambda: returned[-1], redirect=CALLBACK, store="memory")
    began = time.perf_counter()
    async with Client(url, auth=auth, version="2025-11-25") as client:
        await client.list_tools()
        return time.perf_counter() - began


async def official(url: str) -> float:
    """The same with the official client."""
    from urllib.parse import parse_qs, urlsplit

    import httpx2
    from mcp import ClientSession
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.auth import OAuthClientMetadata

    class Memory:
        tokens = client = None

        async def get_tokens(self):
            return self.tokens

        async def set_tokens(self, tokens):
            self.tokens = tokens

        async def get_client_info(self):
            return self.client

        async def set_client_info(self, client):
            self.client = client

    returned: list[str] = []

    async def visit(page: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=False) as client:
            returned.append((await client.get(page)).headers["location"])

    async def callback() -> AuthorizationCodeResult:
        found = {name: values[0] for name, values in parse_qs(urlsplit(returned[-1]).query).items()}
        return AuthorizationCodeResult(code=found["code"], state=found["state"], iss=found.get("iss"))

    metadata = OAuthClientMetadata(client_name="bench", redirect_uris=[CALLBACK])
    began = time.perf_counter()
    auth = OAuthClientProvider(url, metadata, Memory(), visit, callback)
    async with (
        httpx2.AsyncClient(auth=auth, follow_redirects=True, timeout=30) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as client,
    ):
        await client.initialize()
        await client.list_tools()
        return time.perf_counter() - began


def main() -> None:
    """Start the server, and let both take turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--official", metavar="PYTHON")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.one:
        run = ours if said.one == "ours" else official
        times = [asyncio.run(run(said.url)) for _ in range(6)][1:]
        print(" ".join(f"{seconds:.6f}" for seconds in times))
        return

    port = "18974"
    server = subprocess.Popen(
        [said.official, SERVER, "sdk", port], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stderr is not None
        while not re.search("running on", server.stderr.readline()):
            assert server.poll() is None, "the server ended"
        found: dict[str, list[float]] = {"ours": [], "official": []}
        for _ in range(said.turns):
            for name, python in (("ours", sys.executable), ("official", said.official)):
                command = [python, HERE, "--one", name, "--url", f"http://127.0.0.1:{port}/mcp"]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[name] += map(float, done.stdout.split())
    finally:
        server.kill()
        server.wait()
    ours_, theirs = (statistics.median(found[name]) for name in ("ours", "official"))
    print(f"ours {ours_ * 1000:.1f} ms, official {theirs * 1000:.1f} ms: {ours_ / theirs:.2f} times")


if __name__ == "__main__":
    main()
