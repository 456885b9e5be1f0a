"""The documents of the Views of one server: read when needed, reviewed once, and cached.

Two readings are the same document if the hash of the HTML and all of `_meta.ui` are equal (APP-H-26). The program is
then not asked again and receives the same object. A reading is fresh until the server announces a change or its time to
live is over, which is `fresh_seconds` by default.

Spec: MCP Apps 2026-01-26, "UI Resource Format", "Host MAY prefetch and cache"; 2026-07-28 server/utilities/caching.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.json import decode

from mcpd.apps.host.view.policy import Denied
from mcpd.client import Client
from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import Wire
from .document import ViewDocument, read_document
from .shown_view import settle

log = logging.getLogger("mcpd.host")

MAX_CONCURRENT_READS = 8

MAX_KEPT = 64
# For all cached documents together. The least recently used are removed.
MAX_KEPT_CHARACTERS = 64 * 1024 * 1024


class _Reading(Wire, kw_only=True):
    contents: list[dict[str, Any]]
    ttl_ms: int | None = None


class _Kept(Struct):
    document: ViewDocument
    until: float
    refusal: str


class DocumentCache:
    """The documents of one server, by URI. `review` returns False to refuse a document."""

    def __init__(self, client: Client, review: Callable[[ViewDocument], Any] | None, fresh_seconds: float) -> None:
        self._client = client
        self._review_hook = review
        self._fresh_seconds = fresh_seconds
        # The most recently used come last.
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        # A lock is kept as long as a task uses it: a server may have another document for each View.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._listed: dict[str, Mapping[str, Any]] | None = None
        self._changes = 0

    async def get(self, uri: str) -> ViewDocument:
        """Return the document to show now. Raises ConfigurationError if it does not exist or was refused."""
        lock = self._locks.setdefault(uri, asyncio.Lock())
        # Views that open at the same time share one reading.
        async with lock:
            return await self._get(uri)

    async def prefetch(self, uris: Iterable[str]) -> list[ViewDocument]:
        # Documents that cannot be shown are logged and left out. Of too many the first are read.
        slots = asyncio.Semaphore(MAX_CONCURRENT_READS)

        async def read(uri: str) -> ViewDocument:
            async with slots:
                return await self.get(uri)

        found = await asyncio.gather(*map(read, sorted(uris)[:MAX_KEPT]), return_exceptions=True)
        documents = []
        for document in found:
            if isinstance(document, ViewDocument):
                documents.append(document)
            elif isinstance(document, McpdError):
                self._client.faults.log(logging.WARNING, "a view cannot be shown: %s", printable(document, 2000))
            else:
                raise document

        return documents

    def _remove_oldest(self) -> None:
        # A server may have another View for each tool, and another one each day.
        size = sum(len(kept.document.html) for kept in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > MAX_KEPT or size > MAX_KEPT_CHARACTERS):
            _, kept = self._kept.popitem(last=False)
            size -= len(kept.document.html)

    async def _get(self, uri: str) -> ViewDocument:
        now, changes = asyncio.get_running_loop().time(), self._changes
        kept = self._kept.get(uri)
        if kept is None or now >= kept.until:
            document, seconds = await self._load(uri)
            if kept is None or kept.document != document:
                if kept is not None:
                    old, new = kept.document.digest, document.digest
                    log.info("the document of %s has changed: sha256 %s, before %s", printable(uri), new, old)
                kept = self._kept[uri] = _Kept(document, float("-inf"), await self._review(document))
            # A change that was announced during the reading may not be part of it.
            kept.until = now + seconds if changes == self._changes else float("-inf")

        self._kept.move_to_end(uri)
        self._remove_oldest()
        if kept.refusal:
            raise ConfigurationError(kept.refusal)
        return kept.document

    def expire(self) -> None:
        # Something may have changed, so all documents are read again before their next use.
        self._changes += 1
        self._listed = None
        for kept in self._kept.values():
            kept.until = float("-inf")

    async def _load(self, uri: str) -> tuple[ViewDocument, float]:
        raw = await self._client.request("resources/read", {"uri": uri})
        try:
            reading = decode(raw, type=_Reading)
        except MALFORMED as error:
            raise ConfigurationError(f"{uri}: the server's answer cannot be read: {explain(error)}") from None
        listing = None if _has_ui(reading.contents) else await self._listing_meta(uri)
        document = read_document(uri, reading.contents, listing)
        seconds = self._fresh_seconds if reading.ttl_ms is None else max(reading.ttl_ms / 1000, 0)
        return document, seconds

    async def _listing_meta(self, uri: str) -> Mapping[str, Any] | None:
        # Return the metadata of the resource list, which the later draft allows. That of the content takes precedence
        # (APP-H-07).
        listed = self._listed
        if listed is None:
            changes = self._changes
            try:
                entries = await self._client.list_resources()
                listed = {entry.uri: entry.meta for entry in entries if entry.meta is not None}
            except McpdError as error:
                log.warning("the server's resources cannot be listed: %s", printable(error))
                return None
            if changes == self._changes:
                self._listed = listed

        return listed.get(uri)

    async def _review(self, document: ViewDocument) -> str:
        # Return why the document must not be shown, or an empty string if it may be.
        refusal = f"{document.uri} (sha256 {document.digest}) was refused by the review"
        try:
            is_refused = self._review_hook is not None and await settle(self._review_hook(document)) is False
        except Denied as error:
            return f"{refusal}: {error.message}"
        return refusal if is_refused else ""


def _has_ui(contents: list[dict[str, Any]]) -> bool:
    return any(isinstance(meta, dict) and "ui" in meta for meta in (item.get("_meta") for item in contents))
