"""Files as resources: as text or bytes, by what they hold; `[name]` in a path makes a family of them.

In a family the file is text, and `{{name}}` in it stands for what the client's URI has in that place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Coroutine
from typing import Any

from msgspec import Struct

from mcpd.errors import InternalError, InvalidParams, RegistrationError, ResourceNotFound
from mcpd.protocol.printable import printable
from mcpd.protocol.types.content import BlobResourceContents, TextResourceContents
from mcpd.protocol.types.resources import ReadResourceResult, Resource, ResourceTemplate
from mcpd.server.context.exchange import Exchange
from mcpd.server.folder_files import read_within
from mcpd.server.registry.entries import ResourceEntry, TemplateEntry
from mcpd.server.registry.listing import ActiveExtensions
from mcpd.server.registry.uri_template import UriTemplate
from mcpd.server.registry.uris import as_uri, problem_of
from mcpd.sources.files import File, Report, escaped, files_of, uri_name
from mcpd.sources.tables import ResourcesTable

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


# Compiled by `re` when they are first needed.
_VARIABLE = r"\[([A-Za-z_][A-Za-z0-9_]*)\]"
_GAP = r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}"


class Origin(Struct, frozen=True):
    """A file that is served, and the limits of that."""

    file: File
    folder: str
    media_type: str | None
    most_bytes: int

    def read(self, uri: str) -> bytes:
        """What the file holds now. Raises ResourceNotFound, and InternalError if it is too large."""
        try:
            data = read_within(self.file.path, self.folder, self.most_bytes + 1)
        except OSError:
            raise ResourceNotFound(uri) from None
        if len(data) > self.most_bytes:
            raise InternalError(f"The file has more than {self.most_bytes} bytes, and is not served")
        return data


class FileResource(ResourceEntry):
    """One file. Equal to another one if the file has not changed."""

    def __init__(self, key: str, origin: Origin) -> None:
        self.key = key
        self.origin = origin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileResource) and (self.key, self.origin) == (other.key, other.origin)

    def __hash__(self) -> int:
        return hash((self.key, self.origin))

    def listed(self, active: ActiveExtensions) -> Resource:
        """The file as lists show it, with its size when it was last looked at."""
        file = self.origin.file
        return Resource(uri=self.key, name=_name(file), mime_type=self.origin.media_type, size=file.size)

    async def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        """What it holds now: text if it is, else bytes, whatever its name says."""
        from mcpd.server.functions.threads import run_in_thread

        result: ReadResourceResult = await run_in_thread(self._read, uri, exchange=exchange)
        return result

    def _read(self, uri: str) -> ReadResourceResult:
        data, kind = self.origin.read(uri), self.origin.media_type
        text = _text(data) if is_text_type(kind) else None
        if text is not None:
            return ReadResourceResult(contents=[TextResourceContents(uri, text, kind or "text/plain")])
        is_other = kind is None or is_text_type(kind)
        return ReadResourceResult(contents=[BlobResourceContents(uri, data, BINARY if is_other else kind)])


class FileTemplate(TemplateEntry):
    """A family of resources: one file for all of them. Equal to another one if the file has not changed.

    Raises RegistrationError if the key is no URI template.
    """

    def __init__(self, key: str, origin: Origin) -> None:
        self.key = key
        self.origin = origin
        self.template = UriTemplate(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileTemplate) and (self.key, self.origin) == (other.key, other.origin)

    def __hash__(self) -> int:
        return hash((self.key, self.origin))

    @property
    def arguments(self) -> Collection[str]:
        """The names in brackets."""
        return self.template.variables

    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        """The family as lists show it."""
        return ResourceTemplate(uri_template=self.key, name=_name(self.origin.file), mime_type=self.origin.media_type)

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of the names in a URI of this family; None if it is none of it.

        Raises InvalidParams for a value that would lead out of a folder, were it a path.
        """
        variables = self.template.match(uri)
        problem = problem_of(variables, frozenset()) if variables else None
        if problem is not None:
            text = f"uri: the value of {problem[0]!r} {problem[1]}; ask for a name without that"
            raise InvalidParams(text, {"uri": uri})
        return variables

    def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> Coroutine[Any, Any, ReadResourceResult]:
        """The text of the file with the values in their places."""
        from mcpd.server.functions.threads import run_in_thread

        return run_in_thread(self._read, uri, variables, exchange=exchange)

    def _read(self, uri: str, variables: dict[str, str]) -> ReadResourceResult:
        text = _text(self.origin.read(uri))
        if text is None:
            raise InternalError("The file is no text, and has no places for values")
        filled = re.sub(_GAP, lambda gap: variables.get(gap[1], gap[0]), text)
        kind = self.origin.media_type or "text/plain"
        return ReadResourceResult(contents=[TextResourceContents(as_uri(uri), filled, kind)])


def uri_prefix(name: str) -> str:
    """What the URIs of a server's files begin with, by its name."""
    return f"resource://{uri_name(name)}/"


def resources_of(
    folder: str, table: ResourcesTable, uri: str, report: Report
) -> tuple[list[ResourceEntry], list[TemplateEntry]]:
    """The files of a folder as resources, and the families among them; `uri` is what theirs begin with."""
    resources: list[ResourceEntry] = []
    templates: list[TemplateEntry] = []

    def is_wanted(parts: tuple[str, ...]) -> bool:
        from fnmatch import fnmatchcase

        path = "/".join(parts)
        return not any(fnmatchcase(path, each) or fnmatchcase(parts[-1], each) for each in table.exclude)

    for file in files_of(folder, report, most=table.max_files, is_wanted=is_wanted if table.exclude else None):
        if file.size > table.max_bytes:
            size = f"{file.size} bytes, more than {table.max_bytes} (resources.max-bytes in mcpd.toml)"
            report.error(file.path, f"has {size}; it is left out")
            continue
        origin = Origin(file, folder, media_type(file.suffix), table.max_bytes)
        key = uri + "/".join(map(escaped, file.parts))
        if not any("[" in part and re.search(_VARIABLE, part) for part in file.parts):
            resources.append(FileResource(key, origin))
            continue
        try:
            key = uri + "/".join(_with_variables(part) for part in file.parts)
            templates.append(FileTemplate(key, origin))
        except RegistrationError as error:
            report.error(file.path, f"{error}; it is left out")
    return resources, templates


def _name(file: File) -> str:
    return printable("/".join(file.parts), 1000)


def _text(data: bytes) -> str | None:
    """The text, without a byte order mark; None if these are other bytes."""
    if b"\0" in data:
        return None
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None


def _with_variables(part: str) -> str:
    """A segment in which each `[name]` is a variable of a URI template."""
    pieces = re.split(_VARIABLE, part)
    return "".join(f"{{{piece}}}" if at % 2 else escaped(piece) for at, piece in enumerate(pieces))
