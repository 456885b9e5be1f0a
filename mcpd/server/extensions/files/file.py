"""`File` and `Accept`: a file as authors of tools see it, whichever way it came."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import os
import re
import shutil
import unicodedata
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from msgspec import Struct

T = TypeVar("T")

_PART_BYTES = 256 << 10
_MOST_NAME_CHARACTERS = 200
_is_reserved = re.compile(r"(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?").fullmatch


def safe_name(name: object) -> str:
    """Return a name without folders, control characters and reserved names, for people and `File.save` (FIL-09)."""
    last = re.split(r"[/\\]", name)[-1] if isinstance(name, str) else ""
    kept = "".join(
        "_" if c in '<>:"|?*' else c for c in last if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ).strip(" .")
    if len(kept) > _MOST_NAME_CHARACTERS:
        stem, suffix = os.path.splitext(kept)
        kept = stem[: _MOST_NAME_CHARACTERS - len(suffix[:20])] + suffix[:20]
    if not kept:
        return "file"
    return f"_{kept}" if _is_reserved(kept) else kept


def mime_type_of(name: str, given: object = None) -> str:
    """Return the given MIME type if it is one, otherwise the type of the name."""
    if isinstance(given, str) and re.fullmatch(r"[\w!#$&^.+-]{1,100}/[\w!#$&^.+-]{1,100}", given.partition(";")[0]):
        return given.partition(";")[0].lower()
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


class Accept:
    """Limits a file: `Annotated[File, Accept("application/pdf", "image/*", max_bytes=20_000_000)]`.

    Without types every type is accepted. `max_bytes` cannot exceed the limit of the server.
    """

    __slots__ = ("max_bytes", "types")

    def __init__(self, *types: str, max_bytes: int | None = None) -> None:
        wrong = [kind for kind in types if str(kind).count("/") != 1]
        if wrong:
            raise ValueError(f'Accept({wrong[0]!r}): expected a MIME type, such as "application/pdf" or "image/*"')
        if max_bytes is not None and max_bytes < 1:
            raise ValueError("Accept(max_bytes=…): expected 1 or more")
        self.types = tuple(kind.lower() for kind in types)
        self.max_bytes = max_bytes

    def refusal(self, mime_type: str, size: int) -> str:
        """Return why a file is not accepted; "" if it is."""
        if self.types and not any(_fits(mime_type, kind) for kind in self.types):
            return f"its type is {mime_type}, but {' or '.join(self.types)} is expected"
        if self.max_bytes is not None and size > self.max_bytes:
            return f"it has {size:,} bytes, but at most {self.max_bytes:,} are accepted"
        return ""


def _fits(mime_type: str, kind: str) -> bool:
    return kind == "*/*" or kind == mime_type or (kind.endswith("/*") and mime_type.startswith(kind[:-1]))


class Content(Struct, frozen=True):
    """Where the bytes of a file are, and what is known about it."""

    name: str
    mime_type: str
    size: int
    digest: str
    path: str = ""
    data: bytes | None = None
    in_thread: bool = False

    def open(self) -> IO[bytes]:
        """Return the bytes as an open file."""
        return open(self.path, "rb") if self.data is None else BytesIO(self.data)


# The files of running calls, by the handle that stands for each in the arguments. Handles are random, so no argument of
# a client can name the file of another call.
live: dict[str, Content] = {}


class File:
    """A file that a client sent, or one to return.

    In an `async def` tool `read`, `save`, `open` and `chunks` are awaited; in a plain `def` they return at once.
    The file exists until the call ends.

    Attributes:
        name: Its name without folders, for people.
        mime_type: Its type, as the sender declared it or as its name says.
        size: Its size in bytes.
        digest: Its SHA-256 digest in base64url; "" for a file to return.
    """

    __slots__ = ("_content", "digest", "mime_type", "name", "size")

    # Read by `functions.type_hooks`.
    mcpd_schema: ClassVar[dict[str, Any]] = {"type": "string"}
    mcpd_is_content: ClassVar[bool] = True

    def __init__(self, content: Content) -> None:
        """Authors use `from_path` and `from_bytes`."""
        self._content = content
        self.name = content.name
        self.mime_type = content.mime_type
        self.size = content.size
        self.digest = content.digest

    def __repr__(self) -> str:
        return f"File({self.name!r}, {self.mime_type}, {self.size:,} bytes)"

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], *, name: str = "", mime_type: str = "") -> Self:
        """Return a file on disk as a tool's result. It is read when the tool has returned. Raises OSError."""
        shown = safe_name(name or os.path.basename(os.fspath(path)))
        size = os.stat(path).st_size
        return cls(Content(shown, mime_type_of(shown, mime_type), size, "", os.path.abspath(os.fspath(path))))

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str, mime_type: str = "") -> Self:
        """Return bytes as a file, as a tool's result."""
        shown = safe_name(name)
        return cls(Content(shown, mime_type_of(shown, mime_type), len(data), "", data=bytes(data)))

    @classmethod
    def mcpd_read(cls, handle: object) -> Self:
        """Return the file of an argument. Raises ValueError for anything that is not a handle."""
        content = live.get(handle) if isinstance(handle, str) else None
        if content is None:
            raise ValueError("Expected a file")
        return cls(content)

    def read(self) -> Awaitable[bytes]:
        """Return all bytes."""
        return self._do(self._read)

    def save(self, path: str | os.PathLike[str]) -> Awaitable[str]:
        """Copy the file to a path, or into an existing folder under its own name. Returns the path of the copy."""
        return self._do(self._save, path)

    def open(self) -> Awaitable[IO[bytes]]:
        """Return the file, opened for reading."""
        return self._do(self._content.open)

    def chunks(self, size: int = _PART_BYTES) -> AsyncIterator[bytes]:
        """Iterate over the bytes in parts of at most `size` bytes."""
        if self._content.in_thread:
            return self._parts(size)  # type: ignore[return-value]  # see SyncFile
        return self._parts_later(size)

    # -- how ---------------------------------------------------------------------------------

    def _do(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        if self._content.in_thread:
            return function(*args)  # type: ignore[return-value]  # see SyncFile
        return asyncio.to_thread(function, *args)

    def _read(self) -> bytes:
        with self._content.open() as file:
            return file.read()

    def _save(self, path: str | os.PathLike[str]) -> str:
        target = os.fspath(path)
        if os.path.isdir(target):
            target = os.path.join(target, self.name)
        with self._content.open() as source, open(target, "wb") as copy:
            shutil.copyfileobj(source, copy, _PART_BYTES)
        return target

    def _parts(self, size: int) -> Iterator[bytes]:
        with self._content.open() as file:
            while part := file.read(size):
                yield part

    async def _parts_later(self, size: int) -> AsyncIterator[bytes]:
        file = await asyncio.to_thread(self._content.open)
        try:
            while part := await asyncio.to_thread(file.read, size):
                yield part
        finally:
            file.close()


if TYPE_CHECKING:

    class SyncFile(File):
        def read(self) -> bytes: ...  # type: ignore[override]
        def save(self, path: str | os.PathLike[str]) -> str: ...  # type: ignore[override]
        def open(self) -> IO[bytes]: ...  # type: ignore[override]
        def chunks(self, size: int = ...) -> Iterator[bytes]: ...  # type: ignore[override]

else:

    class SyncFile(File):
        """`File` for a plain function: nothing is awaited. At run time both are the same."""

        __slots__ = ()


def digest_text(raw: bytes) -> str:
    """Return a digest as it is written: base64url without padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def sha256_of(data: bytes) -> str:
    """Return the digest of bytes as text."""
    return digest_text(hashlib.sha256(data).digest())
