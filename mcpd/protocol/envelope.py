"""Read and check what a peer says about itself and about the version of a request, in `initialize` and in `_meta`.

`Opening` is what a transport knows about a connection before the first message.
Spec: 2026-07-28 basic/index, basic/versioning; 2025-11-25 basic/lifecycle.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcpd.errors import InvalidParams, ParseError, UnsupportedVersion
from mcpd.protocol.types.base import (
    META,
    NO_JSON,
    ClientCapabilities,
    Implementation,
    InitializeParams,
    Params,
    RequestMeta,
)
from mcpd.protocol.versions.table import Version
from .jsonrpc import ABSENT, MALFORMED, explain
from .versions import table

# Longest params of `initialize`, in bytes, that are cached for other clients with the same text.
_MOST_SHARED = 1024

_NO_CAPABILITIES = ClientCapabilities()
_decode_capabilities = Decoder(ClientCapabilities).decode
_decode_info = Decoder(Implementation).decode

# Decodes only the `_meta` of params.
read_head = Decoder(Params).decode

read_initialize = Decoder(InitializeParams).decode


# The phase of a connection, see `session.py`. Strings rather than an enum, which is slow to import.
Phase: TypeAlias = 'Literal["new", "initializing", "initialized", "modern"]'


class Opening(Struct, frozen=True, gc=False):
    """Facts that a transport knows about a connection before the first message."""

    # Fixes the era; None leaves it to the first request. Any modern version means all of them, since each request
    # names its own.
    version: Version | None = None
    # The id of the authenticated user, or "". State sealed for one user cannot be opened by another.
    principal: str = ""
    # The address of the client, without its port, or "".
    peer: str = ""
    # Whether the connection serves one request only: settings are not kept, and no notifications follow later.
    is_stateless: bool = False
    # Whether the connection receives notifications of changes.
    subscribes: bool = True


class ClientIdentity:
    """A client's description of itself, in `initialize` or in the `_meta` of a request (decoded on first access).

    Clients that send the same text share one object, so it is never changed; authors receive a `copy`.
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
        """The client's capabilities. Raises InvalidParams if they cannot be decoded."""
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
        """The client's name and version, None if unknown. Behaviour must not depend on it."""
        if self._info is None and self._raw_info is not NO_JSON:
            try:
                self._info = _decode_info(self._raw_info)
            except MALFORMED:
                return None
        return self._info

    def copy(self) -> ClientIdentity:
        """Return a copy that the caller may change."""
        from copy import deepcopy  # noqa: PLC0415  # few tools ask, and this costs start-up

        capabilities = deepcopy(self._capabilities)
        if capabilities is None and self._raw_capabilities is NO_JSON:
            capabilities = ClientCapabilities()
        return ClientIdentity(capabilities, deepcopy(self._info), self._raw_capabilities, self._raw_info)


def read_identity(params: bytes, version: str) -> ClientIdentity:
    """Return the identity in the params of `initialize`.

    Cached: thousands of sessions of one program share one object.
    """
    return (_read_identity if len(params) <= _MOST_SHARED else _read_identity.__wrapped__)(params, version)


@lru_cache(64)
def _read_identity(params: bytes, version: str) -> ClientIdentity:
    read: InitializeParams = read_initialize(params)
    # Capabilities that the version does not have are ignored.
    return ClientIdentity(table.get(version).shape(read.capabilities), read.client_info)


def read_params(read: Any, raw: Raw) -> Any:
    """Decode params. Raises InvalidParams, which names the field, or ParseError."""
    if raw is ABSENT or bytes(raw) == b"null":
        raw = Raw(b"{}")
    try:
        return read(raw)
    except ValidationError as error:
        raise InvalidParams(f"Invalid params: {explain(error)}") from None
    except MALFORMED as error:
        raise ParseError(f"Parse error: {explain(error)}") from None


def has_envelope(raw: Raw) -> bool:
    """Return whether params name their protocol version in `_meta`, as every request of 2026-07-28 does."""
    try:
        meta = read_head(b"{}" if raw is ABSENT else raw).meta
    except MALFORMED:
        return False
    return meta is not None and meta.protocol_version is not UNSET


def check_envelope(meta: RequestMeta | None, *, is_fixed: bool) -> Version:
    """Return the version of a modern request.

    Raises InvalidParams for a missing key, then UnsupportedVersion for a version that is not served.
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
    """Return the version that the params of `initialize` request, "" if they cannot be decoded."""
    try:
        return str(read_initialize(raw).protocol_version)
    except MALFORMED:
        return ""
