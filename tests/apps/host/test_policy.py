"""Links, downloads, rates."""

from __future__ import annotations

import base64
import unicodedata

import pytest
from hypothesis import given, strategies as st

from mcpd.apps.host.view.policy import Denied, RateLimit, ViewLimits, check_downloads, check_link, safe_file_name
from mcpd.errors import InvalidParams
from mcpd.protocol.types.features import EmbeddedResource, ResourceLink

LIMITS = ViewLimits()


@pytest.mark.parametrize(
    ("url", "opened"),
    [
        ("https://example.com", None),
        ("HTTP://Example.com:8080/a?b=c@d#e", None),
        ("https://[::1]:3000/", None),
        ("https://bücher.example/ü", None),
        ("https://example.com/?q=two words", "https://example.com/?q=two%20words"),
        ("https://example.com/'\"><script>", "https://example.com/'%22%3E%3Cscript%3E"),
        ("http://127.0.0.1:8080/", None),
        ("https://हिन्दी.भारत/", None),
        ("https://my_host.example:443", None),
    ],
)
def test_http_links_are_opened(url: str, opened: str | None) -> None:
    """APP-H-17."""
    assert check_link(url) == (opened or url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "javascript:alert(1)",
        "JavaScript://example.com/%0aalert(1)",
        " javascript:alert(1)",
        "java\tscript:alert(1)",
        "data:text/html,<script>",
        "file:///etc/passwd",
        "blob:https://example.com/1",
        "mailto:a@b.example",
        "ui://weather/view",
        "//example.com",
        "/relative",
        "https:example.com",
        "https://",
        "https:///path",
        "https://user@example.com",
        "https://google.example:x@evil.example",
        "https://example.com\\@evil.example",
        "https://example.com/\u202egpj.exe",
        "https://exa\u200bmple.com",
        "https://example.com/\n",
        " https://example.com",
        "https://exa mple.com",
        "https://example.com:99999/",
        "https://[::1/",
        "https://example.com/" + "x" * 9000,
        "https://a%2eexample",
        "https://a.example。evil.example",
        "https://a.example．evil.example",
        "https://ｅvil.example",
        "https://a.example'\"><script>",
        "https://a.example,b.example",
        "https://[::1].example/",
        "https://:80/",
    ],
)
def test_other_links_are_denied(url: str) -> None:
    """APP-H-17: P http/https only; `javascript:` would run in the host's page."""
    with pytest.raises(Denied, match=r"Invalid URL|Policy violation"):
        check_link(url)


@given(st.text() | st.text(st.sampled_from("https:/@\\.a \t\u202e[]?#")).map("https://".__add__))
def test_every_link_that_passes_is_plain_http(url: str) -> None:
    try:
        link = check_link(url)
    except Denied:
        return
    assert link.lower().startswith(("http://", "https://"))
    assert not any(char.isspace() and char == " " or unicodedata.category(char) in ("Cc", "Cf") for char in link)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.csv", "report.csv"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\system.ini", "system.ini"),
        ("a\u202egpj.exe", "agpj.exe"),
        ("CON.txt", "_CON.txt"),
        ("con.tar.gz", "_con.tar.gz"),
        ("lpt1", "_lpt1"),
        (".bashrc", "bashrc"),
        ("name. ", "name"),
        ("a:b?.txt", "a_b_.txt"),
        ("new\nline.txt", "newline.txt"),
        ("", "download"),
        ("...", "download"),
        ("\u200b", "download"),
        ("übersicht.pdf", "übersicht.pdf"),
        ("x" * 500 + ".txt", "x" * 116 + ".txt"),
        ("報" * 119 + ".txt", "報" * 78 + ".txt"),
        ("a." + "x" * 19 + " y", "a." + "x" * 19),
    ],
)
def test_names_are_file_names(name: str, safe: str) -> None:
    """APP-H-22: S sanitise names; P strip control and bidi characters."""
    assert safe_file_name(name) == safe


@given(st.text() | st.text(st.sampled_from("./\\ a:\u202e\x00CONcon1")))
def test_no_name_leaves_its_folder(name: str) -> None:
    """APP-H-22."""
    safe = safe_file_name(name)
    assert 0 < len(safe) <= 120
    assert len(safe.encode()) <= 240
    assert not set(safe) & set('/\\<>:"|?*')
    assert safe not in (".", "..")
    assert not safe.startswith((".", " "))
    assert not safe.endswith((".", " "))
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in safe)


def text(uri: str, content: str = "x") -> EmbeddedResource:
    return EmbeddedResource(resource={"uri": uri, "text": content, "mimeType": "text/plain"})


def test_files_come_with_their_bytes_and_links_with_their_address() -> None:
    """APP-H-22."""
    blob = EmbeddedResource(resource={"uri": "file:///a/b.bin", "blob": base64.b64encode(b"\0\1").decode()})
    link = ResourceLink(uri="https://example.com/big.zip", name="all of it.zip", mime_type="application/zip")
    items = check_downloads([text("x://y/caf%C3%A9.txt?v=1", "é"), blob, link], LIMITS)
    assert [item.name for item in items] == ["café.txt", "b.bin", "all of it.zip"]
    assert [item.data for item in items] == ["é".encode(), b"\0\1", None]
    assert [item.url for item in items] == [None, None, "https://example.com/big.zip"]
    assert [item.mime_type for item in items] == ["text/plain", None, "application/zip"]


def test_each_name_is_used_once() -> None:
    items = check_downloads([text("a/x.txt"), text("b/X.txt"), text("c/x.txt"), text("d/"), text("e/d")], LIMITS)
    assert [item.name for item in items] == ["x.txt", "X (2).txt", "x (3).txt", "d", "d (2)"]


def test_downloads_are_counted_and_links_checked() -> None:
    """APP-H-22: P <=20 items, links http(s) only."""
    with pytest.raises(Denied, match="20"):
        check_downloads([text(f"{n}") for n in range(21)], LIMITS)
    with pytest.raises(Denied, match="only http"):
        check_downloads([ResourceLink(uri="file:///etc/passwd", name="x")], LIMITS)
    with pytest.raises(InvalidParams, match="nothing"):
        check_downloads([], LIMITS)


@pytest.mark.parametrize("resource", [None, 7, {}, {"uri": "x"}, {"uri": "x", "blob": "%"}, {"uri": 1, "text": "x"}])
def test_what_is_no_file_is_refused(resource: object) -> None:
    with pytest.raises(InvalidParams, match=r"contents\[0\]"):
        check_downloads([EmbeddedResource(resource=resource)], LIMITS)


def test_the_rate_allows_a_burst_and_then_its_own_pace() -> None:
    rate = RateLimit(10)
    assert [rate.take(0.0) for _ in range(11)] == [True] * 10 + [False]
    assert not rate.take(0.05)
    assert rate.take(0.15)
    assert not rate.take(0.15)
    assert [rate.take(100.0) for _ in range(11)] == [True] * 10 + [False]
    assert not rate.take(50.0)  # time that runs backwards gives nothing
    assert rate.take(100.2)
