"""How a client learns what a server speaks: the answers to `server/discover` and `initialize`, read and judged.

Spec: 2026-07-28 basic/versioning, server/discover; 2025-11-25 basic/lifecycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from mcpd.errors import InvalidParams, LocalProtocolError, ProtocolError, RemoteError, UnsupportedVersion
from mcpd.protocol.jsonrpc import ABSENT, MALFORMED, Id, as_object, encode, explain
from mcpd.protocol.types.base import (
    META,
    ClientCapabilities,
    DiscoverResult,
    Implementation,
    InitializeResult,
    LogLevel,
    ServerCapabilities,
)
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import Version
from mcpd.protocol.wire.ndjson import answered_request_id

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


class _PlainResult(Struct, forbid_unknown_fields=True):
    """A `Response` that has nothing else in its message."""

    jsonrpc: Literal["2.0"]
    id: Id
    result: Raw


class _Bearer(Struct):
    """What can be read of a frame that is no message."""

    id: Id | None = None
    method: Raw = ABSENT


decode_result = Decoder(_PlainResult).decode
"""One frame as a plain result, for who mostly gets these. Raises MALFORMED for all else: for that there is
`jsonrpc.decode`."""
_read_bearer = Decoder(_Bearer).decode


def is_utf8(frame: bytes) -> bool:
    """Whether a frame is text as JSON has to be."""
    try:
        frame.decode()
    except UnicodeDecodeError:
        return False
    return True


def id_answered(frame: bytes | Raw) -> Id | None:
    """The id of a frame that is no call, however bad it is otherwise; None if it cannot be told."""
    try:
        found = _read_bearer(frame)
    except MALFORMED:
        return answered_request_id(bytes(frame))
    return found.id if found.method is ABSENT else None


def params_to_keep(params: Raw, frame: bytes) -> Raw:
    """Params as they may be kept: raw JSON is a part of its frame, which may have much besides."""
    if params is ABSENT:
        return Raw(b"{}")
    return params if 2 * len(params) > len(frame) else params.copy()


_members = Decoder(dict[str, Raw]).decode
_object = Decoder(dict[str, Any]).decode


class Envelope:
    """What each request of a modern version says of its client, in `_meta`.

    Spec: 2026-07-28 basic/index, `_meta`: three keys on every request, one more for log messages.
    """

    def __init__(self, version: str, info: Implementation, capabilities: ClientCapabilities) -> None:
        self.version = version
        self._meta: dict[str, Any] = {
            f"{META}protocolVersion": version,
            f"{META}clientCapabilities": capabilities,
            f"{META}clientInfo": info,
        }
        self._written = Raw(encode(self._meta))

    def set_log_level(self, level: LogLevel) -> None:
        """From now on requests ask for log messages of this level and above."""
        self._meta[f"{META}logLevel"] = level
        self._written = Raw(encode(self._meta))

    def wrap(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """These params with the envelope. Raises InvalidParams for a `_meta` that is no object."""
        return with_meta(members, self._meta) if "_meta" in members else {**members, "_meta": self._written}


def as_members(version: Version, params: Any) -> dict[str, Any]:
    """The members of params, in the shape of this version. Raises LocalProtocolError for what is no JSON object."""
    if params is None:
        return {}
    if params.__class__ is dict and "_meta" not in params and Raw not in map(type, params.values()):
        return params  # plain values: they are written once, with all the rest
    written = as_object(params if isinstance(params, Raw) else version.shape(params), "params")
    try:
        return dict(_members(written))
    except MALFORMED as error:
        raise LocalProtocolError(f"params cannot be read as JSON: {explain(error)}") from error


def with_meta(members: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Params with these keys in their `_meta`, beside those that are there."""
    raw = members.get("_meta")
    try:
        meta: Mapping[str, Any] = {} if raw is None else raw if isinstance(raw, dict) else _object(raw)
    except MALFORMED as error:
        raise InvalidParams(f"_meta must be an object: {explain(error)}") from None
    return {**members, "_meta": {**meta, **added}}
