"""The constants of MCP Apps, and the URIs of Views: `ui://<namespace>/<name>`, with a hash of the content as
`?v=<hash>`.

Hosts may cache a View by its URI. So lists and tools contain the hash: a changed View has another URI, and is read
again. The hash is in the query instead of the path, because hosts show the path as a title and programs identify apps
by it. Spec: MCP Apps 2026-01-26, "Resource Discovery": "Host MAY prefetch and cache UI resource content".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec.json import encode

from mcpd.errors import RegistrationError
from mcpd.protocol.types.base import Meta

# The extension's id.
UI = "io.modelcontextprotocol/ui"

# The URI scheme of Views.
SCHEME = "ui://"

# The MIME type of a View's HTML, in its exact spelling.
MIME_TYPE = "text/html;profile=mcp-app"

# The older key of a tool's `_meta`. A large host once read only this key, so both are sent (APP-S-11).
FLAT_URI = "ui/resourceUri"

AppsMode = Literal["auto", "always", "never"]


def is_app_type(mime_type: object) -> bool:
    """Whether a MIME type is that of MCP Apps, with any spacing and capitalization."""
    if not isinstance(mime_type, str):
        return False
    kind, *parameters = (part.strip() for part in mime_type.split(";"))
    if kind.lower() != "text/html":
        return False
    pairs = [parameter.partition("=") for parameter in parameters]
    return any(name.strip().lower() == "profile" and value.strip(' "') == "mcp-app" for name, _, value in pairs)


def has_ui(meta: Mapping[str, Any] | None) -> bool:
    """Whether `_meta` of an author has members of MCP Apps."""
    return meta is not None and ("ui" in meta or FLAT_URI in meta)


_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-")


def app_uri(namespace: str, name: str) -> str:
    """Return the URI of an app. Invalid characters become hyphens in the namespace, and are escaped in the name."""
    escaped = "".join(c if c in _PLAIN else "".join(f"%{byte:02X}" for byte in c.encode()) for c in name)
    plain = "".join(c if c in _PLAIN else " " for c in namespace)
    return f"{SCHEME}{'-'.join(plain.split()).strip('-.') or 'app'}/{escaped}"


def checked_uri(what: str, given: object, namespace: str) -> str:
    """Return a URI unchanged, or the URI of a plain name. Raises RegistrationError."""
    if isinstance(given, str) and given and _PLAIN.issuperset(given):
        return app_uri(namespace, given)
    if not isinstance(given, str) or not given.startswith(SCHEME) or len(given) == len(SCHEME):
        raise RegistrationError(f"{what}={given!r}: use a URI that begins with ui://, or a plain name")
    if "#" in given or any(not "!" <= char <= "~" for char in given):
        raise RegistrationError(f"{what}={given!r}: the URI must be ASCII without white space or a fragment")
    return given


def versioned(uri: str, content: str, meta: Meta) -> str:
    """Return the URI with the hash of HTML and metadata, which hosts cache together."""
    from hashlib import sha256  # costs start-up; nobody lists anything before the first answer

    digest = sha256(content.encode())
    if meta is not None:
        digest.update(b"\0" + encode(meta, order="deterministic"))
    return f"{uri}{'&' if '?' in uri else '?'}v={digest.hexdigest()[:12]}"


def unversioned(uri: str) -> str | None:
    """Return a View's URI without its hash; None for a URI without a hash."""
    plain, mark, version = uri.rpartition("v=")
    if not mark or plain[-1:] not in ("?", "&") or "&" in version or "#" in version or not uri.startswith(SCHEME):
        return None
    return plain[:-1]
