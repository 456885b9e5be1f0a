"""Messages of a client: the handshake, params, `_meta` and headers of requests, and parts of received frames.

No I/O. Spec: 2026-07-28 basic/versioning, server/discover, basic/index (`_meta`), basic/transports/streamable-http
(request metadata); 2025-11-25 basic/lifecycle, basic/transports (version header).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Raw, Struct, field
from msgspec.json import Decoder, decode

from mcpd.errors import (
    LocalProtocolError,
    ProtocolError,
    RegistrationError,
    RemoteError,
    UnsupportedVersion,
)
from mcpd.protocol.channel import Heading
from mcpd.protocol.envelope import server_in
from mcpd.protocol.jsonrpc import ABSENT, MALFORMED, Id, as_object, encode, explain
from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import (
    DiscoverResult,
    Implementation,
    InitializeResult,
    ServerCapabilities,
)
from mcpd.protocol.types.features import Tool
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import Version
from mcpd.protocol.wire.headers import Mirror, encode_value, mirrors
from mcpd.protocol.wire.ndjson import answered_request_id
from .limits import Faults

# Errors of modern servers only: header mismatch, missing capability, unsupported version.
_MODERN_ERRORS = (-32020, -32021, UnsupportedVersion.code)

_read_discovery = Decoder(DiscoverResult).decode
_read_initialize = Decoder(InitializeResult).decode
_read_any = Decoder().decode


class Agreement(Struct, frozen=True):
    """The selected version, and the server's description of itself."""

    version: str
    capabilities: ServerCapabilities = field(default_factory=ServerCapabilities)
    instructions: str | None = None
    server_info: Implementation | None = None
    is_whole: bool = True
    """Whether the response contained the capabilities. Otherwise they must be requested in this version."""


def read_discovery(answer: Raw | RemoteError | None) -> Agreement:
    """Return the newest common version of a response to the probe, or the newest legacy version if it is not a valid
    one.

    Spec: 2026-07-28 transports/stdio, backward compatibility: a recognized modern error names the versions, and "any
    other error" means a legacy server. Raises UnsupportedVersion if there is no common version.
    """
    if answer is None:
        return Agreement(table.NEWEST_LEGACY)
    if isinstance(answer, RemoteError):
        if answer.code not in _MODERN_ERRORS:
            return Agreement(table.NEWEST_LEGACY)
        # A modern server that requires more than the probe has.
        if answer.code != UnsupportedVersion.code:
            raise answer
        data = answer.data if isinstance(answer.data, dict) else {}
        supported = data.get("supported")
        return Agreement(_choose(supported if isinstance(supported, list) else []), is_whole=False)

    try:
        found = _read_discovery(answer)
    except MALFORMED:
        return Agreement(table.NEWEST_LEGACY)  # some servers answer unknown methods with a result

    version = _choose(found.supported_versions)
    return Agreement(version, found.capabilities, found.instructions, server_in(found.meta))


def read_initialize(result: Raw) -> Agreement:
    """Return the content of the response to `initialize`.

    Raises ProtocolError, and UnsupportedVersion for an unknown version: "the client SHOULD disconnect".
    """
    try:
        answer = _read_initialize(_with_offers(result))
    except MALFORMED as error:
        raise ProtocolError(f"The server's response to initialize is invalid: {explain(error)}") from None
    name = answer.protocol_version
    if name not in table.LEGACY:
        text = f"The server requires protocol version {name!r}, which this client does not support"
        raise UnsupportedVersion(str(name), table.LEGACY, text)

    return Agreement(str(name), answer.capabilities, answer.instructions, answer.server_info)


def _with_offers(result: Raw) -> Raw:
    # Replace capabilities that are null by empty objects, because servers use null for capabilities that they have.
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
        text = f"No common protocol version: the server supports {named}, this client {', '.join(table.SUPPORTED)}"
        raise UnsupportedVersion(table.SUPPORTED[0], list(map(str, supported)), text)

    return name


class _PlainResult(Struct, forbid_unknown_fields=True):
    jsonrpc: Literal["2.0"]
    id: Id
    result: Raw


class _Bearer(Struct):
    id: Id | None = None
    method: Raw = ABSENT


decode_result = Decoder(_PlainResult).decode
"""Decodes the most frequent frame, a plain result. Raises MALFORMED for others, which `jsonrpc.decode` reads."""
_read_bearer = Decoder(_Bearer).decode


def is_utf8(frame: bytes) -> bool:
    try:
        frame.decode()
    except UnicodeDecodeError:
        return False
    return True


def id_answered(frame: bytes | Raw) -> Id | None:
    """Return the id of an invalid response; None if it is unknown."""
    try:
        found = _read_bearer(frame)
    except MALFORMED:
        return answered_request_id(bytes(frame))
    return found.id if found.method is ABSENT else None


def params_to_keep(params: Raw, frame: bytes) -> Raw:
    """Return params for longer use. Raw JSON refers to its whole frame, so a small part is copied."""
    if params is ABSENT:
        return Raw(b"{}")
    return params if 2 * len(params) > len(frame) else params.copy()


_members = Decoder(dict[str, Raw]).decode


def as_members(version: Version, params: Any) -> dict[str, Any]:
    """Return the members of params, in the format of this version. Raises LocalProtocolError for a non-object."""
    if params is None:
        return {}
    if params.__class__ is dict and "_meta" not in params and Raw not in map(type, params.values()):
        return params  # plain values, which are encoded with the request
    written = as_object(params if isinstance(params, Raw) else version.shape(params), "params")
    try:
        return dict(_members(written))
    except MALFORMED as error:
        raise LocalProtocolError(f"params is not valid JSON: {explain(error)}") from error


class Headings:
    """The headers of one client."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        # Mirrored arguments, by the name of the tool.
        self._mirrors: dict[str, tuple[Mirror, ...]] = {}
        self.other = Heading(is_request=False, in_session=False)
        """The headers of a notification or response."""
        self._request = Heading(is_request=True)

    def inherit(self, earlier: Headings) -> None:
        """Use the mirrored arguments of an earlier connection until the tools are listed again."""
        self._mirrors = earlier._mirrors

    def set_version(self, version: str, *, in_session: bool) -> None:
        self.other = Heading(is_request=False, in_session=in_session, version=version)
        self._request = Heading(is_request=True, in_session=in_session, version=version)

    def for_request(self, method: str, members: Mapping[str, Any], version: str | None) -> Heading:
        """Return the headers of a request. `version` is the version in its `_meta`; None in sessions."""
        if version is None:
            return self._request

        subject = "taskId" if method.startswith("tasks/") else SUBJECTS.get(method)
        name = None if subject is None else _value(members.get(subject))
        fields = [("Mcp-Method", method)]
        if isinstance(name, str):
            fields.append(("Mcp-Name", encode_value(name).decode("ascii")))
            if method == "tools/call" and name in self._mirrors:
                fields += _mirrored(self._mirrors[name], _value(members.get("arguments")))
        return Heading(is_request=True, in_session=False, version=version, fields=tuple(fields))

    def set_tools(self, tools: Sequence[Tool]) -> list[Tool]:
        """Remember the mirrored arguments, and return the tools whose annotations are valid (S26-074)."""
        # Spec: 2026-07-28 only: legacy versions have no mirrored arguments.
        if self._request.in_session:
            return list(tools)
        kept, learnt = [], {}
        for tool in tools:
            try:
                found = mirrors(_value(tool.input_schema))
            except RegistrationError as error:
                text = "the tool %s is left out: %s"
                self._faults.log(logging.WARNING, text, printable(tool.name), printable(error, 300))
                continue
            kept.append(tool)
            if found:
                learnt[tool.name] = found
        self._mirrors = learnt
        return kept


def _mirrored(found: Sequence[Mirror], arguments: Any) -> list[tuple[str, str]]:
    fields = []
    for mirror in found:
        value = arguments
        for key in mirror.path:
            value = _value(value.get(key)) if isinstance(value, Mapping) else None
        text = _as_text(value)
        if text is not None:
            fields.append((mirror.header, encode_value(text).decode("ascii")))
    return fields


def _as_text(value: Any) -> str | None:
    # Return an argument as the value of a header; None if it is not mirrored.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, int) else None


def _value(value: Any) -> Any:
    if not isinstance(value, (Raw, bytes)):
        return value
    try:
        return decode(value)
    except MALFORMED:
        return None
