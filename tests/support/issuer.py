"""An authorization server for tests of what checks its tokens: metadata, keys and introspection, on the loopback."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from joserfc import jwk, jwt
from joserfc.jws import JWSRegistry

__all__ = ["TestIssuer", "issuing"]

_ALL = ["RS256", "PS256", "ES256", "ES384", "EdDSA", "HS256"]


class TestIssuer:
    """Keys of an issuer and the tokens that they sign; `asked` are the paths that were asked for."""

    __test__ = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[Any] = [jwk.ECKey.generate_key("P-256", {"kid": "k1", "use": "sig"})]
        self.asked: list[str] = []
        self.headers: list[str] = []
        self.metadata: dict[str, Any] = {"issuer": url, "jwks_uri": f"{url}/jwks"}
        self.answers: dict[str, Callable[[bytes], tuple[int, str, bytes]]] = {}
        """What is answered at a path instead of the usual."""
        self.inactive: dict[str, dict[str, Any]] = {}
        self.gate: asyncio.Event | None = None
        """While it is there and not set, no answer is given."""

    def claims(self, **more: Any) -> dict[str, Any]:
        """Those of a token that is good for `https://tools.example.com/mcp`; None leaves one out."""
        now = int(time.time())
        usual = {
            "iss": self.url,
            "sub": "ada",
            "client_id": "cli",
            "aud": "https://tools.example.com/mcp",
            "exp": now + 600,
            "iat": now,
            "scope": "notes.read",
        }
        return {name: value for name, value in {**usual, **more}.items() if value is not None}

    def token(self, key: Any = None, alg: str = "ES256", head: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token of these claims, signed by the first key."""
        key = self.keys[0] if key is None else key
        given = {"alg": alg, "typ": "at+jwt", "kid": key.kid, **(head or {})}
        header = {name: value for name, value in given.items() if value is not None}
        registry = JWSRegistry(algorithms=_ALL, strict_check_header=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of EdDSA, which issuers use all the same
            return jwt.encode(header, self.claims(**claims), key, algorithms=_ALL, registry=registry)

    def jwks(self) -> bytes:
        """The public keys."""
        return json.dumps({"keys": [{**key.as_dict(private=False), "kid": key.kid} for key in self.keys]}).encode()

    def _answer(self, path: str, body: bytes) -> tuple[int, str, bytes]:
        if path in self.answers:
            return self.answers[path](body)
        if path.endswith("/.well-known/oauth-authorization-server"):
            return 200, "", json.dumps(self.metadata).encode()
        if path == "/jwks":
            return 200, "", self.jwks()
        return 404, "", b"{}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ")[1]
            length = next(
                (int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0
            )
            body = await reader.readexactly(length)
            self.asked.append(path)
            self.headers.append(head)
            if self.gate is not None:
                await self.gate.wait()
            status, more, content = self._answer(path, body)
            start = f"HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n{more}"
            writer.write(f"{start}Connection: close\r\n\r\n".encode() + content)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def issuing(path: str = "") -> AsyncIterator[TestIssuer]:
    """An issuer on a free port of the loopback; `path` is that of its URL."""
    issuer: TestIssuer | None = None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert issuer is not None
        await issuer.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    issuer = TestIssuer(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}")
    try:
        yield issuer
    finally:
        if issuer.gate is not None:
            issuer.gate.set()
        server.close()
        await server.wait_closed()
