"""What every struct on the wire shares: naming, `_meta`, icons, results and pages.

Spec: 2026-07-28 basic/index, server/utilities/{caching,pagination}.
"""

from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = [
    "META",
    "NO_JSON",
    "CacheableResult",
    "EmptyResult",
    "Icon",
    "ObjectResult",
    "PageParams",
    "Params",
    "RequestMeta",
    "Result",
    "Wire",
]

NO_JSON = Raw(b"")
"""The default of a member that stays raw JSON: absent. Compare with `is`."""

META = "io.modelcontextprotocol/"
"""The prefix of the protocol's own `_meta` keys."""


class Wire(Struct, rename="camel", omit_defaults=True):
    """A struct as it stands on the wire: camelCase, absent members left out."""


class RequestMeta(Wire, kw_only=True, gc=False):
    """`params._meta` as far as the protocol reads it; unknown keys are ignored.

    In 2026-07-28 the first two M/ keys are the request's envelope. Capabilities and client info stay raw:
    few requests look at them.
    """

    progress_token: int | str | None = None
    protocol_version: str | UnsetType = field(name=f"{META}protocolVersion", default=UNSET)
    client_capabilities: Raw = field(name=f"{META}clientCapabilities", default=NO_JSON)
    client_info: Raw = field(name=f"{META}clientInfo", default=NO_JSON)
    log_level: Any = field(name=f"{META}logLevel", default=None)


class Params(Wire, kw_only=True):
    """What the params of every request may hold; also the params of a method that has none of its own."""

    meta: RequestMeta | None = field(name="_meta", default=None)


class PageParams(Params, kw_only=True):
    """Params of a list request. `""` is a cursor like any other."""

    cursor: str | None = None


class Result(Wire, kw_only=True):
    """What every result may hold. `result_type` is written by versions that have it."""

    result_type: str | UnsetType = UNSET
    meta: dict[str, Any] | Raw | None = field(name="_meta", default=None)


class EmptyResult(Result, kw_only=True):
    """An acknowledgement."""


class ObjectResult(Result):
    """The result of a method that is not in this vocabulary: `members` are its own, beside those of every result."""

    members: dict[str, Any] = {}


class CacheableResult(Result, kw_only=True):
    """A result with a caching hint: fresh for `ttl_ms` milliseconds, for this caller or for all."""

    ttl_ms: int | UnsetType = UNSET
    cache_scope: Literal["public", "private"] | UnsetType = UNSET


class Icon(Wire, kw_only=True):
    """An icon: `src` is an https: or data: URI, `sizes` like ["48x48"] or ["any"]."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None
