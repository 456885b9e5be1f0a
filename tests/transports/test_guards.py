"""Who may connect. The rules S25-030, S25-031, S26-051 and S26-052 are tested on the wire in test_websocket."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mcpd.errors import ConfigurationError
from mcpd.transports.authentication import Refusal, RequestHeaders
from mcpd.transports.guards import Access, Guard

GUARD = Guard(Access())


def refused(guard: Guard, host: str | None, origin: str | None, authorization: str | None) -> Refusal | None:
    found: object = guard.check_source(host, origin)
    if found is None and guard.authentication is not None:
        fields = {} if authorization is None else {b"authorization": authorization.encode("latin-1", "replace")}
        found = guard.authentication.check(RequestHeaders(fields))
    return found if isinstance(found, Refusal) else None


def status(guard: Guard, host: str | None = "localhost", origin: str | None = None, token: str | None = None) -> int:
    refusal = refused(guard, host, origin, token)
    return 200 if refusal is None else refusal.status


# ----------------------------------------------------------------------------------------- Host


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:1", "127.8.8.8:1", "[::1]", "[::1]:80", "[0::1]:1"]
)
def test_a_loopback_name_is_a_good_host(host: str) -> None:
    assert status(GUARD, host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "evil.example.com:8080",
        "localhost.evil.com",
        "localhost:80@evil.com",
        "127.0.0.1.nip.io",
        "10.0.0.1",
        "0.0.0.0:8080",
        "app.localhost:8080",
        "[::2]:80",
        "[]",
        "[::1",
        "[::1]x",
        "localhost:",
        "localhost:8o",
        ":8080",
        "127.0.0.1%evil.com",
        "127.0.0.1%25evil.com",
        "127.0.0.1%evil.com:80",
        "[::1%evil.com]",
        "[::1%25evil.com]:80",
        "[::1%lo]",
        "[::1x",
        "[127.0.0.1]",
        "[localhost]",
        "[::ffff:127.0.0.1]",
        "127.0.0.1.",
        "127.0.0.1.evil.com",
        "localhost.",
        "localhost%",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "１２７.0.0.1",
        "127.0.0.1\x00evil.com",
        "user@127.0.0.1",
        "evil.com@127.0.0.1:80",
    ],
)
def test_any_other_host_is_forbidden_and_the_answer_names_the_option(host: str) -> None:
    """DNS rebinding: the browser sends the name that was pointed at 127.0.0.1."""
    refusal = refused(GUARD, host, None, None)
    assert refusal is not None
    assert refusal.status == 403
    assert "--allow-host" in refusal.text


@pytest.mark.parametrize(
    "host", ["192.168.1.1%evil.com", "[fe80::1%evil.com]", "[fe80::1%25eth0]", "192.168.1.1.", "[10.0.0.1]"]
)
def test_an_address_with_something_behind_it_is_none_where_every_address_is_taken(host: str) -> None:
    guard = Guard(Access(insecure=True), "0.0.0.0")
    assert status(guard, "192.168.1.1:80") == status(guard, "[fe80::1]") == 200
    assert status(guard, host) == 403
    assert status(GUARD, "localhost", f"http://{host}") == 403


def test_a_request_without_a_host_is_a_bad_request() -> None:
    assert status(GUARD, None) == status(GUARD, "") == 400


@pytest.mark.parametrize("host", ["evil.com:80, localhost:80", "localhost, localhost"])
def test_a_request_with_two_hosts_is_a_bad_request(host: str) -> None:
    assert status(GUARD, host) == 400


def test_hosts_can_be_allowed() -> None:
    guard = Guard(Access(hosts=("MCP.example.com", "[2001:db8::1]", "10.0.0.1:80")))
    assert status(guard, "mcp.example.com:443") == 200
    assert status(guard, "[2001:db8::1]:443") == 200
    assert status(guard, "10.0.0.1") == 200
    assert status(guard, "example.com") == 403
    # A page that is served under the server's own name may call it.
    assert status(guard, "mcp.example.com", "https://mcp.example.com") == 200


@pytest.mark.parametrize(
    ("bound", "host", "expected"),
    [
        ("myhost", "MyHost:8080", 200),
        ("10.1.2.3", "10.1.2.3:8080", 200),
        ("10.1.2.3", "10.1.2.4:8080", 403),
        ("2001:db8::1", "[2001:db8::1]:8080", 200),
        ("0.0.0.0", "10.1.2.4:8080", 200),
        ("::", "[2001:db8::1]:8080", 200),
        ("0.0.0.0", "myhost:8080", 403),
    ],
)
def test_the_bound_host_is_allowed(bound: str, host: str, expected: int) -> None:
    """All addresses are bound: then any IP address is, since only names can be pointed elsewhere."""
    assert status(Guard(Access(insecure=True), bound), host) == expected


def test_an_ip_address_is_no_origin_by_itself() -> None:
    guard = Guard(Access(insecure=True), "0.0.0.0")
    assert status(guard, "10.0.0.1", "http://10.0.0.1") == 403


# --------------------------------------------------------------------------------------- Origin


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "http://localhost",
        "http://localhost:3000",
        "https://127.0.0.1:1",
        "http://[::1]:5173",
        "ws://localhost",
        "HTTP://LOCALHOST:3000",
        "localhost:8080",
    ],
)
def test_good_origins(origin: str | None) -> None:
    assert status(GUARD, origin=origin) == 200


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "http://evil.example.com",
        "https://localhost.evil.com",
        "http://localhost@evil.com",
        "http://evil.com://localhost",
        "http://localhost, http://evil.com",
        "http://v-1.mcpd.localhost:8081",
        "file://",
        "chrome-extension://localhost",
        "http://10.0.0.1",
        "http://",
    ],
)
def test_bad_origins_are_forbidden_and_the_answer_names_the_option(origin: str) -> None:
    refusal = refused(GUARD, "localhost", origin, None)
    assert refusal is not None
    assert refusal.status == 403
    assert "--allow-origin" in refusal.text


def test_origins_can_be_allowed_and_are_compared_whole() -> None:
    guard = Guard(Access(origins=("https://App.example.com", "vscode-webview://abc", "http://dev.test:3000")))
    assert status(guard, origin="https://app.example.com") == 200
    assert status(guard, origin="vscode-webview://abc") == 200
    assert status(guard, origin="http://dev.test:3000") == 200
    assert status(guard, origin="http://app.example.com") == 403
    assert status(guard, origin="https://app.example.com:8443") == 403
    assert status(guard, origin="http://dev.test") == 403


def test_what_is_shown_of_a_long_or_strange_value_is_short_and_quoted() -> None:
    refusal = refused(GUARD, "localhost", "http://\x1b[2J" + "x" * 5000, None)
    assert refusal is not None
    assert len(refusal.text) < 500
    assert "\x1b" not in refusal.text


# ---------------------------------------------------------------------------------------- token

TOKEN = Guard(Access(token="s3cret-Token"))


@pytest.mark.parametrize("authorization", ["Bearer s3cret-Token", "bearer s3cret-Token", "BEARER  s3cret-Token "])
def test_the_right_token(authorization: str) -> None:
    assert status(TOKEN, token=authorization) == 200


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer s3cret-token",
        "Bearer s3cret-Token2",
        "Basic s3cret-Token",
        "s3cret-Token",
        "Bearer s3cret-Token, Bearer s3cret-Token",
        "Bearer \xff\udc80",
    ],
)
def test_a_wrong_token_gives_401(authorization: str) -> None:
    refusal = refused(TOKEN, "localhost", None, authorization)
    assert refusal is not None
    assert refusal.status == 401
    assert dict(refusal.headers)["WWW-Authenticate"].startswith("Bearer")
    assert "s3cret" not in refusal.text


def test_no_token_gives_401_and_says_how_to_send_it() -> None:
    refusal = refused(TOKEN, "localhost", None, None)
    assert refusal is not None
    assert refusal.status == 401
    assert refusal.headers == (("WWW-Authenticate", "Bearer"),)
    assert "Authorization: Bearer" in refusal.text


def test_the_order_is_host_and_origin_403_then_token_401() -> None:
    """The order that the conformance suite sees: Origin 403, then authorization 401."""
    assert status(TOKEN, "evil.com") == 403
    assert status(TOKEN, origin="http://evil.com") == 403
    assert status(TOKEN, origin="http://evil.com", token="Bearer s3cret-Token") == 403


def test_a_token_does_not_excuse_from_the_other_checks() -> None:
    """D9: `Origin` and `Host` are checked on every request."""
    assert status(TOKEN, "evil.com", None, "Bearer s3cret-Token") == 403


@given(st.one_of(st.none(), st.text()), st.one_of(st.none(), st.text()), st.one_of(st.none(), st.text()))
def test_any_header_gives_an_answer(host: str | None, origin: str | None, authorization: str | None) -> None:
    refusal = refused(TOKEN, host, origin, authorization)
    assert refusal is not None
    assert refusal.status in (400, 401, 403)
    assert refusal.text.endswith(".\n")


# ------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("access", "option"),
    [
        (Access(hosts=("https://example.com",)), "--allow-host"),
        (Access(hosts=("",)), "--allow-host"),
        (Access(hosts=("*",)), "--allow-host"),
        (Access(hosts=("a.com, b.com",)), "--allow-host"),
        (Access(origins=("example.com",)), "--allow-origin"),
        (Access(origins=("https://example.com/",)), "--allow-origin"),
        (Access(origins=("https://",)), "--allow-origin"),
        (Access(origins=("*",)), "--allow-origin"),
        (Access(token=""), "token"),
        (Access(token="two words"), "token"),
        (Access(token="line\n"), "token"),
        (Access(token="tökén"), "token"),
    ],
)
def test_settings_that_no_request_could_meet_are_refused(access: Access, option: str) -> None:
    with pytest.raises(ConfigurationError, match=option):
        Guard(access)


def test_what_opens_a_wider_address() -> None:
    assert not Access().is_guarded
    assert Access(token="t").is_guarded
    assert Access(insecure=True).is_guarded
