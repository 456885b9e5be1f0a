"""URIs of Views: `ui://<namespace>/<name>`, and the same with the hash of the content, `?v=<hash>`.

Hosts keep what they have read, by URI, and the specification lets them. So what is listed and linked names
the content, not only the View: a changed one has another URI and is read again. A query and not a path
segment, because hosts show the path as a title and programs know the app by it.

Spec: MCP Apps 2026-01-26, "Resource Discovery": "Host MAY prefetch and cache UI resource content".
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.json import encode

from mcpd.errors import RegistrationError
from mcpd.extensions.ui.constants import SCHEME

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
