"""What a client writes into the params of its requests: JSON objects, and the `_meta` of modern ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw
from msgspec.json import Decoder

from mcpd.errors import InvalidParams, LocalProtocolError
from mcpd.protocol.jsonrpc import MALFORMED, as_object, encode, explain
from mcpd.protocol.versions.table import Version
from mcpd.types.base import META
from mcpd.types.lifecycle import ClientCapabilities, Implementation
from mcpd.types.notifications import LogLevel

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
