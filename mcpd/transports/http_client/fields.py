"""Header fields of the program: held against what can be sent, before anything is."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ConfigurationError
from ...printable import printable

__all__ = ["checked"]

_OURS = frozenset(
    (
        "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect",
        "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "te", "trailer",
        "transfer-encoding", "upgrade",
    )
)  # fmt: skip
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def checked(fields: Mapping[str, str], where: str) -> Mapping[str, str]:
    """These header fields. Raises ConfigurationError, without a value in it, for what cannot be sent."""
    for name, value in fields.items():
        if not name or not _TOKEN.issuperset(name):
            raise ConfigurationError(f"{where}: {printable(name)!r} is no name of a header field")
        lower = name.lower()
        if lower in _OURS or lower.startswith("mcp-param-"):
            raise ConfigurationError(f"{where}: {name} is said by the client itself")
        if any(c in value for c in "\r\n\0") or value != value.strip(" \t"):
            raise ConfigurationError(
                f"{where}: the value of {name} cannot be sent: it has a line break, or blanks around"
            )
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise ConfigurationError(f"{where}: the value of {name} is not Latin-1") from None
    return fields
