"""Tokens that are bound to a key, and the proofs that come with them (RFC 9449)."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import uuid
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest
from joserfc import jwk, jwt
from joserfc.jws import JWSRegistry
from support.http_peer import Answer, Port, modern, request, serving
from support.websocket_peer import Peer as WebSocketPeer, upgrade

from mcpd import Context, Principal, Server
from mcpd.auth.base import Auth, TokenRequest, Verified
from mcpd.auth.signatures import ProofChecker, normalized
from mcpd.errors import ConfigurationError
from mcpd.transports.challenge import parse
from mcpd.transports.guards import Access

PUBLIC = "https://tools.example.com/mcp"
BOUND_ATH = base64.urlsafe_b64encode(sha256(b"bound").digest()).decode().rstrip("=")
KEY = jwk.ECKey.generate_key("P-256")
OTHER = jwk.ECKey.generate_key("P-256")
EDDSA = jwk.OKPKey.generate_key("Ed25519")
RSA = jwk.RSAKey.generate_key(2048)
_ALL = ["ES256", "ES384", "EdDSA", "Ed25519", "HS256", "RS256", "PS256"]


def thumbprint(key: Any) -> str:
    return str(key.thumbprint())


def proof(key: Any = KEY, alg: str = "ES256", head: dict[str, Any] | None = None, **claims: Any) -> str:
    """A proof that is good for a POST with the token `bound`; None leaves a member out."""
    usual = {
        "htm": "POST",
        "htu": PUBLIC,
        "iat": int(time.time()),
        "jti": uuid.uuid4().hex,
        "ath": BOUND_ATH,
    }
    header = {"alg": alg, "typ": "dpop+jwt", "jwk": key.as_dict(private=False), **(head or {})}
    registry = JWSRegistry(algorithms=_ALL, strict_check_header=False)
    given = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jwt.encode(header, given, key, algorithms=_ALL, registry=registry)


class Bound(Auth):
    """Takes the token `bound`, which is bound to KEY, `bound-eddsa`, and `plain`, which is not."""

    authorization_servers = ("https://idp.example",)

    def _verify(self, token: str, request: TokenRequest) -> Verified | None:
        keys = {"bound": thumbprint(KEY), "bound-eddsa": thumbprint(EDDSA), "bound-rsa": thumbprint(RSA), "plain": ""}
        return Verified(Principal("ada", issuer="https://idp.example"), keys[token]) if token in keys else None


@asynccontextmanager
async def house(dpop: Any = "accept", **options: Any) -> AsyncIterator[Port]:
    server = Server("notes", state_key=options.pop("state_key", None))

    @server.tool
    async def who(ctx: Context) -> str:
        return ctx.user.subject

    server.route("/report")(lambda: "secret")
    auth = Bound(dpop=dpop, public_url=PUBLIC, scopes=["use"] if options.pop("scoped", False) else [], **options)
    async with serving(server, access=Access(authenticate=auth)) as port:
        yield port


async def ask(port: Port, given: str | None, authorization: str = "DPoP bound") -> Answer:
    headers: dict[str, str | None] = {"Authorization": authorization, "DPoP": given}
    return await port.ask(modern("tools/call", {"name": "who", "arguments": {}}, headers))


async def test_a_proof_is_taken_once() -> None:
    """AUTH-100, AUTH-101, AUTH-103, AUTH-106, AUTH-108, AUTH-111, H12."""
    async with house() as port:
        given = proof()
        assert (await ask(port, given)).status == 200
        answer = await ask(port, given)
        assert (answer.status, answer.json["error"]) == (401, "invalid_dpop_proof")
        (challenge,) = parse([answer["www-authenticate"]])
        assert challenge.scheme == "DPoP"
        assert challenge.params["error"] == "invalid_dpop_proof"
        assert challenge.params["algs"] == "ES256 EdDSA Ed25519 RS256 PS256"
        assert "used before" in challenge.params["error_description"]
        assert (await ask(port, proof())).status == 200
        with_eddsa = proof(EDDSA, "EdDSA", ath=base64.urlsafe_b64encode(sha256(b"bound-eddsa").digest()).decode()[:-1])
        assert (await ask(port, with_eddsa, "dpop bound-eddsa")).status == 200


@pytest.mark.parametrize(
    ("key", "alg", "token"),
    [(RSA, "RS256", "bound-rsa"), (RSA, "PS256", "bound-rsa"), (EDDSA, "Ed25519", "bound-eddsa")],
)
async def test_each_algorithm_that_is_announced_is_taken_once(key: Any, alg: str, token: str) -> None:
    """AUTH-101, AUTH-108, AUTH-113."""
    async with house() as port:
        given = proof(key, alg, ath=b64_of(token))
        assert (await ask(port, given, f"DPoP {token}")).status == 200
        assert (await ask(port, given, f"DPoP {token}")).status == 401
        # The word of another algorithm for the same key, and a signature that something was added to.
        swapped = {"RS256": "PS256", "PS256": "RS256", "Ed25519": "ES256"}[alg]
        head, body, signature = proof(key, alg, ath=b64_of(token)).split(".")
        for bad in (f"{_with_alg(head, swapped)}.{body}.{signature}", f"{head}.{body}.{signature}AAAA"):
            assert (await ask(port, bad, f"DPoP {token}")).status == 401


@pytest.mark.parametrize(("name", "value"), [("n", "7w" * 128), ("e", "AQ"), ("n", "7w" * 400), ("crv", "P-256")])
async def test_an_rsa_key_that_proves_nothing_or_costs_too_much_is_none(name: str, value: str) -> None:
    """AUTH-101: fewer than 2,048 bits, more than 4,096, or an exponent that checks nothing."""
    async with house() as port:
        unsound = {**RSA.as_dict(private=False), name: value}
        answer = await ask(port, proof(RSA, "RS256", head={"jwk": unsound}, ath=b64_of("bound-rsa")), "DPoP bound-rsa")
        assert (answer.status, answer.json["error"]) == (401, "invalid_dpop_proof")
        assert "not a public key for" in answer.json["error_description"]


def b64_of(token: str) -> str:
    return base64.urlsafe_b64encode(sha256(token.encode()).digest()).decode().rstrip("=")


def _with_alg(segment: str, alg: str) -> str:
    head = {**json.loads(base64.urlsafe_b64decode(segment + "==")), "alg": alg}
    return base64.urlsafe_b64encode(json.dumps(head).encode()).decode().rstrip("=")


SMALL = {"alg": "ES256", "typ": "dpop+jwt"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: "",
        lambda: "a.b.c",
        lambda: "x" * 9000,
        lambda: f"{proof()}, {proof()}",
        lambda: proof(htm="GET"),
        lambda: proof(htu="https://tools.example.com/mcp2"),
        lambda: proof(htu="https://tools.example.com:8443/mcp"),
        lambda: proof(htu="https://other.example.com/mcp"),
        lambda: proof(htu="http://tools.example.com/mcp"),
        lambda: proof(htu=7),
        lambda: proof(iat=int(time.time()) - 305),
        lambda: proof(iat=int(time.time()) + 305),
        lambda: proof(iat=None),
        lambda: proof(iat="now"),
        lambda: proof(iat=10**400),
        lambda: proof(ath="x"),
        lambda: proof(ath=None),
        lambda: proof(jti=None),
        lambda: proof(jti="x" * 600),
        lambda: proof(OTHER),
        lambda: proof(head={"typ": "JWT"}),
        lambda: proof(head={"jwk": KEY.as_dict(private=True)}),
        lambda: proof(head={"jwk": OTHER.as_dict(private=False)}),
        lambda: proof(head={"jwk": {"kty": "EC"}}),
        lambda: proof(head={"jwk": {**KEY.as_dict(private=False), "x": "AAAA"}}),
        lambda: proof(jwk.OctKey.import_key("s" * 32), "HS256", head={"jwk": {"kty": "oct", "k": "eHh4"}}),
        lambda: proof(jwk.ECKey.generate_key("P-384"), "ES384"),
        lambda: _unsigned("none"),
    ],
)
async def test_what_proves_nothing(make: Any) -> None:
    """H12, AUTH-105: each is 401 with the right word, and nothing runs."""
    async with house() as port:
        answer = await ask(port, make())
        assert (answer.status, answer.json["error"]) == (401, "invalid_dpop_proof")


def _unsigned(alg: str) -> str:
    head, body, _ = proof().split(".")
    data = json.loads(base64.urlsafe_b64decode(head + "=="))
    return f"{base64.urlsafe_b64encode(json.dumps({**data, 'alg': alg}).encode()).decode().rstrip('=')}.{body}.AA"


async def test_two_headers_are_none() -> None:
    """AUTH-100."""
    fields = [("Authorization", "DPoP bound"), ("DPoP", proof()), ("DPoP", proof())]
    async with house() as port:
        answer = await port.ask(request("GET", "/mcp", fields))
        assert answer.json["error"] == "invalid_dpop_proof"


async def test_which_tokens_go_with_which_scheme() -> None:
    """AUTH-019, AUTH-043, AUTH-106: a bound token is no bearer token; a plain one has no proof."""
    async with house("accept") as port:
        assert (await ask(port, None, "Bearer plain")).status == 200
        for authorization in ("Bearer bound", "DPoP plain"):
            answer = await ask(port, proof(), authorization)
            assert (answer.status, answer.json["error"]) == (401, "invalid_token")
        nobody = await ask(port, None, "Basic x")
        assert [one.scheme for one in parse(_lines(nobody))] == ["Bearer", "DPoP"]
        document = (await port.ask(request("GET", "/.well-known/oauth-protected-resource"))).json
        assert document["dpop_signing_alg_values_supported"] == ["ES256", "EdDSA", "Ed25519", "RS256", "PS256"]
        assert "dpop_bound_access_tokens_required" not in document

    async with house("require") as port:
        assert (await ask(port, None, "Bearer plain")).status == 401
        assert (await ask(port, proof())).status == 200
        nobody = await ask(port, None, "Basic x")
        assert [one.scheme for one in parse(_lines(nobody))] == ["DPoP"]
        document = (await port.ask(request("GET", "/.well-known/oauth-protected-resource"))).json
        assert document["dpop_bound_access_tokens_required"] is True  # AUTH-113

    async with house("off") as port:
        for authorization in ("Bearer bound", "DPoP bound"):
            assert (await ask(port, proof(), authorization)).status == 401


def _lines(answer: Answer) -> list[str]:
    return [value for name, value in answer.headers if name == "www-authenticate"]


async def test_scopes_are_asked_for_as_ever() -> None:
    """AUTH-111."""
    async with house(scoped=True) as port:
        assert (await ask(port, proof())).status == 403


async def test_nonces() -> None:
    """AUTH-110: where they are wanted one is handed out, and is good for a minute or two."""
    async with house(dpop_nonces=True) as port:
        answer = await ask(port, proof())
        assert (answer.status, answer.json["error"]) == (401, "use_dpop_nonce")
        assert parse(_lines(answer))[0].params["error"] == "use_dpop_nonce"
        assert (await ask(port, proof(nonce=answer["dpop-nonce"]))).status == 200
        assert (await ask(port, proof(nonce="old"))).json["error"] == "use_dpop_nonce"


async def test_processes_with_one_key_take_each_others_nonces() -> None:
    """AUTH-110: also while the key is exchanged; a key of its own, and one for nonces alone, are others."""
    old, new = "a key of the service", "the next key of the service"
    async with (
        house(dpop_nonces=True, state_key=old) as first,
        house(dpop_nonces=True, state_key=f"{new},{old}") as second,
        house(dpop_nonces=True) as alone,
        house(dpop_nonces=True, state_key=old, dpop_nonce_key=b"x" * 32) as other,
    ):
        nonce = (await ask(first, proof()))["dpop-nonce"]
        assert (await ask(second, proof(nonce=nonce))).status == 200
        for port in (alone, other):
            assert (await ask(port, proof(nonce=nonce))).json["error"] == "use_dpop_nonce"
        assert (await ask(first, proof(nonce=(await ask(second, proof()))["dpop-nonce"]))).status == 401


async def test_a_websocket_proves_its_handshake() -> None:
    """AUTH-114: a GET, of the https form of the URL."""
    async with house() as port:
        for given, expected in ((proof(htm="GET"), 101), (proof(), 401), (proof(htm="GET", htu="wss://x"), 401)):
            peer = WebSocketPeer(*await asyncio.open_connection("127.0.0.1", port.number))
            peer.send(upgrade(Authorization="DPoP bound", DPoP=given))
            assert (await peer.response())[0] == expected
            await peer.aclose()


async def test_a_route_has_a_url_of_its_own() -> None:
    async with house() as port:
        for url, status in ((PUBLIC, 401), ("https://tools.example.com/report", 200)):
            fields = [("Authorization", "DPoP bound"), ("DPoP", proof(htm="GET", htu=url))]
            assert (await port.ask(request("GET", "/report", fields))).status == status


def test_a_full_memory_asks_for_nonces() -> None:
    """AUTH-108, H12: it forgets nothing, and takes no more than it has room for."""
    now = [1000.0]
    checker = ProofChecker(max_seen=3, clock=lambda: now[0])

    def check(given: str) -> Any:
        found = checker.check(given, method="POST", url=PUBLIC, ath=BOUND_ATH, thumbprint=thumbprint(KEY))
        return None if found == thumbprint(KEY) else found

    given = [proof(iat=1000) for _ in range(3)]
    assert [check(one) for one in given] == [None] * 3
    full = check(proof(iat=1000))
    assert full.nonce
    assert check(proof(iat=1000, nonce=full.nonce)) is None
    assert check(given[0]).nonce  # and if it had one:
    assert check(proof(iat=1000, jti="j", nonce=full.nonce)) is None
    now[0] += 200
    assert check(proof(iat=1200, nonce=full.nonce)).nonce not in ("", full.nonce)
    # Two windows later nothing of that could come again, and there is room.
    now[0] += 1200
    assert check(proof(iat=2400)) is None
    assert checker.check(None, method="POST", url=PUBLIC, ath=BOUND_ATH, thumbprint="").why.endswith("missing")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTPS://Tools.Example.com:443/mcp?x=1#f", "https://tools.example.com/mcp"),
        ("https://h", "https://h/"),
        ("https://h/a/./b/../c%7e%2f", "https://h/a/c~%2F"),
        ("https://[::1]:8443/x", "https://[::1]:8443/x"),
        ("https://h/a/..", "https://h/"),
        ("https://u@h/", None),
        ("ftp://h/", None),
        ("https://h:x/", None),
        ("", None),
    ],
)
def test_urls_are_compared_as_they_are_meant(url: str, expected: str | None) -> None:
    """AUTH-103: RFC 3986 6.2."""
    assert normalized(url) == expected


def test_settings_that_are_wrong() -> None:
    with pytest.raises(ConfigurationError, match="off, accept or require"):
        Bound(dpop="yes")  # type: ignore[arg-type]
