"""The protocol's own members of `_meta`: their names, how a client writes them, how a server reads and checks them.

`RequestMeta` in `types/base.py` has the members of requests; a new one is a new field of it. All other rules are here.
`ClientIdentity` is a client's description of itself, in `initialize` or in `_meta`. `Opening` is what a transport knows
about a connection before the first message.
Spec: 2026-07-28 basic/index, basic/versioning; 2025-11-25 basic/lifecycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcpd.errors import InvalidParams, InvalidRequest, ParseError, UnsupportedVersion
from mcpd.protocol.types.base import (
    LOG_LEVELS,
    META,
    NO_JSON,
    ClientCapabilities,
    Implementation,
    InitializeParams,
    Params,
    RequestMeta,
)
from mcpd.protocol.versions.table import Version
from .jsonrpc import ABSENT, MALFORMED, encode, explain
from .versions import table

NAMES = dict(zip(RequestMeta.__struct_fields__, RequestMeta.__struct_encode_fields__, strict=True))
"""The members of a request, by the field of `RequestMeta`."""

PROGRESS_TOKEN = NAMES["progress_token"]
"""The member of a request that asks for progress notifications."""

SERVER_INFO = f"{META}serverInfo"
"""The member of a modern result that has the name and version of the server."""

SUBSCRIPTION_ID = f"{META}subscriptionId"
"""The member of a notification that has the id of the subscription it belongs to."""

_ERA_FIXED = "This connection was initialized: its version is fixed; send requests without protocolVersion in _meta"

# Longest params of `initialize`, in bytes, that are cached for other clients with the same text.
_MOST_SHARED = 1024

_NO_CAPABILITIES = ClientCapabilities()
_decode_capabilities = Decoder(ClientCapabilities).decode
_decode_info = Decoder(Implementation).decode
_decode_object = Decoder(dict[str, Any]).decode
_decode_members = Decoder(dict[str, Raw]).decode

# Decodes only the `_meta` of params.
read_head = Decoder(Params).decode

read_initialize = Decoder(InitializeParams).decode


def written_identity(meta: RequestMeta) -> tuple[bytes, bytes]:
    """Return the capabilities and the identity of a client as it wrote them, for a server that passes them on."""
    return bytes(meta.client_capabilities), bytes(meta.client_info)


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
    # The mounted servers that it is limited to; None for everything.
    part: ClassVar[tuple[str, ...] | None] = None


class OpeningOfPart(Opening, frozen=True, gc=False, kw_only=True):
    """An opening that is limited to some mounted servers. A class of its own, because most of thousands are not."""

    named: tuple[str, ...]

    @property
    def part(self) -> tuple[str, ...]:  # type: ignore[override]
        """The mounted servers that it is limited to."""
        return self.named


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
                raise InvalidParams(f"_meta.{NAMES['client_capabilities']}: {explain(error)}") from None
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

    @property
    def is_of_request(self) -> bool:
        """Whether the client described itself with this request, and not once for a session."""
        return self._raw_capabilities is not NO_JSON

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
    if len(raw) <= len("null") and bytes(raw) in (b"", b"null"):
        raw = Raw(b"{}")
    try:
        return read(raw)
    except ValidationError as error:
        raise InvalidParams(f"Invalid params: {explain(error)}") from None
    except MALFORMED as error:
        raise ParseError(f"Parse error: {explain(error)}") from None


def asked_version(raw: Raw) -> str:
    """Return the version that the params of `initialize` request, "" if they cannot be decoded."""
    try:
        return str(read_initialize(raw).protocol_version)
    except MALFORMED:
        return ""


# -- the members of requests, on the server's side --------------------------------------------


def may_have_envelope(body: bytes) -> bool:
    """Return False if no message in a body names its protocol version in `_meta`."""
    return b"protocolVersion" in body


def read_meta(raw: Raw) -> RequestMeta | None:
    """Return the `_meta` of params, or None if they have no `_meta` or cannot be decoded."""
    try:
        meta: RequestMeta | None = read_head(b"{}" if raw is ABSENT else raw).meta
    except MALFORMED:
        return None
    return meta


def names_version(meta: RequestMeta | None) -> bool:
    """Return whether a request names its protocol version, as every request of 2026-07-28 does."""
    return meta is not None and meta.protocol_version is not UNSET


def version_in(meta: RequestMeta) -> str:
    return str(meta.protocol_version)


def has_no_envelope(meta: RequestMeta | None) -> bool:
    """Return whether a request has no required member, as those of legacy clients."""
    return meta is None or (meta.protocol_version is UNSET and meta.client_capabilities is NO_JSON)


def refuse_envelope(meta: RequestMeta | None) -> None:
    """Raise InvalidRequest for a request that names its version, although its connection was initialized."""
    if names_version(meta):
        raise InvalidRequest(_ERA_FIXED)


def check_envelope(meta: RequestMeta | None, *, is_fixed: bool) -> Version:
    """Return the version of a modern request.

    Raises InvalidParams for a missing member, then UnsupportedVersion for a version that is not served.
    """
    missing = []
    if meta is None or meta.protocol_version is UNSET:
        missing.append(NAMES["protocol_version"])
    if meta is None or bytes(meta.client_capabilities)[:1] != b"{":
        missing.append(NAMES["client_capabilities"])
    if missing:
        hint = "" if is_fixed else " (or send initialize first, for 2025-11-25 and older)"
        raise InvalidParams(f"Missing in params._meta: {', '.join(missing)}{hint}", {"missing": missing})

    assert meta is not None
    if meta.protocol_version not in table.MODERN:
        raise UnsupportedVersion(str(meta.protocol_version), table.SUPPORTED)
    return table.get(str(meta.protocol_version))


def check_optional(meta: RequestMeta) -> None:
    """Raise InvalidParams for an invalid optional member of a modern request. Its params are decoded by then."""
    level = meta.log_level
    if level is not None and level not in LOG_LEVELS:
        raise InvalidParams(
            f"_meta.{NAMES['log_level']}: expected one of {', '.join(LOG_LEVELS)}", {"requested": level}
        )


def raw_capabilities(meta: RequestMeta | None) -> bytes:
    """Return the client's capabilities as received; empty without an envelope."""
    return b"" if meta is None else bytes(meta.client_capabilities)


def identity_in(meta: RequestMeta) -> ClientIdentity:
    return ClientIdentity(raw_capabilities=meta.client_capabilities, raw_info=meta.client_info)


def log_level_in(meta: RequestMeta | None) -> str | None:
    """Return the least severe level of log messages that a modern request asks for, None for no messages."""
    return None if meta is None else meta.log_level


# -- the members that a client writes --------------------------------------------------------


class Envelope:
    """The members of `_meta` that a client adds to its modern requests.

    Spec: 2026-07-28 basic/index, `_meta`: three keys on every request, and one more for log messages.
    """

    def __init__(self, version: str, info: Any, capabilities: Any) -> None:
        self.version = version
        self._meta = RequestMeta(
            protocol_version=version, client_capabilities=Raw(encode(capabilities)), client_info=Raw(encode(info))
        )
        self._written = Raw(encode(self._meta))

    def set_log_level(self, level: str) -> None:
        self._meta.log_level = level
        self._written = Raw(encode(self._meta))

    def wrap(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """Add `_meta` to params. Raises InvalidParams for an existing `_meta` that is not an object."""
        if "_meta" in members:
            return with_meta(members, _decode_members(self._written))
        return {**members, "_meta": self._written}


def with_progress(members: Mapping[str, Any], token: int | str) -> dict[str, Any]:
    """Add a progress token to params, which asks for progress notifications."""
    return with_meta(members, {PROGRESS_TOKEN: token})


def with_meta(members: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Add members to the `_meta` of params. Raises InvalidParams for an existing `_meta` that is not an object."""
    raw = members.get("_meta")
    try:
        meta: Mapping[str, Any] = {} if raw is None else raw if isinstance(raw, dict) else _decode_object(raw)
    except MALFORMED as error:
        raise InvalidParams(f"_meta must be an object: {explain(error)}") from None
    return {**members, "_meta": {**meta, **added}}


# -- the members of results ------------------------------------------------------------------


def result_meta(server: Implementation) -> Raw:
    """Return the `_meta` that all modern results of a server have."""
    return Raw(encode({SERVER_INFO: server}))


def server_in(meta: Any) -> Implementation | None:
    """Return the name and version of the server in the `_meta` of a result, or None if they are missing."""
    raw = meta.get(SERVER_INFO) if isinstance(meta, dict) else None
    try:
        return None if raw is None else _decode_info(encode(raw))
    except MALFORMED:
        return None
