"""URIs as they are written (RFC 3986): which characters may stand in one, and how the others are encoded."""

from __future__ import annotations

import re

# Patterns are compiled by `re` when they are first needed, a third of a millisecond each: most URIs need none.
PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;="
"""What may stand anywhere in a URI, but "%"."""

NOT_URI = r"%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]"
"""A pattern of what may not stand in a URI as it is."""

_IP_LITERAL = r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\[\]]*\[[0-9A-Fa-f:.v]+\]"


def as_uri(text: str) -> str:
    """A URI as people type it, with what may not stand in one percent-encoded (RFC 3986; RFC 3987 section 3.1)."""
    uri = re.sub(NOT_URI, percent, text) if text.strip(PLAIN) else text
    if "[" not in uri and "]" not in uri:
        return uri
    # Brackets belong around an IP address and nowhere else.
    host = re.match(_IP_LITERAL, uri)
    end = host.end() if host else 0
    return uri[:end] + uri[end:].replace("[", "%5B").replace("]", "%5D")


def percent(found: re.Match[str]) -> str:
    """What a pattern found, percent-encoded."""
    return "".join(f"%{byte:02X}" for byte in found[0].encode())
