"""The files of a server as an extension, with its HTTP routes for uploads. It is added with the first tool that has a
`File`, or by its options.

`POST …/files` returns a ticket, `PUT …/files/TICKET` stores the bytes. A ticket is sealed with the server's state key,
so that any process that shares the key accepts it. Nothing is kept for a ticket before its bytes arrive.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import Struct, convert, to_builtins

from mcpd.errors import (
    ConfigurationError,
    InvalidParams,
    InvalidRequest,
    RegistrationError,
    ResourceNotFound,
    ToolError,
)
from mcpd.protocol.envelope import ClientIdentity, result_meta
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.types.features import BlobResourceContents, EmbeddedResource, ResourceLink
from mcpd.server.context.context import Context
from mcpd.server.extensions.base import Extension, ExtensionHost
from mcpd.server.extensions.builtin import FILES
from mcpd.server.registry.content import embedded
from mcpd.transports.authentication import Refusal
from mcpd.transports.routes import Route, RouteRequest, RouteResponse
from . import wire
from .file import File, mime_type_of, safe_name
from .settings import SCHEME, FileSettings
from .store import IDLE_SECONDS, SWEEP_SECONDS, FileStore, Refused, Ticket, new_id, owner_of

if TYPE_CHECKING:
    from mcpd.server.backplane.base import Backplane
    from mcpd.server.context.request_state import RequestStateCodec

_BINDING = b"mcpd file ticket"
_MOST_REQUEST_BYTES = 16 << 10
# The alphabet of base64 in paths; `=` stays, as it is allowed there.
_TO_PATH = str.maketrans("+/", "-_")
_FROM_PATH = str.maketrans("-_", "+/")


class UploadRequest(Struct, rename="camel"):
    """The body of `POST …/files`."""

    size: int
    name: str = ""
    mime_type: str = ""
    digest: str = ""


class FilesExtension(Extension):
    """The files that clients send and tools return.

    `file_limits` are the limits. `files` is a folder, or a URL that fsspec knows, for all files; processes may share
    it. By default each process has a folder of its own, or those with a backplane on one machine share one. On stdio
    clients may name files below `allow_path` by their paths.
    """

    def __init__(
        self, *, file_limits: FileSettings | None = None, files: str | None = None, allow_path: Iterable[str] = ()
    ) -> None:
        super().__init__(FILES)
        self.limits = file_limits or FileSettings()
        self.settings = wire.settings(self.limits.max_inline_bytes)
        self.files: str | None = None
        self.allow_path: tuple[str, ...] = ()
        self._namespace = ""
        self._joined: FilesExtension | None = None
        self._store: FileStore | None = None
        self._opening = threading.Lock()
        self._sweeping: asyncio.Task[None] | None = None
        self._endpoint = self._base = ""
        self.configure({"files": files, "allow_path": allow_path})

    # -- its parts ---------------------------------------------------------------------------

    @property
    def _home(self) -> FilesExtension:
        return self if self._joined is None else self._joined._home

    @property
    def store(self) -> FileStore:
        """The files of all servers that are served together."""
        home = self._home
        with home._opening:  # the first requests to an ASGI application come while it starts
            if home._store is None:
                try:
                    home._store = FileStore(home.limits, home.files, home._namespace)
                except OSError as error:
                    place = f"--files {home.files}" if home.files else "the folder for temporary files"
                    text = f"{place}: {error.strerror or error}; choose a folder with --files"
                    raise ConfigurationError(text) from None
            return home._store

    @property
    def allowed(self) -> Sequence[str]:
        """The folders whose files clients on stdio may name."""
        return self._home.allow_path

    @property
    def host(self) -> ExtensionHost:
        """The server whose key seals tickets."""
        server = self._home.server
        assert server is not None
        return server

    @property
    def identity_meta(self) -> Any:
        """The `_meta` of results."""
        return result_meta(self.host.catalog.identity)

    def ticket(self, id: str, owner: str, name: str, mime_type: str, size: int, digest: str, tool: str) -> Ticket:
        """Return a ticket for one file from now on."""
        expires = time.time() + self.limits.unused
        return Ticket(
            id=id, owner=owner, name=name, mime_type=mime_type, size=size, digest=digest, tool=tool, expires=expires
        )

    def url_of(self, ticket: Ticket, mount: str) -> str:
        """Return the URL for the bytes of a ticket: below the public URL, or below `mount`, where the request came."""
        home = self._home
        base = home._base.rstrip("/") or f"{mount}{home._endpoint}"
        return f"{base}/files/{_sealed(self.host.state_codec(), ticket)}"

    def way_for(self, *, is_local: bool | None) -> str:
        """Return what a client without the extension writes for a file; None means that its transport is unknown."""
        most = f"a data URI of at most {self.limits.max_inline_bytes // 1024:,} KiB"
        if is_local is None:
            return f"{most}, the id of an uploaded file, or on stdio the path of an allowed file"
        return f"{most}, or {'the path of a file in an allowed folder' if is_local else 'the id of an uploaded file'}"

    # -- results -----------------------------------------------------------------------------

    async def block_of(self, file: File, owner: str) -> EmbeddedResource | ResourceLink:
        """Return a returned file as a content block (FIL-13). Raises ToolError if it has gone, or there is no room."""
        try:
            if file.size <= self.limits.max_inline_bytes:
                data = await asyncio.to_thread(file._read)
                return embedded(f"{SCHEME}:///{quote(file.name, safe='')}", data, file.mime_type)
            ticket = self.ticket(new_id(), owner, file.name, file.mime_type, file.size, "", "")
            await asyncio.to_thread(self.store.keep, ticket, file._content)
        except OSError as error:
            raise ToolError(f"The file of the result cannot be read: {error.strerror}.") from None
        uri = f"{SCHEME}:///{ticket.id}/{quote(file.name, safe='')}"
        return ResourceLink(uri=uri, name=file.name, mime_type=file.mime_type, size=file.size)

    async def returned(self, id: str, name: str, ctx: Context) -> BlobResourceContents:
        """Files that tools have returned, for a limited time."""
        owner = owner_of(ctx._exchange.call.session.opening.principal)
        uri = f"{SCHEME}:///{id}/{quote(name, safe='')}"
        found = self.store.find(id, owner)
        data = await asyncio.to_thread(self.store.peek, id, owner)
        if found is None or data is None:
            raise ResourceNotFound(uri)
        return BlobResourceContents(uri, data, found.mime_type)

    # -- routes ------------------------------------------------------------------------------

    def routes(self, endpoint: str, public_url: str) -> Sequence[Route]:
        """Return the routes for uploads."""
        self._endpoint, self._base = endpoint.rstrip("/"), public_url
        path = f"{self._endpoint}/files"
        return (
            Route(path, self._ask, methods=["POST"], max_body_bytes=_MOST_REQUEST_BYTES),
            Route(f"{path}/{{ticket}}", self._put, methods=["PUT", "POST"], streams=True),
        )

    async def _ask(self, request: RouteRequest) -> RouteResponse | Refusal:
        # Return the id of a file and the URL for its bytes.
        wanted: UploadRequest = request.json(UploadRequest)
        if wanted.size < 0:
            raise InvalidRequest("size: expected the number of bytes")
        owner, name = owner_of(request.principal), safe_name(wanted.name)
        try:
            await asyncio.to_thread(self.store.admit, owner, wanted.size)
        except Refused as refused:
            return Refusal(refused.status, f"{refused}\n")
        mime_type = mime_type_of(name, wanted.mime_type)
        ticket = self.ticket(new_id(), owner, name, mime_type, wanted.size, wanted.digest, "")
        mount = f"{request.scheme}://{request.headers.get('host') or 'localhost'}{request.root_path.rstrip('/')}"
        return RouteResponse({"id": ticket.id, "url": self.url_of(ticket, mount)}, status=201)

    async def _put(self, request: RouteRequest) -> RouteResponse | Refusal:
        # Store the bytes of a ticket. Another caller's ticket is answered like a forged one (FIL-05, FIL-07).
        ticket = _unsealed(self.host.state_codec(), request.params["ticket"])
        if ticket is None or ticket.owner != owner_of(request.principal):
            return Refusal(404, "There is no such upload, or it has expired.\n")
        length = request.headers.get("content-length", "")
        if length.isdigit() and (len(length) > 15 or int(length) > ticket.size):
            # Before its bytes are read (FIL-06).
            return Refusal(413, f"The file has more than the {ticket.size:,} bytes that were declared.\n")
        try:
            async with asyncio.timeout(self.limits.used):
                await self.store.store(ticket, _in_time(request.parts()))
        except Refused as refused:
            return Refusal(refused.status, f"{refused}\n")
        except TimeoutError:
            return Refusal(408, "The bytes of the file did not arrive in time.\n")
        except ConnectionError:
            return Refusal(400, "The connection ended before the file was complete.\n")
        return RouteResponse({"id": ticket.id}, status=201)

    # -- for the server ----------------------------------------------------------------------

    def admits(self, client: ClientIdentity) -> bool:
        """Whether a client uploads files (FIL-14: never in versions before 2026-07-28)."""
        return client.is_of_request and wire.is_offered((client.capabilities.extensions or {}).get(FILES))

    def joined(self, other: Extension) -> None:
        """Keep the files of another server too, which is served together with this one."""
        if isinstance(other, FilesExtension):
            other._joined = self
            self.limits, self.settings = other.limits, other.settings
            self.allow_path = tuple(dict.fromkeys((*self.allow_path, *other.allow_path)))
            self.files = self.files or other.files

    def succeed(self, other: Extension) -> None:
        """Take over the files of a server that is replaced with this extension's server."""
        if isinstance(other, FilesExtension) and other._store is not None:
            self._store, other._store = other._store, None
            self._namespace = other._namespace
            self._sweeping, other._sweeping = other._sweeping, None

    def serve_options(self) -> type:
        """Return the options that operators choose."""
        from mcpd.server.extensions.options import FilesServeOptions  # few programs read them

        return FilesServeOptions

    def configure(self, options: Mapping[str, Any]) -> None:
        """Apply options. Raises ValueError for a folder that is not there."""
        if "files" in options:
            files = options["files"]
            is_path = files is not None and "://" not in files
            self.files = os.path.abspath(os.path.expanduser(files)) if is_path else files
        if "allow_path" in options:
            given = options["allow_path"]
            if isinstance(given, str):
                raise RegistrationError("allow_path: expected a list of folders")
            folders = [os.path.realpath(os.path.expanduser(folder)) for folder in given]
            wrong = [folder for folder in folders if not os.path.isdir(folder)]
            if wrong:
                raise ValueError(f"--allow-path {wrong[0]}: this folder does not exist")
            self.allow_path = tuple(folders)

    def share(self, backplane: Backplane) -> None:
        """Share the folder with the other processes on this machine."""
        from mcpd.server.backplane.node import namespace_of

        self._namespace = namespace_of(self.host.name)

    async def start(self) -> None:
        """Remove what earlier processes have left, and from now on what expires."""
        if self._joined is None and self._sweeping is None:
            await asyncio.to_thread(lambda: self.store)
        if self._joined is None and self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep(), name="mcpd-files")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            with suppress(OSError):
                await asyncio.to_thread(self.store.sweep)

    async def aclose(self) -> None:
        """Remove the folder of this process."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
            self._store = None


def _sealed(codec: RequestStateCodec, ticket: Ticket) -> str:
    # Return a ticket as one segment of a path.
    return codec.seal(_BINDING, {}, to_builtins(ticket)).translate(_TO_PATH)


def _unsealed(codec: RequestStateCodec, text: str) -> Ticket | None:
    # Return the ticket of a path; None if it is forged or has expired.
    try:
        ticket = convert(codec.open(_BINDING, text.translate(_FROM_PATH)).kept, Ticket)
    except (InvalidParams, *MALFORMED):
        return None
    return ticket if ticket.expires > time.time() else None


async def _in_time(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while True:
        async with asyncio.timeout(IDLE_SECONDS):
            try:
                part = await anext(parts)
            except StopAsyncIteration:
                return
        yield part
