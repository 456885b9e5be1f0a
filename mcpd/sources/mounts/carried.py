"""Apps, tasks and subscriptions through a mount.

A task of a mounted server keeps its id, behind the mount's name and a tag: a digest with this server's key of user,
mount and id. So any process of the service finds the mounted server, and nobody else's task can be read. Each watched
resource is subscribed to once on a connection, for all clients that watch it there.

Spec: SEP-2663 (tasks); MCP Apps 2026-01-26, UI resource format; 2026-07-28 basic/patterns/subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from mcpd.errors import InvalidParams, McpdError
from mcpd.protocol.jsonrpc import MALFORMED, encode
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import Tool
from mcpd.server.extensions.ui.constants import FLAT_URI, SCHEME, UI, has_ui

if TYPE_CHECKING:
    from mcpd.server.context.exchange import Exchange

log = logging.getLogger("mcpd.mounts")

_read_members = Decoder(dict[str, Raw]).decode
_read = Decoder().decode


# -------------------------------------------------------------------------------------------- apps


def for_host(meta: Any, csp: str | tuple[str, ...] | None) -> Any:
    """Return the `_meta` of a tool, a View or its content for the host of this server.

    The origins of a View are at most those of `csp`. Its `domain` is dropped, because it belongs to the URL of the
    mounted server (APP-S-08), and so is an unknown visibility (APP-S-13).
    """
    ui = meta.get("ui") if isinstance(meta, dict) else None
    if not isinstance(ui, dict):
        return meta
    found = {name: value for name, value in ui.items() if name != "domain"}
    if isinstance(seen := found.get("visibility"), list):
        found["visibility"] = [each for each in seen if each in ("model", "app")]
        if found["visibility"] != seen:
            log.warning("the visibility of an app has unknown values, which are left out: %s", printable(seen))

    if csp is not None and isinstance(declared := found.get("csp"), dict):
        allowed = () if csp == "deny" else csp
        found["csp"] = {kind: _allowed(origins, allowed) for kind, origins in declared.items()}
    return {**meta, "ui": found}


def _allowed(origins: Any, allowed: Any) -> list[str]:
    given = origins if isinstance(origins, list) else []
    return [one for one in given if isinstance(one, str) and any(fnmatchcase(one, pattern) for pattern in allowed)]


def for_host_contents(raw: Raw, csp: str | tuple[str, ...] | None) -> Raw:
    """Return the result of `resources/read` with the `_meta` of its contents for the host of this server."""
    if b'"ui"' not in bytes(raw):
        return raw
    members: dict[str, Any] = dict(_read_members(raw))
    contents = _read(members.get("contents", b"[]"))
    if not isinstance(contents, list):
        return raw
    members["contents"] = [
        {**each, "_meta": for_host(each["_meta"], csp)} if isinstance(each, dict) and "_meta" in each else each
        for each in contents
    ]
    return Raw(encode(members))


def without_apps(tool: Tool) -> tuple[Tool, str | None]:
    """Return a tool as clients without MCP Apps see it, and the extension that it needs (MNT-34)."""
    meta = tool.meta
    if meta is None or not has_ui(meta):
        return tool, None
    ui = meta.get("ui")
    seen = ui.get("visibility") if isinstance(ui, Mapping) else None
    is_for_views = isinstance(seen, list) and "model" not in seen
    kept = {name: value for name, value in meta.items() if name not in ("ui", FLAT_URI)}
    return replace(tool, meta=kept or None), UI if is_for_views else None


def for_model(raw: Raw, has_schema: Callable[[], bool] = lambda: True) -> Raw:
    """Return the result of a call, or a task with it, without what is for Views only (MNT-34)."""
    if b'"ui' not in bytes(raw) and b'"mcpd/data"' not in bytes(raw):
        return raw
    from mcpd.server.extensions.ui.results import VIEW_DATA, is_view_key

    try:
        members: dict[str, Any] = dict(_read_members(raw))
        if "result" in members:
            members["result"] = for_model(members["result"])
        meta, content = _read(members.get("_meta", b"{}")), _read(members.get("content", b"[]"))
    except MALFORMED:
        return raw  # an error for all clients

    if isinstance(meta, dict) and any(map(is_view_key, meta)):
        is_all = VIEW_DATA in meta  # then the other members are for the View, too
        if is_all and not has_schema():
            members.pop("structuredContent", None)
        kept = {
            name: value
            for name, value in meta.items()
            if name.startswith("io.modelcontextprotocol/") or not (is_all or is_view_key(name))
        }
        members.pop("_meta")
        members |= {"_meta": kept} if kept else {}

    if isinstance(content, list) and any(map(_is_of_view, content)):
        members["content"] = [block for block in content if not _is_of_view(block)]
    return Raw(encode(members))


def _is_of_view(block: Any) -> bool:
    linked = block.get("resource", block) if isinstance(block, dict) else None
    return isinstance(linked, dict) and str(linked.get("uri", "")).startswith(SCHEME)


# ------------------------------------------------------------------------------------------- tasks


def tagged(task_id: str, mount: str, exchange: Exchange) -> str:
    """Return the id under which the user of a request finds a task of a mounted server."""
    return f"{mount}.{exchange.peer.state_codec.tag(_content(task_id, mount, exchange))}.{task_id}"


def mount_of(task_id: str) -> str:
    """Return the name of the mount that a task id names; "" for a task of this server."""
    name, _, rest = task_id.partition(".")
    return name if "." in rest else ""


def own_id(task_id: str, mount: str, exchange: Exchange) -> str:
    """Return the id of a task at the mounted server. Raises InvalidParams for the task of another user (MNT-35)."""
    name, tag, own = (*task_id.split(".", 2), "", "")[:3]
    if name != mount or not exchange.peer.state_codec.is_tag(tag, _content(own, mount, exchange)):
        raise InvalidParams("taskId: there is no such task, or it has expired")
    return own


def _content(task_id: str, mount: str, exchange: Exchange) -> bytes:
    return encode([exchange.call.session.opening.principal, mount, task_id])


def with_own_id(members: dict[str, Any], mount: str, exchange: Exchange) -> dict[str, Any]:
    """Return the params of a request about a task with its id at the mounted server."""
    given = members.get("taskId")
    text = _read(given) if isinstance(given, Raw) else given
    if not isinstance(text, str):
        raise InvalidParams("taskId: expected a string")
    return {**members, "taskId": own_id(text, mount, exchange)}


def with_tag(raw: Raw, mount: str, exchange: Exchange) -> Raw:
    """Return a task of a mounted server, or a result without a task, with the id for the user of a request."""
    if b'"taskId"' not in bytes(raw):
        return raw
    members: dict[str, Any] = dict(_read_members(raw))
    if "taskId" not in members:
        return raw  # a text contains the word
    return Raw(encode({**members, "taskId": tagged(_read(members["taskId"]), mount, exchange)}))


# ------------------------------------------------------------------------------------------- reads


class _Hints(Struct, rename="camel"):
    ttl_ms: float = 0
    cache_scope: str = "private"


class Reads:
    """Results of `resources/read` that may be shared, until the server's hint says that they are stale."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Raw, float]] = {}
        self._bytes = 0
        self.changes = 0
        """The number of resources that have changed so far."""

    def get(self, uri: str, now: float) -> Raw | None:
        """Return a result that is fresh, with the time that is left."""
        raw, until = self._kept.get(uri, (Raw(), 0.0))
        if until <= now:
            self._discard(uri)
            return None
        members: dict[str, Any] = dict(_read_members(raw))
        return Raw(encode({**members, "ttlMs": int(1000 * (until - now))}))

    def put(self, uri: str, raw: Raw, now: float) -> None:
        """Keep a result if its hints allow that."""
        try:
            hints = _read_hints(raw)
        except MALFORMED:
            return

        if hints.cache_scope != "public" or hints.ttl_ms <= 0 or len(raw) > MOST_READ_BYTES:
            return
        self._discard(uri)
        self._bytes += len(raw)
        self._kept[uri] = raw, now + min(hints.ttl_ms, _MOST_TTL_MS) / 1000
        while self._bytes > MOST_READ_BYTES:
            self._discard(next(iter(self._kept)))

    def changed(self, uri: str) -> None:
        """Forget a result, because the resource has changed."""
        self.changes += 1
        self._discard(uri)

    def _discard(self, uri: str) -> None:
        raw, _ = self._kept.pop(uri, (Raw(), 0.0))
        self._bytes -= len(raw)


MOST_READ_BYTES = 8 * 1024 * 1024
# Some servers send the largest number that they have, which is no valid time.
_MOST_TTL_MS = 24 * 3600 * 1000
_read_hints = Decoder(_Hints).decode


# ----------------------------------------------------------------------------------- subscriptions


class Watches:
    """The resources that the clients of one connection watch, and who watches them."""

    def __init__(self, era: Any, timeout: float | None, on_update: Callable[[str], None]) -> None:
        self.on_update = on_update
        self._era = era
        self._timeout = timeout
        self._watchers: dict[str, dict[Any, tuple[str, Exchange]]] = {}
        self._changing = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._watchers)

    def watchers(self) -> list[tuple[str, str, Exchange]]:
        """Return all watches: the URI at the mounted server, the URI for the client, and the client's request."""
        return [(own, *each) for own, watchers in self._watchers.items() for each in watchers.values()]

    async def add(self, own: str, uri: str, exchange: Exchange) -> None:
        """Watch a resource for a client. The first watcher subscribes."""
        async with self._changing:
            if own not in self._watchers:
                await self._era.subscribe(own, self._timeout)
            self._watchers.setdefault(own, {})[exchange.peer] = uri, exchange

    async def discard(self, own: str, peer: Any) -> None:
        """Stop watching a resource for a client. The last watcher unsubscribes."""
        async with self._changing:
            watchers = self._watchers.get(own, {})
            watchers.pop(peer, None)
            if watchers or self._watchers.pop(own, None) is None:
                return
            try:
                await self._era.unsubscribe(own, self._timeout)
            except McpdError as error:
                log.debug("a subscription was not ended: %s", printable(error))

    def updated(self, params: Raw) -> None:
        """Notify the clients that watch a resource."""
        try:
            own = str(_read(params).get("uri"))
        except (AttributeError, *MALFORMED):
            return
        self.on_update(own)
        for peer, (uri, _) in self._watchers.get(own, {}).items():
            peer.subscriptions.notify("resources", uri)
