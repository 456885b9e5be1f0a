"""The parts that all messages share: naming, `_meta`, icons, results, pages, the handshake and notifications.

Spec: 2026-07-28 basic/index, server/utilities/{caching,pagination}.
"""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

NO_JSON = Raw(b"")
"""The default of a field that stays raw JSON: absent. Compare with `is`."""

META = "io.modelcontextprotocol/"
"""The prefix of the protocol's own `_meta` keys."""


Meta: TypeAlias = dict[str, Any] | None
"""The `_meta` of a message or of a part of one."""

NO_META: Any = field(name="_meta", default=None)
"""The member `meta` of a struct: written as `_meta`, absent by default."""


class Wire(Struct, rename="camel", omit_defaults=True):
    """Base of all structs on the wire: camelCase names, absent fields left out."""


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
    """The fields that the params of every request may have."""

    meta: RequestMeta | None = NO_META


class PageParams(Params, kw_only=True):
    """Params of a list request. `""` is a cursor like any other."""

    cursor: str | None = None


class Result(Wire, kw_only=True):
    """The fields that every result may have. Only versions that have `result_type` write it."""

    result_type: str | UnsetType = UNSET
    meta: dict[str, Any] | Raw | None = NO_META


class EmptyResult(Result, kw_only=True):
    """A result without fields of its own."""


class ObjectResult(Result):
    """The result of an extension's method: `members` are its own fields."""

    members: dict[str, Any] = {}


class CacheableResult(Result, kw_only=True):
    """A result with a caching hint: fresh for `ttl_ms` milliseconds, for this caller or for all."""

    ttl_ms: int | UnsetType = UNSET
    cache_scope: Literal["public", "private"] | UnsetType = UNSET


class RawResult(CacheableResult, kw_only=True):
    """A result of another server, which has the shape of its version already and is sent as it is.

    The other fields are copies of members that wrappers of handlers read. Only a `cache_scope` that they make private
    changes what is sent.
    """

    raw: Raw
    is_error: bool = False


class Icon(Wire, kw_only=True):
    """An icon: `src` is an https: or data: URI, `sizes` like ["48x48"] or ["any"]."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Implementation(Wire, kw_only=True):
    """The identity of a client or server."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class ListChanged(Wire, kw_only=True):
    """A capability whose only setting is whether the list's changes are notified."""

    list_changed: bool = False


class ResourcesCapability(Wire, kw_only=True):
    """The `resources` capability: whether resources can be subscribed to, and whether list changes are notified."""

    subscribe: bool = False
    list_changed: bool = False


class ElicitationCapability(Wire, kw_only=True):
    """The `elicitation` capability: `{}` means forms only."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class SamplingCapability(Wire, kw_only=True):
    """The `sampling` capability, with tools and with context."""

    tools: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class ClientCapabilities(Wire, kw_only=True):
    """The capabilities of a client. `extensions` maps the id of an extension to its settings."""

    roots: ListChanged | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class ServerCapabilities(Wire, kw_only=True):
    """The capabilities of a server."""

    logging: dict[str, Any] | None = None
    completions: dict[str, Any] | None = None
    prompts: ListChanged | None = None
    resources: ResourcesCapability | None = None
    tools: ListChanged | None = None
    tasks: dict[str, Any] | None = None
    events: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class InitializeParams(Wire, kw_only=True):
    """The params of `initialize`. Very old clients send an integer as `protocol_version`, which is not served."""

    protocol_version: str | int
    capabilities: ClientCapabilities
    client_info: Implementation
    meta: RequestMeta | None = NO_META


class InitializeResult(Result, kw_only=True):
    """The result of `initialize`."""

    protocol_version: str | UnsetType = UNSET
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, kw_only=True):
    """The result of `server/discover`."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""RFC 5424 levels, least severe first."""


class NotificationParams(Wire, kw_only=True):
    """The fields that the params of every notification may have."""

    meta: Meta = NO_META


class ProgressParams(Wire, kw_only=True, gc=False):
    """The progress of a request. `progress` rises with each notification; `total` is absent if unknown."""

    progress_token: int | str
    progress: float
    total: float | None = None
    message: str | None = None
    meta: Meta = NO_META


class CancelledParams(Wire, kw_only=True):
    """The request that is cancelled. In 2025-11-25 the id may be absent (tasks)."""

    request_id: int | str | None = None
    reason: str | None = None
    meta: Meta = NO_META


class LogMessageParams(Wire, kw_only=True):
    """A log message: `data` is any JSON value."""

    level: LogLevel
    data: Any | UnsetType = UNSET
    logger: str | None = None
    meta: Meta = NO_META


class SetLevelParams(Params, kw_only=True):
    """The least severe level of log messages that a legacy client requests."""

    level: str
