"""A server that is protected, by bytes: challenges, metadata, errors that are JSON, and tokens that are let in."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from support.http_peer import Answer, Port, call, initialize, modern, post, request, serving
from support.websocket_peer import TEXT, Peer as WebSocketPeer, frame, upgrade

from mcpd import Client, Context, HttpError, Principal, Server
from mcpd.auth.base import Auth, InvalidToken, TokenCache, TokenRequest, Unavailable, Verified
from mcpd.auth.settings import StaticTokens, TokenFunction, read_tokens
from mcpd.errors import ConfigurationError
from mcpd.transports.authentication import Refusal
from mcpd.transports.challenge import parse
from mcpd.transports.guards import Access

ISSUER = "https://idp.example.com/realms/x"
PUBLIC = "https://tools.example.com/mcp"
METADATA = "https://tools.example.com/.well-known/oauth-protected-resource/mcp"

ADA = Principal("ada", issuer=ISSUER, client="cli", scopes=["notes.read"])
TOKENS = {
    "ada-token": ADA,
    "ada-refreshed": Principal("ada", issuer=ISSUER, client="cli", scopes=["notes.read", "notes.write"]),
    "ada-elsewhere": Principal("ada", issuer=ISSUER, client="other", scopes=["notes.read"]),
    "bob-token": Principal("bob", issuer=ISSUER, client="cli", scopes=["notes"]),
    "low-token": Principal("low", issuer=ISSUER, client="cli", scopes=["NOTES.READ", "notes.read.all"]),
}


class Judge:
    """A function for `TokenFunction`, which counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: Exception | None = None

    async def __call__(self, token: str, request: TokenRequest) -> Principal | None:
        self.asked.append(f"{request.method} {request.path}")
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return TOKENS.get(token)


def protected(judge: Any = None, **options: Any) -> TokenFunction:
    given = {"issuers": [ISSUER], "public_url": PUBLIC, "scopes": ["notes.read"], **options}
    return TokenFunction(judge or Judge(), implies={"notes": ["notes.read", "notes.write"]}, **given)


def open_to(auth: Auth) -> Any:
    return serving(watching(), access=Access(authenticate=auth))


def watching() -> Server:
    server = Server("notes")

    @server.tool
    async def who(ctx: Context) -> str:
        return json.dumps([ctx.user.subject, sorted(ctx.user.scopes)])

    return server


async def ask(port: Port, authorization: str | None, **headers: str) -> Answer:
    given = {**headers, **({} if authorization is None else {"Authorization": authorization})}
    return await port.ask(modern("tools/call", {"name": "who", "arguments": {}}, given))


def told(answer: Answer) -> Any:
    return json.loads(answer.json["result"]["content"][0]["text"])


def challenge(answer: Answer) -> dict[str, str]:
    """The parameters of the one challenge of an answer."""
    (found,) = parse([answer["www-authenticate"]])
    assert found.scheme == "Bearer"
    return dict(found.params)


# ------------------------------------------------------------------------------------ challenges


@pytest.mark.parametrize("authorization", [None, "Basic YTpi", "Digest x", "Negotiate", "bearertoken"])
async def test_without_credentials_there_is_a_challenge_without_an_error(authorization: str | None) -> None:
    """AUTH-003, AUTH-008, AUTH-010, S25-143, S26-174."""
    async with open_to(protected()) as port:
        answer = await ask(port, authorization)
    assert answer.status == 401
    assert challenge(answer) == {"resource_metadata": METADATA, "scope": "notes.read"}
    assert answer.json["error"] == "unauthorized"


async def test_a_token_that_is_not_known_is_invalid() -> None:
    """AUTH-011, S25-146, S26-177."""
    async with open_to(protected()) as port:
        answer = await ask(port, "Bearer mallory")
    assert answer.status == 401
    assert answer.json["error"] == challenge(answer)["error"] == "invalid_token"
    assert challenge(answer)["resource_metadata"] == METADATA


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer",
        "Bearer ",
        "Bearer a b",
        "Bearer ada-token, Bearer bob-token",
        "Bearer a\tb",
        "Bearer \xe4",
        "Bearer =a",
    ],
)
async def test_malformed_credentials_are_a_bad_request(authorization: str) -> None:
    """AUTH-012, S25-149, S26-180, H10."""
    async with open_to(protected()) as port:
        answer = await ask(port, authorization)
    assert answer.status == 400
    assert answer.json["error"] == challenge(answer)["error"] == "invalid_request"


async def test_two_authorization_headers_are_a_bad_request() -> None:
    """AUTH-012, H10: joined they might be taken for one."""
    fields = [("Authorization", "Bearer ada-token"), ("Authorization", "Bearer bob-token")]
    async with open_to(protected()) as port:
        answer = await port.ask(request("POST", "/mcp", fields, body=b"{}"))
    assert answer.status == 400
    assert challenge(answer)["error"] == "invalid_request"


async def test_a_scheme_has_any_case_and_spaces_are_one() -> None:
    """H10."""
    async with open_to(protected()) as port:
        for scheme in ("bearer ", "BEARER ", "Bearer   "):
            assert told(await ask(port, f"{scheme}ada-token"))[0] == "ada"


async def test_a_token_elsewhere_is_none() -> None:
    """AUTH-013, H9: in the query, a cookie, a subprotocol or another header."""
    async with open_to(protected()) as port:
        for headers in ({"Cookie": "access_token=ada-token"}, {"X-Access-Token": "ada-token"}):
            assert (await ask(port, None, **headers)).json["error"] == "unauthorized"
        data = modern("tools/call", {"name": "who", "arguments": {}})
        assert (await port.ask(data.replace(b"POST /mcp", b"POST /mcp?access_token=ada-token", 1))).status == 401
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        socket = WebSocketPeer(reader, writer)
        socket.send(upgrade(**{"Sec-WebSocket-Protocol": "mcp, bearer.ada-token"}))
        status, headers, body = await socket.response()
        assert (status, json.loads(body)["error"]) == (401, "unauthorized")
        assert parse([headers["www-authenticate"]])[0].params["resource_metadata"] == METADATA
        await socket.aclose()


async def test_a_token_that_is_too_long_is_not_looked_at() -> None:
    """AUTH-030, H10: over 16 KiB neither decoded nor hashed."""
    judge = Judge()
    async with open_to(protected(judge)) as port:
        answer = await ask(port, "Bearer " + "a" * 17_000)
    assert (answer.status, answer.json["error"]) == (401, "invalid_token")
    assert judge.asked == []


async def test_every_request_is_checked_before_anything_of_it() -> None:
    """AUTH-014, AUTH-015, S25-144, S26-175, S26-185: also GET, DELETE, those of a session, and before the body."""
    async with open_to(protected()) as port:
        hello = await port.ask(post(initialize(), {"Authorization": "Bearer ada-token"}))
        session = {"Mcp-Session-Id": hello["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        for data in (
            post(call("ping"), session),
            request("GET", "/mcp", [*session.items(), ("Accept", "text/event-stream")]),
            request("DELETE", "/mcp", list(session.items())),
            post(b"rubbish", {"Accept": "none"}),
            request("PUT", "/mcp", []),
        ):
            assert (await port.ask(data)).status == 401
        for data in (request("GET", "/nowhere", []), request("GET", "/nowhere", [("Origin", "http://evil")])):
            assert (await port.ask(data)).status in (403, 404)


async def test_nothing_of_a_request_is_in_a_challenge() -> None:
    """AUTH-007, AUTH-020, H11: whatever the request says of where it went, URLs are those that were configured."""
    lies = {"X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example", "X-Forwarded-Proto": "http"}
    async with open_to(protected()) as port:
        answer = await ask(port, None, **lies)
        assert challenge(answer)["resource_metadata"] == METADATA
        document = await port.ask(request("GET", "/.well-known/oauth-protected-resource/mcp", list(lies.items())))
        assert document.json["resource"] == PUBLIC
        assert "evil" not in document.text


# ------------------------------------------------------------------------------------ metadata


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
        "/mcp/oauth-protected-resource",
    ],
)
async def test_the_metadata_is_for_everybody(path: str) -> None:
    """AUTH-001, AUTH-002, AUTH-004, AUTH-006, AUTH-018, S25-141, S25-142, S26-172, S26-173."""
    auth = protected(resource_name="Notes")
    async with open_to(auth) as port:
        answer = await port.ask(request("GET", path, [("Origin", "https://any.example")]))
        peer = await port.connect()
        peer.send(request("HEAD", path))
        head = await peer.head()
        wrong = await port.ask(request("POST", path))
    assert answer.status == head.status == 200
    assert answer["content-type"] == "application/json"
    assert answer["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in dict(answer.headers)
    assert answer["cache-control"] == "max-age=3600"
    assert answer.json == {
        "resource": PUBLIC,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["notes.read"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Notes",
    }
    assert (wrong.status, isinstance(wrong.json["error"], str)) == (405, True)


@pytest.mark.parametrize(
    ("public_url", "metadata"),
    [
        ("https://h.example", "https://h.example/.well-known/oauth-protected-resource"),
        ("https://h.example/", "https://h.example/.well-known/oauth-protected-resource"),
        ("https://h.example/mcp/", "https://h.example/.well-known/oauth-protected-resource/mcp/"),
        ("https://h.example:8443/other", "https://h.example:8443/.well-known/oauth-protected-resource/other"),
        # Mounted in another application, which has the root: the place inside works without its help.
        ("https://h.example/a/mcp", "https://h.example/a/mcp/oauth-protected-resource"),
    ],
)
async def test_where_challenges_point_to_is_served(public_url: str, metadata: str) -> None:
    """AUTH-004, AUTH-006: `resource` is the public URL, character for character."""
    async with open_to(protected(public_url=public_url)) as port:
        assert challenge(await ask(port, None))["resource_metadata"] == metadata
        path = metadata.partition(".example")[2].removeprefix(":8443").replace("/a/mcp", "/mcp")
        document = await port.ask(request("GET", path))
    assert document.json["resource"] == public_url


async def test_without_a_public_url_it_is_the_address_on_this_machine() -> None:
    async with open_to(protected(public_url="")) as port:
        document = await port.ask(request("GET", "/.well-known/oauth-protected-resource"))
    assert document.json["resource"] == f"http://127.0.0.1:{port.number}/mcp"


@pytest.mark.parametrize(
    ("host", "spelled"),
    [
        ("localhost:{}", "localhost:{}"), ("[::1]:{}", "[::1]:{}"), ("127.0.0.1:{}", "127.0.0.1:{}"),
        ("localhost", "127.0.0.1:{}"), ("localhost:1", "127.0.0.1:{}"), ("tools.example.com:{}", "127.0.0.1:{}"),
    ],
)  # fmt: skip
async def test_each_name_of_this_machine_is_answered_in_kind(host: str, spelled: str) -> None:
    """Official clients refuse metadata about another spelling of their URL. Other names are not believed."""
    access = Access(authenticate=protected(public_url=""), hosts=("tools.example.com",))
    async with serving(watching(), access=access) as port:
        name, url = host.format(port.number), f"http://{spelled.format(port.number)}"
        document = await port.ask(request("GET", "/.well-known/oauth-protected-resource/mcp", host=name))
        refused = [await port.ask(post(b"{}", headers, host=name)) for headers in ({}, {"Authorization": "Bearer x"})]
    assert document.json["resource"] == f"{url}/mcp"
    for answer in refused:
        assert challenge(answer)["resource_metadata"] == f"{url}/.well-known/oauth-protected-resource/mcp"


@pytest.mark.parametrize(
    "url", ["mcp", "ftp://h/mcp", "https://", "https://h/mcp#f", "https://h/mcp?a=b", "https://h/a b", "https://h:x/"]
)
def test_what_is_no_public_url(url: str) -> None:
    with pytest.raises(ConfigurationError, match="full URL that clients use for the endpoint"):
        protected(public_url=url)


def test_an_application_has_to_be_told_its_url() -> None:
    """AUTH-007, AUTH-025: and beyond this machine it has TLS."""
    with pytest.raises(ConfigurationError, match=r"TokenFunction\(…, public_url='https://example.com/mcp'\)"):
        watching().asgi_app(auth=protected(public_url=""))
    with pytest.raises(ConfigurationError, match="https"):
        watching().asgi_app(auth=protected(public_url="http://tools.example.com/mcp"))
    with pytest.raises(ConfigurationError, match="exclude each other"):
        watching().asgi_app(auth=protected(), authenticate=lambda headers: ADA)
    assert watching().asgi_app(auth=protected()).guard.protection is not None


@pytest.mark.parametrize("scopes", [["offline_access"], ["a b"], ["ä"], ['a"b'], "notes.read", [""]])
def test_what_is_no_scope(scopes: Any) -> None:
    """AUTH-009: offline_access is refused at the start."""
    with pytest.raises(ConfigurationError, match="scope"):
        protected(scopes=scopes)


DISCOVERY = (
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-authorization-server/mcp",
    "/.well-known/openid-configuration",
    "/mcp/.well-known/openid-configuration",
    "/.well-known/oauth-protected-resource/other",
    "/register",
    "/authorize",
    "/token",
)


@pytest.mark.parametrize("access", [Access(), Access(token="t0ken"), Access(authenticate=protected())])
async def test_what_is_not_there_is_json_on_open_servers_too(access: Access) -> None:
    """AUTH-016, AUTH-017: clients read it as an OAuth error, whatever they say they take; pages may read it too."""
    async with serving(watching(), access=access) as port:
        for path in DISCOVERY:
            fields = [("Accept", "text/html"), ("Origin", "http://localhost:5173")]
            answer = await port.ask(request("GET", path, fields))
            assert answer.status == 404
            assert answer["content-type"] == "application/json"
            assert answer.json["error"] == "not_found"
            assert isinstance(answer.json["error_description"], str)
            assert ("/.well-known/" in path) == (dict(answer.headers).get("access-control-allow-origin") == "*")


async def test_only_health_and_documents_answer_without_a_token() -> None:
    """AUTH-024: and an author's own routes ask too."""
    server = watching()

    @server.route("/report")
    async def report() -> str:
        return "secret"

    auth = protected()
    async with serving(server, access=Access(authenticate=auth)) as port:
        for path in ("/healthz", "/readyz"):
            assert (await port.ask(request("GET", path))).status == 200
        assert (await port.ask(request("GET", "/report"))).status == 401
        authorized = request("GET", "/report", [("Authorization", "Bearer ada-token")])
        assert (await port.ask(authorized)).text == "secret"


# ------------------------------------------------------------------------------------ who it is


async def test_a_token_is_judged_once_and_its_principal_is_the_users() -> None:
    """AUTH-058, AUTH-065: by SHA-256; scopes include those that they imply (AUTH-083)."""
    judge = Judge()
    async with open_to(protected(judge)) as port:
        for _ in range(3):
            assert told(await ask(port, "Bearer ada-token")) == ["ada", ["notes.read"]]
        assert told(await ask(port, "Bearer bob-token")) == ["bob", ["notes", "notes.read", "notes.write"]]
        for _ in range(3):
            assert (await ask(port, "Bearer mallory")).status == 401
    assert len(judge.asked) == 3
    assert judge.asked[0] == "POST "


async def test_several_requests_with_one_new_token_are_one_question() -> None:
    judge = Judge()
    async with open_to(protected(judge)) as port:
        answers = await asyncio.gather(*(ask(port, "Bearer ada-token") for _ in range(20)))
    assert all(answer.status == 200 for answer in answers)
    assert len(judge.asked) == 1


async def test_a_token_is_known_without_its_request_only_where_that_says_all() -> None:
    """AUTH-012, AUTH-043, AUTH-058, AUTH-078: whoever is let in by `known` would be by all that is looked at else."""
    now = [1000.0]

    def judge(token: str, request: TokenRequest) -> Verified | None:
        bound = Verified(ADA, key_thumbprint="k")
        return bound if token == "ada-bound" else Verified(TOKENS[token]) if token in TOKENS else None

    class Judged(Auth):
        def _verify(self, token: str, request: TokenRequest) -> Verified | None:
            return judge(token, request)

    def judged(dpop: Any) -> Judged:
        auth = Judged(scopes=["notes.read"], dpop=dpop)
        auth._cache = TokenCache(300.0, lambda: now[0])
        for token in ("ada-token", "ada-bound", "low-token", "nobodys"):
            auth({"authorization": f"Bearer {token}"})
        return auth

    auth = judged("accept")
    assert auth.known(b"Bearer ada-token") == ADA
    for other in (b"Bearer ada-bound", b"Bearer low-token", b"Bearer nobodys", b"Bearer ada-elsewhere", b"ada-token",
                  b"bearer ada-token", b"DPoP ada-token", b"Bearer  ada-token", b"Bearer ada-token ", b"Bearer ", b"",
                  b"Bearer ada-token, Bearer ada-token", b"Bearer " + b"x" * 20_000, b"Bearer \xe4"):  # fmt: skip
        assert auth.known(other) is None, other
    assert judged("require").known(b"Bearer ada-token") is None

    now[0] += 301
    assert auth.known(b"Bearer ada-token") is None
    auth({"authorization": "Bearer ada-token"})
    assert auth.known(b"Bearer ada-token") == ADA
    auth.forget(subject="ada")
    assert auth.known(b"Bearer ada-token") is None


async def test_what_is_forgotten_is_judged_anew() -> None:
    """AUTH-078."""
    judge = Judge()
    auth = protected(judge)
    async with open_to(auth) as port:
        for subject in ("bob", "ada"):
            await ask(port, "Bearer ada-token")
            auth.forget(subject=subject)
        await ask(port, "Bearer ada-token")
    assert len(judge.asked) == 2


@pytest.mark.parametrize("cache_seconds", [60.0, 0.0])
async def test_who_is_forgotten_while_a_token_is_judged_is_judged_again(cache_seconds: float) -> None:
    """AUTH-078: the answer that is on its way is of before, and would be kept, and let streams begin."""
    users, may_answer, asked = dict(TOKENS), asyncio.Event(), 0

    async def judge(token: str, request: TokenRequest) -> Principal | None:
        nonlocal asked
        asked += 1
        found = users.get(token)
        await may_answer.wait()
        return found

    auth = protected(judge, cache_seconds=cache_seconds)
    about = {name: asyncio.ensure_future(auth({"authorization": f"Bearer {name}-token"})) for name in ("ada", "bob")}  # type: ignore[arg-type]
    while asked < 2:
        await asyncio.sleep(0)
    del users["ada-token"], users["bob-token"]
    auth.forget(subject="ada")
    may_answer.set()

    assert isinstance(await about["ada"], Refusal)
    assert auth.known(b"Bearer ada-token") is None
    # Nobody has said anything of him.
    assert getattr(await about["bob"], "subject", "") == "bob"
    assert asked == 3


async def test_what_is_forgotten_ends() -> None:
    """AUTH-078: sessions, subscriptions and WebSockets of who is meant, and nobody else's."""
    auth = protected()
    async with open_to(auth) as port:
        sessions, streams, sockets = {}, {}, {}
        for name in ("ada", "bob"):
            token = {"Authorization": f"Bearer {name}-token"}
            hello = await port.ask(post(initialize(), token))
            sessions[name] = {**token, "Mcp-Session-Id": hello["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
            streams[name] = await port.connect()
            streams[name].send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, token))
            await streams[name].head()
            sockets[name] = WebSocketPeer(*await asyncio.open_connection("127.0.0.1", port.number))
            sockets[name].send(upgrade(**token))
            assert (await sockets[name].response())[0] == 101

        auth.forget(subject="ada")
        assert await sockets["ada"].closing() == (1008, "token revoked")
        messages = []
        while (found := await streams["ada"].event()) is not None:
            messages.append(found)
        assert "result" in messages[-1]["data"]
        assert (await port.ask(post(call("ping"), sessions["ada"]))).status == 404

        assert (await port.ask(post(call("ping"), sessions["bob"]))).status == 200
        sockets["bob"].send(frame(TEXT, json.dumps(initialize()).encode()))
        assert "result" in json.loads(await sockets["bob"].text())
        for peer in sockets.values():
            await peer.aclose()


async def test_who_is_forgotten_while_the_body_comes_is_asked_again() -> None:
    """AUTH-078: else a body that is held back would begin a stream that lasts as long as the token."""
    auth, is_looked_at = protected(), asyncio.Event()
    judged = auth.known

    def known(authorization: bytes) -> Principal | None:
        is_looked_at.set()
        return judged(authorization)

    auth.known = known  # type: ignore[method-assign]
    async with open_to(auth) as port:
        for name in ("ada", "bob"):
            token = {"Authorization": f"Bearer {name}-token"}
            await ask(port, token["Authorization"])
            is_looked_at.clear()
            whole = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, token)
            peer = await port.connect()
            peer.send(whole[:-1])
            await is_looked_at.wait()
            auth.forget(subject="ada")
            peer.send(whole[-1:])
            answer = await peer.head()
            assert answer.status == (401 if name == "ada" else 200)
            assert name == "bob" or challenge(answer)["error"] == "invalid_token"


def test_a_clock_that_is_set_back_makes_nothing_last_longer() -> None:
    """AUTH-058: what was judged by a clock that went wrong least of all: "expired" would stay so for hours."""
    now = [10_000.0]
    cache: Any = TokenCache(300, lambda: now[0])
    cache.accept(b"good", "ada", None)
    cache.accept(b"short", "ada", now[0] + 5)
    cache.refuse(b"bad", "it has expired")
    assert (cache.accepted(b"good"), cache.accepted(b"short"), cache.refused(b"bad")) == (
        "ada",
        "ada",
        "it has expired",
    )
    now[0] -= 3600
    assert (cache.accepted(b"good"), cache.accepted(b"short"), cache.refused(b"bad")) == (None, None, None)


def test_a_flood_of_refused_tokens_pushes_no_accepted_one_out() -> None:
    """AUTH-058, H17: and accepted ones are not more than there is room for."""
    now = [0.0]
    cache: Any = TokenCache(300, lambda: now[0])
    cache.accept(b"good", "ada", None)
    for number in range(3_000):
        cache.refuse(b"%d" % number, "no")
    assert cache.accepted(b"good") == "ada"
    assert (cache.refused(b"0"), cache.refused(b"2999")) == (None, "no")
    for number in range(10_000):
        cache.accept(b"%d" % number, "eve", None)
    assert cache.accepted(b"good") is None
    cache.accept(b"short", "ada", now[0] + 5)
    now[0] += 6
    assert cache.accepted(b"short") is None
    now[0] += 300
    assert cache.accepted(b"9999") is None


async def test_scopes_that_a_token_lacks_are_403() -> None:
    """AUTH-080, AUTH-083, H15: equality or hierarchy, nothing in between."""
    async with open_to(protected()) as port:
        answer = await ask(port, "Bearer low-token")
    assert answer.status == 403
    assert answer.json["error"] == "insufficient_scope"
    found = challenge(answer)
    assert (found["error"], found["scope"], found["resource_metadata"]) == (
        "insufficient_scope",
        "notes.read",
        METADATA,
    )


ASKS = "give a token with --token-file FILE"
REFUSES = "the server refuses the Authorization header"


@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize(
    ("headers", "said", "advice", "others"),
    [
        ({}, "", "", [REFUSES]),
        ({"Authorization": "Basic YTpi"}, "Authorization is not a bearer token", REFUSES, [ASKS]),
        ({"Authorization": "Bearer old"}, "The token has expired", REFUSES, [ASKS]),
        ({"Authorization": "Bearer theirs"}, "The token is for another audience", REFUSES, [ASKS]),
        ({"Authorization": "Bearer forged"}, "The signature of the token is not valid", REFUSES, [ASKS]),
        ({"Authorization": "Bearer low-token"}, "requires the scope notes.read, which the token does not have",
         "use one with the scopes notes.read", [ASKS, REFUSES]),
        ({"Authorization": "Bearer ada-token", "Origin": "https://evil.example"},
         "Origin 'https://evil.example' is not allowed here", "--allow-origin ORIGIN", [ASKS, REFUSES, "token"]),
    ],
)  # fmt: skip
async def test_a_client_is_advised_by_the_cause_of_a_refusal(
    scheme: str, headers: dict[str, str], said: str, advice: str, others: list[str]
) -> None:
    class Verifier(Judge):
        async def __call__(self, token: str, request: TokenRequest) -> Principal | None:
            why = {"old": "has expired", "theirs": "is for another audience"}.get(token)
            if token == "forged":
                raise InvalidToken("the signature of the token is not valid")
            if why is not None:
                raise InvalidToken(f"the token {why}")
            return await super().__call__(token, request)

    async with open_to(protected(Verifier())) as port:
        client = Client(f"{scheme}://127.0.0.1:{port.number}/mcp", headers=headers)
        with pytest.raises(HttpError) as caught:
            await client.open()
    text = str(caught.value)
    assert said in text
    assert (advice or {"http": "run mcpd login http://", "ws": ASKS}[scheme]) in text
    assert [other for other in others if other in text] == []


async def test_a_wrong_host_is_not_taken_for_a_wrong_token() -> None:
    async with open_to(protected()) as port:
        client = Client(f"http://127.0.0.1:{port.number}/mcp", headers={"Host": "evil.example"})
        with pytest.raises(HttpError, match="Host 'evil.example' is not allowed here.*--allow-host NAME") as caught:
            await client.open()
    assert "token" not in str(caught.value)


async def test_a_session_is_its_principals_whatever_the_token() -> None:
    """AUTH-065, AUTH-066, AUTH-067, H13: the refreshed token goes on; the same user by another client is another."""
    async with open_to(protected()) as port:

        async def tell(token: str, **session: str) -> Answer:
            message = call("ping") if session else initialize()
            return await port.ask(post(message, {**session, "Authorization": f"Bearer {token}"}))

        hello = await tell("ada-token")
        session = {"Mcp-Session-Id": hello["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        assert (await tell("ada-refreshed", **session)).status == 200
        assert (await tell("ada-elsewhere", **session)).status == 404
        assert (await tell("bob-token", **session)).status == 404
        assert (await tell("ada-token", **session)).status == 200


async def test_what_fails_is_told_without_details(caplog: pytest.LogCaptureFixture) -> None:
    """AUTH-054, AUTH-055, AUTH-057, AUTH-061: 503 where nothing is known, 500 for a function that raises."""
    judge = Judge()
    caplog.set_level(logging.DEBUG)
    async with open_to(protected(judge)) as port:
        judge.error = Unavailable("the keys are not to be had")
        answer = await ask(port, "Bearer ada-token")
        assert (answer.status, answer["retry-after"], answer.json["error"]) == (503, "5", "temporarily_unavailable")
        assert "www-authenticate" not in dict(answer.headers)

        judge.error = RuntimeError("ada-token is broken")
        answer = await ask(port, "Bearer ada-token")
        assert (answer.status, answer.json["error"]) == (500, "server_error")

        judge.error = InvalidToken("the token is not for this server", "aud is 'other'")
        answer = await ask(port, "Bearer ada-token")
        assert challenge(answer)["error_description"] == "the token is not for this server"
        assert "other" not in answer.text
    assert "aud is 'other'" in caplog.text
    assert "RuntimeError" in caplog.text
    assert "ada-token" not in caplog.text


async def test_a_function_that_gives_something_else_lets_nobody_in() -> None:
    for wrong in ("ada", Principal("")):
        async with open_to(protected(lambda token, request, given=wrong: given)) as port:
            assert (await ask(port, "Bearer ada-token")).status == 500


# ------------------------------------------------------------------------------------ what becomes of it


async def test_no_token_reaches_a_handler() -> None:
    """AUTH-027, AUTH-060, S25-148, S25-152, S26-179, S26-186: not in headers, claims, arguments or anywhere else."""
    seen: list[str] = []
    server = Server("notes")

    @server.tool
    async def look(ctx: Context) -> str:
        seen.append(repr((ctx.headers, dict(ctx.user.claims), ctx.user, ctx.meta, ctx.client_info)))
        return "looked"

    @server.middleware
    async def watch(request: Any, call_next: Any) -> Any:
        seen.append(repr((request.params, request.context.headers)))
        return await call_next(request)

    async with serving(server, access=Access(authenticate=protected())) as port:
        data = modern("tools/call", {"name": "look", "arguments": {}}, {"Authorization": "Bearer ada-token"})
        assert (await port.ask(data)).status == 200
    assert len(seen) == 2
    assert "ada-token" not in "".join(seen)


async def test_who_it_is_says_the_token_alone() -> None:
    """AUTH-075, S25-101, S26-159: whatever the client, its arguments and its headers say of themselves."""
    headers = {"Authorization": "Bearer ada-token", "X-User": "root", "X-Forwarded-User": "root"}
    params = {"name": "who", "arguments": {"user": "root", "subject": "root"}}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "root", "version": "1"},
    }
    async with open_to(protected()) as port:
        answer = await port.ask(modern("tools/call", {**params, "arguments": {}}, headers, meta=meta))
    assert told(answer)[0] == "ada"


async def test_an_answer_counts_only_from_who_was_asked() -> None:
    """AUTH-071, H13: another principal's answer to a question is to a session that it does not know."""
    server = Server("asks")

    @server.tool
    async def hello(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return str(answer.get()["name"])

    async with serving(server, access=Access(authenticate=protected())) as port:
        ada, bob = ({"Authorization": f"Bearer {token}"} for token in ("ada-token", "bob-token"))
        hello_answer = await port.ask(post(initialize(capabilities={"elicitation": {}}), ada))
        session = {"Mcp-Session-Id": hello_answer["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        asking = asyncio.ensure_future(
            port.ask(post(call("tools/call", {"name": "hello", "arguments": {}}, id=7), {**session, **ada}))
        )
        stream = await port.connect()
        fields = [*session.items(), *ada.items(), ("Accept", "text/event-stream")]
        stream.send(request("GET", "/mcp", fields))
        await stream.head()
        for name, owner, status in (("Eve", bob, 404), ("Ada", ada, 202)):
            result = {"action": "accept", "content": {"name": name}}
            said = {"jsonrpc": "2.0", "id": 1, "result": result}
            assert (await port.ask(post(said, {**session, **owner}))).status == status
        answer = await asking
        assert answer.messages[-1]["result"]["content"][0]["text"] == "Ada"


async def test_named_pages_may_send_and_read_what_authorization_needs() -> None:
    """AUTH-021: a preflight asks nobody who they are; the challenge can be read."""
    page = "https://app.example.com"
    access = Access(authenticate=protected(), origins=(page,))
    async with serving(watching(), access=access) as port:
        asked = [("Origin", page), ("Access-Control-Request-Method", "POST")]
        preflight = await port.ask(request("OPTIONS", "/mcp", asked))
        assert preflight.status == 204
        assert {"Authorization", "DPoP"} <= set(preflight["access-control-allow-headers"].split(", "))
        answer = await ask(port, None, Origin=page)
        assert answer.status == 401
        exposed = set(answer["access-control-expose-headers"].split(", "))
        assert {"WWW-Authenticate", "DPoP-Nonce", "Mcp-Session-Id"} <= exposed


# ------------------------------------------------------------------------------------ the end of a token


def expiring(seconds: float) -> TokenFunction:
    until = time.time() + seconds
    return TokenFunction(lambda token, request: Principal("ada", expires=until), issuers=[ISSUER], public_url=PUBLIC)


@pytest.mark.medium
async def test_a_websocket_closes_when_its_token_ends() -> None:
    """AUTH-023, AUTH-073, S25-154, S26-182: with 1008, which says why."""
    async with open_to(expiring(0.5)) as port:
        peer = WebSocketPeer(*await asyncio.open_connection("127.0.0.1", port.number))
        peer.send(upgrade(Authorization="Bearer ada-token"))
        assert (await peer.response())[0] == 101
        peer.send(frame(TEXT, json.dumps(initialize()).encode()))
        assert "result" in json.loads(await peer.text())
        assert await peer.closing() == (1008, "token expired")
        await peer.aclose()


@pytest.mark.medium
async def test_streams_end_when_their_token_ends() -> None:
    """AUTH-072: a GET stream, and a subscription with its result."""
    token = {"Authorization": "Bearer ada-token"}
    async with open_to(expiring(1.5)) as port:
        hello = await port.ask(post(initialize(), token))
        session = {"Mcp-Session-Id": hello["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25", **token}
        stream = asyncio.ensure_future(
            port.ask(request("GET", "/mcp", [*session.items(), ("Accept", "text/event-stream")]))
        )
        params = {"notifications": {"toolsListChanged": True}}
        listening = await port.ask(modern("subscriptions/listen", params, token))
        assert "result" in listening.messages[-1]
        assert (await stream).status == 200
        assert (await ask(port, "Bearer ada-token")).status == 200  # judged anew; this function says so again


# ------------------------------------------------------------------------------------ static tokens


async def test_tokens_that_were_handed_out(tmp_path: Path) -> None:
    """AUTH-055: each with its name and scopes; there is no metadata, as there is nobody to log in to."""
    file = tmp_path / "tokens.toml"
    file.write_text('[ada]\ntoken = "0123456789abcdef"\nscopes = ["read"]\n[ci]\ntoken = "fedcba9876543210"\n')
    file.chmod(0o600)
    auth = StaticTokens.from_file(file, scopes=["read"])
    async with serving(watching(), access=Access(authenticate=auth)) as port:
        assert told(await ask(port, "Bearer 0123456789abcdef")) == ["ada", ["read"]]
        assert (await ask(port, "Bearer fedcba9876543210")).status == 403
        answer = await ask(port, "Bearer 0123456789abcdee")
        assert answer.status == 401
        assert "resource_metadata" not in challenge(answer)
        assert (await port.ask(request("GET", "/.well-known/oauth-protected-resource"))).status == 404


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no tokens"),
        ("[ada", "is not valid TOML"),
        ('token = "0123456789abcdef"', "write token ="),
        ('[ada]\ntoken = "0123456789abcdef"\nscope = "x"', "and no other keys"),
        ('[ada]\ntoken = "short"', "at least 16 characters"),
        ('[ada]\ntoken = "0123456789 abcdef"', "at least 16 characters"),
        ('[ada]\ntoken = "0123456789abcdef"\nscopes = ["a b"]', "is not a scope"),
        ('[ada]\ntoken = "0123456789abcdef"\n[bob]\ntoken = "0123456789abcdef"', "another client has the same token"),
    ],
)
def test_a_file_of_tokens_that_is_wrong_is_not_served(tmp_path: Path, text: str, said: str) -> None:
    """AUTH-057: and no token is in what is said."""
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_tokens(file)
    assert "abcdef" not in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such bits")
def test_a_file_of_tokens_is_its_owners(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens.toml"
    with pytest.raises(ConfigurationError, match="name a file"):
        read_tokens(file)
    file.write_text('[ada]\ntoken = "0123456789abcdef"\n')
    file.chmod(0o644)  # as containers mount secrets: it is served, as with --token-file
    assert [who.subject for who in read_tokens(file).values()] == ["ada"]
    assert f"--tokens-file: other users of this machine can read the file; run: chmod 600 {file}" in caplog.text
