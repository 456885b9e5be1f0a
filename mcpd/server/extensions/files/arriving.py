"""The ways in: how the files of one call arrive, whatever the client wrote in place of each.

A data URI, the id of an upload, a path on stdio, an object of ChatGPT or Codex with a URL, or an object of the
extension. The tool sees the same `File` (FIL-12).
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from secrets import token_urlsafe
from typing import IO, Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit
from urllib.request import url2pathname

from msgspec import Struct

from mcpd.errors import ToolError
from mcpd.protocol.printable import printable
from mcpd.server.context.exchange import OPEN_TO_MANY, Exchange
from . import wire
from .extension import FilesExtension
from .file import Accept, Content, live, mime_type_of, safe_name, sha256_of
from .store import Ticket, is_id, new_id, owner_of

_PART_BYTES = 256 << 10
_FROM_URLS = str.maketrans("-_", "+/")
# The key of `ctx.state` that has the uploads of earlier rounds.
_KEPT = "mcpd/files"
_ROOTS = "mcpd/roots"
_GONE = "The file has expired."


class Parameter(Struct, frozen=True):
    """A parameter of a tool that takes files."""

    name: str
    accept: Accept
    is_list: bool


class Arrival:
    """The files of one call. Every handle in the arguments is one that this object made."""

    def __init__(self, extension: FilesExtension, exchange: Exchange, tool: str, *, in_thread: bool) -> None:
        self._extension = extension
        self._exchange = exchange
        self._tool = tool
        self._in_thread = in_thread
        self._store = extension.store
        self._settings = extension.limits
        self.owner = owner_of(exchange.call.session.opening.principal)
        self._is_local = exchange.origin.transport not in OPEN_TO_MANY
        self._handles: list[str] = []
        # The ids of its files in the store, and those of them that a client may send again.
        self._taken: dict[str, Content] = {}
        self._own: set[str] = set()
        self._missing: dict[str, tuple[wire.HostFile, str]] = {}
        self._allowed: Sequence[str] | None = None

    async def handle_for(self, value: Any, parameter: Parameter) -> str | None:
        """Return the handle of the file that an argument names; None if the host has to upload it first.

        Raises ToolError, with a text for the model.
        """
        where = parameter.name
        if isinstance(value, str):
            content = await self._from_text(value, where, parameter.accept)
        elif isinstance(value, dict) and "download_url" in value:
            content = await self._fetched(value, where, parameter.accept)
        elif isinstance(value, dict) and "id" in value and self._extension.admits(self._exchange.client):
            host_content = await self._from_host(wire.read_host_file(value, where), where, parameter.accept)
            if host_content is None:
                return None
            content = host_content
        else:
            raise ToolError(f"{where}: expected {self._extension.way_for(is_local=self._is_local)}.")

        self._check(where, parameter.accept, content.mime_type, content.size)
        handle = token_urlsafe(24)
        live[handle] = Content(
            content.name, content.mime_type, content.size, content.digest, content.path, content.data, self._in_thread
        )
        self._handles.append(handle)
        return handle

    def _check(self, where: str, accept: Accept, mime_type: str, size: int) -> None:
        if refusal := accept.refusal(mime_type, size):
            raise ToolError(f"{where}: {refusal}.")
        if size > self._settings.max_bytes:
            raise ToolError(f"{where}: it has {size:,} bytes, but at most {self._settings.max_bytes:,} are accepted.")

    # -- texts -------------------------------------------------------------------------------

    async def _from_text(self, text: str, where: str, accept: Accept) -> Content:
        if text[:5].lower() == "data:":
            return self._from_data(text, where)
        if is_id(text):
            return await self._take(text, f"{where}: there is no file with this id; upload it again.")
        if self._is_local:
            return await self._from_path(text, where, accept)
        raise ToolError(f"{where}: expected {self._extension.way_for(is_local=False)}.")

    def _from_data(self, text: str, where: str) -> Content:
        most = self._settings.max_inline_bytes
        too_large = ToolError(f"{where}: a data URI may have at most {most:,} bytes; upload the file instead.")
        # Three characters for a byte is the longest form, so larger ones are not decoded.
        if len(text) > 3 * most + 1000:
            raise too_large
        head, comma, body = text[5:].partition(",")
        kind, *parameters = head.split(";")
        try:
            if not comma:
                raise ValueError("it has no comma")
            is_base64 = bool(parameters) and parameters[-1].strip().lower() == "base64"
            data = b64decode(unquote(body), validate=True) if is_base64 else unquote_to_bytes(body)
        except ValueError as error:
            raise ToolError(f"{where}: the data URI cannot be read: {printable(error)}.") from None
        if len(data) > most:
            raise too_large
        named = dict(part.split("=", 1) for part in parameters if "=" in part)
        name = safe_name(unquote(named.get("name", "")))
        return Content(name, mime_type_of(name, kind or "text/plain"), len(data), sha256_of(data), data=data)

    async def _take(self, id: str, refusal: str) -> Content:
        # The refusal is the same for another caller's file (FIL-07).
        if id not in self._taken:
            content = await asyncio.to_thread(self._store.take, id, self.owner, self._tool)
            if content is None:
                raise ToolError(refusal)
            self._taken[id] = content
        return self._taken[id]

    # -- paths -------------------------------------------------------------------------------

    async def _from_path(self, text: str, where: str, accept: Accept) -> Content:
        path = _path_of(text)
        file = _open_below(path, self._extension.allowed)
        if file is None:
            if self._allowed is None:
                self._allowed = [_real(root) for root in await self._roots()]
            file = _open_below(path, self._allowed)
        if file is None:
            # Also for files that do not exist, so that nothing is learnt about others (FIL-08).
            raise ToolError(f"{where}: expected {self._extension.way_for(is_local=True)}.")
        with file:
            size = os.fstat(file.fileno()).st_size
            name = safe_name(re.split(r"[/\\]", path)[-1])
            self._check(where, accept, mime_type_of(name), size)
            ticket = self._ticket(new_id(), name, mime_type_of(name), size, "")
            await self._store.store(ticket, _parts_of(file))
        self._own.add(ticket.id)
        return await self._take(ticket.id, _GONE)

    async def _roots(self) -> list[str]:
        from mcpd.server.context.questions import list_roots

        question = list_roots()
        if not self._exchange.asking.can_ask(question):
            return []
        answers = await self._exchange.ask({_ROOTS: question}, 60)
        uris = [str(root.uri) for root in answers[_ROOTS]]
        return [_path_of(uri) for uri in uris if uri.startswith("file:")]

    # -- URLs --------------------------------------------------------------------------------

    async def _fetched(self, value: Mapping[str, Any], where: str, accept: Accept) -> Content:
        # Spec: FIL-10; the addresses that may be fetched are in `auth.fetch`.
        try:
            from mcpd.auth.fetch import FetchError, Limits, fetch
        except ImportError:
            raise ToolError(f"{where}: this server cannot fetch files; it needs mcpd-server[client].") from None
        url = value["download_url"]
        if not isinstance(url, str):
            raise ToolError(f"{where}: download_url is not a URL.")
        most = min(self._settings.max_bytes, accept.max_bytes or self._settings.max_bytes)
        last = unquote(url.partition("?")[0].rpartition("/")[2])
        name = safe_name(value.get("file_name") or value.get("name") or last)
        mime_type = mime_type_of(name, value.get("mime_type"))
        ticket = self._ticket(new_id(), name, mime_type, most, "")
        async with await self._store.begin(ticket, is_exact=False) as incoming:
            try:
                limits = Limits(max_bytes=most, seconds=self._settings.fetch_seconds)
                answer = await fetch(url, what="the file", limits=limits, into=incoming.write)
            except FetchError as error:
                # The reason only: the URL is a credential.
                raise ToolError(f"{where}: the file cannot be fetched: {error.reason}.") from None
            if answer.status != 200:
                raise ToolError(f"{where}: the file cannot be fetched: its URL answers {answer.status}.")
            await incoming.finish()
        self._own.add(ticket.id)
        return await self._take(ticket.id, _GONE)

    # -- the extension -----------------------------------------------------------------------

    async def _from_host(self, file: wire.HostFile, where: str, accept: Accept) -> Content | None:
        name = safe_name(file.name)
        mime_type = mime_type_of(name, file.mime_type)
        self._check(where, accept, mime_type, file.size)
        if file.data is not None or not file.size:
            # One round: the bytes are here. Hosts do not upload a file without bytes.
            return self._inline(file, name, mime_type, where)
        kept: dict[str, str] = self._exchange.asking.kept.get(_KEPT, {})
        id = kept.get(file.id)
        if id is None:
            other = self._missing.setdefault(file.id, (file, where))[0]
            if other != file:
                raise ToolError(f"{where}: two files have the id {printable(file.id, 40)}.")
            return None
        if self._is_local and id not in self._taken and self._store.find(id, self.owner) is None:
            await self._collect(id, file, name, mime_type, where)
        refusal = f"{where}: the file was not uploaded, or its upload was refused or has expired."
        return await self._take(id, refusal)

    def _inline(self, file: wire.HostFile, name: str, mime_type: str, where: str) -> Content:
        try:
            text = (file.data or "").rstrip("=").translate(_FROM_URLS)
            data = b64decode(text + "=" * (-len(text) % 4), validate=True)
        except ValueError:
            raise ToolError(f"{where}: the data of the file is not base64.") from None
        digest = sha256_of(data)
        if len(data) != file.size or file.sha256 not in ("", digest):
            raise ToolError(f"{where}: the data of the file has another size or digest than the one declared.")
        if len(data) > self._settings.max_inline_bytes:
            raise ToolError(f"{where}: at most {self._settings.max_inline_bytes:,} bytes may be sent with a call.")
        return Content(name, mime_type, len(data), digest, data=data)

    async def _collect(self, id: str, file: wire.HostFile, name: str, mime_type: str, where: str) -> None:
        # Take the file that the host wrote at the path it was given.
        path = self._host_path(id)
        source = _opened(path)
        if source is None:
            raise ToolError(f"{where}: the file was not written to its path.")
        with source:
            try:
                await self._store.store(self._ticket(id, name, mime_type, file.size, file.sha256), _parts_of(source))
            finally:
                with suppress(OSError):
                    os.unlink(path)

    def _host_path(self, id: str) -> str:
        return self._store.path(f"{id}.{self.owner}", ".host")

    def _ticket(self, id: str, name: str, mime_type: str, size: int, digest: str) -> Ticket:
        return self._extension.ticket(id, self.owner, name, mime_type, size, digest, self._tool)

    def required(self) -> Any:
        """Return the result that asks for the missing files; None if none is missing (FIL-02, FIL-03)."""
        if not self._missing:
            return None
        from mcpd.server.context.asking import binding_of

        exchange, extension = self._exchange, self._extension
        kept = exchange.asking.kept
        ids = dict(kept.get(_KEPT, {}))
        uploads = []
        for file, _ in self._missing.values():
            name = safe_name(file.name)
            id = ids[file.id] = new_id()
            if self._is_local:
                uploads.append(wire.Upload(file_id=file.id, path=self._host_path(id)))
                continue
            mime_type = mime_type_of(name, file.mime_type)
            ticket = self._ticket(id, name, mime_type, file.size, file.sha256)
            url = extension.url_of(ticket, exchange.origin.url)
            uploads.append(wire.Upload(file_id=file.id, url=url, credentials="include"))

        kept[_KEPT] = ids
        state = exchange.peer.state_codec.seal(binding_of(exchange.call), {}, kept)
        return wire.upload_required(uploads, state, extension.identity_meta)

    # -- the end -----------------------------------------------------------------------------

    async def end(self, *, is_over: bool) -> None:
        """Remove the files of the call, or give back uploads if the call will be sent again (FIL-11)."""
        for handle in self._handles:
            live.pop(handle, None)
        taken, own = self._taken, self._own
        self._taken, self._handles = {}, []
        for id, content in taken.items():
            ticket = self._ticket(id, content.name, content.mime_type, content.size, content.digest)
            if is_over or id in own:
                # Without waiting, because the call may have been cancelled.
                self._store.discard(ticket.place)
            else:
                await asyncio.to_thread(self._store.give_back, ticket)


def refuse_state(exchange: Exchange) -> None:
    """Raise InvalidParams for a state of another call (FIL-03), even if no argument needs it."""
    if getattr(exchange.call.params, "request_state", None) is not None:
        exchange.asking  # noqa: B018 - reading it opens the state


def read_items(value: Any, parameter: Parameter) -> list[Any]:
    """Return the files that an argument names. Raises ToolError for a list that is none."""
    if not parameter.is_list:
        return [value]
    if not isinstance(value, list):
        raise ToolError(f"{parameter.name}: expected a list of files.")
    return value


def _path_of(text: str) -> str:
    # Return the path in a text or file: URL; "" if it names none on this machine.
    try:
        if text[:5].lower() == "file:":
            parts = urlsplit(text)
            text = url2pathname(parts.path) if parts.netloc in ("", "localhost") else ""
        return "" if "\0" in text else os.path.expanduser(text)
    except ValueError:
        return ""


def _real(path: str) -> str:
    return os.path.realpath(path) if path else ""


def _open_below(path: str, folders: Sequence[str]) -> IO[bytes] | None:
    # Open a file below one of the folders, after all links; None if there is none.
    if not os.path.isabs(path):
        return None
    real = _real(path)
    if not any(_is_below(real, folder) for folder in folders):
        return None
    file = _opened(real)
    # A folder on the way may have become a link meanwhile.
    if file is None or (_real(path) == real and _is_same(real, os.fstat(file.fileno()))):
        return file
    file.close()
    return None


def _opened(path: str) -> IO[bytes] | None:
    # Open a regular file that is no link.
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


def _is_below(path: str, folder: str) -> bool:
    try:
        return bool(folder) and os.path.commonpath((path, folder)) == folder
    except ValueError:  # on another drive
        return False


def _is_same(path: str, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), found)
    except OSError:
        return False


async def _parts_of(file: Any) -> AsyncIterator[bytes]:
    while part := await asyncio.to_thread(file.read, _PART_BYTES):
        yield part
