"""Files as resources, and as resource templates if their path contains `[name]`.

Contents are sent as text if they are text, otherwise as bytes. In the file of a template, `{{name}}` is replaced by the
value from the URI.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Coroutine
from functools import cache
from mimetypes import MimeTypes
from typing import Any

from msgspec import Struct

from mcpd.errors import InternalError, InvalidParams, RegistrationError, ResourceNotFound
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import (
    BlobResourceContents,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)
from mcpd.server.context.exchange import Exchange
from mcpd.server.folder_files import read_within
from mcpd.server.registry.entries import ActiveExtensions, ResourceEntry, TemplateEntry
from mcpd.server.registry.uri_template import UriTemplate, as_uri, problem_of
from .files import File, Report, Stamped, escaped, files_of, matching
from .tables import ResourcesTable

BINARY = "application/octet-stream"

# What `mimetypes` does not know, or names differently.
_TYPES = {
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".epub": "application/epub+zip",
    ".flac": "audio/flac",
    ".gz": "application/gzip",
    ".ini": "text/plain",
    ".ipynb": "application/x-ipynb+json",
    ".js": "text/javascript",
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".markdown": "text/markdown",
    ".md": "text/markdown",
    ".mdx": "text/markdown",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".ogg": "audio/ogg",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".rst": "text/x-rst",
    ".sql": "application/sql",
    ".toml": "application/toml",
    ".ts": "text/typescript",
    ".wav": "audio/wav",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}

# Types below `application/` that are text.
_TEXT = ("json", "jsonl", "xml", "yaml", "toml", "sql", "x-sh", "javascript")


@cache
def media_type(suffix: str) -> str | None:
    # Without the system's own tables, which differ between machines.
    return _TYPES.get(suffix) or MimeTypes(()).guess_type(f"file{suffix}", strict=False)[0]


def is_text_type(kind: str | None) -> bool:
    # Files of an unknown type may be text.
    if kind is None or kind.startswith("text/") or kind.removeprefix("application/") in _TEXT:
        return True
    return kind.endswith(("+json", "+xml", "+yaml"))


# `re` compiles these when they are first needed.
_VARIABLE = r"\[([A-Za-z_][A-Za-z0-9_]*)\]"
_GAP = r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}"


class Origin(Struct, frozen=True):
    file: File
    folder: str
    media_type: str | None
    most_bytes: int

    def read(self, uri: str) -> bytes:
        """Return the current content. Raises ResourceNotFound, or InternalError if the file is too large."""
        try:
            data = read_within(self.file.path, self.folder, self.most_bytes + 1)
        except OSError:
            raise ResourceNotFound(uri) from None
        if len(data) > self.most_bytes:
            raise InternalError(f"The file is larger than {self.most_bytes} bytes and cannot be served")
        return data


class FileResource(Stamped, ResourceEntry):
    def __init__(self, key: str, origin: Origin) -> None:
        self.key = key
        self.origin = self.stamp = origin

    def listed(self, active: ActiveExtensions) -> Resource:
        file = self.origin.file
        return Resource(uri=self.key, name=_name(file), mime_type=self.origin.media_type, size=file.size)

    async def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        # As text if it is text, otherwise as bytes, whatever the suffix is.
        from mcpd.server.functions.threads import run_in_thread

        result: ReadResourceResult = await run_in_thread(self._read, uri, exchange=exchange)
        return result

    def _read(self, uri: str) -> ReadResourceResult:
        data = self.origin.read(uri)
        return file_contents(uri, data, _text(data), self.origin.media_type)


class FileTemplate(Stamped, TemplateEntry):
    """A resource template: one file for all its URIs. Raises RegistrationError if `key` is not a valid URI template."""

    def __init__(self, key: str, origin: Origin) -> None:
        self.key = key
        self.origin = self.stamp = origin
        self.template = UriTemplate(key)

    @property
    def arguments(self) -> Collection[str]:
        return self.template.variables

    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        return ResourceTemplate(uri_template=self.key, name=_name(self.origin.file), mime_type=self.origin.media_type)

    def match(self, uri: str) -> dict[str, str] | None:
        # A value that would lead out of a folder if it were used as a path is refused with InvalidParams.
        variables = self.template.match(uri)
        problem = problem_of(variables, frozenset()) if variables else None
        if problem is not None:
            text = f"uri: the value of {problem[0]!r} {problem[1]}; ask for a name without that"
            raise InvalidParams(text, {"uri": uri})
        return variables

    def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> Coroutine[Any, Any, ReadResourceResult]:
        from mcpd.server.functions.threads import run_in_thread

        return run_in_thread(self._read, uri, variables, exchange=exchange)

    def _read(self, uri: str, variables: dict[str, str]) -> ReadResourceResult:
        text = _text(self.origin.read(uri))
        if text is None:
            raise InternalError("The file is not text, so its placeholders cannot be replaced")
        filled = re.sub(_GAP, lambda gap: variables.get(gap[1], gap[0]), text)
        kind = self.origin.media_type or "text/plain"
        return ReadResourceResult(contents=[TextResourceContents(as_uri(uri), filled, kind)])


def file_contents(uri: str, data: bytes, text: str | None, kind: str | None) -> ReadResourceResult:
    """Return the content of a file: `text` if it is not None and the MIME type is one of text, otherwise the bytes."""
    contents: TextResourceContents | BlobResourceContents
    if not is_text_type(kind):
        contents = BlobResourceContents(uri, data, kind)
    elif text is None:
        contents = BlobResourceContents(uri, data, BINARY)
    else:
        contents = TextResourceContents(uri, text, kind or "text/plain")
    return ReadResourceResult(contents=[contents])


def resources_of(
    folder: str, table: ResourcesTable, uri: str, report: Report
) -> tuple[list[ResourceEntry], list[TemplateEntry]]:
    """Return the resources and resource templates of a folder. Their URIs begin with `uri`."""
    resources: list[ResourceEntry] = []
    templates: list[TemplateEntry] = []
    is_excluded = matching(table.exclude)
    for file in files_of(folder, report, limit=table.max_files, is_wanted=lambda path: not is_excluded(path)):
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
    # Return the text without a byte order mark, or None if the data is not UTF-8 text.
    if b"\0" in data:
        return None
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None


def _with_variables(part: str) -> str:
    # Return a path segment in which each `[name]` has become a variable of a URI template.
    pieces = re.split(_VARIABLE, part)
    return "".join(f"{{{piece}}}" if at % 2 else escaped(piece) for at, piece in enumerate(pieces))
