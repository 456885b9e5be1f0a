"""How files of a folder appear to clients: MIME type, whether they are text, the name of the server in their URIs."""

from __future__ import annotations

import os

PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
"""The bytes that a segment of a path may have as they are (RFC 3986 section 2.3)."""

BINARY = "application/octet-stream"

_TYPES = {
    ".avif": "image/avif",
    ".css": "text/css",
    ".csv": "text/csv",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".epub": "application/epub+zip",
    ".flac": "audio/flac",
    ".gif": "image/gif",
    ".gz": "application/gzip",
    ".heic": "image/heic",
    ".htm": "text/html",
    ".html": "text/html",
    ".ico": "image/vnd.microsoft.icon",
    ".ini": "text/plain",
    ".ipynb": "application/x-ipynb+json",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".js": "text/javascript",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".markdown": "text/markdown",
    ".md": "text/markdown",
    ".mdx": "text/markdown",
    ".mov": "video/quicktime",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".ogg": "audio/ogg",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".py": "text/x-python",
    ".rst": "text/x-rst",
    ".sh": "application/x-sh",
    ".sql": "application/sql",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".ts": "text/typescript",
    ".tsv": "text/tab-separated-values",
    ".txt": "text/plain",
    ".wav": "audio/wav",
    ".webm": "video/webm",
    ".webp": "image/webp",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".zip": "application/zip",
}

_TEXT = ("json", "jsonl", "xml", "yaml", "toml", "sql", "x-sh", "javascript")
"""What is text below `application/`."""


def media_type(suffix: str) -> str | None:
    """The type of files with this suffix, as `.md`; None if nobody has said."""
    found = _TYPES.get(suffix)
    if found is None and suffix:
        import mimetypes

        # Without the files of the machine, which say something else on each.
        found = mimetypes.MimeTypes(()).guess_type(f"file{suffix}", strict=False)[0]
    return found


def is_text_type(kind: str | None) -> bool:
    """Whether files of this type are text; of an unknown type they may be."""
    if kind is None or kind.startswith("text/") or kind.removeprefix("application/") in _TEXT:
        return True
    return kind.endswith(("+json", "+xml", "+yaml"))


def uri_name(name: str) -> str:
    """The name, with a dash for what a URI cannot have; `folder` if nothing is left of it."""
    plain = "".join(chr(byte) if byte in PLAIN else " " for byte in os.fsencode(name))
    return "-".join(plain.split()).strip("-.").lower() or "folder"
