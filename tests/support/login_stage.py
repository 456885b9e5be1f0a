"""Logins at the embedded authorization server, in bytes: a client, and a browser that follows no link by itself."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from support.http_peer import Answer, Port, request, serving

from mcpd import Server
from mcpd.auth.server.login_server import AuthorizationServer
from mcpd.auth.server.settings import Settings, UserFile, hash_password
from mcpd.server.http import HttpSettings
from mcpd.transports.guards import Access

__all__ = ["CALLBACK", "VERIFIER", "Browser", "Login", "Stage", "claims_of", "stage", "users_file"]

CALLBACK = "http://127.0.0.1/callback"
VERIFIER = "v" * 43
CHALLENGE = urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
PASSWORD = "correct horse"
_HASHED = hash_password(PASSWORD)


def users_file(folder: Path, **scopes: Iterable[str] | None) -> Path:
    """A file of users, all of whom have PASSWORD; their scopes, None for all."""
    text = ""
    for name, allowed in (scopes or {"ana": None}).items():
        text += f'[{name}]\npassword = "{_HASHED}"\n'
        text += "" if allowed is None else f"scopes = {json.dumps(list(allowed))}\n"
    path = folder / "users.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


class Now:
    """The server's clock, which a test moves."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time


class Browser:
    """Keeps cookies, shows pages, and goes nowhere by itself."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.cookies: dict[str, str] = {}
        self.page: Answer | None = None

    async def ask(
        self, method: str, url: str, fields: dict[str, str] | None = None, headers: Iterable[tuple[str, str]] = ()
    ) -> Answer:
        """One request to the server, with what this browser knows of it."""
        said = [("Accept", "text/html,application/xhtml+xml"), *headers]
        if self.cookies:
            said.append(("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items())))
        if fields is not None:
            said.append(("Content-Type", "application/x-www-form-urlencoded"))
            if not any(name == "Origin" for name, _ in said):
                parts = urlsplit(self.stage.issuer)
                said.append(("Origin", f"{parts.scheme}://{parts.netloc}"))
        body = b"" if fields is None else urlencode(fields).encode()
        answer = await self.stage.ask(method, url, said, body)
        for name, value in answer.headers:
            if name.lower() == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        self.page = answer
        return answer

    async def get(self, url: str, **more: Any) -> Answer:
        """Open a page."""
        return await self.ask("GET", url, **more)

    async def post(self, url: str, fields: dict[str, str], **more: Any) -> Answer:
        """Send a form."""
        return await self.ask("POST", url, fields, **more)

    @property
    def form(self) -> dict[str, str]:
        """What the forms of the page carry."""
        assert self.page is not None
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.page.text)
        return {name: unescape(value) for name, value in found}

    async def sign_in(self, user: str = "ana", password: str = PASSWORD) -> Answer:
        """Fill in the form of the page, and go to the question."""
        answer = await self.post("/oauth/sign-in", {**self.form, "user": user, "password": password})
        if answer.status == 303 and answer["location"].startswith(self.stage.issuer):
            return await self.get(answer["location"].removeprefix(self.stage.issuer))
        return answer

    async def choose(self, choice: str = "allow") -> dict[str, str]:
        """Answer the question; gives what the client is told."""
        answer = await self.post("/oauth/consent", {**self.form, "choice": choice})
        assert answer.status == 303, (answer.status, answer.text)
        return told(answer)


def told(answer: Answer) -> dict[str, str]:
    """What a redirect to the client says."""
    return {name: value for name, (value,) in parse_qs(urlsplit(answer["location"]).query).items()}


class Login:
    """One client's login."""

    def __init__(self, stage: Stage, client: str, **changes: str | None) -> None:
        self.stage = stage
        self.client = client
        asked: dict[str, str | None] = {
            "response_type": "code",
            "client_id": client,
            "redirect_uri": CALLBACK,
            "state": "s1",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "resource": stage.resource,
            **changes,
        }
        self.asked = {name: value for name, value in asked.items() if value is not None}
        self.browser = Browser(stage)

    async def begin(self, **more: Any) -> Answer:
        """Open the page that the client sends its user to."""
        return await self.browser.get(f"/oauth/authorize?{urlencode(self.asked)}", **more)

    async def code(self, user: str = "ana") -> str:
        """Sign in, allow it, and give the code."""
        answer = await self.begin()
        assert answer.status == 200, (answer.status, answer.headers, answer.text)
        page = await self.browser.sign_in(user)
        assert page.status == 200, (page.status, page.headers)
        said = await self.browser.choose()
        assert (said["state"], said["iss"]) == ("s1", self.stage.issuer)
        return said["code"]

    async def exchange(self, code: str, /, **changes: Any) -> Answer:
        """Ask for tokens with a code."""
        said = {"code": code, "code_verifier": VERIFIER, "redirect_uri": self.asked.get("redirect_uri", CALLBACK)}
        return await self.stage.token("authorization_code", **{**said, "client_id": self.client, **changes})

    async def tokens(self, user: str = "ana") -> dict[str, Any]:
        """All of it."""
        answer = await self.exchange(await self.code(user))
        assert answer.status == 200, answer.text
        found: dict[str, Any] = answer.json
        return found

    async def refresh(self, token: str, **changes: Any) -> Answer:
        """Ask for others with a refresh token."""
        return await self.stage.token("refresh_token", **{"refresh_token": token, "client_id": self.client, **changes})


class Stage:
    """The server, on a port of the loopback."""

    def __init__(self, port: Port, server: AuthorizationServer, now: Now, public_url: str) -> None:
        self.port = port
        self.server = server
        self.now = now
        self.resource = public_url or f"http://127.0.0.1:{port.number}/mcp"
        server.core.locate(self.resource, "/mcp")
        self.issuer = server.core.issuer

    async def ask(self, method: str, url: str, headers: Iterable[tuple[str, str]] = (), body: bytes = b"") -> Answer:
        """One request."""
        peer = await self.port.connect()
        try:
            peer.send(request(method, url, headers, body, urlsplit(self.issuer).netloc))
            answer = await peer.head()
            if method != "HEAD" and "content-length" in answer:
                answer.body = await peer.reader.readexactly(int(answer["content-length"]))
            return answer
        finally:
            await peer.aclose()

    async def post_json(self, url: str, value: object, headers: Iterable[tuple[str, str]] = ()) -> Answer:
        """POST a document."""
        said = [("Content-Type", "application/json"), *headers]
        return await self.ask("POST", url, said, json.dumps(value).encode())

    async def token(self, grant_type: str, headers: Iterable[tuple[str, str]] = (), **fields: str | None) -> Answer:
        """A request to the token endpoint; fields of None are left out."""
        said = {"grant_type": grant_type, **{name: value for name, value in fields.items() if value is not None}}
        kind = ("Content-Type", "application/x-www-form-urlencoded")
        return await self.ask("POST", "/oauth/token", [kind, *headers], urlencode(said).encode())

    async def register(self, **changes: Any) -> dict[str, Any]:
        """Register a client that keeps no secret."""
        said = {
            "redirect_uris": [CALLBACK],
            "token_endpoint_auth_method": "none",
            "client_name": "A client",
            "grant_types": ["authorization_code", "refresh_token"],
            **changes,
        }
        answer = await self.post_json("/oauth/register", said)
        assert answer.status == 201, answer.text
        found: dict[str, Any] = answer.json
        return found

    async def login(self, **changes: str | None) -> Login:
        """A login of a client that has just registered."""
        return Login(self, (await self.register())["client_id"], **changes)


def claims_of(token: str) -> dict[str, Any]:
    """What a JWT says, unchecked."""
    payload = token.split(".")[1]
    found: dict[str, Any] = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


@asynccontextmanager
async def stage(
    settings: Settings | Path,
    *,
    public_url: str = "",
    reach: tuple[Any, ...] = (),
    scopes: tuple[str, ...] = ("tools.use",),
    now: Now | None = None,
    **more: Any,
) -> AsyncIterator[Stage]:
    """A server with these settings, or with the users of a file; closed at the end."""
    if isinstance(settings, Path):
        settings = Settings(users=UserFile(file=str(settings)))
    now = now or Now()
    server = AuthorizationServer(settings, clock=now, reach=reach, **more)
    server.core.default_scopes = scopes
    try:
        access = Access(hosts=("tools.example",))
        async with serving(Server("stage"), HttpSettings(routes=server.routes), access) as port:
            yield Stage(port, server, now, public_url)
    finally:
        server.core.close()
