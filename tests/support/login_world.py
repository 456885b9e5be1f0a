"""An MCP server that wants tokens, and an authorization server that issues them, on one port: for clients to be tested.

    async with world() as there:
        async with Client(there.url, auth=there.oauth()) as client: ...

Everything that a test needs otherwise is an attribute, set before: what a document says, what a token is worth. What
came to the token endpoint is in `forms`, to all of it in `server.asked`. `visit` is the user, who agrees to everything.
Nothing of mcpd checks here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

from support.http_script import Asked, Scripted, Write, modern, reply, scripted, text_result

from mcpd import OAuth

__all__ = ["LoginWorld", "world"]

TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}} for name in ("read", "write")
]  # fmt: skip
CALLBACK = "http://127.0.0.1:9/callback"


class LoginWorld:
    """Both servers, and what is to be different about them."""

    def __init__(self) -> None:
        self.server = Scripted()
        self.resource: dict[str, Any] = {}
        """Members of the resource metadata in place of the usual ones; None leaves one out."""
        self.metadata: dict[str, Any] = {}
        """The same of the authorization server's."""
        self.resource_path: str | None = "/.well-known/oauth-protected-resource/mcp"
        self.metadata_paths: tuple[str, ...] = ("/.well-known/oauth-authorization-server",)
        self.named = True
        """Whether the challenge says where the resource metadata is."""
        self.challenge: dict[str, str] = {}
        """More parameters of it."""
        self.scheme = "Bearer"
        self.needs: dict[str, str] = {}
        """The scope that a tool wants."""
        self.tokens: dict[str, set[str]] = {}
        """Good access tokens, with their scopes."""
        self.refreshable: dict[str, set[str]] = {}
        self.lifetime: int | None = 3600
        self.takes_tokens = True
        self.gives_refresh = True
        self.codes: dict[str, dict[str, str]] = {}
        self.clients: dict[str, str | None] = {}
        """Ids with their secrets."""
        self.callback: dict[str, str | None] = {}
        """What the browser comes back with in place of the usual; None leaves it out."""
        self.token_error: Callable[[dict[str, str]], tuple[int, dict[str, Any]] | None] = lambda form: None
        self.answers: dict[str, bytes] = {}
        """Whole answers by path, before everything else."""
        self.token_answer: dict[str, Any] = {}
        self.nonce: str | None = None
        self.visits: list[dict[str, str]] = []
        """The authorization requests, as a browser showed them."""
        self.forms: list[dict[str, str]] = []
        """What came to the token endpoint, with `_client` and `_auth`: who, and how that was proven."""
        self.registered: list[dict[str, Any]] = []
        self._returned = ""

    # ------------------------------------------------------------------------------------ the user

    @property
    def url(self) -> str:
        """The MCP server's."""
        return self.server.url

    @property
    def origin(self) -> str:
        """Of both."""
        return self.url.removesuffix("/mcp")

    @property
    def issuer(self) -> str:
        """The authorization server's."""
        return str(self.metadata.get("issuer", self.origin))

    @property
    def paths(self) -> list[str]:
        """What was asked for, in order, without queries."""
        return [asked.path.partition("?")[0] for asked in self.server.asked]

    def oauth(self, **more: Any) -> OAuth:
        """How a client logs in here: with this user, and remembering nothing."""
        hooks = {"open_url": self.visit, "wait_callback": lambda: self._returned, "redirect": CALLBACK}
        return OAuth(**{"store": "memory", **hooks, **more})

    def visit(self, url: str) -> None:
        """Be shown the page, and agree."""
        asked = dict(parse_qsl(urlsplit(url).query))
        self.visits.append(asked)
        code = secrets.token_hex(8)
        self.codes[code] = asked
        found: dict[str, str | None] = {"code": code, "state": asked["state"], "iss": self.issuer, **self.callback}
        answer = urlencode({name: value for name, value in found.items() if value is not None})
        self._returned = f"{asked['redirect_uri']}?{answer}"

    def token(self, scopes: str = "", lifetime: int | None = None) -> dict[str, Any]:
        """A good token, as the endpoint answers it."""
        access = f"secret-access-{secrets.token_hex(8)}"
        self.tokens[access] = set(scopes.split())
        found: dict[str, Any] = {"access_token": access, "token_type": "Bearer", "scope": scopes}
        if (lifetime or self.lifetime) is not None:
            found["expires_in"] = lifetime or self.lifetime
        if self.gives_refresh:
            found["refresh_token"] = f"secret-refresh-{secrets.token_hex(8)}"
            self.refreshable[found["refresh_token"]] = set(scopes.split())
        return {**found, **self.token_answer}

    # --------------------------------------------------------------------------------- the servers

    async def answer(self, asked: Asked, write: Write) -> None:
        """One request to either."""
        path = asked.path.partition("?")[0]
        if path in self.answers:
            await write(self.answers[path])
        elif path == "/mcp":
            await self._serve(asked, write)
        elif path == self.resource_path:
            await write(reply(200, self._document(self._resource(), self.resource)))
        elif path in self.metadata_paths:
            await write(reply(200, self._document(self._metadata(), self.metadata)))
        elif path == "/register":
            await write(self._register(asked))
        elif path == "/token":
            await write(self._token(asked))
        elif path == "/device":
            found = {"device_code": "secret-device", "user_code": "ABCD-EFGH", "verification_uri": f"{self.origin}/go"}
            await write(reply(200, {**found, "interval": 0.05, "expires_in": 5}))
        elif path == "/revoke":
            self.forms.append(dict(parse_qsl(asked.body.decode())))
            await write(reply(200))
        else:
            await write(reply(404, {"error": "not_found"}))

    def _document(self, usual: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in {**usual, **other}.items() if value is not None}

    def _resource(self) -> dict[str, Any]:
        return {"resource": self.url, "authorization_servers": [self.issuer], "scopes_supported": ["basic"]}

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "revocation_endpoint": f"{self.origin}/revoke",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
        }

    async def _serve(self, asked: Asked, write: Write) -> None:
        scheme, _, token = asked.headers.get("authorization", "").partition(" ")
        if not token or not self.takes_tokens or token not in self.tokens:
            error = {"error": "invalid_token"} if token else {}
            await write(reply(401, {"error": "unauthorized"}, {"WWW-Authenticate": self._challenge(error)}))
            return
        wanted = self.needs.get(asked.message.get("params", {}).get("name", "") if asked.rpc == "tools/call" else "")
        if wanted is not None and not set(wanted.split()) <= self.tokens[token]:
            error = {"error": "insufficient_scope", "scope": wanted}
            await write(reply(403, {"error": "insufficient_scope"}, {"WWW-Authenticate": self._challenge(error)}))
            return

        async def tool(asked: Asked, write: Write) -> None:
            await write(reply(200, text_result(asked, "done")))

        await modern(tool, tools=TOOLS)(asked, write)

    def _challenge(self, more: dict[str, str]) -> str:
        params = {**more, **self.challenge}
        if self.named and self.resource_path is not None:
            params["resource_metadata"] = f"{self.origin}{self.resource_path}"
        said = ", ".join(f'{name}="{value}"' for name, value in params.items())
        return f"{self.scheme} {said}".rstrip()

    def _register(self, asked: Asked) -> bytes:
        body = json.loads(asked.body)
        self.registered.append(body)
        client = f"client-{len(self.registered)}"
        secret = None if body["token_endpoint_auth_method"] == "none" else "secret-of-client &+"
        self.clients[client] = secret
        found = {**body, "client_id": client}
        return reply(201, found if secret is None else {**found, "client_secret": secret})

    def _token(self, asked: Asked) -> bytes:
        form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        form["_auth"] = "post" if "client_secret" in form else "none"
        form["_client"] = form.get("client_id", "")
        basic = asked.headers.get("authorization", "")
        if basic.startswith("Basic "):
            pair = base64.b64decode(basic[6:]).decode()
            form["_client"], _, form["_secret"] = map(unquote_plus, pair.partition(":"))
            form["_auth"] = "basic"
        if "dpop" in asked.headers:
            form["_proof"] = asked.headers["dpop"]
        self.forms.append(form)
        if (error := self.token_error(form)) is not None:
            return reply(*error)

        kind = form.get("grant_type")
        if kind == "authorization_code":
            began = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if began is None or began["code_challenge"] != challenge:
                return reply(400, {"error": "invalid_grant"})
            return reply(200, self.token(began.get("scope", "")))
        if kind == "refresh_token":
            scopes = self.refreshable.pop(form["refresh_token"], None)
            if scopes is None:
                return reply(400, {"error": "invalid_grant", "error_description": "it was used"})
            return reply(200, self.token(" ".join(sorted(scopes))))
        return reply(200, self.token(form.get("scope", "")))


@asynccontextmanager
async def world(**said: Any) -> AsyncIterator[LoginWorld]:
    """Both servers, with attributes as said; closed at the end."""
    there = LoginWorld()
    for name, value in said.items():
        assert hasattr(there, name), name
        setattr(there, name, value)
    async with scripted(there.answer) as server:
        there.server = server
        yield there
