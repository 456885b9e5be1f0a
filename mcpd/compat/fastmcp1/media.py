"""`Image` and `Audio`: what a tool may return for a picture or a sound."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from mcpd.compat.types.content import AudioContent, ImageContent

__all__ = ["Audio", "Image"]

# No annotations at the level of these classes: a class with such is structured output.
_IMAGES = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}
_SOUNDS = {".wav": "wav", ".mp3": "mpeg", ".ogg": "ogg", ".flac": "flac", ".aac": "aac", ".m4a": "mp4"}


class _Media:
    """A file or bytes, with a MIME type by the format that was given, or the file's suffix."""

    def __init__(
        self,
        kind: str,
        known: dict[str, str],
        usual: str,
        path: str | Path | None,
        data: bytes | None,
        form: str | None,
    ) -> None:
        self.path = Path(path) if path else None
        self.data = data
        if form:
            self._mime_type = f"{kind}/{form.lower()}"
        elif self.path:
            suffix = self.path.suffix.lower()
            self._mime_type = f"{kind}/{known[suffix]}" if suffix in known else "application/octet-stream"
        else:
            self._mime_type = f"{kind}/{usual}"

    def _base64(self) -> str:
        return b64encode(self.path.read_bytes() if self.path else self.data or b"").decode()


class Image(_Media):
    """A picture: a file, or bytes with their `format`, as "png"."""

    def __init__(self, path: str | Path | None = None, data: bytes | None = None, format: str | None = None) -> None:
        if path is None and data is None:
            raise ValueError("Either path or data must be provided")
        if path is not None and data is not None:
            raise ValueError("Only one of path or data can be provided")
        super().__init__("image", _IMAGES, "png", path, data, format)

    def to_image_content(self) -> ImageContent:
        """The content block. A file is read now."""
        return ImageContent(data=self._base64(), mimeType=self._mime_type)


class Audio(_Media):
    """A sound: a file, or bytes with their `format`, as "wav"."""

    def __init__(self, path: str | Path | None = None, data: bytes | None = None, format: str | None = None) -> None:
        if bool(path) == bool(data):
            raise ValueError("Either path or data can be provided")
        super().__init__("audio", _SOUNDS, "wav", path, data, format)

    def to_audio_content(self) -> AudioContent:
        """The content block. A file is read now."""
        return AudioContent(data=self._base64(), mimeType=self._mime_type)


for _kind in (Image, Audio):
    _kind.__module__ = "mcp.server.fastmcp.utilities.types"  # as errors of pydantic name it, which reach the model
