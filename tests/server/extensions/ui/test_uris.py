"""URIs of Views: names, versions, and the way back from a version."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mcpd.errors import RegistrationError
from mcpd.server.extensions.ui.constants import app_uri, checked_uri, unversioned, versioned

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@given(texts, texts)
def test_every_name_has_a_uri_that_is_one(namespace: str, name: str) -> None:
    """APP-S-01: whatever the file or the server is called."""
    uri = app_uri(namespace, name)
    assert checked_uri("app", uri, "x") == uri


@given(texts, texts)
def test_different_files_have_different_uris(one: str, other: str) -> None:
    assert (app_uri("ns", one) == app_uri("ns", other)) is (one == other)


@given(texts, st.none() | st.dictionaries(texts, texts, max_size=2), texts)
def test_there_and_back(name: str, meta: dict[str, str] | None, html: str) -> None:
    uri = app_uri("ns", name)
    assert unversioned(versioned(uri, html, meta)) == uri
    assert versioned(uri, html, meta) == versioned(uri, html, dict(reversed((meta or {}).items())) if meta else meta)
    assert versioned(uri, html, meta) != versioned(uri, html + "x", meta)


@pytest.mark.parametrize(
    ("uri", "plain"),
    [
        ("ui://a/b?v=0123", "ui://a/b"),
        ("ui://a/b?v=", "ui://a/b"),
        ("ui://a/b?x=1&v=0123", "ui://a/b?x=1"),
        ("ui://a/b?v=1&v=2", "ui://a/b?v=1"),
        ("ui://a/b", None),
        ("ui://a/b?v=1&x=2", None),
        ("ui://a/b?v=1#x", None),
        ("ui://a/b?dev=1", None),
        ("ui://a/v=1", None),
        ("notes://a?v=1", None),
        ("", None),
    ],
)
def test_a_version_is_the_last_member_of_the_query(uri: str, plain: str | None) -> None:
    assert unversioned(uri) == plain


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(RegistrationError, match=r"tool x, ui='/x': use a URI that begins with ui://, or a plain name"):
        checked_uri("tool x, ui", "/x", "ns")
