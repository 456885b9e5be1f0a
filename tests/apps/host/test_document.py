"""A `ui://` resource as read from a server: which item, how it is decoded, whose metadata count."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from mcpd.apps.host.document import read_document
from mcpd.errors import ConfigurationError
from mcpd.protocol.types.features import BlobResourceContents, TextResourceContents
from mcpd.server.extensions.ui.assets import MAX_HTML_BYTES, WARN_HTML_BYTES
from mcpd.server.extensions.ui.csp_sources import UiCsp, UiPermissions

URI = "ui://weather/view"
MIME = "text/html;profile=mcp-app"
HTML = "<!DOCTYPE html><p>é"


def item(**members: Any) -> dict[str, Any]:
    return {"uri": URI, "mimeType": MIME, "text": HTML, **members}


def test_text_and_its_metadata() -> None:
    """APP-H-01, APP-H-26: the digest is of the UTF-8 bytes."""
    ui = {
        "csp": {"connectDomains": ["https://a.example"]},
        "permissions": {"camera": {}},
        "prefersBorder": False,
        "domain": "x.example",
    }
    document = read_document(URI, [item(_meta={"ui": ui})])
    assert document.html == HTML
    assert document.digest == hashlib.sha256(HTML.encode()).hexdigest()
    assert document.csp == UiCsp(connect_domains=["https://a.example"])
    assert document.permissions == UiPermissions(camera={})
    assert (document.prefers_border, document.domain, document.problems) == (False, "x.example", ())


def test_structs_and_dicts_are_read_alike() -> None:
    text = TextResourceContents(uri=URI, text=HTML, mime_type=MIME, meta={"ui": {"csp": {}}})
    assert read_document(URI, [text]) == read_document(URI, [item(_meta={"ui": {"csp": {}}})])
    blob = BlobResourceContents(uri=URI, blob=HTML.encode(), mime_type=MIME)
    assert read_document(URI, [blob]).html == HTML


def test_a_blob_is_utf8() -> None:
    blob = base64.b64encode(b"\xef\xbb\xbf" + HTML.encode()).decode()
    assert read_document(URI, [item(text=None, blob=blob)]).html == HTML


@pytest.mark.parametrize("blob", ["%%%", base64.b64encode(b"\xff\xfe").decode(), "é"])
def test_a_blob_that_is_none(blob: str) -> None:
    with pytest.raises(ConfigurationError, match="base64 of UTF-8"):
        read_document(URI, [item(text=None, blob=blob)])


def test_the_content_items_metadata_win_whole() -> None:
    """APP-H-07: content item, then listing; nothing is merged."""
    listing = {"ui": {"csp": {"connectDomains": ["https://listed.example"]}, "prefersBorder": True}}
    assert read_document(URI, [item()], listing).prefers_border is True
    own = read_document(URI, [item(_meta={"ui": {"csp": {}}})], listing)
    assert (own.csp, own.prefers_border) == (UiCsp(), None)
    assert read_document(URI, [item(_meta={"ui": {}})], listing).csp is None
    assert read_document(URI, [item(_meta={"other": 1})], listing).csp is not None


@pytest.mark.parametrize(
    "mime", ["text/html; profile=mcp-app", 'Text/HTML;Profile="mcp-app"', "text/html ;profile=mcp-app"]
)
def test_mime_types_are_compared_as_mime_types(mime: str) -> None:
    assert read_document(URI, [item(mimeType=mime)]).html == HTML


@pytest.mark.parametrize(
    "contents", [[], [item(mimeType="text/html")], [item(mimeType=None)], [item(mimeType="text/html;profile=x")]]
)
def test_other_types_are_not_shown(contents: list[Any]) -> None:
    with pytest.raises(ConfigurationError, match="must be text/html;profile=mcp-app"):
        read_document(URI, contents)


def test_of_several_items_the_one_that_was_asked_for() -> None:
    others = [{"uri": "x", "mimeType": "text/plain", "text": "-"}, item(uri="ui://other", text="other")]
    assert read_document(URI, [*others, item()]).html == HTML
    assert read_document(URI, others).html == "other"


def test_an_item_without_content() -> None:
    with pytest.raises(ConfigurationError, match="neither text nor blob"):
        read_document(URI, [item(text=None)])


def test_size_is_warned_of_and_bounded() -> None:
    big = read_document(URI, [item(text="x" * (WARN_HTML_BYTES + 1))])
    assert "start slowly" in big.problems[0]
    with pytest.raises(ConfigurationError, match="may have"):
        read_document(URI, [item(text="x" * (MAX_HTML_BYTES + 1))])


@pytest.mark.parametrize(
    "meta", ["x", {"ui": "x"}, {"ui": {"csp": 1, "permissions": [], "prefersBorder": "yes", "domain": 3}}]
)
def test_broken_metadata_count_as_absent(meta: Any) -> None:
    document = read_document(URI, [item(_meta=meta)])
    assert (document.csp, document.permissions, document.prefers_border, document.domain) == (None, None, None, None)
