"""A View's document: what `resources/read` gave for a `ui://` URI, checked and ready to be framed.

Spec: MCP Apps 2026-01-26, "UI Resource Format", Content Requirements; the later draft for metadata in the
listing: the content item's `_meta.ui` wins whole, nothing is merged.
"""

from __future__ import annotations

import hashlib
from binascii import Error as Base64Error, a2b_base64
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from mcpd.errors import ConfigurationError
from mcpd.extensions.ui.constants import MIME_TYPE, is_app_type
from mcpd.extensions.ui.csp_sources import UiCsp, UiPermissions, read_csp, read_permissions
from mcpd.extensions.ui.html import MAX_HTML_BYTES, WARN_HTML_BYTES


class ViewDocument(Struct, frozen=True, kw_only=True):
    """HTML and the metadata it came with. `digest` is the SHA-256 of the UTF-8 bytes: a cached document may be
    used again if digest and metadata are equal. `problems` are for a developer to read."""

    uri: str
    html: str
    digest: str
    csp: UiCsp | None = None
    permissions: UiPermissions | None = None
    domain: str | None = None
    prefers_border: bool | None = None
    problems: tuple[str, ...] = ()


def read_document(uri: str, contents: Sequence[Any], listing_meta: Mapping[str, Any] | None = None) -> ViewDocument:
    """The document among the `contents` of a read result, structs or dicts.

    `listing_meta` is the `_meta` of the resource as listed, if it was.
    Raises ConfigurationError, with what the server's author has to change, if there is none to show.
    """
    item = _pick(uri, [entry if isinstance(entry, Mapping) else _plain(entry) for entry in contents])
    problems: list[str] = []

    html = _html(uri, item)
    data = html.encode("utf-8", "replace")
    if len(data) > MAX_HTML_BYTES:
        raise ConfigurationError(f"{uri} has {len(data)} bytes; a view may have {MAX_HTML_BYTES}")
    if len(data) > WARN_HTML_BYTES:
        problems.append(f"{uri} has {len(data)} bytes; views over {WARN_HTML_BYTES} start slowly")

    ui = _ui(item.get("_meta"))
    if ui is None:
        ui = _ui(listing_meta) or {}
    csp, found = read_csp(ui.get("csp"))
    problems += map(str, found)

    domain, border = ui.get("domain"), ui.get("prefersBorder")
    return ViewDocument(
        uri=uri,
        html=html,
        digest=hashlib.sha256(data).hexdigest(),
        csp=csp,
        permissions=read_permissions(ui.get("permissions")),
        domain=domain if isinstance(domain, str) else None,
        prefers_border=border if isinstance(border, bool) else None,
        problems=tuple(problems),
    )


def _pick(uri: str, contents: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The item with our MIME type, of several the one with our URI."""
    apps = [item for item in contents if is_app_type(item.get("mimeType"))]
    if not apps:
        seen = ", ".join(repr(item.get("mimeType")) for item in contents) or "nothing"
        raise ConfigurationError(f"{uri} must be {MIME_TYPE}; the server sent {seen}")
    return next((item for item in apps if item.get("uri") == uri), apps[0])


def _html(uri: str, item: Mapping[str, Any]) -> str:
    text, blob = item.get("text"), item.get("blob")
    if isinstance(text, str):
        return text
    if not isinstance(blob, str):
        raise ConfigurationError(f"{uri} has neither text nor blob")
    try:
        return a2b_base64(blob, strict_mode=True).decode("utf-8-sig")
    except (Base64Error, UnicodeDecodeError, ValueError) as error:
        raise ConfigurationError(f"{uri}: the blob must be base64 of UTF-8 text: {error}") from None


def _ui(meta: object) -> Mapping[str, Any] | None:
    ui = meta.get("ui") if isinstance(meta, Mapping) else None
    return ui if isinstance(ui, Mapping) else None


def _plain(entry: object) -> Mapping[str, Any]:
    plain = to_builtins(entry)
    return plain if isinstance(plain, Mapping) else {}
