"""Images, audio and files that tools return, and what resources of every library hold."""

from __future__ import annotations

import json
import mimetypes
import os
from base64 import b64encode
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, field_validator

from mcpd.compat.types.base import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextResourceContents,
)

T = TypeVar("T")

# -- images, audio and files -----------------------------------------------------------------

# These classes have no annotations: the official SDK takes a class with annotations for structured output.

_UNKNOWN = "application/octet-stream"
_SDK_IMAGES = {name: f"image/{name}" for name in ("png", "jpeg", "gif", "webp")} | {"jpg": "image/jpeg"}
_SDK_AUDIO = {name: f"audio/{name}" for name in ("wav", "ogg", "flac", "aac")} | {
    "mp3": "audio/mpeg",
    "m4a": "audio/mp4",
}
_IMAGES = {"jpg": "image/jpeg", "svg": "image/svg+xml", "tif": "image/tiff"}
_AUDIO = {**_SDK_AUDIO, "opus": "audio/ogg", "webm": "audio/webm", "aiff": "audio/aiff", "aif": "audio/aiff"}
_TEXTS = {"plain": "plain", "txt": "plain", "text": "plain", "csv": "csv", "html": "html", "htm": "html"}
_TEXTS.update(md="markdown", markdown="markdown")


class _Media:
    """A file or bytes. The MIME type follows from `format`, from the file's suffix, or is the default."""

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        if path is None and data is None:
            raise ValueError("Either path or data must be provided")
        if path is not None and data is not None:
            raise ValueError("Only one of path or data can be provided")

        self.path = Path(os.path.expandvars(str(path))).expanduser() if path else None
        self.data = data
        self.annotations = annotations
        self._format = format.lower() if format else None
        self._mime_type = self._find_mime_type()

    def _find_mime_type(self) -> str:
        raise NotImplementedError

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

    def _find_mime_type(self) -> str:
        if self._format:
            return f"image/{self._format}"
        return _SDK_IMAGES.get(self.path.suffix.lower().lstrip("."), _UNKNOWN) if self.path else "image/png"

    def to_image_content(self, mime_type: str | None = None, annotations: Annotations | None = None) -> ImageContent:
        """Return the content block. This reads the file."""
        return ImageContent(**self._members(mime_type, annotations))


class Audio(_Media):
    """A sound: a file, or bytes with their `format`, such as "wav"."""

    def __init__(self, path: str | Path | None = None, data: bytes | None = None, format: str | None = None) -> None:
        if bool(path) == bool(data):
            raise ValueError("Either path or data can be provided")
        super().__init__(path, data, format)

    def _find_mime_type(self) -> str:
        if self._format:
            return f"audio/{self._format}"
        return _SDK_AUDIO.get(self.path.suffix.lower().lstrip("."), _UNKNOWN) if self.path else "audio/wav"

    def to_audio_content(self, mime_type: str | None = None, annotations: Annotations | None = None) -> AudioContent:
        """Return the content block. This reads the file."""
        return AudioContent(**self._members(mime_type, annotations))


class FastMCPImage(Image):
    """`Image` of `fastmcp`, which knows more MIME types."""

    def _find_mime_type(self) -> str:
        if self._format:
            return _IMAGES.get(self._format, f"image/{self._format}")
        if self.path and self.path.suffix.lower() == ".webp":
            return "image/webp"
        return mimetypes.guess_type(self.path, strict=False)[0] or _UNKNOWN if self.path else "image/png"

    def to_data_uri(self, mime_type: str | None = None) -> str:
        return f"data:{mime_type or self._mime_type};base64,{self._base64()}"


class FastMCPAudio(Audio):
    """`Audio` of `fastmcp`, which knows more MIME types."""

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        _Media.__init__(self, path, data, format, annotations)

    def _find_mime_type(self) -> str:
        if self._format:
            return _AUDIO.get(self._format, f"audio/{self._format}")
        return _AUDIO.get(self.path.suffix.lower().lstrip("."), _UNKNOWN) if self.path else "audio/wav"


# Errors of pydantic name these classes, and models read such errors.
for _kind in (Image, Audio):
    _kind.__module__ = "mcp.server.fastmcp.utilities.types"
for _kind in (FastMCPImage, FastMCPAudio):
    _kind.__module__ = "fastmcp.utilities.types"
    _kind.__name__ = _kind.__qualname__ = _kind.__name__.removeprefix("FastMCP")


class File(_Media):
    """Any file, or bytes with their `format`, such as "pdf", and a `name`."""

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,
        name: str | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        self._name = name
        super().__init__(path, data, format, annotations)

    def _find_mime_type(self) -> str:
        if self._format:
            text = _TEXTS.get(self._format)
            return f"text/{text}" if text else f"application/{self._format}"
        return (mimetypes.guess_type(self.path)[0] if self.path else None) or _UNKNOWN

    def _uri(self) -> str:
        if self.path:
            return self.path.resolve().as_uri()
        suffix = f".{self._format}" if self._format else f".{self._mime_type.split('/')[1]}"
        if not self._name:
            return f"file:///resource{suffix}"
        return f"file:///{quote(self._name if Path(self._name).suffix else self._name + suffix)}"

    def to_resource_content(
        self, mime_type: str | None = None, annotations: Annotations | None = None
    ) -> EmbeddedResource:
        """Return the content block, which holds text if the MIME type is one of text. This reads the file."""
        kind, data = mime_type or self._mime_type, self._bytes()
        members: dict[str, Any] = {"uri": self._uri(), "mimeType": kind}
        resource: TextResourceContents | BlobResourceContents
        if kind.startswith("text/"):
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                text = data.decode("latin-1")
            resource = TextResourceContents(text=text, **members)
        else:
            resource = BlobResourceContents(blob=b64encode(data).decode(), **members)
        return EmbeddedResource(resource=resource, annotations=annotations or self.annotations)


def as_block(value: Any) -> Any:
    """Return an image, a sound or a file as a content block, and other values unchanged."""
    if isinstance(value, Image):
        return value.to_image_content()
    if isinstance(value, Audio):
        return value.to_audio_content()
    return value.to_resource_content() if isinstance(value, File) else value


# -- resources -------------------------------------------------------------------------------

# Each library's `Resource` is combined with these, in `sdk.resources` and `fastmcp.resources`.


class HoldsText(BaseModel):
    """A resource that holds a text."""

    model_config = ConfigDict(defer_build=True)

    text: str

    async def read(self) -> str:
        return self.text


class HoldsBytes(BaseModel):
    """A resource that holds bytes."""

    model_config = ConfigDict(defer_build=True)

    data: bytes

    async def read(self) -> bytes:
        return self.data


class AtAddress(BaseModel):
    """A resource that is fetched from an HTTP address. It needs httpx."""

    model_config = ConfigDict(defer_build=True)

    read_error: ClassVar[type[Exception]] = ValueError

    url: str
    mime_type: str = "application/json"

    async def read(self) -> str:
        """Fetch the text. Raises `read_error` without httpx, and the errors of httpx."""
        try:
            import httpx
        except ImportError as error:
            raise self.read_error("an HttpResource needs httpx: pip install httpx") from error

        async with httpx.AsyncClient() as client:
            response = await client.get(self.url)
            response.raise_for_status()
            return str(response.text)


class AtPath(BaseModel):
    """A resource at an absolute path."""

    model_config = ConfigDict(defer_build=True)

    path: Path

    @field_validator("path")
    @classmethod
    def _is_absolute(cls, path: Path) -> Path:
        if not path.is_absolute():
            raise ValueError("Path must be absolute")
        return path


def files_below(folder: Path, pattern: str | None, *, is_recursive: bool) -> list[Path]:
    """Return the files and folders in a folder. Raises FileNotFoundError, NotADirectoryError."""
    if not folder.exists():
        raise FileNotFoundError(f"Directory not found: {folder}")
    if not folder.is_dir():
        raise NotADirectoryError(f"Not a directory: {folder}")

    glob = folder.rglob if is_recursive else folder.glob
    return list(glob(pattern or "*"))


def file_names(files: Iterable[Path], folder: Path) -> str:
    """Return the names of the files among these paths, as the JSON that a folder is read as."""
    return json.dumps({"files": [str(file.relative_to(folder)) for file in files if file.is_file()]}, indent=2)


async def read_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    from anyio.to_thread import run_sync  # few servers have files

    return await run_sync(function, *arguments)
