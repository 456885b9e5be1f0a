"""The version table: the revisions folded, one `Version` each, made when first asked for.

`lookup(method)` is the version gate: no row, no method. `shape(result)` blanks what the version
does not know and walks the few values back that changed their form; what needs no change is the
very same object. Versions are a listed order and are never compared as strings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, TypeVar
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
    Result,
    SamplingCapability,
    ServerCapabilities,
)
from mcpd.protocol.types.content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcpd.protocol.types.prompts import GetPromptResult, ListPromptsResult, Prompt, PromptArgument, PromptMessage
from mcpd.protocol.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from mcpd.protocol.types.tools import AnyValue, CallToolResult, ListToolsResult, Tool

Back = Callable[[Any], Any]


class Revision(Struct, kw_only=True, frozen=True):
    """One revision against the one before it (the oldest against nothing).

    A client's traffic: `requests` (method -> params struct) and `notifications` (method -> params struct).
    Ours: `server_requests`, `server_notifications`. `removed` names methods of any of these that are gone.
    `fields` are the members a struct gained, `fields_gone` those it lost. `error_codes` gives the code that an
    exception class had *before* this revision, where it is not the class's own.

    The classes of `types.interaction` are given by name, so that a process that needs none does not load them.
    """

    version: str
    modern: bool = False
    """The version travels in each request's `_meta`; there is no handshake."""
    null_id: bool = False
    """An error answer to an unreadable message says `"id": null` in this revision."""
    batches: bool = False
    """A frame may be a JSON array, in this revision only."""
    polling: bool = False
    """Event streams of HTTP begin with an event to resume after, and may let go of their connection; only here."""

    requests: Mapping[str, type | str] = {}
    notifications: Mapping[str, type] = {}
    server_requests: tuple[str, ...] = ()
    server_notifications: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    fields: Mapping[type | str, tuple[str, ...]] = {}
    fields_gone: Mapping[type | str, tuple[str, ...]] = {}
    back: Mapping[type | str, Back] = {}
    error_codes: Mapping[type, int] = {}
    errors: tuple[type, ...] = ()
    """Exception classes whose code exists from this revision on."""
    errors_gone: tuple[type, ...] = ()


_ORDER = ("2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

SUPPORTED = _ORDER[::-1]
"""Every version served, newest first: what `server/discover` and refusals list."""

# From this one on each request brings its version along. The modules are not asked: they are loaded when used.
_FIRST_MODERN = _ORDER.index("2026-07-28")

LEGACY = _ORDER[:_FIRST_MODERN]
MODERN = _ORDER[_FIRST_MODERN:]
NEWEST_LEGACY = LEGACY[-1]

_BLOCKS = (TextContent, ImageContent, AudioContent, EmbeddedResource, ResourceLink)
_CONTENTS = (TextResourceContents, BlobResourceContents)

# Which members of a struct hold structs of which classes, where those may differ between versions.
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

_INTERACTION = "mcpd.protocol.types.interaction"
"""The module whose classes have their rows by name, so that most servers do not load it."""

# Lists the registry hands out again and again: their bytes are kept, per version.
_KEPT = frozenset((ListToolsResult, ListResourcesResult, ListResourceTemplatesResult, ListPromptsResult))

_NOBODY_KNOWS = os.urandom(16).hex()

T = TypeVar("T")
Reader = Callable[[bytes | Raw], Any]
_Plan = tuple[tuple[tuple[str, Any], ...], tuple[str, ...], tuple[Back, ...]]


class Version:
    """One protocol version: what may be said in it, and how."""

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
        self.plain: set[type] = set()
        """Classes whose values `shape` gives back as they are, as far as it was asked; None is never said to."""
        self._kept: WeakKeyDictionary[Result, Raw] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<Version {self.name}>"

    def __str__(self) -> str:
        return self.name

    def lookup(self, method: str) -> Reader | None:
        """What decodes the params of a request or notification; None if this version has no such method."""
        reader = self._readers.get(method)
        if reader is None:
            # Built when the method is first called: decoders cost start-up.
            params = self.requests.get(method) or self.notifications.get(method)
            if params is None:
                return None
            reader = self._readers[method] = Decoder(self._known_part(_class(params))).decode
        return reader

    def shape(self, value: Any) -> Any:
        """`value`, a struct of the newest vocabulary, as this version writes it."""
        cls = value.__class__
        plan = self._plan_of(cls) if cls not in self._plans else self._plans[cls]
        if plan is None:
            if value is not None:
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
                continue  # absent, or not known to this version at all
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
        """The same list if nothing in it changes."""
        for index, value in enumerate(values):
            shaped = self.shape(value)
            if shaped is not value:
                return [*values[:index], shaped, *map(self.shape, values[index + 1 :])]
        return values

    def shape_result(self, result: Result, identity: Raw) -> Result | Raw:
        """A whole result as this version writes it; `identity` is the server's own, as `_meta` JSON.

        Spec: 2026-07-28 basic/index (resultType, serverInfo in `_meta`), server/utilities/caching.
        """
        cls = result.__class__
        if cls is ObjectResult:
            return self._shape_object(result, identity)  # type: ignore[arg-type]
        if cls not in _KEPT:
            return self._finish(result, identity)

        # A list is the same object until something is registered, and is then written once for all clients.
        raw = self._kept.get(result)
        if raw is None:
            raw = self._kept[result] = Raw(encode(self._finish(result, identity)))
        return raw

    def _finish(self, result: Result, identity: Raw) -> Result:
        """The result in this version's shape, with the members that all results have in it."""
        shaped: Result = self.shape(result)
        if not self.is_modern:
            if shaped.result_type is not UNSET:
                shaped = replace(result) if shaped is result else shaped
                shaped.result_type = UNSET
            return shaped

        if shaped is result:
            shaped = replace(result)  # whoever gave it may give it again, to a client of another version
        if shaped.result_type is UNSET:
            shaped.result_type = "complete"
        shaped.meta = identity if shaped.meta is None else _merge(shaped.meta, identity)

        if isinstance(shaped, CallToolResult) and isinstance(shaped.structured_content, AnyValue):
            shaped.structured_content = shaped.structured_content.result
        if isinstance(shaped, CacheableResult) and shaped.result_type == "complete":
            # Both members are required here; without an author's word nothing may be kept.
            if shaped.ttl_ms is UNSET:
                shaped.ttl_ms = 0
            if shaped.cache_scope is UNSET:
                shaped.cache_scope = "private"
        return shaped

    def _shape_object(self, result: ObjectResult, identity: Raw) -> Raw:
        """The result of an extension's method: its own members, and those of every result in this version."""
        members = dict(result.members)
        if self.is_modern:
            members.setdefault("resultType", "complete")
            members["_meta"] = _merge(members.get("_meta") or {}, identity)
        return Raw(encode(members))

    def error_code(self, error: ProtocolError) -> int:
        """The code this version gives to an error."""
        for revision in self._later:
            code = revision.error_codes.get(type(error))
            if code is not None:
                return code
        return error.code

    def has_error(self, error: type) -> bool:
        """Whether an error's code exists in this version; most exist in all."""
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
        """The class of these params without the members that this version does not know."""
        unknown = dict.fromkeys(self._unknown_fields(params))
        if unknown:
            # In a class made for this version they have names that nobody can know, and so no message has them.
            named = [
                (info.name, info.type, field(name=f"{info.name} {_NOBODY_KNOWS}", default=_default(info)))
                for info in fields(params)
                if info.name in unknown
            ]
            params = defstruct(params.__name__, named, bases=(params,), kw_only=True)
        return params


def _row(table: Mapping[type | str, T], cls: type) -> T | None:
    """What a table says of a class, by itself or by its name (see `Revision`)."""
    row = table.get(cls)
    return table.get(cls.__name__) if row is None and cls.__module__ == _INTERACTION else row


def _class(named: type | str) -> type:
    if isinstance(named, type):
        return named
    found: type = getattr(import_module(_INTERACTION), named)
    return found


def _default(info: FieldInfo) -> Any:
    return None if info.default is NODEFAULT else info.default


def _merge(meta: dict[str, Any] | Raw, identity: Raw) -> dict[str, Any] | Raw:
    if isinstance(meta, Raw):
        return meta
    return {**_decode_meta(identity), **meta}


_decode_meta = Decoder(dict[str, Any]).decode
_versions: dict[str, Version] = {}


def _revision(name: str) -> Revision:
    module = import_module(f".v{name.replace('-', '_')}", __package__)
    revision: Revision = module.REVISION
    return revision


def get(name: str) -> Version:
    """The version of that name. Raises KeyError if it is not served."""
    try:
        return _versions[name]
    except KeyError:
        version = _versions[name] = Version(_ORDER.index(name)) if name in _ORDER else _unknown(name)
        return version


def _unknown(name: str) -> Version:
    raise KeyError(name)


def negotiate(offer: object) -> Version:
    """The version a legacy `initialize` gets: the one it asked for, or the newest legacy one.

    Spec: 2025-11-25 basic/lifecycle, version negotiation. A modern version is never the answer.
    """
    return get(offer if isinstance(offer, str) and offer in LEGACY else NEWEST_LEGACY)


def modern_requests() -> frozenset[str]:
    """The requests that only modern versions have."""
    return frozenset().union(*(get(name).requests for name in MODERN)) - frozenset(get(NEWEST_LEGACY).requests)


def is_known_method(method: str) -> bool:
    """Whether any served version has this request or notification of clients."""
    return any(method in get(name).requests or method in get(name).notifications for name in _ORDER)


class Vocabulary:
    """What extensions let a client ask and say, and let the server say unasked; by method and version."""

    __slots__ = ("_notifications", "_requests", "_server_notifications", "named")

    def __init__(self) -> None:
        self._requests: dict[str, tuple[Reader, Collection[str] | None]] = {}
        self._notifications: dict[str, tuple[Reader, Collection[str] | None]] = {}
        self._server_notifications: dict[str, tuple[Collection[str] | None, Callable[[Any], bool]]] = {}
        self.named: dict[str, str] = {}
        """Method -> the member of its params that the header `Mcp-Name` repeats over HTTP."""

    def become(self, other: Vocabulary) -> None:
        """Have what another vocabulary has, now and later: sessions keep the one that they were made with."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))

    def add_request(self, method: str, params: type, versions: Collection[str] | None, named: str | None) -> None:
        """A request of clients. `versions` are those that have it, None for all."""
        self._requests[method] = (Decoder(params).decode, versions)
        if named is not None:
            self.named[method] = named

    def add_notification(self, method: str, params: type, versions: Collection[str] | None) -> None:
        """A notification of clients."""
        self._notifications[method] = (Decoder(params).decode, versions)

    def add_server_notification(
        self, method: str, versions: Collection[str] | None, admits: Callable[[Any], bool]
    ) -> None:
        """A notification of the server; `admits` says of a client whether it may be sent to it."""
        self._server_notifications[method] = (versions, admits)

    def __contains__(self, method: str) -> bool:
        """Whether an extension has this request or notification, in any version."""
        return method in self._requests or method in self._notifications

    def request(self, version: Version, method: str) -> Reader | None:
        """What decodes the params of a request; None where no extension has it."""
        return _in_version(self._requests.get(method), version)

    def notification(self, version: Version, method: str) -> Reader | None:
        """What decodes the params of a client's notification; None where no extension has it."""
        return _in_version(self._notifications.get(method), version)

    def may_say(self, version: Version, method: str) -> bool:
        """Whether an extension lets the server send this notification."""
        if method not in self._server_notifications:
            return False
        versions, _ = self._server_notifications[method]
        return versions is None or version.name in versions

    def is_wanted(self, method: str, client: Any) -> bool:
        """Whether a client has the extension that this notification belongs to. Raises KeyError if none has it."""
        _, admits = self._server_notifications[method]
        return admits(client)


def _in_version(row: tuple[Reader, Collection[str] | None] | None, version: Version) -> Reader | None:
    if row is None or (row[1] is not None and version.name not in row[1]):
        return None
    return row[0]


NO_EXTENSIONS = Vocabulary()
"""For sessions of servers without extensions; nothing is added to it."""
