"""`Image`, `Audio` and `File`: what a tool may return for a picture, a sound or a file."""

from __future__ import annotations

import mimetypes
import os
from abc import ABC, abstractmethod
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

from mcpd.compat.types.content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextResourceContents,
)

__all__ = ["Audio", "File", "Image"]

# No annotations at the level of these classes: a class with such is structured output.
_IMAGES = {"jpg": "image/jpeg", "svg": "image/svg+xml", "tif": "image/tiff"}
_SOUNDS = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "m4a": "audio/mp4",
    "flac": "audio/flac",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "webm": "audio/webm",
    "aiff": "audio/aiff",
    "aif": "audio/aiff",
}
_TEXTS = {"plain": "plain", "txt": "plain", "text": "plain", "csv": "csv", "html": "html", "htm": "html"}
_TEXTS.update(md="markdown", markdown="markdown")
_UNKNOWN = "application/octet-stream"


class _Media(ABC):
    """A file or bytes, with annotations."""

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
        self._mime_type = self._mime_type_of()

    @abstractmethod
    def _mime_type_of(self) -> str:
        """By the format or, without one, the name of the file."""

    def _bytes(self) -> bytes:
        return self.path.read_bytes() if self.path else self.data or b""

    def _base64(self) -> str:
        return b64encode(self._bytes()).decode()


class Image(_Media):
    """A picture: a file, or bytes with their `format`, as "png"."""

    def _mime_type_of(self) -> str:
        if self._format:
            return _IMAGES.get(self._format, f"image/{self._format}")
        if self.path:
            if self.path.suffix.lower() == ".webp":
                return "image/webp"
            return mimetypes.guess_type(self.path, strict=False)[0] or _UNKNOWN
        return "image/png"

    def to_image_content(self, mime_type: str | None = None, annotations: Annotations | None = None) -> ImageContent:
        """The content block. A file is read now."""
        return ImageContent(
            data=self._base64(), mimeType=mime_type or self._mime_type, annotations=annotations or self.annotations
        )

    def to_data_uri(self, mime_type: str | None = None) -> str:
        """The picture as a `data:` URI."""
        return f"data:{mime_type or self._mime_type};base64,{self._base64()}"


class Audio(_Media):
    """A sound: a file, or bytes with their `format`, as "wav"."""

    def _mime_type_of(self) -> str:
        if self._format:
            return _SOUNDS.get(self._format, f"audio/{self._format}")
        if self.path:
            return _SOUNDS.get(self.path.suffix.lower().lstrip("."), _UNKNOWN)
        return "audio/wav"

    def to_audio_content(self, mime_type: str | None = None, annotations: Annotations | None = None) -> AudioContent:
        """The content block. A file is read now."""
        return AudioContent(
            data=self._base64(), mimeType=mime_type or self._mime_type, annotations=annotations or self.annotations
        )


class File(_Media):
    """Any file, or bytes with their `format`, as "pdf", and a `name`."""

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

    def _mime_type_of(self) -> str:
        if self._format:
            text = _TEXTS.get(self._format)
            return f"text/{text}" if text else f"application/{self._format}"
        found = mimetypes.guess_type(self.path)[0] if self.path else None
        return found or _UNKNOWN

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
        """The content block: text for a MIME type of text, bytes for all else. A file is read now."""
        kind, data, uri = mime_type or self._mime_type, self._bytes(), self._uri()
        resource: TextResourceContents | BlobResourceContents
        if kind.startswith("text/"):
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                text = data.decode("latin-1")
            resource = TextResourceContents(text=text, mimeType=kind, uri=uri)  # type: ignore[arg-type]
        else:
            resource = BlobResourceContents(blob=b64encode(data).decode(), mimeType=kind, uri=uri)  # type: ignore[arg-type]
        return EmbeddedResource(resource=resource, annotations=annotations or self.annotations)
