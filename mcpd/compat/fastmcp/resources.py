"""`fastmcp.resources`: what can be read under a URI."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import pydantic_core
from anyio.to_thread import run_sync
from pydantic import BaseModel, Field, PrivateAttr, field_validator, model_validator

from mcpd.compat.fastmcp.components import Component, public
from mcpd.compat.fastmcp.errors import ResourceError
from mcpd.compat.fastmcp.functions import Function
from mcpd.compat.fastmcp.marks import Marked, mark
from mcpd.compat.held import AtPath, HeldBytes, HeldText, fetched, files_below, names_of
from mcpd.compat.types.base import Uri
from mcpd.compat.types.content import (
    Annotations,
    BlobResourceContents,
    Resource as ListedResource,
    TextResourceContents,
)
from mcpd.compat.types.resources import ReadResourceResult

__all__ = [
    "BinaryResource",
    "DirectoryResource",
    "FileResource",
    "FunctionResource",
    "HttpResource",
    "Resource",
    "ResourceContent",
    "ResourceResult",
    "TextResource",
    "converted",
    "listed_members",
    "options_for",
    "resource",
]


class ResourceContent(BaseModel):
    """One content: text, bytes, or data that become JSON."""

    content: str | bytes
    mime_type: str | None = None
    meta: dict[str, Any] | None = None

    def __init__(self, content: Any, mime_type: str | None = None, meta: dict[str, Any] | None = None) -> None:
        usual = "text/plain"
        if isinstance(content, bytes):
            usual = "application/octet-stream"
        elif not isinstance(content, str):
            content, usual = pydantic_core.to_json(content, fallback=str).decode(), "application/json"
        super().__init__(content=content, mime_type=mime_type or usual, meta=meta)

    def to_mcp_resource_contents(self, uri: Any) -> TextResourceContents | BlobResourceContents:
        """The same as the protocol has it."""
        members: dict[str, Any] = {"uri": str(uri), "mimeType": self.mime_type, "_meta": self.meta}
        if isinstance(self.content, str):
            return TextResourceContents(text=self.content, **members)
        return BlobResourceContents(blob=b64encode(self.content).decode(), **members)


class ResourceResult(BaseModel):
    """What reading gave: contents, and `_meta`."""

    contents: list[ResourceContent]
    meta: dict[str, Any] | None = None

    def __init__(self, contents: Any, meta: dict[str, Any] | None = None) -> None:
        if isinstance(contents, (str, bytes)):
            contents = [ResourceContent(contents)]
        if not isinstance(contents, list):
            raise TypeError(f"contents must be str, bytes, or list[ResourceContent], got {type(contents).__name__}")
        for at, one in enumerate(contents):
            if not isinstance(one, ResourceContent):
                raise TypeError(
                    f"contents[{at}] must be ResourceContent, got {type(one).__name__}. "
                    f"Use ResourceContent({one!r}) to wrap the value."
                )
        super().__init__(contents=contents, meta=meta)

    def to_mcp_result(self, uri: Any) -> ReadResourceResult:
        """The same as the protocol's result."""
        contents = [one.to_mcp_resource_contents(uri) for one in self.contents]
        return ReadResourceResult(contents=contents, _meta=self.meta)  # type: ignore[call-arg]


def converted(value: Any, mime_type: str | None, meta: dict[str, Any] | None) -> ResourceResult:
    """What a function gave as a result."""
    if isinstance(value, ResourceResult):
        return value
    told = public(meta)
    if isinstance(value, (str, bytes)):
        return ResourceResult([ResourceContent(value, mime_type, told)])
    if isinstance(value, list) and value and isinstance(value[0], ResourceContent):
        result = ResourceResult(value)
        if told is not None:
            result.contents = [one.model_copy(update={"meta": {**told, **(one.meta or {})}}) for one in result.contents]
        return result
    if value is None or isinstance(value, (dict, list, tuple, int, float, bool)):
        return ResourceResult([ResourceContent(json.dumps(value), mime_type or "application/json", told)])
    return ResourceResult(value)


class Resource(Component):
    """A resource; a class of one's own has `read`."""

    KEY_PREFIX: ClassVar[str] = "resource"

    uri: Uri
    name: str = ""
    mime_type: str = "text/plain"
    annotations: Annotations | None = None

    @field_validator("mime_type", mode="before")
    @classmethod
    def _or_text(cls, value: str | None) -> str:
        return value or "text/plain"

    @model_validator(mode="after")
    def _named(self) -> Self:
        self.name = self.name or str(self.uri)
        return self

    @property
    def identity(self) -> str:
        """The URI."""
        return str(self.uri)

    @classmethod
    def from_function(cls, fn: Any, uri: Any, *, name: str | None = None, **options: Any) -> FunctionResource:
        """A resource of a function without parameters."""
        return FunctionResource.made_of(fn, uri, name=name, **options)

    async def read(self) -> Any:
        """What it holds."""
        raise NotImplementedError("Subclasses must implement read()")

    async def result(self) -> ResourceResult:
        """What it holds, as a result."""
        return converted(await self.read(), self.mime_type, self.meta)

    def to_mcp_resource(self, **changed: Any) -> ListedResource:
        """As clients see it."""
        return ListedResource(uri=changed.get("uri", str(self.uri)), **listed_members(self, changed))


def listed_members(one: Any, changed: Mapping[str, Any]) -> dict[str, Any]:
    """What clients see of a resource and of a template alike; `changed` says it otherwise."""
    return {
        "name": changed.get("name", one.name),
        "title": one.title,
        "description": one.description,
        "mimeType": one.mime_type,
        "icons": one.icons,
        "annotations": one.annotations,
        "_meta": one.get_meta(),
    }


def options_for(function: Function, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a decorator as members of a resource or template; the docstring describes it if they do not."""
    members = {key: value for key, value in options.items() if value is not None}
    members.setdefault("description", function.doc)
    if isinstance(members.get("annotations"), dict):
        members["annotations"] = Annotations(**members["annotations"])
    return members


class FunctionResource(Resource):
    """What a function gives."""

    fn: Callable[..., Any] = Field(exclude=True)

    _function: Function = PrivateAttr()

    @classmethod
    def made_of(cls, fn: Any, uri: Any, *, name: str | None = None, **options: Any) -> FunctionResource:
        """A resource of a function without parameters."""
        marked = getattr(fn, "__fastmcp__", None)
        function = Function(marked.bare(fn) if isinstance(marked, Marked) else fn, "resources")
        made = cls(fn=function.fn, uri=uri, name=name or function.name, **options_for(function, options))
        made._function = function
        return made

    async def read(self) -> Any:
        """Call the function."""
        found = await self._function.call({})
        return await found.read() if isinstance(found, Resource) else found


class TextResource(HeldText, Resource):
    """A text."""


class BinaryResource(HeldBytes, Resource):
    """Bytes."""


class FileResource(AtPath, Resource):
    """A file: text, or bytes if its MIME type is none of text."""

    is_binary: bool = False
    encoding: str | None = "utf-8"

    @model_validator(mode="after")
    def _by_mime_type(self) -> Self:
        if "is_binary" not in self.model_fields_set:
            self.is_binary = not self.mime_type.startswith("text/")
        return self

    async def read(self) -> Any:
        """Read the file. Raises ResourceError."""
        try:
            if self.is_binary:
                return await run_sync(self.path.read_bytes)
            return await run_sync(self.path.read_text, self.encoding)
        except Exception as error:
            raise ResourceError(f"Error reading file {self.path}") from error


class HttpResource(Resource):
    """What an address gives; needs httpx."""

    url: str
    mime_type: str = "application/json"

    async def read(self) -> Any:
        """Fetch it."""
        return await fetched(self.url, ResourceError)


class DirectoryResource(AtPath, Resource):
    """The names of the files in a folder, as JSON."""

    recursive: bool = False
    pattern: str | None = None
    mime_type: str = "application/json"

    async def list_files(self) -> list[Path]:
        """The files in it. Raises FileNotFoundError, NotADirectoryError."""
        found = await run_sync(lambda: files_below(self.path, self.pattern, is_recursive=self.recursive))
        return [file for file in found if file.is_file()]

    async def read(self) -> Any:
        """The list. Raises ResourceError."""
        try:
            return names_of(await self.list_files(), self.path)
        except Exception as error:
            raise ResourceError(f"Error reading directory {self.path}") from error


def resource(uri: str, **options: Any) -> Any:
    """Mark a function as a resource, for `mcp.add_resource`: `@resource("uri")`."""
    if callable(uri):
        raise TypeError("The @resource decorator requires a URI. Use @resource('uri') instead of @resource")
    return mark("resource", None, None, {"uri": uri, **options})
