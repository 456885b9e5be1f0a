"""A person logs in: discovery, registration, the request and its response, on the wire."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.http_script import reply
from support.login_world import CALLBACK, world

from mcpd import AuthorizationFailed, AuthorizationRequired, Client, OAuth
from mcpd.errors import ConfigurationError

WELL_KNOWN = "/.well-known/oauth-protected-resource"


async def log_in(there: Any, **more: Any) -> None:
    async with Client(there.url, auth=there.oauth(**more)) as client:
        assert (await client.call_tool("read")).content[0].text == "done"  # type: ignore[union-attr]


async def refused(there: Any, **more: Any) -> str:
    """Why no login came about; no authorization request left, unless one was visited."""
    with pytest.raises(AuthorizationFailed) as raised:
        await log_in(there, **more)
    assert "secret-" not in str(raised.value)
    return str(raised.value)


async def test_from_the_refusal_to_the_first_answer() -> None:
    """AUTH-161, AUTH-175, AUTH-177, AUTH-185, AUTH-186, AUTH-187, AUTH-194, AUTH-205."""
    async with world() as there:
        await log_in(there)
        before = there.paths[: there.paths.index("/token") + 1]
        assert before == [
            "/mcp", f"{WELL_KNOWN}/mcp", "/.well-known/oauth-authorization-server", "/register", "/token",
        ]  # fmt: skip

        registered = there.registered[0]
        assert registered["application_type"] == "native"
        assert registered["grant_types"] == ["authorization_code", "refresh_token"]
        assert registered["redirect_uris"] == [CALLBACK]
        assert "scope" not in registered

        visit, form = there.visits[0], there.forms[0]
        assert visit["code_challenge_method"] == "S256"
        assert len(form["code_verifier"]) >= 43
        assert visit["resource"] == form["resource"] == there.url
        assert visit["scope"] == "basic"
        assert len(visit["state"]) >= 20

        mcp = [asked for asked in there.server.asked if asked.path.startswith("/mcp")]
        assert all("authorization" in asked.headers for asked in mcp[1:])
        assert all("?" not in asked.path for asked in mcp)


async def test_each_login_has_a_state_and_a_verifier_of_its_own() -> None:
    """AUTH-185, AUTH-186."""
    async with world() as there:
        await log_in(there)
        await log_in(there)
        assert len({visit["state"] for visit in there.visits}) == 2
        assert len({visit["code_challenge"] for visit in there.visits}) == 2


async def test_the_browser_may_come_back_before_it_counts_as_opened() -> None:
    """A browser in the foreground counts as opened when it is closed; a single sign-on answers at once."""
    async with world() as there:
        statuses: list[bytes] = []

        async def foreground(url: str) -> None:
            there.visit(url)
            back = urlsplit(there._returned)
            reader, writer = await asyncio.open_connection(back.hostname, back.port)
            writer.write(f"GET {back.path}?{back.query} HTTP/1.1\r\nHost: {back.netloc}\r\n\r\n".encode())
            statuses.append((await reader.read()).partition(b"\r\n")[0])
            writer.close()
            await asyncio.get_running_loop().create_future()  # the browser stays open

        await log_in(there, open_url=foreground, wait_callback=None, redirect="http://127.0.0.1:0/callback")
        assert statuses == [b"HTTP/1.1 200 OK"]


@pytest.mark.parametrize(
    ("path", "named", "asked"),
    [
        (f"{WELL_KNOWN}/mcp", False, [f"{WELL_KNOWN}/mcp"]),
        (WELL_KNOWN, False, [f"{WELL_KNOWN}/mcp", WELL_KNOWN]),
        ("/anywhere/metadata.json", True, ["/anywhere/metadata.json"]),
    ],
)
async def test_where_the_metadata_of_a_resource_is(path: str, named: bool, asked: list[str]) -> None:
    """AUTH-161."""
    async with world(resource_path=path, named=named) as there:
        await log_in(there)
        assert [one for one in there.paths if "resource" in one or "metadata.json" in one] == asked


@pytest.mark.parametrize(
    ("issuer", "where"),
    [
        ("", "/.well-known/oauth-authorization-server"),
        ("", "/.well-known/openid-configuration"),
        ("/tenant", "/.well-known/oauth-authorization-server/tenant"),
        ("/tenant", "/.well-known/openid-configuration/tenant"),
        ("/tenant", "/tenant/.well-known/openid-configuration"),
    ],
)
async def test_where_the_metadata_of_an_authorization_server_is(issuer: str, where: str) -> None:
    """AUTH-164."""
    order = {
        "": ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"],
        "/tenant": [
            "/.well-known/oauth-authorization-server/tenant", "/.well-known/openid-configuration/tenant",
            "/tenant/.well-known/openid-configuration",
        ],
    }[issuer]  # fmt: skip
    async with world(metadata_paths=(where,)) as there:
        there.metadata["issuer"] = f"{there.origin}{issuer}"
        await log_in(there)
        found = [path for path in there.paths if "authorization-server" in path or "openid" in path]
        assert found == order[: order.index(where) + 1]


@pytest.mark.parametrize("resource", ["{origin}", "{origin}/", "{url}"])
async def test_a_resource_may_be_the_server_or_what_it_is_below(resource: str) -> None:
    """AUTH-163, AUTH-187: what is sent is the string of the metadata."""
    async with world() as there:
        said = resource.format(origin=there.origin, url=there.url)
        there.resource["resource"] = said
        await log_in(there)
        assert there.visits[0]["resource"] == there.forms[0]["resource"] == said


@pytest.mark.parametrize(
    "resource",
    [
        "https://evil.example.com/mcp", "{url}2", "{origin}/mc", "{url}/below", "http://127.0.0.1:1/mcp",
        "https{rest}", "{url}?a=b", "http://user@{host}/mcp", "{url}#x",
    ],
)  # fmt: skip
async def test_metadata_of_another_resource_is_not_used(resource: str) -> None:
    """H18 (AUTH-163): foreign, a sibling path, another port, another scheme."""
    async with world() as there:
        there.resource["resource"] = resource.format(
            url=there.url,
            origin=there.origin,
            rest=there.url.removeprefix("http"),
            host=there.origin.partition("//")[2],
        )
        assert "its resource is" in await refused(there)
        assert not there.visits
        assert "/register" not in there.paths


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply(200, b"<html>"), "not JSON"),
        (reply(200, []), "not an object"),
        (reply(200, {"authorization_servers": ["https://a.example"]}), "has no resource"),
        (reply(500, b""), "500"),
        (reply(401, b""), "401"),
    ],
)
async def test_a_document_that_is_none_is_named(answer: bytes, said: str) -> None:
    """AUTH-169, AUTH-173: an outage is no reason to take the server for one of 2025-03-26."""
    async with world(answers={f"{WELL_KNOWN}/mcp": answer}) as there:
        why = await refused(there)
        assert said in why
        assert f"{WELL_KNOWN}/mcp" in why
        assert "/authorize" not in there.paths
        assert not there.visits


async def test_a_resource_without_authorization_servers() -> None:
    """AUTH-173."""
    async with world(resource={"authorization_servers": []}) as there:
        assert "no authorization server" in await refused(there)


@pytest.mark.parametrize("issuer", ["https://evil.example.com", "{origin}/", "{ORIGIN}", "{origin}/other"])
async def test_metadata_of_another_issuer_is_not_used(issuer: str) -> None:
    """AUTH-165, AUTH-173: identical, whatever would make them equal."""
    async with world() as there:
        there.resource["authorization_servers"] = [there.origin]
        there.metadata["issuer"] = issuer.format(origin=there.origin, ORIGIN=there.origin.upper())
        why = await refused(there)
        assert "its issuer is" in why
        assert "/.well-known/openid-configuration: 404" in why
        assert not there.visits
        assert not there.registered


async def test_an_issuer_that_differs_by_its_slash_has_an_override() -> None:
    """Some large providers name themselves with a slash in one place and without in the other."""
    async with world() as there:
        there.resource["authorization_servers"] = [there.origin]
        there.metadata["issuer"] = f"{there.origin}/"
        assert "OAuth(assume_issuer=True)" in await refused(there)
        await log_in(there, assume_issuer=True)
        there.metadata["issuer"] = f"{there.origin}/other"
        assert "assume_issuer" not in await refused(there, assume_issuer=True)


async def test_an_error_of_the_token_endpoint_may_have_status_200() -> None:
    async with world() as there:
        there.token_answer = {"error": "invalid_grant", "error_description": "The code was used"}
        assert "refused (200): invalid_grant: The code was used" in await refused(there)


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_without_pkce_nobody_is_sent_anywhere(methods: list[str] | None) -> None:
    """AUTH-170, with its override."""
    async with world(metadata={"code_challenge_methods_supported": methods}) as there:
        assert "assume-pkce" in await refused(there)
        assert not there.visits
        await log_in(there, assume_pkce=True)
        assert there.visits[0]["code_challenge_method"] == "S256"


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://evil.example.com/authorize", "javascript:alert(1)", "file:///etc/passwd", "--flag", "$(x)",
        "https://a.example/\nb", "https://u:p@a.example/", "https://a.example/#f", "ftp://a.example/",
    ],
)  # fmt: skip
async def test_no_browser_is_sent_where_none_may_go(endpoint: str) -> None:
    """AUTH-172, AUTH-193."""
    async with world(metadata={"authorization_endpoint": endpoint}) as there:
        assert "authorization endpoint" in await refused(there)
        assert not there.visits
        assert not there.registered


async def test_of_several_issuers_the_first_that_can_be_used() -> None:
    """AUTH-166: and one that is configured before all."""
    async with world() as there:
        there.resource["authorization_servers"] = ["http://127.0.0.1:1/gone", there.origin]
        await log_in(there)
        assert len(there.visits) == 1
        there.resource["authorization_servers"] = ["http://127.0.0.1:1/gone", "http://127.0.0.1:1", there.origin]
        await log_in(there, client_id="given", issuer=there.origin)
        assert there.visits[1]["client_id"] == "given"


async def test_of_several_issuers_that_can_be_used_ours_comes_first(tmp_path: Path) -> None:
    """AUTH-166, AUTH-179: the one that is configured, or that we are registered at; the others are not even asked."""
    async with world(gives_refresh=False) as there, world() as first:
        path = tmp_path / "auth.json"
        await log_in(there, store=path)
        there.tokens.clear()
        there.resource["authorization_servers"] = [first.origin, there.origin]
        await log_in(there, store=path)
        await log_in(there, client_id="given", issuer=there.origin)
        assert [visit["client_id"] for visit in there.visits] == ["client-1", "client-1", "given"]
        assert not first.paths


# -- 2025-03-26 --------------------------------------------------------------------------------


@pytest.mark.parametrize("has_metadata", [True, False])
async def test_a_server_of_2025_03_26(has_metadata: bool) -> None:
    """AUTH-167, AUTH-168, AUTH-169, AUTH-187: no resource is sent, and the version is said."""
    async with world(resource_path=None, metadata_paths=()) as there:
        if has_metadata:
            there.metadata_paths = ("/.well-known/oauth-authorization-server",)
        await log_in(there)
        assert [path for path in there.paths if "protected" in path] == [f"{WELL_KNOWN}/mcp", WELL_KNOWN]
        found = next(one for one in there.server.asked if one.path == "/.well-known/oauth-authorization-server")
        assert "mcp-protocol-version" in found.headers
        assert "resource" not in there.visits[0]
        assert "resource" not in there.forms[0]


async def test_the_old_ways_can_be_refused() -> None:
    """AUTH-169."""
    async with world(resource_path=None) as there:
        assert "has no protected resource metadata" in await refused(there, legacy=False)
        assert not there.visits


async def test_a_server_once_seen_with_metadata_never_goes_back_to_the_old_ways() -> None:
    """AUTH-169, AUTH-171: metadata is read anew for each login."""
    async with world(gives_refresh=False) as there:
        async with Client(there.url, auth=there.oauth(), cache=False) as client:
            await client.call_tool("read")
            there.tokens.clear()
            await client.call_tool("read")
            assert there.paths.count(f"{WELL_KNOWN}/mcp") == 2

            there.tokens.clear()
            there.resource_path = None
            with pytest.raises(AuthorizationFailed, match="no protected resource metadata"):
                await client.call_tool("read")
        assert len(there.visits) == 2


# -- who the client is -------------------------------------------------------------------------


async def test_the_order_of_registration() -> None:
    """AUTH-175, AUTH-176: a given id, a metadata document where it is announced, a registration."""
    document = "https://client.example/mcpd.json"
    async with world() as there:
        await log_in(there, client_id="given", client_metadata_url=document)
        assert there.visits[-1]["client_id"] == "given"
        await log_in(there, client_metadata_url=document)
        assert there.visits[-1]["client_id"] == "client-1"
        there.metadata["client_id_metadata_document_supported"] = True
        await log_in(there, client_metadata_url=document)
        assert there.visits[-1]["client_id"] == document
        assert len(there.registered) == 1


@pytest.mark.parametrize(
    ("redirect", "kind"), [("http://localhost:9/callback", "native"), ("https://app.example/callback", "web")]
)
async def test_a_registration_says_what_kind_of_program_its_redirect_is_of(redirect: str, kind: str) -> None:
    """AUTH-177: authorization servers with OpenID Connect refuse the other one."""
    async with world() as there:
        await log_in(there, redirect=redirect)
        assert there.registered[0]["redirect_uris"] == [redirect]
        assert there.registered[0]["application_type"] == kind


async def test_nobody_registers_us_and_nothing_is_given() -> None:
    """AUTH-175: ask."""
    async with world(metadata={"registration_endpoint": None}) as there:
        assert "--client-id" in await refused(there)


async def test_a_refused_registration_is_shown_and_adjusted_once() -> None:
    """AUTH-178."""
    answer = reply(400, {"error": "invalid_client_metadata", "error_description": "no such\x1b[31m clients"})
    async with world(answers={"/register": answer}) as there:
        why = await refused(there)
        assert "no such" in why
        assert "\x1b" not in why
        assert there.paths.count("/register") == 2
        sent = [json.loads(one.body) for one in there.server.asked if one.path == "/register"]
        assert sent[0] != sent[1]


@pytest.mark.parametrize(
    ("listed", "auth"),
    [
        (["client_secret_basic"], "basic"),
        (["client_secret_post"], "post"),
        (["client_secret_post", "client_secret_basic"], "post"),
        (None, "basic"),
        (["none"], "none"),
    ],
)
async def test_a_client_proves_itself_as_the_server_lists(listed: list[str] | None, auth: str) -> None:
    """AUTH-183: both parts are form-encoded."""
    async with world(metadata={"token_endpoint_auth_methods_supported": listed}) as there:
        await log_in(there)
        form = there.forms[0]
        assert form["_auth"] == auth
        if auth != "none":
            assert form.get("_secret", form.get("client_secret")) == "secret-of-client &+"
        await log_in(there, client_id="given: 1", client_secret="of us/")
        if there.forms[1]["_auth"] == "basic":
            assert (there.forms[1]["_client"], there.forms[1]["_secret"]) == ("given: 1", "of us/")


async def test_a_given_id_is_for_its_issuer_only() -> None:
    """AUTH-179, AUTH-180."""
    async with world() as there:
        why = await refused(there, client_id="given", client_secret="secret-given", issuer="https://as.example")
        assert "https://as.example" in why
        assert there.origin in why
        assert not there.visits
        assert "/token" not in there.paths


# -- the response ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("announced", "issuer", "is_taken"),
    [
        (True, "{}", True),
        (True, None, False),
        (False, "{}", True),
        (False, None, True),
        (True, "https://evil.example.com", False),
        (False, "https://evil.example.com", False),
        (True, "{}/", False),
        (True, "{UPPER}", False),
        (True, "http%3A//127.0.0.1", False),
    ],
)
async def test_the_issuer_of_a_response(announced: bool, issuer: str | None, is_taken: bool) -> None:
    """AUTH-188, AUTH-189, AUTH-190: compared as it stands, before any token request."""
    async with world(metadata={"authorization_response_iss_parameter_supported": announced}) as there:
        there.callback["iss"] = None if issuer is None else issuer.format(there.origin, UPPER=there.origin.upper())
        if is_taken:
            await log_in(there)
            return
        assert "issuer" in (why := await refused(there)) or "iss" in why
        assert "/token" not in there.paths


async def test_errors_of_a_response_are_shown_only_if_it_is_right() -> None:
    """H23 (AUTH-191)."""
    said: dict[str, str | None] = {"code": None, "error": "access_denied", "error_description": "<b>Call 555</b>"}
    async with world(callback=said) as there:
        assert "Call 555" in await refused(there)
        there.callback["iss"] = "https://evil.example.com"
        assert "555" not in await refused(there)
        there.callback = {**said, "state": "another"}
        assert "555" not in await refused(there)


@pytest.mark.parametrize("callback", [{"state": "another"}, {"state": None}, {"code": None}, {"code": ""}])
async def test_a_response_without_its_state_or_code(callback: dict[str, str | None]) -> None:
    """H23 (AUTH-186)."""
    async with world(callback=callback) as there:
        await refused(there)
        assert "/token" not in there.paths


async def test_a_parameter_given_twice() -> None:
    """AUTH-186: nobody can say which of the two was meant."""
    async with world() as there:
        auth = there.oauth(wait_callback=lambda: f"{there._returned}&code=other")
        with pytest.raises(AuthorizationFailed, match="repeats a parameter"):
            async with Client(there.url, auth=auth):
                pass


# -- scopes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("challenged", "supported", "known", "given", "asked"),
    [
        ("one two", ["three"], None, None, "one two"),
        ("", ["three", "four"], None, None, "three four"),
        ("", None, ["six"], None, None),
        ("one", ["three"], None, ["mine"], "mine"),
        ("one", None, ["offline_access"], None, "one offline_access"),
        ("one offline_access", None, ["one"], None, "one"),
    ],
)
async def test_which_scopes_are_asked_for(
    challenged: str, supported: list[str] | None, known: list[str] | None, given: list[str] | None, asked: str | None
) -> None:
    """AUTH-194, AUTH-195, AUTH-196."""
    async with world(resource={"scopes_supported": supported}, metadata={"scopes_supported": known}) as there:
        if challenged:
            there.challenge["scope"] = challenged
        await log_in(there, scopes=given)
        assert there.visits[0].get("scope") == asked


async def test_a_challenge_is_read_as_it_is_meant() -> None:
    """AUTH-160: what stands in a description is no scope, and other challenges stand before it."""
    async with world(challenge={"error_description": "no, scope=evil, is wanted", "scope": "right"}) as there:
        there.scheme = 'Basic realm="a, b=\\"c\\"", Bearer'
        await log_in(there)
        assert there.visits[0]["scope"] == "right"


# -- without a person --------------------------------------------------------------------------


async def test_nobody_is_asked_where_nobody_may_be() -> None:
    """AUTH-200."""
    async with world(challenge={"scope": "files"}) as there:
        with pytest.raises(AuthorizationRequired) as raised:
            await log_in(there, interactive=False)
        assert (raised.value.url, raised.value.scopes) == (there.url, ("files",))
        assert "mcpd login" in str(raised.value)
        with pytest.raises(AuthorizationRequired, match="mcpd login"):
            async with Client(there.url):
                pass
        assert not there.visits


async def test_a_login_by_a_code_on_another_device() -> None:
    """AUTH-202."""
    shown: list[tuple[str, str]] = []
    pending = [{"error": "authorization_pending"}, {"error": "authorization_pending"}]
    async with world() as there:
        assert "does not support --device" in await refused(there, device=True)
        there.metadata["device_authorization_endpoint"] = f"{there.origin}/device"
        there.token_error = lambda form: (400, pending.pop()) if pending else None
        await log_in(there, device=True, show_code=lambda url, code: shown.append((url, code)))
        assert shown == [(f"{there.origin}/go", "ABCD-EFGH")]
        assert there.forms[-1]["resource"] == there.url
        there.token_error = lambda form: (400, {"error": "access_denied"})
        assert "access_denied" in await refused(there, device=True, show_code=lambda url, code: None)


def test_settings_that_cannot_be() -> None:
    """AUTH-176; the redirect URI is on this machine, or https."""
    with pytest.raises(Exception, match="client_id"):
        OAuth(client_secret="x")
    for url in ("http://a.example/client.json", "https://a.example", "https://a.example/"):
        with pytest.raises(ConfigurationError, match="https"):
            OAuth(client_metadata_url=url)
    for redirect in ("http://a.example/callback", "http://127.0.0.1.a.example/callback", "app.example:/callback"):
        with pytest.raises(ConfigurationError, match="must be an https URL"):
            OAuth(redirect=redirect)
