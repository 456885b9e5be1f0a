"""Results, errors and questions of a mounted server, in the shape of the version that a client speaks.

Everything works on JSON members, so that unknown members survive. A result is not decoded where its
bytes can be sent as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct, ValidationError, convert, to_builtins
from msgspec.json import Decoder, decode

from mcpd.errors import (
    InternalError,
    McpdError,
    ProtocolError,
    RemoteError,
    ResourceNotFound,
    ToolError,
    UrlElicitationRequired,
)
from mcpd.protocol.envelope import SERVER_INFO
from mcpd.protocol.jsonrpc import MALFORMED, encode, is_object
from mcpd.protocol.methods import METHODS
from mcpd.protocol.types.base import ClientCapabilities, ListChanged, RawResult, Result
from mcpd.protocol.types.features import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import Version
from mcpd.server.context.questions import is_offered, read_question
from mcpd.server.extensions.ui.constants import MIME_TYPE, UI

if TYPE_CHECKING:
    from mcpd.client.names import Prefix
    from mcpd.protocol.session import Call
    from mcpd.server.context.exchange import Exchange
    from .settings import MountSettings

_BLOCKS = {
    "text": TextContent, "image": ImageContent, "audio": AudioContent, "resource": EmbeddedResource,
    "resource_link": ResourceLink,
}  # fmt: skip

# The members of modern results that older versions do not have.
_MODERN_ONLY = ("resultType", "ttlMs", "cacheScope")

# Codes that belong to the connection between this server and the mounted one, or to its version.
_HEADER_MISMATCH, _MISSING_CAPABILITY, _UNSUPPORTED_VERSION = -32020, -32021, -32022
_OLD_NOT_FOUND = -32002

# An escape inside JSON that may spell the name of a member.
_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")

read_members = Decoder(dict[str, Raw]).decode
_read = Decoder().decode


class UpstreamError(ProtocolError):
    """An error of a mounted server that its client receives as it is."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message, data)
        self.code = code  # type: ignore[misc]  # not of the class here


class MustVisit(ProtocolError):
    """A server of 2025-11-25 wants the user of a modern client to visit pages first."""

    def __init__(self, elicitations: list[dict[str, Any]]) -> None:
        super().__init__("The user must visit pages first")
        self.elicitations = elicitations


class _Head(Struct, rename="camel"):
    is_error: Any = False
    cache_scope: Any = UNSET
    ttl_ms: Any = UNSET


_read_head = Decoder(_Head).decode


def shaped_result(raw: Raw, method: str, call: Call, version: Version, prefix: Prefix) -> Result:
    """Return a final result of a server that speaks `version`, for the client of `call`."""
    if call.version is not version or (prefix.is_used and _may_have_uri(raw, method)):
        try:
            raw = _reshaped(raw, method, call, version, prefix)
        except MALFORMED as error:
            raise InternalError("The mounted server sent a result that cannot be read") from error

    if method == "tools/call" and call.version.name == table.LEGACY[0]:
        return decode(raw, type=CallToolResult)  # this version has members that are made of others
    if method == "tools/call":
        return RawResult(raw=raw, is_error=b'"isError"' in bytes(raw) and _head(raw).is_error is True)
    if method in METHODS and METHODS[method].is_cacheable:
        head = _head(raw)
        return RawResult(raw=raw, cache_scope=head.cache_scope, ttl_ms=head.ttl_ms)
    return RawResult(raw=raw)


def _head(raw: Raw) -> _Head:
    try:
        return _read_head(raw)
    except MALFORMED:
        return _Head()


def _may_have_uri(raw: Raw, method: str) -> bool:
    data = bytes(raw)
    return method == "resources/read" or b'"uri"' in data or b'"ui' in data or _ESCAPED_LETTER.search(data) is not None


def _reshaped(raw: Raw, method: str, call: Call, version: Version, prefix: Prefix) -> Raw:
    members: dict[str, Any] = dict(read_members(raw))
    for name in ("content", "contents", "messages"):
        if name in members and (prefix.is_used or _is_older(call.version, version)):
            members[name] = _entries(_read(members[name]), call.version, version, prefix)
    if method == "tasks/get" and prefix.is_used and "result" in members:
        members["result"] = _reshaped(members["result"], "tools/call", call, version, prefix)
    meta = prefix.meta(_read(members["_meta"])) if "_meta" in members else None
    known: dict[str, Any] = meta if isinstance(meta, dict) else {}
    if not call.version.is_modern:
        for name in _MODERN_ONLY:
            members.pop(name, None)
        known.pop(SERVER_INFO, None)
        known |= _shape_structured(members, call.version)
    elif not version.is_modern:
        members.setdefault("resultType", "complete")
        if method in METHODS and METHODS[method].is_cacheable:
            members.setdefault("ttlMs", 0)
            members.setdefault("cacheScope", "private")
        known = {**_read(call.session.identity), **known}

    if known:
        members["_meta"] = known
    elif isinstance(meta, dict):
        members.pop("_meta", None)

    return Raw(encode(members))


def _shape_structured(members: dict[str, Any], version: Version) -> dict[str, Any]:
    # Older versions have no structured content, or only objects. Returns what this adds to `_meta`.
    content = members.get("structuredContent")
    if content is None:
        return {}
    if table.LEGACY.index(version.name) < _STRUCTURED:
        del members["structuredContent"]
    elif not is_object(content):
        members["structuredContent"] = {"result": content}
        return {"fastmcp": {"wrap_result": True}}
    return {}


_STRUCTURED = table.LEGACY.index("2025-06-18")


def _is_older(version: Version, other: Version) -> bool:
    # SUPPORTED is in order, newest first. The newest legacy version has all content blocks.
    return version.name != table.NEWEST_LEGACY and table.SUPPORTED.index(version.name) > table.SUPPORTED.index(
        other.name
    )


def _entries(entries: Any, version: Version, other: Version, prefix: Prefix) -> Any:
    # Shape the content of a tool, the contents of a resource, or the messages of a prompt.
    if not isinstance(entries, list):
        return entries
    is_older = _is_older(version, other)
    found = []
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("content"), dict):  # a message
            shaped = {**entry, "content": _block(entry["content"], version if is_older else None, prefix)}
        else:
            shaped = _block(entry, version if is_older else None, prefix)
        found.append(shaped)
    return found


def _block(block: Any, version: Version | None, prefix: Prefix) -> Any:
    if not isinstance(block, dict):
        return block
    if prefix.is_used:
        block = _prefixed_block(block, prefix)
    kind: Any = _BLOCKS.get(block.get("type", ""))
    if version is None or kind is None:
        return block
    try:
        known = convert(block, kind)
    except ValidationError:
        return block

    shaped = version.shape(known)
    if shaped is known:
        return block
    if shaped.__class__ is not kind:
        return to_builtins(shaped)
    before = to_builtins(known)
    return {**{name: value for name, value in block.items() if name not in before}, **to_builtins(shaped)}


def _prefixed_block(block: dict[str, Any], prefix: Prefix) -> dict[str, Any]:
    found = dict(block)
    if isinstance(uri := found.get("uri"), str):
        found["uri"] = prefix.uri(uri)
    if isinstance(resource := found.get("resource"), dict):
        found["resource"] = _prefixed_block(resource, prefix)
    return found


def shaped_error(error: RemoteError, method: str, uri: str, call: Call, version: Version) -> McpdError:
    """Return an error of a server that speaks `version`, for the client of `call`. `uri` is what the client reads.

    Codes that mean something else in the client's version, or concern the connection to the mounted server, change.
    """
    code, is_modern = error.code, call.version.is_modern
    is_not_found = code == _OLD_NOT_FOUND or (code == -32602 and version.is_modern and _names_uri(error.data))
    if method == "resources/read" and is_not_found:
        found = ResourceNotFound(uri)
        found.message = error.message
        return found

    if code == UrlElicitationRequired.code:
        if call.version.has_error(UrlElicitationRequired):
            return UpstreamError(code, error.message, error.data)
        return InternalError(": ".join((error.message, *urls_in(error))))

    if code == _MISSING_CAPABILITY and not is_modern and method == "tools/call":
        return ToolError(error.message)  # as a tool of this server answers an older client
    if code in (_HEADER_MISMATCH, _UNSUPPORTED_VERSION) or (code == _MISSING_CAPABILITY and not is_modern):
        return InternalError(error.message)
    if code == _OLD_NOT_FOUND and is_modern:
        return InternalError(error.message, error.data)
    return UpstreamError(code, error.message, error.data)


def _names_uri(data: Any) -> bool:
    return isinstance(data, dict) and "uri" in data


def urls_in(error: RemoteError) -> list[str]:
    """Return the URLs that a user has to visit, of an error of 2025-11-25."""
    return [one["url"] for one in elicitations_in(error) if isinstance(one.get("url"), str)]


def elicitations_in(error: RemoteError) -> list[dict[str, Any]]:
    """Return the elicitations of an error of 2025-11-25."""
    listed = error.data.get("elicitations") if isinstance(error.data, dict) else None
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def must_visit(error: RemoteError, call: Call) -> MustVisit | None:
    """Return the exception for a server that wants the user to visit pages; None for other errors, and if the client
    does not offer that in results.
    """
    elicitations = elicitations_in(error)
    if error.code != UrlElicitationRequired.code or not elicitations or not call.version.is_modern:
        return None
    return MustVisit(elicitations) if is_offered({"elicitation": {"url": {}}}, call.client.capabilities) else None


def declared_for(exchange: Exchange | None, settings: MountSettings) -> ClientCapabilities:
    """Return what a connection declares to a server: what the client of its first request can be asked, and can show.

    `exchange` is None for a connection that belongs to no client.
    """
    roots = None if settings.roots is None else ListChanged()
    extensions: dict[str, Any] = {UI: {"mimeTypes": [MIME_TYPE]}}
    if exchange is None or (settings.questions == "refuse" and exchange.call.version.is_modern):
        return ClientCapabilities(roots=roots, extensions=extensions)
    offered = exchange.call.client.capabilities
    return ClientCapabilities(
        roots=roots or offered.roots,
        sampling=offered.sampling,
        elicitation=offered.elicitation,
        extensions=extensions,
    )


def needs_of(method: str, params: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the capability that a client needs for a question of a server."""
    if method == "elicitation/create":
        return {"elicitation": {"url": {}} if params.get("mode") == "url" else {"form": {}}}
    if method == "sampling/createMessage":
        uses_tools = "tools" in params or "toolChoice" in params
        return {"sampling": {"tools": {}} if uses_tools else {}}
    return {"roots": {}}


def shaped_question(method: str, params: Raw, version: Version, other: Version) -> Any:
    """Return the params of a question of a server that speaks `other`, for a client that speaks `version`.

    Raises LocalProtocolError for a question that this version cannot express.
    """
    members = _read(params) if len(params) else {}
    is_url = members.get("mode") == "url"
    if version.is_modern:
        return {name: value for name, value in members.items() if name != "elicitationId"} if is_url else params
    if is_url and "elicitationId" not in members:
        from os import urandom

        members = {**members, "elicitationId": urandom(16).hex()}
        params = Raw(encode(members))

    if not _is_older(version, other):
        return params
    return version.shape(read_question(method, members, {}).params)
