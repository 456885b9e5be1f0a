"""The constants of MCP Apps on the wire: the extension's id, the MIME type and URI scheme of Views, keys of `_meta`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec.json import encode

from mcpd.errors import RegistrationError

UI = "io.modelcontextprotocol/ui"
"""The extension's id."""

SCHEME = "ui://"
"""What the URI of every View begins with."""

MIME_TYPE = "text/html;profile=mcp-app"
"""The type of a View's HTML, written exactly so."""

FLAT_URI = "ui/resourceUri"
"""The older key of a tool's `_meta` beside `ui`; a big host once read only this one, so both are written (APP-S-11)."""

AppsMode = Literal["auto", "always", "never"]


def is_app_type(mime_type: object) -> bool:
    """Whether a MIME type is the one of MCP Apps, however it is spaced and capitalised."""
    if not isinstance(mime_type, str):
        return False
    kind, *parameters = (part.strip() for part in mime_type.split(";"))
    if kind.lower() != "text/html":
        return False
    pairs = [parameter.partition("=") for parameter in parameters]
    return any(name.strip().lower() == "profile" and value.strip(' "') == "mcp-app" for name, _, value in pairs)


def has_ui(meta: Mapping[str, Any] | None) -> bool:
    """Whether `_meta`, as an author wrote it, speaks of MCP Apps."""
    return meta is not None and ("ui" in meta or FLAT_URI in meta)


_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-")


def app_uri(namespace: str, name: str) -> str:
    """The URI of an app by its name; what a URI cannot hold is written as hyphens in the one, escaped in the other."""
    escaped = "".join(c if c in _PLAIN else "".join(f"%{byte:02X}" for byte in c.encode()) for c in name)
    plain = "".join(c if c in _PLAIN else " " for c in namespace)
    return f"{SCHEME}{'-'.join(plain.split()).strip('-.') or 'app'}/{escaped}"


def checked_uri(what: str, given: object, namespace: str) -> str:
    """The URI that a program gave, or the one of the name that it gave. Raises RegistrationError."""
    if isinstance(given, str) and given and _PLAIN.issuperset(given):
        return app_uri(namespace, given)
    if not isinstance(given, str) or not given.startswith(SCHEME) or len(given) == len(SCHEME):
        raise RegistrationError(f"{what}={given!r}: give a URI that begins with ui://, or a plain name")
    if "#" in given or any(not "!" <= char <= "~" for char in given):
        raise RegistrationError(f"{what}={given!r}: a URI is ASCII without white space and, here, without a fragment")
    return given


def versioned(uri: str, content: str, meta: dict[str, Any] | None) -> str:
    """The URI of this content: hosts keep the metadata together with the HTML, so both count."""
    from hashlib import sha256  # costs start-up; nobody lists anything before the first answer

    digest = sha256(content.encode())
    if meta is not None:
        digest.update(b"\0" + encode(meta, order="deterministic"))
    return f"{uri}{'&' if '?' in uri else '?'}v={digest.hexdigest()[:12]}"


def unversioned(uri: str) -> str | None:
    """The URI without the hash of some content, whichever; None if it has none, or is no View's."""
    plain, mark, version = uri.rpartition("v=")
    if not mark or plain[-1:] not in ("?", "&") or "&" in version or "#" in version or not uri.startswith(SCHEME):
        return None
    return plain[:-1]
