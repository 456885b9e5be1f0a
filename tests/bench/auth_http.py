"""What authorization costs: echoes over HTTP at 64 in flight, as CPU time of the server for each, side by side.

`.venv/bin/python tests/bench/auth_http.py [--rounds 15]`: servers that ask nobody, for a static token, for a JWT that
is known, for a new JWT at each request, and for a proof of possession take turns; printed is what each costs, and its
rate as a ratio to the open server's: of the least of all rounds, which a busy machine disturbs least, and the median
of the ratios within each round. Proofs are signed with each algorithm that clients may use. Before each is its
`floor`: the open server, which gets the same bytes in headers of other names, and whose tool checks one signature of
that algorithm by `cryptography`, and nothing else. No proof costs less, and OpenSSL's own arithmetic is nine tenths
of the check (`openssl speed ecdsap256 ed25519 rsa2048` says how much).
"""

from __future__ import annotations

import argparse
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
from typing import Any
from warnings import catch_warnings, simplefilter

from joserfc import jwk, jwt

SERVER = """
import sys
from mcpd import Principal, Server
from mcpd.auth import Jwt, StaticTokens
kind, _, alg = sys.argv[1].partition(" ")
jwks = sys.argv[2]
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
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
    from cryptography.hazmat.primitives.hashes import SHA256
    key, how = {
        "ES256": lambda: (ec.generate_private_key(ec.SECP256R1()), (ec.ECDSA(SHA256()),)),
        "EdDSA": lambda: (ed25519.Ed25519PrivateKey.generate(), ()),
        "RS256": lambda: (rsa.generate_private_key(65537, 2048), (padding.PKCS1v15(), SHA256())),
        "PS256": lambda: (rsa.generate_private_key(65537, 2048), (padding.PSS(padding.MGF1(SHA256()), 32), SHA256())),
    }[alg]()
    data = b"x" * (800 if alg.endswith("S256") and alg != "ES256" else 450)
    public_key, signature = key.public_key(), key.sign(data, *how)
    check = lambda: public_key.verify(signature, data, *how)
@server.tool
async def echo(text: str) -> str:
    check()
    return text
server.run(http="127.0.0.1:0", announce=lambda url: print(url, flush=True))
"""
PUBLIC = "https://tools.example.com/mcp"
KEY = jwk.ECKey.generate_key("P-256", {"kid": "k", "use": "sig"})
RSA = jwk.RSAKey.generate_key(2048)
HOLDERS: dict[str, Any] = {
    "ES256": jwk.ECKey.generate_key("P-256"),
    "EdDSA": jwk.OKPKey.generate_key("Ed25519"),
    "RS256": RSA,
    "PS256": RSA,
}
CALL = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/call",
    "params": {"name": "echo", "arguments": {"text": "hello"}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "b", "version": "1"}}},
}  # fmt: skip
BODY = json.dumps(CALL).encode()
KINDS = ("open", "static", "jwt", "new-jwt", *(f"{one} {alg}" for alg in HOLDERS for one in ("floor", "dpop")))
IN_FLIGHT, BLOCK = 64, 640


def token(**more: object) -> str:
    """A JWT that the servers take."""
    claims = {"iss": "http://127.0.0.1:1", "aud": "https://tools.example.com/mcp", "sub": "ada", "client_id": "c",
              "exp": int(time.time()) + 3000, "scope": "use", "jti": uuid.uuid4().hex, **more}  # fmt: skip
    return jwt.encode({"alg": "ES256", "typ": "at+jwt", "kid": "k"}, claims, KEY)


def proof(alg: str) -> str:
    """A proof for one request."""
    bound, holder = BOUND[alg], HOLDERS[alg]
    ath = base64.urlsafe_b64encode(sha256(bound.encode()).digest()).decode().rstrip("=")
    claims = {"htm": "POST", "htu": PUBLIC, "iat": int(time.time()), "jti": uuid.uuid4().hex, "ath": ath}
    head = {"alg": alg, "typ": "dpop+jwt", "jwk": holder.as_dict(private=False)}
    with catch_warnings():
        simplefilter("ignore")  # joserfc advises against the name EdDSA
        return jwt.encode(head, claims, holder, algorithms=[alg])


KNOWN = token()
BOUND = {alg: token(cnf={"jkt": holder.thumbprint()}) for alg, holder in HOLDERS.items()}


def message(kind: str) -> bytes:
    """One request."""
    static = "Authorization: Bearer 0123456789abcdef\r\n"
    lines = {"static": static, "jwt": f"Authorization: Bearer {KNOWN}\r\n"}
    if kind == "new-jwt":
        line = f"Authorization: Bearer {token()}\r\n"
    elif kind.startswith(("dpop", "floor")):
        alg = kind.split()[1]
        beside = "X-" if kind.startswith("floor") else ""
        line = f"{beside}Authorization: DPoP {BOUND[alg]}\r\n{beside}DPoP: {proof(alg)}\r\n"
    else:
        line = lines.get(kind, "")
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
            is_same = kind in ("open", "static", "jwt")
            messages = [message(kind)] * BLOCK if is_same else [message(kind) for _ in range(BLOCK)]
            before = used(process.pid)
            await block(port, messages)
            if number:  # the first warms up
                cost[kind].append((used(process.pid) - before) / BLOCK * 1e6)
    for process, _ in running.values():
        process.kill()
        await process.wait()
    issuer.close()
    for kind, found in cost.items():
        least = min(cost["open"]) / min(found)
        usual = median(bare / one for bare, one in zip(cost["open"], found, strict=True))
        print(f"{kind:11}  {min(found):7.1f} us of CPU at least  rate {least:.2f} of the open one, median {usual:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="of all servers in turn: %(default)s")
    asyncio.run(main(parser.parse_args().rounds))
