"""Images, audio and files that tools return, and what resources of every library hold."""

from __future__ import annotations

import json
import mimetypes
import os
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

from anyio.to_thread import run_sync
from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator

from mcpd.compat.types.features import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextResourceContents,
)

# -- images, audio and files -----------------------------------------------------------------

_UNKNOWN = "application/octet-stream"
_NONE: dict[str, str] = {}
_SDK_IMAGES = {name: f"image/{name}" for name in ("png", "jpeg", "gif", "webp")} | {"jpg": "image/jpeg"}
_SDK_AUDIO = {name: f"audio/{name}" for name in ("wav", "ogg", "flac", "aac")}
_SDK_AUDIO |= {"mp3": "audio/mpeg", "m4a": "audio/mp4"}
_AUDIO = {**_SDK_AUDIO, "opus": "audio/ogg", "webm": "audio/webm", "aiff": "audio/aiff", "aif": "audio/aiff"}
_IMAGES = {"jpg": "image/jpeg", "svg": "image/svg+xml", "tif": "image/tiff"}
_FILES = dict.fromkeys(("plain", "txt", "text"), "text/plain") | {"csv": "text/csv"}
_FILES |= dict.fromkeys(("html", "htm"), "text/html") | dict.fromkeys(("md", "markdown"), "text/markdown")


class _Media:
    """A file or bytes. The MIME type follows from `format`, from the file's suffix, or is the default."""

    # None of these has an annotation: the official SDK takes a class with annotations for structured output.
    _family = ""
    _formats = _suffixes = _NONE
    _default = _UNKNOWN

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        if (path is None) == (data is None):
            raise ValueError("Either path or data must be provided, and not both")

        # The library expands variables and `~`, and servers are configured with such paths.
        self.path = Path(os.path.expandvars(str(path))).expanduser() if path else None
        self.data = data
        self.annotations = annotations
        self._format = format.lower() if format else None
        if self._format:
            self._mime_type = self._formats.get(self._format, f"{self._family}/{self._format}")
        else:
            self._mime_type = self._mime_type_of(self.path) if self.path else self._default

    def _mime_type_of(self, path: Path) -> str:
        return self._suffixes.get(path.suffix.lower().lstrip("."), _UNKNOWN)

    def _bytes(self) -> bytes:
        return self.path.read_bytes() if self.path else self.data or b""

    def _base64(self) -> str:
        return b64encode(self._bytes()).decode()

    def _members(self, mime_type: str | None, annotations: Annotations | None) -> dict[str, Any]:
        return {
            "data": self._base64(),
            "mimeType": mime_type or self._mime_type,
            "annotations": annotations or self.annotations,
        }


class Image(_Media):
    """An image: a file, or bytes with their `format`, such as "png"."""

    _family = "image"
    _suffixes = _SDK_IMAGES
    _default = "image/png"

    def to_image_content(self, mime_type: str | None = None, annotations: Annotations | None = None) -> ImageContent:
        return ImageContent(**self._members(mime_type, annotations))


class Audio(_Media):
    """A sound: a file, or bytes with their `format`, such as "wav"."""

    _family = "audio"
    _suffixes = _SDK_AUDIO
    _default = "audio/wav"

    def to_audio_content(self, mime_type: str | None = None, annotations: Annotations | None = None) -> AudioContent:
        return AudioContent(**self._members(mime_type, annotations))


class FastMCPImage(Image):
    """`Image` of `fastmcp`, which knows more MIME types."""

    _formats = _IMAGES

    def _mime_type_of(self, path: Path) -> str:
        # Python 3.11 has no MIME type for .webp.
        guess = "image/webp" if path.suffix.lower() == ".webp" else mimetypes.guess_type(path, strict=False)[0]
        return guess or _UNKNOWN

    def to_data_uri(self, mime_type: str | None = None) -> str:
        return f"data:{mime_type or self._mime_type};base64,{self._base64()}"


class FastMCPAudio(Audio):
    """`Audio` of `fastmcp`, which knows more MIME types."""

    _formats = _suffixes = _AUDIO


# Errors of pydantic name these classes, and models read such errors.
for _kind in (Image, Audio):
    _kind.__module__ = "mcp.server.fastmcp.utilities.types"
for _kind in (FastMCPImage, FastMCPAudio):
    _kind.__module__ = "fastmcp.utilities.types"
    _kind.__name__ = _kind.__qualname__ = _kind.__name__.removeprefix("FastMCP")


class File(_Media):
    """Any file, or bytes with their `format`, such as "pdf", and a `name`."""

    _family = "application"
    _formats = _FILES

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,
        name: str | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        super().__init__(path, data, format, annotations)
        self._name = name

    def _mime_type_of(self, path: Path) -> str:
        return mimetypes.guess_type(path)[0] or _UNKNOWN

    def _uri(self) -> str:
        if self.path:
            return self.path.resolve().as_uri()

        name = self._name or "resource"
        suffix = "" if self._name and Path(name).suffix else f".{self._format or self._mime_type.split('/')[1]}"
        return f"file:///{quote(name + suffix)}"

    def to_resource_content(
        self, mime_type: str | None = None, annotations: Annotations | None = None
    ) -> EmbeddedResource:
        """Return the content block, which holds text if the MIME type is one of text. This reads the file."""
        kind = mime_type or self._mime_type
        members: dict[str, Any] = {"uri": self._uri(), "mimeType": kind}
        resource: TextResourceContents | BlobResourceContents
        if kind.startswith("text/"):
            data = self._bytes()
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                # This cannot fail: each byte is a character.
                text = data.decode("latin-1")
            resource = TextResourceContents(text=text, **members)
        else:
            resource = BlobResourceContents(blob=self._base64(), **members)
        return EmbeddedResource(resource=resource, annotations=annotations or self.annotations)


def as_block(value: Any) -> Any:
    """Return an image, a sound or a file as a content block, and other values unchanged."""
    if isinstance(value, Image):
        return value.to_image_content()
    if isinstance(value, Audio):
        return value.to_audio_content()
    return value.to_resource_content() if isinstance(value, File) else value


# -- resources -------------------------------------------------------------------------------

# Each library's `Resource` is combined with these.

MimeType = Annotated[str, BeforeValidator(lambda value: value or "text/plain")]


class _Held(BaseModel):
    model_config = ConfigDict(defer_build=True)

    failure: ClassVar[Any]
    """Returns the library's exception for one that reading raised."""


class HoldsText(_Held):
    """A resource that holds a text."""

    text: str

    async def read(self) -> str:
        return self.text


class HoldsBytes(_Held):
    """A resource that holds bytes."""

    data: bytes

    async def read(self) -> bytes:
        return self.data


class AtAddress(_Held):
    """A resource that is fetched from an HTTP address."""

    url: str
    mime_type: MimeType = "application/json"

    async def read(self) -> str:
        """Fetch the text. Raises the errors of httpx."""
        import httpx

        async with httpx.AsyncClient() as client:
            response = await client.get(self.url)
            response.raise_for_status()
            return str(response.text)


class _AtPath(_Held):
    path: Path

    @field_validator("path")
    @classmethod
    def _is_absolute(cls, path: Path) -> Path:
        # A relative path would depend on the folder in which a host starts the server.
        if not path.is_absolute():
            raise ValueError("Path must be absolute")
        return path


class HoldsFile(_AtPath):
    """A file."""

    is_binary: bool = False
    encoding: str | None = None
    mime_type: MimeType = "text/plain"

    def _reads_bytes(self) -> bool:
        return self.is_binary or not self.mime_type.startswith("text/")

    async def read(self) -> Any:
        try:
            if self._reads_bytes():
                return await run_sync(self.path.read_bytes)
            return await run_sync(self.path.read_text, self.encoding)
        except Exception as error:
            raise self.failure(f"Error reading file {self.path}", error) from error


class HoldsFolder(_AtPath):
    """The names of the files in a folder."""

    recursive: bool = False
    pattern: str | None = None
    mime_type: MimeType = "application/json"

    def list_files(self) -> list[Path]:
        """Return the files in it. Raises FileNotFoundError, NotADirectoryError."""
        if not self.path.exists():
            raise FileNotFoundError(f"Directory not found: {self.path}")
        if not self.path.is_dir():
            raise NotADirectoryError(f"Not a directory: {self.path}")

        glob = self.path.rglob if self.recursive else self.path.glob
        # Clients cannot read folders, so only files are listed.
        return [file for file in glob(self.pattern or "*") if file.is_file()]

    async def read(self) -> str:
        try:
            files = await run_sync(self.list_files)
        except Exception as error:
            raise self.failure(f"Error reading directory {self.path}", error) from error
        return json.dumps({"files": [str(file.relative_to(self.path)) for file in files]}, indent=2)


_KINDS: dict[str, type[_Held]] = {
    "TextResource": HoldsText,
    "BinaryResource": HoldsBytes,
    "HttpResource": AtAddress,
    "DirectoryResource": HoldsFolder,
    "FileResource": HoldsFile,
}


def resource_classes(base: type, module: str) -> tuple[Any, ...]:
    """Return a library's classes of texts, bytes, addresses, folders and files, which derive from its `Resource`."""
    return tuple(
        type(name, (kind, base), {"__module__": module, "__qualname__": name, "__doc__": kind.__doc__})
        for name, kind in _KINDS.items()
    )
