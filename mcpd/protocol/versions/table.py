"""The version table: one `Version` per protocol version, built from the revisions when it is first used.

`Version.lookup(method)` is the version gate: without a decoder, the method does not exist in that version.
`Version.shape(result)` removes the fields that the version does not have, and converts the few values that changed
their form; a value that needs no change is returned as it is. Versions are never compared as strings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from msgspec import NODEFAULT, UNSET, Raw, Struct, defstruct, field
from msgspec.json import Decoder
from msgspec.structs import FieldInfo, fields, replace

from mcpd.errors import ProtocolError
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.types.base import (
    CacheableResult,
    ClientCapabilities,
    ElicitationCapability,
    Implementation,
    InitializeResult,
    ObjectResult,
    Params,
    RawResult,
    Result,
    SamplingCapability,
    ServerCapabilities,
)
from mcpd.protocol.types.features import (
    Annotations,
    AnyValue,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceLink,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
)

Back = Callable[[Any], Any]

# Names of protocol versions; None for all.
Versions: TypeAlias = Collection[str] | None


class Revision(Struct, kw_only=True, frozen=True):
    """The changes of one revision compared with the one before it; for the oldest revision, everything that it has.

    The classes of `types.interaction` are given by name, so that most servers do not load that module.
    """

    version: str
    # Each request names its version in `_meta`; there is no handshake.
    modern: bool = False
    # The error answer to an unreadable message has `"id": null` in this revision.
    null_id: bool = False
    # A frame may be a JSON array, in this revision only.
    batches: bool = False
    # HTTP event streams start with an event id and may close their connection early, in this revision only.
    polling: bool = False

    # New requests of clients, with their params.
    requests: Mapping[str, type | str] = {}
    # New notifications of clients, with their params.
    notifications: Mapping[str, type] = {}
    server_requests: tuple[str, ...] = ()
    server_notifications: tuple[str, ...] = ()
    # Methods of any kind that no longer exist.
    removed: tuple[str, ...] = ()
    # The fields that a struct gained.
    fields: Mapping[type | str, tuple[str, ...]] = {}
    # The fields that a struct lost.
    fields_gone: Mapping[type | str, tuple[str, ...]] = {}
    # Functions that convert a value of this revision to the form it had before.
    back: Mapping[type | str, Back] = {}
    # The code that an exception class had before this revision.
    error_codes: Mapping[type, int] = {}
    # Exception classes whose code exists from this revision on.
    errors: tuple[type, ...] = ()
    # Exception classes whose code no longer exists.
    errors_gone: tuple[type, ...] = ()


_ORDER = ("2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

# Every version that is served, newest first.
SUPPORTED = _ORDER[::-1]

# Listed here and not read from the revision modules, which are loaded when they are used.
_FIRST_MODERN = _ORDER.index("2026-07-28")

LEGACY = _ORDER[:_FIRST_MODERN]
MODERN = _ORDER[_FIRST_MODERN:]
NEWEST_LEGACY = LEGACY[-1]

_BLOCKS = (TextContent, ImageContent, AudioContent, EmbeddedResource, ResourceLink)
_CONTENTS = (TextResourceContents, BlobResourceContents)

# The fields that hold other structs whose shape may differ between versions.
_NESTED: dict[type | str, dict[str, tuple[type | str, ...]]] = {
    ClientCapabilities: {"elicitation": (ElicitationCapability,), "sampling": (SamplingCapability,)},
    InitializeResult: {"capabilities": (ServerCapabilities,), "server_info": (Implementation,)},
    ListToolsResult: {"tools": (Tool,)},
    CallToolResult: {"content": _BLOCKS},
    ListResourcesResult: {"resources": (Resource,)},
    ListResourceTemplatesResult: {"resource_templates": (ResourceTemplate,)},
    ReadResourceResult: {"contents": _CONTENTS},
    ListPromptsResult: {"prompts": (Prompt,)},
    GetPromptResult: {"messages": (PromptMessage,)},
    PromptMessage: {"content": _BLOCKS},
    Prompt: {"arguments": (PromptArgument,)},
    Resource: {"annotations": (Annotations,)},
    ResourceTemplate: {"annotations": (Annotations,)},
    TextContent: {"annotations": (Annotations,)},
    ImageContent: {"annotations": (Annotations,)},
    AudioContent: {"annotations": (Annotations,)},
    EmbeddedResource: {"resource": _CONTENTS, "annotations": (Annotations,)},
    ResourceLink: {"annotations": (Annotations,)},
    "CompleteParams": {"ref": ("PromptReference",)},
    "CreateMessageParams": {"messages": ("SamplingMessage",), "tools": (Tool,)},
    "SamplingMessage": {"content": _BLOCKS},
}

# The module whose classes are listed by name, so that most servers do not load it.
_INTERACTION = "mcpd.protocol.types.interaction"

# Lists that the registry returns again and again: their encoded form is cached per version.
_KEPT = frozenset((ListToolsResult, ListResourcesResult, ListResourceTemplatesResult, ListPromptsResult))

_RANDOM_NAME = os.urandom(16).hex()

T = TypeVar("T")
Reader = Callable[[bytes | Raw], Any]
_Plan = tuple[tuple[tuple[str, Any], ...], tuple[str, ...], tuple[Back, ...]]


class Version:
    """One protocol version: its methods and the shapes of its messages."""

    def __init__(self, position: int) -> None:
        past = [_revision(name) for name in _ORDER[: position + 1]]
        own = past[-1]
        self.name = own.version
        self.is_modern = own.modern
        self.has_null_id = own.null_id
        self.has_batches = own.batches
        self.has_polling = own.polling
        self.requests: dict[str, type | str] = {}
        self.notifications: dict[str, type] = {}
        self.server_requests: set[str] = set()
        self.server_notifications: set[str] = set()
        self._later = [_revision(name) for name in _ORDER[:position:-1]]
        self._past = past

        for revision in past:
            self.requests.update(revision.requests)
            self.notifications.update(revision.notifications)
            self.server_requests.update(revision.server_requests)
            self.server_notifications.update(revision.server_notifications)
            for method in revision.removed:
                self.requests.pop(method, None)
                self.notifications.pop(method, None)
                self.server_requests.discard(method)
                self.server_notifications.discard(method)

        self._readers: dict[str, Reader] = {}
        self._plans: dict[type, _Plan | None] = {}
        # The classes seen so far whose values `shape` returns unchanged.
        self.plain: set[type] = set()
        self._kept: WeakKeyDictionary[Result, Raw] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<Version {self.name}>"

    def __str__(self) -> str:
        return self.name

    def lookup(self, method: str) -> Reader | None:
        """Return the decoder for the params of a method of clients; None if this version does not have the method."""
        reader = self._readers.get(method)
        if reader is None:
            # Built when the method is first used, because building decoders is slow.
            params = self.requests.get(method) or self.notifications.get(method)
            if params is None:
                return None
            reader = self._readers[method] = Decoder(self._known_part(_class(params))).decode
        return reader

    def shape(self, value: Any) -> Any:
        """Convert a struct of the newest vocabulary to the shape of this version."""
        cls = value.__class__
        plan = self._plan_of(cls) if cls not in self._plans else self._plans[cls]
        if plan is None:
            self.plain.add(cls)
            return value

        blanks, nested, backs = plan
        changes: dict[str, Any] | None = None
        for name, blank in blanks:
            if getattr(value, name) is not blank:
                changes = changes or {}
                changes[name] = blank

        for name in nested:
            inner = getattr(value, name)
            if inner is None or (changes is not None and name in changes):
                continue  # absent, or a field that this version does not have
            shaped = self._shape_list(inner) if inner.__class__ is list else self.shape(inner)
            if shaped is not inner:
                changes = changes or {}
                changes[name] = shaped

        if changes is not None:
            value = replace(value, **changes)
        for back in backs:
            value = back(value)
            if value.__class__ is TextContent and cls is not TextContent:
                return self.shape(value)

        return value

    def _shape_list(self, values: list[Any]) -> list[Any]:
        for index, value in enumerate(values):
            shaped = self.shape(value)
            if shaped is not value:
                return [*values[:index], shaped, *map(self.shape, values[index + 1 :])]
        return values

    def shape_result(self, result: Result, identity: Raw) -> Result | Raw:
        """Convert a whole result to the shape of this version, and add the fields that every result has.

        `identity` is the server's identity as the JSON of `_meta`, written into modern results.
        Spec: 2026-07-28 basic/index (resultType, serverInfo in `_meta`), server/utilities/caching.
        """
        cls = result.__class__
        if cls is ObjectResult:
            return self._shape_object(result, identity)  # type: ignore[arg-type]
        if cls is RawResult:
            return _sent(result)  # type: ignore[arg-type]
        if cls not in _KEPT:
            return self._finish(result, identity)

        # The registry returns the same list object until something changes, so it is encoded once for all clients.
        raw = self._kept.get(result)
        if raw is None:
            raw = self._kept[result] = Raw(encode(self._finish(result, identity)))
        return raw

    def _finish(self, result: Result, identity: Raw) -> Result:
        shaped: Result = self.shape(result)
        if not self.is_modern:
            if shaped.result_type is not UNSET:
                shaped = replace(result) if shaped is result else shaped
                shaped.result_type = UNSET
            return shaped

        if shaped is result:
            shaped = replace(result)  # the handler may return the same object again, for another version
        if shaped.result_type is UNSET:
            shaped.result_type = "complete"
        shaped.meta = identity if shaped.meta is None else _merge(shaped.meta, identity)

        content = getattr(shaped, "structured_content", None)
        if content.__class__ is AnyValue:
            shaped.structured_content = content.result  # type: ignore[attr-defined]  # of a CallToolResult
        if isinstance(shaped, CacheableResult) and shaped.result_type == "complete":
            # Both fields are required in this version; by default a result must not be cached.
            if shaped.ttl_ms is UNSET:
                shaped.ttl_ms = 0
            if shaped.cache_scope is UNSET:
                shaped.cache_scope = "private"
        return shaped

    def _shape_object(self, result: ObjectResult, identity: Raw) -> Raw:
        # Return the result of an extension's method, with the fields that every result has in this version.
        members = dict(result.members)
        if self.is_modern:
            members.setdefault("resultType", "complete")
            members["_meta"] = _merge(members.get("_meta") or {}, identity)
        return Raw(encode(members))

    def error_code(self, error: ProtocolError) -> int:
        for revision in self._later:
            code = revision.error_codes.get(type(error))
            if code is not None:
                return code
        return error.code

    def has_error(self, error: type) -> bool:
        """Return whether an error's code exists in this version."""
        gone = any(issubclass(error, revision.errors_gone) for revision in self._past)
        return not gone and not any(issubclass(error, revision.errors) for revision in self._later)

    def _unknown_fields(self, cls: type) -> list[str]:
        names = [name for revision in self._later for name in _row(revision.fields, cls) or ()]
        names += [name for revision in self._past for name in _row(revision.fields_gone, cls) or ()]
        return names

    def _plan_of(self, cls: type) -> _Plan | None:
        if cls not in self._plans:
            self._plans[cls] = self._plan(cls)
        return self._plans[cls]

    def _plan(self, cls: type) -> _Plan | None:
        if not issubclass(cls, Struct):
            return None
        names = self._unknown_fields(cls)
        by_name: dict[str, FieldInfo] = {info.name: info for info in fields(cls)} if names else {}
        blanks = tuple((name, _default(by_name[name])) for name in dict.fromkeys(names))
        backs = tuple(back for revision in self._later if (back := _row(revision.back, cls)) is not None)
        inner = _row(_NESTED, cls) or {}
        nested = tuple(name for name, classes in inner.items() if any(map(self._plan_of, map(_class, classes))))
        return (blanks, nested, backs) if blanks or nested or backs else None

    def _known_part(self, params: type) -> type:
        # Return a class for these params in which the fields that this version does not have cannot be set.
        unknown = dict.fromkeys(self._unknown_fields(params))
        if unknown:
            # The fields get random names on the wire, which no message can contain.
            named = [
                (info.name, info.type, field(name=f"{info.name} {_RANDOM_NAME}", default=_default(info)))
                for info in fields(params)
                if info.name in unknown
            ]
            params = defstruct(params.__name__, named, bases=(params,), kw_only=True)
        return params


def _row(table: Mapping[type | str, T], cls: type) -> T | None:
    # Return the row of a class, which is listed as a class or by its name (see `Revision`).
    row = table.get(cls)
    return table.get(cls.__name__) if row is None and cls.__module__ == _INTERACTION else row


def _class(named: type | str) -> type:
    if isinstance(named, type):
        return named
    return getattr(import_module(_INTERACTION), named)  # type: ignore[no-any-return]


def _default(info: FieldInfo) -> Any:
    return None if info.default is NODEFAULT else info.default


def _merge(meta: dict[str, Any] | Raw, identity: Raw) -> dict[str, Any] | Raw:
    if isinstance(meta, Raw):
        return meta
    return {**_decode_meta(identity), **meta}


def _sent(result: RawResult) -> Raw:
    raw = result.raw
    if result.cache_scope != "private" or b'"public"' not in bytes(raw):
        return raw
    return Raw(encode({**_decode_members(raw), "cacheScope": "private"}))


_decode_meta = Decoder(dict[str, Any]).decode
_decode_members = Decoder(dict[str, Raw]).decode


def _revision(name: str) -> Revision:
    module = import_module(f".v{name[:4]}", __package__)
    revisions: tuple[Revision, ...] = module.REVISIONS
    return next(revision for revision in revisions if revision.version == name)


@cache
def get(name: str) -> Version:
    """Return the version of that name. Raises KeyError if it is not served."""
    if name not in _ORDER:
        raise KeyError(name)
    return Version(_ORDER.index(name))


def negotiate(offer: object) -> Version:
    """Return the version for `initialize`: the requested one, or the newest legacy version if it is not served.

    Spec: 2025-11-25 basic/lifecycle, version negotiation. Modern versions are never negotiated.
    """
    return get(offer if isinstance(offer, str) and offer in LEGACY else NEWEST_LEGACY)


def modern_requests() -> frozenset[str]:
    """Return the requests that only modern versions have."""
    return frozenset().union(*(get(name).requests for name in MODERN)) - frozenset(get(NEWEST_LEGACY).requests)


def is_known_method(method: str) -> bool:
    """Return whether any served version has this request or notification of clients."""
    return any(method in get(name).requests or method in get(name).notifications for name in _ORDER)


def is_known_notification(method: str) -> bool:
    """Return whether any served version has this notification of servers."""
    return any(method in get(name).server_notifications for name in _ORDER)


class Vocabulary:
    """The methods that extensions add: requests and notifications of clients, notifications of the server."""

    __slots__ = ("_notifications", "_requests", "_server_notifications", "answers_others", "named")

    def __init__(self) -> None:
        self._requests: dict[str, tuple[Reader, Versions]] = {}
        self._notifications: dict[str, tuple[Reader, Versions]] = {}
        self._server_notifications: dict[str, tuple[Versions, Callable[[Any], bool]]] = {}
        # Whether requests are answered whose method neither the protocol nor an extension has.
        self.answers_others = False
        # Method -> the field of its params that the HTTP header `Mcp-Name` mirrors.
        self.named: dict[str, str] = {}

    def adopt(self, other: Vocabulary) -> None:
        """Share the methods of another vocabulary from now on, because sessions keep the object they were given."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))

    def add_request(self, method: str, params: type, versions: Versions, named: str | None) -> None:
        """Add a request of clients. `versions` are the versions that have it, None for all."""
        self._requests[method] = (Decoder(params).decode, versions)
        if named is not None:
            self.named[method] = named

    def add_notification(self, method: str, params: type, versions: Versions) -> None:
        self._notifications[method] = (Decoder(params).decode, versions)

    def add_server_notification(self, method: str, versions: Versions, admits: Callable[[Any], bool]) -> None:
        """Add a notification of the server; `admits` decides by the client's capabilities whether to send it."""
        self._server_notifications[method] = (versions, admits)

    def __contains__(self, method: str) -> bool:
        """Return whether an extension has this request or notification, in any version."""
        return method in self._requests or method in self._notifications

    def request(self, version: Version, method: str) -> Reader | None:
        """Return the decoder for the params of a request; None if no extension has it."""
        if self.answers_others and method not in self._requests and not is_known_method(method):
            return _read_any_params
        return _in_version(self._requests.get(method), version)

    def notification(self, version: Version, method: str) -> Reader | None:
        """Return the decoder for the params of a client's notification; None if no extension has it."""
        return _in_version(self._notifications.get(method), version)

    def may_say(self, version: Version, method: str) -> bool:
        if method not in self._server_notifications:
            return self.answers_others and not is_known_notification(method)
        versions, _ = self._server_notifications[method]
        return versions is None or version.name in versions

    def is_wanted(self, method: str, client: Any) -> bool:
        """Return whether a client has the extension of this notification. Raises KeyError if no extension has it."""
        _, admits = self._server_notifications[method]
        return admits(client)


_read_any_params = Decoder(Params).decode


def _in_version(row: tuple[Reader, Versions] | None, version: Version) -> Reader | None:
    if row is None or (row[1] is not None and version.name not in row[1]):
        return None
    return row[0]


# The vocabulary of servers without extensions. Never changed.
NO_EXTENSIONS = Vocabulary()
