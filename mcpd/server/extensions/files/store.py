"""The files of a server on disk, or on a store of fsspec: within limits, by owner, for a limited time.

Each process has a folder of its own, with a lock: `ID.OWNER.part` is a file that arrives, `ID.OWNER.used` one that a
call has, `ID.OWNER.host` one that a host on stdio writes. Complete files wait on a shelf, which processes may share:
`ID.OWNER` with the description `ID.OWNER.json`, and `ID.OWNER.once` for each ticket that was used. Names that clients
gave never reach the file system (FIL-09).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import platform
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from secrets import token_hex
from typing import IO, Any, Protocol

from msgspec import Struct, structs
from msgspec.json import Decoder, encode

from mcpd.errors import ConfigurationError, ToolError
from mcpd.transports.files import try_lock
from .file import Content, digest_text
from .settings import FileSettings

# Two parts are in memory: one that arrives, and one that is written meanwhile.
_WRITE_BYTES = 256 << 10
# The longest time without a byte of an upload.
IDLE_SECONDS = 30.0
SWEEP_SECONDS = 60.0
# The uploads of one caller in ten minutes, for each file that it may have.
_TICKETS_PER_FILE = 16
_NODE = "node-"


class Ticket(Struct, frozen=True, kw_only=True):
    """One upload: who may send which file until when. `tool` is "" for any."""

    id: str
    owner: str
    name: str
    mime_type: str
    size: int
    digest: str = ""
    tool: str = ""
    expires: float = 0.0

    @property
    def place(self) -> str:
        """The name of its file on the shelf."""
        return f"{self.id}.{self.owner}"


class Refused(ToolError):
    """A file cannot be stored, or is not what was declared. `status` is for HTTP."""

    def __init__(self, text: str, status: int = 400) -> None:
        self.status = status
        super().__init__(text)


def owner_of(principal: str) -> str:
    """Return a digest of a principal for names of files."""
    return hashlib.sha256(b"file\0" + principal.encode()).hexdigest()[:32]


def new_id() -> str:
    """Return a random id."""
    return f"file-{token_hex(16)}"


def is_id(text: str) -> bool:
    """Return whether a text has the form of an id."""
    return len(text) == 37 and text.startswith("file-") and set(text[5:]) <= set("0123456789abcdef")


# -- shelves -----------------------------------------------------------------------------------


class Shelf(Protocol):
    """Where complete files wait. All methods may take time, so they are called in threads."""

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the size of each file."""

    def written(self, name: str) -> float:
        """Return when a file was written. Raises OSError."""

    def create(self, name: str, data: bytes = b"") -> bool:
        """Write a new file; False if it exists. Only one of several callers gets True."""

    def put(self, name: str, path: str) -> None:
        """Move a local file here."""

    def take(self, name: str, path: str) -> bool:
        """Move a file to a local path; False if there is none. Only one of several callers gets True."""

    def read(self, name: str) -> bytes | None:
        """Return a small file; None if there is none."""

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""


class FolderShelf:
    """A folder on the same disk as the folders of the processes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def sizes(self) -> Iterator[tuple[str, int]]:
        yield from _sizes_in(self.folder)

    def written(self, name: str) -> float:
        return os.stat(self._path(name)).st_mtime

    def create(self, name: str, data: bytes = b"") -> bool:
        try:
            descriptor = os.open(self._path(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        with open(descriptor, "wb") as file:
            file.write(data)
        return True

    def put(self, name: str, path: str) -> None:
        os.utime(path)
        os.rename(path, self._path(name))

    def take(self, name: str, path: str) -> bool:
        try:
            os.rename(self._path(name), path)
        except FileNotFoundError:
            return False
        os.utime(path)
        return True

    def read(self, name: str) -> bytes | None:
        try:
            with open(self._path(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)


class RemoteShelf:
    """A folder of a store that fsspec reaches, such as `s3://bucket/files`."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs

            self._store, self._base = url_to_fs(url, use_listings_cache=False)
            self._store.makedirs(self._base, exist_ok=True)
        except (ImportError, ValueError) as error:
            advice = "install mcpd-server[files] and the package of the store"
            raise ConfigurationError(f"--files {url.partition('://')[0]}://…: {error}; {advice}") from None

    def sizes(self) -> Iterator[tuple[str, int]]:
        for found in self._store.ls(self._base, detail=True):
            name = found["name"].rpartition("/")[2]
            if is_id(name[:37]):
                yield name, found.get("size") or 0

    def written(self, name: str) -> float:
        return float(self._store.modified(self._path(name)).timestamp())

    def create(self, name: str, data: bytes = b"") -> bool:
        try:
            self._store.pipe_file(self._path(name), data, mode="create")
        except FileExistsError:
            return False
        return True

    def put(self, name: str, path: str) -> None:
        self._store.put_file(path, self._path(name))
        self.remove(f"{name}.taken")
        os.unlink(path)

    def take(self, name: str, path: str) -> bool:
        # A store has no move that only one caller can do, but a creation.
        if not self.create(f"{name}.taken"):
            return False
        try:
            self._store.get_file(self._path(name), path)
        except FileNotFoundError:
            return False
        self.remove(name)
        return True

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(self._store.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        with suppress(OSError):
            self._store.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"


# -- the store ---------------------------------------------------------------------------------


class FileStore:
    """The files of a server. Creates the folder of this process.

    `place` is a folder or a URL of fsspec, which processes share; None is a temporary folder, which only processes that
    name the same `namespace` share. Raises ConfigurationError, OSError.
    """

    def __init__(self, settings: FileSettings, place: str | None = None, namespace: str = "") -> None:
        self.settings = settings
        is_remote = place is not None and "://" in place
        self._root = _private_folder(namespace) if place is None or is_remote else place
        os.makedirs(self._root, mode=0o700, exist_ok=True)
        self._is_shared = not is_remote and (place is not None or bool(namespace))
        self._own = tempfile.mkdtemp(prefix=_NODE + _host() + "-", dir=self._root)
        # Processes of the same user see by the lock that this one is alive.
        lock = os.path.join(self._own, "lock")
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try_lock(self._lock)
        self._shelf: Shelf = FolderShelf(self._root if self._is_shared else self._own)
        if is_remote and place is not None:
            self._shelf = RemoteShelf(place)
        self._swept = 0.0
        self._tidy()

    def _tidy(self) -> None:
        # Remove what processes that died have left; all files if no process but this one has any (FIL-11).
        others = [folder for folder in self._nodes() if folder != self._own and not _removed_if_dead(folder)]
        if self._is_shared and not others and sys.platform != "win32":
            for name, _ in _sizes_in(self._root):
                with suppress(OSError):
                    os.unlink(os.path.join(self._root, name))

    def _nodes(self) -> list[str]:
        return [entry.path for entry in os.scandir(self._root) if entry.name.startswith(_NODE)]

    def close(self) -> None:
        """Remove the folder of this process, and the files if no other process shares them."""
        with suppress(OSError):
            self._tidy()
        os.close(self._lock)
        shutil.rmtree(self._own, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what has expired."""
        now = self._swept = time.time()
        with suppress(OSError):
            os.utime(os.path.join(self._own, "lock"))
        for name, _ in list(self._shelf.sizes()):
            with suppress(OSError):
                if not name.endswith((".part", ".used", ".host")) and (
                    self._shelf.written(name) < now - self.settings.unused
                ):
                    self._shelf.remove(name)
        ages = {".used": self.settings.used, ".host": self.settings.unused}
        for name, _ in list(_sizes_in(self._own)):
            with suppress(OSError):
                path = os.path.join(self._own, name)
                age = ages.get(name[-5:])
                if age is not None and os.stat(path).st_mtime < now - age:
                    os.unlink(path)

    def admit(self, owner: str, size: int, *, has_begun: bool = False) -> None:
        """Raise Refused if there is no room for a file, which is in the folder already if it `has_begun`."""
        settings = self.settings
        if size > settings.max_bytes:
            raise Refused(f"The file has {size:,} bytes; at most {settings.max_bytes:,} are accepted.", 413)
        if time.time() - self._swept > SWEEP_SECONDS:
            self.sweep()
        own = total = count = tickets = 0
        for name, used in self._all_sizes():
            is_own = name[38:70] == owner
            if name.endswith(".once"):
                tickets += is_own
            elif not name.endswith((".json", ".taken")):
                total += used
                own += used * is_own
                count += is_own
        if not has_begun:
            own, total, count = own + size, total + size, count + 1
        if own > settings.max_bytes_each or count > settings.max_count_each:
            raise Refused("You have too many files here; wait until their calls have ended, then try again.", 429)
        if tickets > _TICKETS_PER_FILE * settings.max_count_each:
            raise Refused("You have sent too many files; try again in some minutes.", 429)
        if total > settings.max_bytes_all:
            raise Refused("The server has no room for the file; try again later.", 507)

    def _all_sizes(self) -> Iterator[tuple[str, int]]:
        for folder in self._nodes() if self._is_shared else [self._own]:
            yield from _sizes_in(folder)
        if self._is_shared or isinstance(self._shelf, RemoteShelf):
            yield from self._shelf.sizes()

    # -- storing -----------------------------------------------------------------------------

    async def store(self, ticket: Ticket, parts: AsyncIterator[bytes]) -> None:
        """Store a file from its parts.

        Raises Refused, also for a ticket that was used, and leaves nothing behind then (FIL-04, FIL-05, FIL-06).
        """
        async with await self.begin(ticket) as incoming:
            async for part in parts:
                await incoming.write(part)
            await incoming.finish()

    async def begin(self, ticket: Ticket, *, is_exact: bool = True) -> Incoming:
        """Return the file of a ticket, open for writing. Its size is a limit only unless it `is_exact`."""
        incoming = Incoming(self, ticket, is_exact)
        try:
            await incoming.open()
        except BaseException:
            incoming.close()
            raise
        return incoming

    def open_part(self, ticket: Ticket) -> IO[bytes]:
        """Use up a ticket, and make room for its file. Raises Refused."""
        self.admit(ticket.owner, ticket.size)  # before it leaves any mark on the disk
        if not self._shelf.create(f"{ticket.place}.once"):
            raise Refused("This upload was used already; ask for another one.", 409)
        descriptor = os.open(self.path(ticket.place, ".part"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        file = open(descriptor, "wb", buffering=0)  # noqa: SIM115 - closed by `Incoming`
        # The whole size counts from now on, so that uploads at the same time stay within the limits together.
        os.ftruncate(file.fileno(), ticket.size)
        return file

    def complete(self, ticket: Ticket) -> None:
        """Put a complete file on the shelf."""
        ticket = structs.replace(ticket, expires=time.time() + self.settings.unused)
        self._shelf.create(f"{ticket.place}.json", encode(ticket))
        self._shelf.put(ticket.place, self.path(ticket.place, ".part"))

    def keep(self, ticket: Ticket, content: Content) -> None:
        """Copy a file that a tool returned. Raises Refused, OSError."""
        file = self.open_part(ticket)
        try:
            with file, content.open() as source:
                shutil.copyfileobj(source, file, _WRITE_BYTES)
                file.truncate()
                size = file.tell()
            self.complete(structs.replace(ticket, size=size))
        finally:
            self.discard(ticket.place)

    def path(self, place: str, suffix: str) -> str:
        """Return a path in the folder of this process."""
        return os.path.join(self._own, place + suffix)

    # -- using -------------------------------------------------------------------------------

    def find(self, id: str, owner: str) -> Ticket | None:
        """Return the description of a file; None if this owner has none with this id (FIL-07)."""
        raw = self._shelf.read(f"{id}.{owner}.json") if is_id(id) else None
        ticket = None if raw is None else _decode(raw)
        return ticket if ticket is not None and ticket.expires > time.time() else None

    def take(self, id: str, owner: str, tool: str) -> Content | None:
        """Take a file for a call: no other call can have it now. None if this owner has none with this id."""
        ticket = self.find(id, owner)
        if ticket is None or ticket.tool not in ("", tool):
            return None
        path = self.path(ticket.place, ".used")
        if not self._shelf.take(ticket.place, path):
            return None
        self._shelf.remove(f"{ticket.place}.json")
        return Content(ticket.name, ticket.mime_type, ticket.size, ticket.digest, path)

    def peek(self, id: str, owner: str) -> bytes | None:
        """Return the bytes of a file that waits; None if this owner has none with this id."""
        ticket = self.find(id, owner)
        return None if ticket is None else self._shelf.read(ticket.place)

    def give_back(self, ticket: Ticket) -> None:
        """Give a file back that a call has taken, because the call will be sent again."""
        with suppress(OSError):
            os.rename(self.path(ticket.place, ".used"), self.path(ticket.place, ".part"))
            self.complete(ticket)

    def discard(self, place: str) -> None:
        """Remove what this process has of a file."""
        for suffix in (".part", ".used", ".host"):
            with suppress(OSError):
                os.unlink(self.path(place, suffix))


class Incoming:
    """A file that arrives. It is removed at the end of the block, unless it is finished."""

    def __init__(self, store: FileStore, ticket: Ticket, is_exact: bool) -> None:
        self._store = store
        self._ticket = ticket
        self._is_exact = is_exact
        self._file: IO[bytes] | None = None
        self._digest: Any = hashlib.sha256()
        self._size = 0
        self._waiting = bytearray()
        self._work: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Use up the ticket. Raises Refused."""

        def begin() -> None:
            self._file = self._store.open_part(self._ticket)
            # After its beginning, so that uploads at the same time see each other.
            self._store.admit(self._ticket.owner, self._ticket.size, has_begun=True)

        await self._do(begin)
        await self._done()

    async def write(self, part: bytes) -> None:
        """Add bytes. Raises Refused above the size of the ticket."""
        self._size += len(part)
        if self._size > self._ticket.size:
            text = "that were declared" if self._is_exact else "that are accepted"
            raise Refused(f"The file has more than the {self._ticket.size:,} bytes {text}.", 413)
        self._waiting += part
        if len(self._waiting) >= _WRITE_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        waiting, self._waiting = self._waiting, bytearray()

        def write() -> None:
            assert self._file is not None
            view = memoryview(waiting)
            self._digest.update(view)
            while view:
                view = view[self._file.write(view) :]

        await self._do(write)

    async def _do(self, function: Callable[[], None]) -> None:
        # Start the next work of the disk; one at a time.
        await self._done()
        self._work = asyncio.create_task(asyncio.to_thread(function))

    async def _done(self) -> None:
        if self._work is not None:
            # Work goes on if the upload is cancelled; then `close` waits for its end.
            await asyncio.shield(self._work)

    async def finish(self) -> None:
        """Check the size and the digest, and put the file on the shelf. Raises Refused."""
        await self._flush()
        await self._done()
        ticket = self._ticket
        if self._size != ticket.size and self._is_exact:
            raise Refused(f"The file has {self._size:,} bytes, but {ticket.size:,} were declared.")
        digest = digest_text(self._digest.digest())
        if ticket.digest and not hmac.compare_digest(digest.encode(), ticket.digest.rstrip("=").encode()):
            raise Refused("The file has another digest than the one declared.")

        def complete() -> None:
            assert self._file is not None
            self._file.truncate()
            self._file.close()
            self._store.complete(structs.replace(ticket, size=self._size, digest=digest))

        await self._do(complete)
        await self._done()

    def close(self) -> None:
        """Remove the file if it is not complete."""

        def end(work: asyncio.Task[None] | None) -> None:
            if work is not None and not work.cancelled():
                work.exception()  # told already, unless the upload was cancelled
            if self._file is not None:
                self._file.close()
            self._store.discard(self._ticket.place)

        if self._work is None or self._work.done():
            end(self._work)
        else:
            self._work.add_done_callback(end)

    async def __aenter__(self) -> Incoming:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


# -- folders -----------------------------------------------------------------------------------


def _private_folder(namespace: str) -> str:
    # The folder for temporary files of this user. Raises ConfigurationError if another user has made it.
    uid = os.getuid() if hasattr(os, "getuid") else None
    folder = os.path.join(tempfile.gettempdir(), f"mcpd-files-{uid or 0}")
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or (uid is not None and found.st_uid != uid):
        raise ConfigurationError(f"{folder} belongs to somebody else; choose a folder with --files")
    return os.path.join(folder, f"shared-{namespace}") if namespace else folder


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _sizes_in(folder: str) -> Iterator[tuple[str, int]]:
    with suppress(FileNotFoundError), os.scandir(folder) as found:
        for entry in found:
            if is_id(entry.name[:37]):  # a folder that an operator chose may have other files
                with suppress(OSError):
                    yield entry.name, entry.stat(follow_symlinks=False).st_size


def _removed_if_dead(folder: str) -> bool:
    # Remove the folder of a process that has died. On Windows, and for other machines, only its age tells.
    lock = os.path.join(folder, "lock")
    try:
        is_old = os.stat(lock).st_mtime < time.time() - 60 * SWEEP_SECONDS
        if not is_old and (sys.platform == "win32" or not os.path.basename(folder).startswith(_NODE + _host())):
            return False
        descriptor = os.open(lock, os.O_RDWR)
    except OSError:
        return False  # it begins or ends just now
    try:
        is_dead = try_lock(descriptor)
    finally:
        os.close(descriptor)
    if is_dead:
        shutil.rmtree(folder, ignore_errors=True)
    return is_dead


_decode = Decoder(Ticket).decode
