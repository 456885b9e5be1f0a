"""What authorization costs: echoes over HTTP at 64 in flight, as CPU time of the server for each, side by side.

`.venv/bin/python tests/bench/auth_http.py [ROUNDS]`: servers that ask nobody, for a static token, for a JWT that is
known, for a new JWT at each request, and for a proof of possession take turns; printed is what each costs, and its rate
as a ratio to the open server's. `floor` is the open server whose tool checks one signature of ES256 by `cryptography`,
and nothing else: no proof costs less, and OpenSSL's own arithmetic is nine tenths of it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import time
import uuid
from hashlib import sha256
from statistics import median

from joserfc import jwk, jwt

SERVER = """
import sys
from mcpd import Principal, Server
from mcpd.auth import Jwt, StaticTokens
kind, jwks = sys.argv[1:3]
public = "https://tools.example.com/mcp"
auth = None
if kind == "static":
    auth = StaticTokens({"0123456789abcdef": Principal("ada")})
elif kind not in ("open", "floor"):
    dpop = "require" if kind == "dpop" else "off"
    auth = Jwt("http://127.0.0.1:1", jwks_url=jwks, public_url=public, dpop=dpop)
server = Server("echo", auth=auth)
check = lambda: None
if kind == "floor":
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.hashes import SHA256
    key, data, how = generate_private_key(SECP256R1()), b"x" * 450, ECDSA(SHA256())
    public_key, signature = key.public_key(), key.sign(data, how)
    check = lambda: public_key.verify(signature, data, how)
@server.tool
async def echo(text: str) -> str:
    check()
    return text
server.run(http="127.0.0.1:0", announce=lambda url: print(url, flush=True))
"""
PUBLIC = "https://tools.example.com/mcp"
KEY = jwk.ECKey.generate_key("P-256", {"kid": "k", "use": "sig"})
HOLDER = jwk.ECKey.generate_key("P-256")
CALL = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/call",
    "params": {"name": "echo", "arguments": {"text": "hello"}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "b", "version": "1"}}},
}  # fmt: skip
BODY = json.dumps(CALL).encode()
KINDS = ("open", "static", "jwt", "new-jwt", "floor", "dpop")
IN_FLIGHT, BLOCK = 64, 1500


def token(**more: object) -> str:
    """A JWT that the servers take."""
    claims = {"iss": "http://127.0.0.1:1", "aud": "https://tools.example.com/mcp", "sub": "ada", "client_id": "c",
              "exp": int(time.time()) + 3000, "scope": "use", "jti": uuid.uuid4().hex, **more}  # fmt: skip
    return jwt.encode({"alg": "ES256", "typ": "at+jwt", "kid": "k"}, claims, KEY)


def proof(bound: str) -> str:
    """A proof for one request."""
    ath = base64.urlsafe_b64encode(sha256(bound.encode()).digest()).decode().rstrip("=")
    claims = {"htm": "POST", "htu": PUBLIC, "iat": int(time.time()), "jti": uuid.uuid4().hex, "ath": ath}
    return jwt.encode({"alg": "ES256", "typ": "dpop+jwt", "jwk": HOLDER.as_dict(private=False)}, claims, HOLDER)


KNOWN = token()
BOUND = token(cnf={"jkt": HOLDER.thumbprint()})


def message(kind: str) -> bytes:
    """One request."""
    static = "Authorization: Bearer 0123456789abcdef\r\n"
    lines = {"open": "", "floor": "", "static": static, "jwt": f"Authorization: Bearer {KNOWN}\r\n"}
    if kind == "new-jwt":
        line = f"Authorization: Bearer {token()}\r\n"
    elif kind == "dpop":
        line = f"Authorization: DPoP {BOUND}\r\nDPoP: {proof(BOUND)}\r\n"
    else:
        line = lines[kind]
    head = (
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n"
        f"Mcp-Name: echo\r\n{line}Content-Length: {len(BODY)}\r\n\r\n"
    )
    return head.encode() + BODY


async def block(port: int, messages: list[bytes]) -> None:
    """Send them over 64 connections, one behind the other on each."""

    async def lane(own: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for one in own:
            writer.write(one)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
        writer.close()

    await asyncio.gather(*(lane(messages[number::IN_FLIGHT]) for number in range(IN_FLIGHT)))


def used(pid: int) -> float:
    """The CPU seconds of a process, to the microsecond."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


async def keys(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with the key that tokens are signed with."""
    await reader.readuntil(b"\r\n\r\n")
    content = json.dumps({"keys": [{**KEY.as_dict(private=False), "kid": "k"}]}).encode()
    kind = "Content-Type: application/json\r\nConnection: close\r\n"
    head = f"HTTP/1.1 200 OK\r\n{kind}Content-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await writer.drain()
    writer.close()


async def main(rounds: int) -> None:
    """Take turns, and print what each costs."""
    issuer = await asyncio.start_server(keys, "127.0.0.1", 0)
    jwks = f"http://127.0.0.1:{issuer.sockets[0].getsockname()[1]}/jwks"
    running = {}
    for kind in KINDS:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVER, kind, jwks, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        url = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        running[kind] = process, int(url.rsplit(":", 1)[1].split("/")[0])
    cost: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        for kind, (process, port) in running.items():
            is_same = kind in ("open", "static", "jwt", "floor")
            messages = [message(kind)] * BLOCK if is_same else [message(kind) for _ in range(BLOCK)]
            before = used(process.pid)
            await block(port, messages)
            if number:  # the first warms up
                cost[kind].append((used(process.pid) - before) / BLOCK * 1e6)
    for process, _ in running.values():
        process.kill()
        await process.wait()
    issuer.close()
    floor = median(cost["open"])
    for kind, found in cost.items():
        print(f"{kind:8}  {median(found):7.1f} us of CPU  rate {floor / median(found):.2f} of the open one")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7))
