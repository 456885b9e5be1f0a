"""How a client learns what a server speaks: the answers to `server/discover` and `initialize`, read and judged.

Spec: 2026-07-28 basic/versioning, server/discover; 2025-11-25 basic/lifecycle.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from mcpd.errors import ProtocolError, RemoteError, UnsupportedVersion
from mcpd.protocol.jsonrpc import MALFORMED, encode, explain
from mcpd.protocol.versions import table
from mcpd.types.base import META
from mcpd.types.lifecycle import DiscoverResult, Implementation, InitializeResult, ServerCapabilities

_MODERN_ERRORS = (-32020, -32021, UnsupportedVersion.code)
"""What no legacy server answers: header mismatch, missing capability, unsupported version."""

_read_discovery = Decoder(DiscoverResult).decode
_read_initialize = Decoder(InitializeResult).decode
_read_any = Decoder().decode
_read_info = Decoder(Implementation).decode


class Agreement(Struct, frozen=True):
    """The version to go on with, and what the server said of itself with it."""

    version: str
    capabilities: ServerCapabilities = field(default_factory=ServerCapabilities)
    instructions: str | None = None
    server_info: Implementation | None = None
    is_whole: bool = True
    """Whether it came with what the server offers; else that is to be asked for, in this version."""


def read_discovery(answer: Raw | RemoteError | None) -> Agreement:
    """What the answer to the probe says: the newest version in common, or the newest legacy one if it is no answer.

    Spec: 2026-07-28 transports/stdio, backward compatibility: a recognized modern error names the versions,
    and "any other error" means a legacy server. Raises UnsupportedVersion if there is none in common.
    """
    if answer is None:
        return Agreement(table.NEWEST_LEGACY)
    if isinstance(answer, RemoteError):
        if answer.code not in _MODERN_ERRORS:
            return Agreement(table.NEWEST_LEGACY)
        if answer.code != UnsupportedVersion.code:
            raise answer
        data = answer.data if isinstance(answer.data, dict) else {}
        supported = data.get("supported")
        return Agreement(_choose(supported if isinstance(supported, list) else []), is_whole=False)

    try:
        found = _read_discovery(answer)
    except MALFORMED:
        return Agreement(table.NEWEST_LEGACY)  # it answers what it does not understand

    version = _choose(found.supported_versions)
    return Agreement(version, found.capabilities, found.instructions, _identity(found.meta))


def read_initialize(result: Raw) -> Agreement:
    """What the answer to `initialize` says.

    Raises UnsupportedVersion for a version we do not speak: "the client SHOULD disconnect"; ProtocolError.
    """
    try:
        answer = _read_initialize(_with_offers(result))
    except MALFORMED as error:
        raise ProtocolError(f"The server's answer to initialize cannot be read: {explain(error)}") from None
    name = answer.protocol_version
    if name not in table.LEGACY:
        text = f"The server wants protocol version {name!r}, which we do not speak"
        raise UnsupportedVersion(str(name), table.LEGACY, text)

    return Agreement(str(name), answer.capabilities, answer.instructions, answer.server_info)


def _with_offers(result: Raw) -> Raw:
    """The answer with an empty object for each capability that is null: its name is there, so it is offered."""
    if b"null" not in bytes(result):
        return result
    members = _read_any(result)
    offers = members.get("capabilities") if isinstance(members, dict) else None
    if isinstance(offers, dict):
        members["capabilities"] = {name: {} if offer is None else offer for name, offer in offers.items()}

    return Raw(encode(members))


def _choose(supported: list[Any]) -> str:
    name = next((name for name in table.SUPPORTED if name in supported), None)
    if name is None:
        named = ", ".join(map(str, supported)) or "none"
        text = f"No protocol version in common: the server speaks {named}, and we {', '.join(table.SUPPORTED)}"
        raise UnsupportedVersion(table.SUPPORTED[0], list(map(str, supported)), text)

    return name


def _identity(meta: Any) -> Implementation | None:
    raw = meta.get(f"{META}serverInfo") if isinstance(meta, dict) else None
    try:
        return None if raw is None else _read_info(encode(raw))
    except MALFORMED:
        return None
