"""What a peer says of itself and of a request's version, in `initialize` and in `_meta`: read, and checked; and what
its transport knows before it has said anything, an `Opening`.

What follows from all that for the connection is the session's.
Spec: 2026-07-28 basic/index, basic/versioning; 2025-11-25 basic/lifecycle.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcpd.errors import InvalidParams, ParseError, UnsupportedVersion
from mcpd.protocol.jsonrpc import ABSENT, MALFORMED, explain
from mcpd.protocol.types.base import (
    META,
    NO_JSON,
    ClientCapabilities,
    Implementation,
    InitializeParams,
    Params,
    RequestMeta,
)
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import Version

_MOST_SHARED = 1024
"""So long a text of `initialize` may be to be kept for the next client that says the same."""

_NO_CAPABILITIES = ClientCapabilities()
_decode_capabilities = Decoder(ClientCapabilities).decode
_decode_info = Decoder(Implementation).decode

read_head = Decoder(Params).decode
"""Only the `_meta` of params."""

read_initialize = Decoder(InitializeParams).decode


Phase: TypeAlias = 'Literal["new", "initializing", "initialized", "modern"]'
"""How far a connection is, see `session`. Words and no enum, whose class is dear to make at each start."""


class Opening(Struct, frozen=True, gc=False):
    """How a connection begins: what its transport knows of it before the first message.

    `version` fixes the era; None leaves that to the first request. A modern one stands for all modern ones, as each
    request brings its own along; a legacy one was agreed on elsewhere. `principal` is who the peer is to the
    transport, e.g. a digest of its token, "" for nobody in particular; what is sealed for one serves no other. `peer`
    is the address that it connects from, without its port; "" if it is known by nothing but itself. With
    `is_stateless` there is one request and no more: what an older client sets is not kept, and it is told of nothing
    later. `subscribes` is false for a connection that ends with its one request: it need not be told of changes.
    """

    version: Version | None = None
    principal: str = ""
    peer: str = ""
    is_stateless: bool = False
    subscribes: bool = True


class ClientIdentity:
    """What a peer says of itself: in `initialize`, or in one request's `_meta` (then decoded when asked for).

    Clients that say the same may have the same one: nothing of it is ever changed, and authors get a `copy`.
    """

    __slots__ = ("_capabilities", "_info", "_raw_capabilities", "_raw_info")

    def __init__(
        self,
        capabilities: ClientCapabilities | None = None,
        info: Implementation | None = None,
        raw_capabilities: Raw = NO_JSON,
        raw_info: Raw = NO_JSON,
    ) -> None:
        self._capabilities = capabilities
        self._info = info
        self._raw_capabilities = raw_capabilities
        self._raw_info = raw_info

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the client offers. Raises InvalidParams if it said so in a shape that cannot be read."""
        if self._capabilities is None:
            if self._raw_capabilities is NO_JSON:
                return _NO_CAPABILITIES
            try:
                self._capabilities = _decode_capabilities(self._raw_capabilities)
            except MALFORMED as error:
                raise InvalidParams(f"_meta.{META}clientCapabilities: {explain(error)}") from None
        return self._capabilities

    @property
    def info(self) -> Implementation | None:
        """The client's name and version, None if it did not say. Never a ground for behaviour."""
        if self._info is None and self._raw_info is not NO_JSON:
            try:
                self._info = _decode_info(self._raw_info)
            except MALFORMED:
                return None
        return self._info

    def copy(self) -> ClientIdentity:
        """One that may be changed, without another client's tools seeing it."""
        from copy import deepcopy  # noqa: PLC0415  # few tools ask, and this costs start-up

        capabilities = deepcopy(self._capabilities)
        if capabilities is None and self._raw_capabilities is NO_JSON:
            capabilities = ClientCapabilities()
        return ClientIdentity(capabilities, deepcopy(self._info), self._raw_capabilities, self._raw_info)


def said_by(params: bytes, version: str) -> ClientIdentity:
    """What a client says of itself in the params of `initialize`.

    Thousands of sessions may be of one program, which says the same in each: they have one object.
    """
    return (_said_by if len(params) <= _MOST_SHARED else _said_by.__wrapped__)(params, version)


@lru_cache(64)
def _said_by(params: bytes, version: str) -> ClientIdentity:
    read: InitializeParams = read_initialize(params)
    # What the version does not know was not declared, whatever the client wrote.
    return ClientIdentity(table.get(version).shape(read.capabilities), read.client_info)


def read_params(read: Any, raw: Raw) -> Any:
    """Decode params, with the faults as protocol errors that name the field."""
    if raw is ABSENT or bytes(raw) == b"null":
        raw = Raw(b"{}")
    try:
        return read(raw)
    except ValidationError as error:
        raise InvalidParams(f"Invalid params: {explain(error)}") from None
    except MALFORMED as error:
        raise ParseError(f"Parse error: {explain(error)}") from None


def has_envelope(raw: Raw) -> bool:
    """Whether params say by themselves which version they are of, as every request of 2026-07-28 does."""
    try:
        meta = read_head(b"{}" if raw is ABSENT else raw).meta
    except MALFORMED:
        return False
    return meta is not None and meta.protocol_version is not UNSET


def check_envelope(meta: RequestMeta | None, *, is_fixed: bool) -> Version:
    """The version of a modern request.

    Raises for the first fault of its `_meta`: a missing key, then a version that is not served.
    """
    missing = []
    if meta is None or meta.protocol_version is UNSET:
        missing.append(f"{META}protocolVersion")
    if meta is None or bytes(meta.client_capabilities)[:1] != b"{":
        missing.append(f"{META}clientCapabilities")
    if missing:
        hint = "" if is_fixed else " (or send initialize first, for 2025-11-25 and older)"
        raise InvalidParams(f"Missing in params._meta: {', '.join(missing)}{hint}", {"missing": missing})

    assert meta is not None
    if meta.protocol_version not in table.MODERN:
        raise UnsupportedVersion(str(meta.protocol_version), table.SUPPORTED)
    return table.get(str(meta.protocol_version))


def asked_version(raw: Raw) -> str:
    """The version that the params of `initialize` ask for, as far as they can be read."""
    try:
        return str(read_initialize(raw).protocol_version)
    except MALFORMED:
        return ""
