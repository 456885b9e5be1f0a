"""Access tokens that are signed: whose they are, and the hostile list of those that are not taken."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from joserfc import jwk
from support.http_peer import Answer, Port, modern, serving
from support.issuer import TestIssuer, issuing

from mcpd import Context, Server
from mcpd.auth import issuers as keys_module
from mcpd.auth.issuers import Issuer, IssuerKeys, Jwt, metadata_urls, usable_keys
from mcpd.errors import ConfigurationError
from mcpd.transports.challenge import parse
from mcpd.transports.guards import Access

PUBLIC = "https://tools.example.com/mcp"


class House:
    """A server behind an issuer; `ran` counts the calls of its tool."""

    def __init__(self, port: Port, issuer: TestIssuer, auth: Jwt) -> None:
        self.port = port
        self.issuer = issuer
        self.auth = auth
        self.ran = 0

    async def ask(self, token: str) -> Answer:
        data = modern("tools/call", {"name": "who", "arguments": {}}, {"Authorization": f"Bearer {token}"})
        return await self.port.ask(data)

    async def refused(self, token: str, error: str = "invalid_token") -> str:
        """The description for a token that is refused; nothing ran, and none of it is in the answer."""
        before = self.ran
        answer = await self.ask(token)
        assert (answer.status, self.ran) == (401, before), answer.text
        params = parse([answer["www-authenticate"]])[0].params
        assert params["error"] == answer.json["error"] == error
        assert token not in answer.text
        return params["error_description"]


@asynccontextmanager
async def house(**options: Any) -> AsyncIterator[House]:
    server = Server("notes")
    async with issuing() as issuer:
        auth = Jwt(options.pop("issuer", None) or issuer.url, **{"public_url": PUBLIC, **options})

        @server.tool
        async def who(ctx: Context) -> str:
            found.ran += 1
            return json.dumps([ctx.user.subject, ctx.user.client, sorted(ctx.user.scopes), ctx.user.issuer])

        async with serving(server, access=Access(authenticate=auth)) as port:
            found = House(port, issuer, auth)
            yield found


def told(answer: Answer) -> Any:
    assert answer.status == 200, answer.text
    return json.loads(answer.json["result"]["content"][0]["text"])


def encoded(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


# ------------------------------------------------------------------------------------ what is taken


async def test_whose_a_token_is() -> None:
    """AUTH-036, AUTH-037, AUTH-042: keys are fetched once, from the metadata."""
    async with house() as the:
        issuer = the.issuer
        assert told(await the.ask(issuer.token())) == ["ada", "cli", ["notes.read"], issuer.url]
        # `scp` as text or list; no subject: the client. A member with a space in it is no scope.
        several = issuer.token(scope=None, scp=["a", "b", "c d"], sub=None)
        assert told(await the.ask(several))[:3] == ["cli", "cli", ["a", "b"]]
        assert told(await the.ask(issuer.token(scp="a b", aud=["other", PUBLIC])))[2] == ["a", "b", "notes.read"]
        assert told(await the.ask(issuer.token(client_id=None, azp="web")))[1] == "web"
        assert issuer.asked == ["/.well-known/oauth-authorization-server", "/jwks"]


@pytest.mark.parametrize("kind", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", "jwt", None])
async def test_types_that_are_met(kind: str | None) -> None:
    """AUTH-035."""
    async with house() as the:
        assert (await the.ask(the.issuer.token(head={"typ": kind}))).status == 200
    async with house(strict=True) as the:
        is_strict = kind is not None and "at" in kind.lower()
        assert (await the.ask(the.issuer.token(head={"typ": kind}))).status == (200 if is_strict else 401)


@pytest.mark.parametrize(
    ("alg", "make"),
    [
        ("RS256", lambda: jwk.RSAKey.generate_key(2048, {"kid": "r"})),
        ("PS256", lambda: jwk.RSAKey.generate_key(2048, {"kid": "r"})),
        ("ES384", lambda: jwk.ECKey.generate_key("P-384", {"kid": "e"})),
        ("EdDSA", lambda: jwk.OKPKey.generate_key("Ed25519", {"kid": "o"})),
    ],
)
async def test_each_algorithm(alg: str, make: Any) -> None:
    async with house() as the:
        the.issuer.keys.insert(0, make())
        assert (await the.ask(the.issuer.token(alg=alg))).status == 200
        # The same key, for an algorithm that was not allowed for it.
        assert await the.refused(the.issuer.token(key=the.issuer.keys[1], head={"kid": the.issuer.keys[0].kid}))


async def test_a_token_without_kid_needs_the_one_key() -> None:
    """AUTH-050."""
    async with house() as the:
        assert (await the.ask(the.issuer.token(head={"kid": None}))).status == 200
    async with house() as the:
        the.issuer.keys.append(jwk.ECKey.generate_key("P-256", {"kid": "k2"}))
        assert "unknown key" in await the.refused(the.issuer.token(head={"kid": None}))


async def test_a_secret_instead_of_keys() -> None:
    """AUTH-031: HMAC with a configured secret alone, and then nothing is fetched."""
    secret = "s" * 32
    async with house(secret=secret) as the:
        key = jwk.OctKey.import_key(secret)
        assert (await the.ask(the.issuer.token(key=key, alg="HS256", head={"kid": None}))).status == 200
        assert "algorithm" in await the.refused(the.issuer.token())
        assert the.issuer.asked == []


async def test_another_claim_may_prove_the_recipient() -> None:
    """AUTH-038: only by name, and never none at all."""
    async with house(expect={"client_id": ["cli", "web"]}) as the:
        assert (await the.ask(the.issuer.token(aud=None))).status == 200
        assert "recipient" in await the.refused(the.issuer.token(aud=None, client_id="other"))
        assert "recipient" in await the.refused(the.issuer.token(aud=PUBLIC, client_id=None))


# ------------------------------------------------------------------------------------ the hostile list


@pytest.mark.parametrize("alg", ["none", "None", "nOnE", "HS256", "ES256K", "", "RS256 "])
async def test_an_algorithm_that_is_not_taken(alg: str) -> None:
    """H1, AUTH-031."""
    async with house() as the:
        for signature in ("", "x", encoded(b"\0" * 64)):
            token = f"{encoded({'alg': alg, 'kid': 'k1'})}.{encoded(the.issuer.claims())}.{signature}"
            assert await the.refused(token)


async def test_a_public_key_is_no_secret() -> None:
    """H1, AUTH-032: HS256 keyed with the public key, in whichever form."""
    async with house() as the:
        public = the.issuer.keys[0]
        forms = [
            public.as_pem(private=False),
            public.as_der(private=False),
            json.dumps(public.as_dict(private=False)).encode(),
        ]
        for form in forms:
            import hashlib
            import hmac

            head = f"{encoded({'alg': 'HS256', 'kid': 'k1'})}.{encoded(the.issuer.claims())}"
            mac = hmac.new(form, head.encode(), hashlib.sha256).digest()
            assert "algorithm" in await the.refused(f"{head}.{encoded(mac)}")


async def test_a_key_in_the_header_is_not_used() -> None:
    """H2, AUTH-033: and nothing is fetched for it."""
    async with house() as the, issuing() as thief:
        mine = jwk.ECKey.generate_key("P-256", {"kid": "k1"})
        thief.keys = [mine]
        for head in (
            {"jwk": mine.as_dict(private=False)},
            {"jku": f"{thief.url}/jwks"},
            {"x5u": f"{thief.url}/x5u"},
            {"x5c": ["MIIB"]},
        ):
            assert "signature" in await the.refused(the.issuer.token(key=mine, head=head))
        assert thief.asked == []


@pytest.mark.parametrize(
    "head", [{"crit": ["b64"], "b64": False}, {"crit": ["exp"]}, {"crit": []}, {"zip": "DEF"}, {"enc": "A"}]
)
async def test_a_header_that_demands_something(head: dict[str, Any]) -> None:
    """H3, AUTH-034."""
    async with house() as the:
        token = the.issuer.token().split(".")
        wrong = {"alg": "ES256", "kid": "k1", "typ": "at+jwt", **head}
        assert await the.refused(f"{encoded(wrong)}.{token[1]}.{token[2]}")


async def test_what_is_no_jws() -> None:
    """H3: JWE, other serializations, JSON that is none, an object in an array."""
    async with house() as the:
        good = the.issuer.token().split(".")
        for token in (
            "a.b.c.d.e",
            ".".join(good[:2]),
            f"{good[0]}.{good[1]}.",
            f"{encoded([])}.{good[1]}.{good[2]}",
            f"{encoded(b'[' * 5000)}.{good[1]}.{good[2]}",
            f"{good[0]}.{encoded(b'{')}.{good[2]}",
            f"{good[0]}.{encoded(b'NaN')}.{good[2]}",
            f"{good[0]}A.{good[1]}.{good[2]}",
            f"{good[0]}.{good[1]}.{good[2][:-4]}",
        ):
            assert await the.refused(token)


@pytest.mark.parametrize(
    "kid", ["../../../dev/null", "' OR 1=1", "http://127.0.0.1:1/", "x" * 5000, 1, None, ["k1"], "k1\0"]
)
async def test_the_name_of_a_key_is_a_name(kid: Any) -> None:
    """H4, AUTH-050."""
    async with house() as the:
        the.issuer.keys.append(jwk.ECKey.generate_key("P-256", {"kid": "k2"}))
        token = the.issuer.token().split(".")
        assert await the.refused(f"{encoded({'alg': 'ES256', 'kid': kid})}.{token[1]}.{token[2]}")


async def test_a_flood_of_names_is_one_request() -> None:
    """H4, AUTH-047: and tokens that are good go on."""
    async with house() as the:
        assert (await the.ask(the.issuer.token())).status == 200
        await asyncio.gather(*(the.ask(the.issuer.token(head={"kid": f"no{n}"})) for n in range(30)))
        assert the.issuer.asked.count("/jwks") == 1
        assert (await the.ask(the.issuer.token(sub="eve"))).status == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "https://tools.example.com/mc"},
        {"aud": "https://tools.example.com/mcp/"},
        {"aud": "https://tools.example.com"},
        {"aud": ["a", "b"]},
        {"aud": None},
        {"aud": 7},
        {"aud": [PUBLIC, 7]},
        {"aud": {}},
        {"iss": None},
        {"iss": 7},
        {"iss": "https://other.example"},
    ],
)
async def test_a_token_for_others_or_of_others(claims: dict[str, Any]) -> None:
    """H6, AUTH-036, AUTH-037, AUTH-038, S25-145, S25-147, S26-176, S26-178."""
    async with house() as the:
        assert await the.refused(the.issuer.token(**claims))
        assert await the.refused(the.issuer.token(iss=f"{the.issuer.url}/"))


async def test_a_key_of_one_issuer_signs_nothing_for_another() -> None:
    """H6, AUTH-036."""
    async with issuing("/two") as two:
        two.metadata["jwks_uri"] = two.url.removesuffix("/two") + "/jwks"
        two.answers["/.well-known/oauth-authorization-server/two"] = lambda _: (
            200,
            "",
            json.dumps(two.metadata).encode(),
        )
        async with issuing() as one:
            both = [one.url, Issuer(url=two.url, audience=("two",))]
            async with house(issuer=both) as the:
                assert (await the.ask(one.token())).status == 200
                assert (await the.ask(two.token(aud="two"))).status == 200
                assert "audience" in await the.refused(two.token())
                assert "signature" in await the.refused(one.token(iss=two.url, aud="two"))
                assert the.auth.authorization_servers == (one.url, two.url)


async def test_an_audience_on_this_machine_has_each_of_its_names() -> None:
    async with house(public_url="http://127.0.0.1:8080/mcp") as the:
        for name in ("127.0.0.1", "localhost", "[::1]"):
            assert (await the.ask(the.issuer.token(aud=f"http://{name}:8080/mcp"))).status == 200
        for other in (
            "http://localhost:8081/mcp",
            "http://localhost:8080/",
            "http://localhost.evil:8080/mcp",
            "http://[",
        ):
            assert "audience" in await the.refused(the.issuer.token(aud=other))


async def test_times() -> None:
    """H7, AUTH-039: `exp` is there, finite and not past; `nbf` and `iat` are not ahead, by more than a minute."""
    async with house() as the:
        now = int(time.time())
        for claims in ({"exp": now - 55}, {"nbf": now + 55}, {"exp": now + 0.5}, {"iat": now - 10**6}):
            assert (await the.ask(the.issuer.token(**claims))).status == 200
        for claims in (
            {"exp": now - 61},
            {"exp": None},
            {"exp": str(now + 60)},
            {"exp": True},
            {"exp": 1e308},
            {"exp": -5},
            {"nbf": now + 90},
            {"nbf": "soon"},
            {"iat": now + 90},
        ):
            assert await the.refused(the.issuer.token(**claims))
        head, body, signature = the.issuer.token().split(".")
        for number in (b"NaN", b"Infinity", b"1e400"):
            payload, count = re.subn(rb'"exp": ?\d+', b'"exp":' + number, base64.urlsafe_b64decode(body + "=="))
            assert count == 1
            assert await the.refused(f"{head}.{encoded(payload)}.{signature}")


@pytest.mark.parametrize("kind", ["dpop+jwt", "logout+jwt", "oauth-id-jag+jwt", "id_token", "application/jwt+at"])
async def test_other_kinds_of_tokens(kind: Any) -> None:
    """H8, AUTH-035; an ID token is for its client, and refused as such (AUTH-037)."""
    async with house() as the:
        assert "not an access token" in await the.refused(the.issuer.token(head={"typ": kind}))
        assert "audience" in await the.refused(the.issuer.token(head={"typ": "JWT"}, aud="cli", nonce="n"))


async def test_nobody_in_particular_is_refused() -> None:
    """AUTH-042."""
    async with house() as the:
        assert "neither a subject" in await the.refused(the.issuer.token(sub=None, client_id=None))
        assert "neither a subject" in await the.refused(the.issuer.token(sub=7, client_id=["x"]))


@pytest.mark.parametrize(
    "bound", [{"jkt": "abc"}, {"x5t#S256": "abc"}, {"jkt": "a", "x5t#S256": "b"}, "abc", {}, {"jkt": 7}]
)
async def test_a_token_that_is_bound_to_a_key(bound: Any) -> None:
    """AUTH-043: it is no bearer token."""
    async with house() as the:
        assert "bound to a key" in await the.refused(the.issuer.token(cnf=bound))


# ------------------------------------------------------------------------------------ keys that change


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_keys_are_exchanged_behind_everything() -> None:
    """AUTH-048, AUTH-047: a new key is found when it comes, an old one goes when the set is read again."""
    clock = Clock()
    async with issuing() as issuer:
        keys = IssuerKeys(issuer.url, clock=clock)
        first = await keys.refreshed("k1", "ES256")
        assert keys.find("k1", "ES256") == first
        assert keys.find("k2", "ES256") == []  # asked a moment ago

        issuer.keys = [jwk.ECKey.generate_key("P-256", {"kid": "k2"})]
        clock.now += 31
        assert keys.find("k2", "ES256") is None
        assert [key.kid for key in await keys.refreshed("k2", "ES256")] == ["k2"]
        assert keys.find("k1", "ES256") == []

        # Old by now: what is there serves, and newer ones are asked for meanwhile.
        issuer.keys = [jwk.ECKey.generate_key("P-256", {"kid": "k3"})]
        clock.now += 301
        assert [key.kid for key in keys.find("k2", "ES256") or ()] == ["k2"]
        assert [key.kid for key in await keys.refreshed("k3", "ES256")] == ["k3"]


@pytest.mark.parametrize(
    ("header", "seconds"), [("", 300), ("max-age=1", 300), ("public, max-age=3600", 3600), ("max-age=99999999", 86400)]
)
async def test_how_long_keys_are_the_newest(header: str, seconds: int) -> None:
    """AUTH-048."""
    clock = Clock()
    async with issuing() as issuer:
        more = f"Cache-Control: {header}\r\n" if header else ""
        issuer.answers["/jwks"] = lambda _: (200, more, issuer.jwks())
        keys = IssuerKeys(issuer.url, f"{issuer.url}/jwks", clock=clock)
        await keys.load()
        clock.now += seconds - 1
        keys.find("k1", "ES256")
        assert keys._fetching is None
        clock.now += 2
        keys.find("k1", "ES256")
        assert keys._fetching is not None
        await keys._fetching
        assert issuer.asked == ["/jwks", "/jwks"]


async def test_an_outage_logs_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTH-054, AUTH-048: with keys tokens go on; without any it is 503, never 401."""
    monkeypatch.setattr(keys_module, "_BETWEEN_TRIES", 0.0)
    async with house() as the:
        the.issuer.answers["/jwks"] = lambda _: (500, "", b"")
        answer = await the.ask(the.issuer.token())
        assert (answer.status, answer.json["error"]) == (503, "temporarily_unavailable")
        assert "retry-after" in answer
        assert "www-authenticate" not in answer

        del the.issuer.answers["/jwks"]
        assert (await the.ask(the.issuer.token())).status == 200
        the.issuer.answers["/jwks"] = lambda _: (500, "", b"")
        assert (await the.ask(the.issuer.token(sub="eve"))).status == 200
        # Of a key that nobody knows it cannot be told now.
        assert (await the.ask(the.issuer.token(head={"kid": "new"}))).status == 503


@pytest.mark.parametrize(
    "answer",
    [
        (200, "", b'{"keys": [' + b" " * 140_000 + b"]}"),
        (200, "Content-Encoding: gzip\r\n", b"\x1f\x8b"),
        (200, "", b"<html>"),
        (200, "", b'{"keys": []}'),
        (200, "", b'{"keys": {}}'),
        (302, "Location: http://169.254.169.254/\r\n", b""),
    ],
)
async def test_what_is_no_set_of_keys(answer: tuple[int, str, bytes]) -> None:
    """H5, AUTH-045, AUTH-046: bounded, not followed, and the old keys stay."""
    clock = Clock()
    async with issuing() as issuer:
        keys = IssuerKeys(issuer.url, clock=clock)
        before = await keys.refreshed("k1", "ES256")
        issuer.answers["/jwks"] = lambda _: answer
        clock.now += 400
        assert await keys.refreshed("k1", "ES256") == before
        assert keys.find("k1", "ES256") == before


def test_keys_that_cannot_be_used_are_skipped() -> None:
    """H5, AUTH-032, AUTH-046: too small, too large, private, symmetric, for encryption; and not more than 100."""
    good = jwk.ECKey.generate_key("P-256", {"kid": "good"}).as_dict(private=False)
    weak = jwk.RSAKey.generate_key(2048, {"kid": "weak"}).as_dict(private=False)
    huge = {**weak, "n": "_" * 2800}
    unusable: list[Any] = [
        7,
        {},
        {"kty": "oct", "k": "c2VjcmV0"},
        {**good, "d": "AAAA"},
        {**good, "use": "enc"},
        {**good, "key_ops": ["sign"]},
        {**good, "kid": 7},
        {**good, "crv": "secp256k1"},
        {**good, "x": "AAAA"},
        {**weak, "n": weak["n"][:200]},
        huge,
        {**weak, "e": "AQ"},
        {**weak, "e": 3},
        {**weak, "n": "!"},
    ]
    found = usable_keys({"keys": [*unusable, good, {**good, "alg": "ES384"}]})
    assert [(key.kid, key.fits("ES256")) for key in found] == [("good", True), ("good", False)]
    assert len(usable_keys({"keys": [good] * 200})) == 100
    assert usable_keys({}) == []


@pytest.mark.parametrize("answers", [(404, 404), (200, 200)])
async def test_metadata_that_is_wrong_is_not_used(answers: tuple[int, int]) -> None:
    """AUTH-045, AUTH-054: it names its issuer; without it there are no keys, which is no fault of the token."""
    async with house() as the:
        for path, status in zip(("oauth-authorization-server", "openid-configuration"), answers, strict=True):
            other = json.dumps({"issuer": the.issuer.url + "/", "jwks_uri": f"{the.issuer.url}/jwks"}).encode()
            the.issuer.answers[f"/.well-known/{path}"] = lambda _, status=status, other=other: (status, "", other)
        assert (await the.ask(the.issuer.token())).status == 503
        assert "/jwks" not in the.issuer.asked


async def test_metadata_without_keys() -> None:
    async with house() as the:
        del the.issuer.metadata["jwks_uri"]
        assert (await the.ask(the.issuer.token())).status == 503


def test_where_metadata_is() -> None:
    assert metadata_urls("https://h.example/t/1/") == [
        "https://h.example/.well-known/oauth-authorization-server/t/1",
        "https://h.example/.well-known/openid-configuration/t/1",
        "https://h.example/t/1/.well-known/openid-configuration",
    ]
    assert len(metadata_urls("https://h.example/")) == 2


async def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """AUTH-057, AUTH-061, H16, S25-151, S26-184: at debug level neither tokens nor signatures; what was found is."""
    caplog.set_level(logging.DEBUG)
    async with house() as the:
        tokens = [the.issuer.token(), the.issuer.token(aud="https://other.example"), the.issuer.token(exp=1)]
        for token in tokens:
            await the.ask(token)
        for token in tokens:
            assert not any(part in caplog.text for part in (token, *token.split(".")[1:]))
        assert "https://other.example" in caplog.text
        assert "token" not in repr(the.auth).lower().replace("jwt", "")


# ------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"issuer": "idp.example.com"}, "write its URL"),
        ({"issuer": "http://idp.example.com"}, "https://"),
        ({"issuer": "https://h.example/?x"}, "write its URL"),
        ({"issuer": []}, "at least one"),
        ({"issuer": ["https://a.example", "https://a.example"]}, "without duplicates"),
        ({"issuer": ["https://a.example", "https://b.example"], "jwks_url": "https://a.example/jwks"}, "for each"),
        ({"audience": "me"}, "list of strings"),
        ({"algorithms": ["none"]}, "is not supported"),
        ({"algorithms": ["HS256"]}, "is not supported"),
        ({"secret": "short"}, "32 bytes"),
        ({"secret": "-----BEGIN PUBLIC KEY-----" + "x" * 32}, "not be a key of another kind"),
        ({"skew": 301}, "0 to 300"),
        ({"colour": "red"}, "unknown option 'colour'"),
    ],
)
def test_settings_that_are_wrong(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Jwt(**{"issuer": "https://idp.example.com", **options})
