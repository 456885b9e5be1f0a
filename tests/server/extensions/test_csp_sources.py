"""Which origins a View may declare (apps.md 3.2). Server and host refuse the same ones."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcpd.server.extensions.ui.csp_sources import (
    MAX_SOURCES,
    SOURCE_KINDS,
    UiCsp,
    UiPermissions,
    read_csp,
    read_permissions,
    validate_csp,
    validate_sources,
)

GOOD = [
    "https://example.com",
    "http://localhost:8080",
    "http://localhost:*",
    "ws://127.0.0.1:9000",
    "wss://realtime.service.example.com",
    "https://*.cloudflare.com",
    "https://*.example.com:8443",
    "https://xn--bcher-kva.example",
    "https://intranet",
    "https://a-b.example.com:1",
]

BAD = {
    "": "empty",
    "https://exa mple.com": "white space",
    "https://example.com\n": "white space",
    "https://example.com\tx": "white space",
    "https://example.com\x00": "control",
    "https://a.example; script-src *": "white space",
    "https://a.example;script-src": "directive",
    "https://a.example,https://b.example": "comma",
    "'self'": "keywords",
    "'unsafe-eval'": "keywords",
    '"https://a.example"': "quotes",
    "<https://a.example>": "angle",
    "https:\\\\a.example": "backslash",
    "self": "keywords",
    "none": "keywords",
    "unsafe-inline": "keywords",
    "nonce-abc": "keywords",
    "strict-dynamic": "keywords",
    "https://user@a.example": "user names",
    "https://user:secret@a.example": "user names",
    "*": "every host",
    "https:": "every host",
    "WSS:": "every host",
    "https://*": "scheme://host",
    "https://[::1]": "IPv6",
    "https://[::1]:8080": "IPv6",
    "https://bücher.example": "ASCII",
    "https://" + "a" * 250 + ".example": "longer",
    "example.com": "scheme://host",
    "//example.com": "scheme://host",
    "ftp://example.com": "scheme",
    "javascript://example.com": "scheme",
    "file:///etc/passwd": "scheme",
    "mediastream:": "scheme://host",
    "https://": "no host",
    "https://-a.example": "host name",
    "https://a_b.example": "host name",
    "https://a..example": "host name",
    "https://example.com.": "host name",
    "https://**.example.com": "scheme://host",
    "https://a.*.example.com": "scheme://host",
    "https://*.127.0.0.1": "IPv4",
    "https://256.0.0.1": "IPv4",
    "https://1.2.3": "IPv4",
    "https://example.com:": "port",
    "https://example.com:0": "port",
    "https://example.com:65536": "port",
    "https://example.com:8o": "port",
    "https://example.com:**": "port",
}


@pytest.mark.parametrize("source", GOOD)
def test_origins_are_accepted_as_they_are(source: str) -> None:
    for kind in SOURCE_KINDS:
        assert validate_sources([source], kind) == ([source], [])


@pytest.mark.parametrize(("source", "why"), BAD.items())
def test_what_could_rewrite_a_policy_is_dropped_with_a_reason(source: str, why: str) -> None:
    """APP-H-05: nothing undeclared gets in, however it is written."""
    for kind in SOURCE_KINDS:
        accepted, problems = validate_sources(["https://good.example", source], kind)
        assert accepted == ["https://good.example"]
        assert [problem.dropped for problem in problems] == [True]
        assert why in problems[0].reason
        assert problems[0].kind == kind


def test_case_is_folded_and_the_path_cut_with_a_warning() -> None:
    accepted, problems = validate_sources(["HTTPS://CDN.Example.com/libs/x.js?v=1#top"], "resourceDomains")
    assert accepted == ["https://cdn.example.com"]
    assert [problem.dropped for problem in problems] == [False]
    assert "cut" in str(problems[0])
    assert validate_sources(["HTTPS://Example.com"], "frameDomains") == (["https://example.com"], [])


@pytest.mark.parametrize("source", ["data:", "blob:", "DATA:"])
def test_data_and_blob_only_where_they_load_or_connect(source: str) -> None:
    for kind in ("connectDomains", "resourceDomains"):
        assert validate_sources([source], kind) == ([source.lower()], [])
    for kind in ("frameDomains", "baseUriDomains"):
        accepted, problems = validate_sources([source], kind)
        assert accepted == []
        assert problems[0].dropped


@pytest.mark.parametrize("source", ["*", "https:", "http:", "wss:", "ws:"])
def test_compat_lets_every_host_pass(source: str) -> None:
    assert validate_sources([source], "connectDomains", compat=True) == ([source], [])


def test_each_source_once() -> None:
    assert validate_sources(["https://a.example", "HTTPS://A.EXAMPLE"], "connectDomains")[0] == ["https://a.example"]


def test_a_list_has_at_most_64_entries() -> None:
    sources = [f"https://h{n}.example" for n in range(MAX_SOURCES + 5)]
    accepted, problems = validate_sources(sources, "connectDomains")
    assert accepted == sources[:MAX_SOURCES]
    assert len(problems) == 1
    assert "64" in problems[0].reason


def test_what_is_no_string_is_dropped() -> None:
    accepted, problems = validate_sources([1, None, {"a": 1}, "https://a.example"], "connectDomains")
    assert accepted == ["https://a.example"]
    assert len(problems) == 3


def test_a_hostile_entry_does_not_flood_the_message() -> None:
    _, problems = validate_sources(["https://" + "x y" * 10_000], "connectDomains")
    assert len(str(problems[0])) < 300


def test_all_lists_of_a_csp() -> None:
    csp = UiCsp(
        connect_domains=["https://a.example", "bad"], frame_domains=["https://f.example/x"], base_uri_domains=[]
    )
    granted, problems = validate_csp(csp)
    assert granted == UiCsp(connect_domains=["https://a.example"], frame_domains=["https://f.example"])
    assert {problem.kind for problem in problems} == {"connectDomains", "frameDomains"}


@pytest.mark.parametrize(
    ("value", "csp", "problems"),
    [
        (None, None, 0),
        ("x", None, 1),
        ([], None, 1),
        ({}, UiCsp(), 0),
        ({"connectDomains": None, "other": 1}, UiCsp(), 0),
        ({"connectDomains": "https://a.example"}, UiCsp(), 1),
        ({"connectDomains": ["https://a.example", 7]}, UiCsp(connect_domains=["https://a.example"]), 1),
    ],
)
def test_a_csp_as_somebody_wrote_it(value: Any, csp: UiCsp | None, problems: int) -> None:
    """An unreadable `csp` is an absent one: the most restrictive reading."""
    read, found = read_csp(value)
    assert (read, len(found)) == (csp, problems)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, None),
        ("camera", None),
        ({}, []),
        ({"camera": {}, "clipboardWrite": {"x": 1}, "usb": {}}, ["camera", "clipboardWrite"]),
        ({"camera": True, "microphone": None}, []),
    ],
)
def test_permissions_as_somebody_wrote_them(value: Any, names: list[str] | None) -> None:
    permissions = read_permissions(value)
    assert (permissions.names() if permissions else None) == names


def test_permission_names_are_the_wire_names() -> None:
    everything = UiPermissions(camera={}, microphone={}, geolocation={}, clipboard_write={})
    assert everything.names() == ["camera", "microphone", "geolocation", "clipboardWrite"]


# One token of CSP's source list: no space, semicolon, comma or quote can hide in it.
ONE_SOURCE = re.compile(r"(?:data:|blob:|(?:https?|wss?)://(?:\*\.)?[a-z0-9.-]+(?::(?:\*|[0-9]+))?)")

near_sources = st.lists(
    st.sampled_from(
        ["https", "://", "*.", "a", ".example", ":", "80", "/", "?", "@", "[", "]", ";", ",", " ", "'", "ü"]
    )
).map("".join)


@given(st.lists(st.one_of(st.text(), near_sources, st.sampled_from(GOOD), st.integers()), max_size=80))
def test_whatever_passes_is_one_plain_source(entries: list[Any]) -> None:
    for kind in SOURCE_KINDS:
        accepted, _ = validate_sources(entries, kind)
        assert all(ONE_SOURCE.fullmatch(source) for source in accepted)
        assert len(set(accepted)) == len(accepted) <= MAX_SOURCES
        assert validate_sources(accepted, kind) == (accepted, [])


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)))
def test_no_metadata_is_a_crash(value: Any) -> None:
    for given_value in (value, {"connectDomains": value, "camera": value}):
        csp, _ = read_csp(json.loads(json.dumps(given_value)))
        read_permissions(given_value)
        if csp is not None:
            validate_csp(csp)
