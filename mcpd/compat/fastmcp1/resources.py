"""`mcp.server.fastmcp.resources`: what can be read under a URI."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pydantic_core
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, validate_call

from mcpd.compat.held import AtPath, HeldBytes, HeldText, fetched, files_below, names_of
from mcpd.compat.types.base import Uri
from mcpd.compat.types.content import Annotations, Icon

__all__ = [
    "BinaryResource",
    "DirectoryResource",
    "FileResource",
    "FunctionResource",
    "HttpResource",
    "Resource",
    "TextResource",
]

T = TypeVar("T")

_MIME_TYPE = r"^[a-zA-Z0-9]+/[a-zA-Z0-9\-+.]+(;\s*[a-zA-Z0-9\-_.]+=[a-zA-Z0-9\-_.]+)*$"


class Resource(BaseModel, ABC):
    """A resource; a class of one's own has `read`."""

    model_config = ConfigDict(validate_default=True, defer_build=True)

    uri: Uri
    name: str | None = None
    title: str | None = None
    description: str | None = None
    mime_type: str = Field(default="text/plain", pattern=_MIME_TYPE)
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = None

    @field_validator("name", mode="before")
    @classmethod
    def _name_or_uri(cls, name: str | None, info: ValidationInfo) -> str:
        uri = info.data.get("uri")
        if not name and not uri:
            raise ValueError("Either name or uri must be provided")
        return name or str(uri)

    @abstractmethod
    async def read(self) -> str | bytes:
        """What it holds."""


class TextResource(HeldText, Resource):
    """A text."""


class BinaryResource(HeldBytes, Resource):
    """Bytes."""


class FunctionResource(Resource):
    """What a function gives: text, bytes, or data that become JSON."""

    fn: Callable[[], Any] = Field(exclude=True)

    async def read(self) -> str | bytes:
        """Call the function. Raises ValueError with its error's text."""
        try:
            result = self.fn()
            if inspect.isawaitable(result):
                result = await result
            if isinstance(result, Resource):
                return await result.read()
            if isinstance(result, (str, bytes)):
                return result
            return pydantic_core.to_json(result, fallback=str, indent=2).decode()
        except Exception as error:
            raise ValueError(f"Error reading resource {self.uri}: {error}") from error

    @classmethod
    def from_function(
        cls,
        fn: Callable[..., Any],
        uri: str,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        icons: list[Icon] | None = None,
        annotations: Annotations | None = None,
        meta: dict[str, Any] | None = None,
    ) -> FunctionResource:
        """A resource of a function without parameters."""
        name = name or fn.__name__
        if name == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        return cls(
            uri=AnyUrl(uri),
            name=name,
            title=title,
            description=description or fn.__doc__ or "",
            mime_type=mime_type or "text/plain",
            fn=validate_call(fn),
            icons=icons,
            annotations=annotations,
            meta=meta,
        )


class FileResource(AtPath, Resource):
    """A file: text, or bytes if its MIME type is none of text."""

    is_binary: bool = False
    mime_type: str = "text/plain"

    @field_validator("is_binary")
    @classmethod
    def _by_mime_type(cls, is_binary: bool, info: ValidationInfo) -> bool:
        mime_type: str = info.data.get("mime_type", "text/plain")
        return is_binary or not mime_type.startswith("text/")

    async def read(self) -> str | bytes:
        """Read the file. Raises ValueError."""
        try:
            return await _in_thread(self.path.read_bytes if self.is_binary else self.path.read_text)
        except Exception as error:
            raise ValueError(f"Error reading file {self.path}: {error}") from error


class HttpResource(Resource):
    """What an address gives; needs httpx."""

    url: str
    mime_type: str = "application/json"

    async def read(self) -> str | bytes:
        """Fetch it."""
        return await fetched(self.url, ValueError)


class DirectoryResource(AtPath, Resource):
    """The names of the files in a folder, as JSON."""

    recursive: bool = False
    pattern: str | None = None
    mime_type: str = "application/json"

    def list_files(self) -> list[Path]:
        """The files and folders in it. Raises FileNotFoundError, NotADirectoryError."""
        return files_below(self.path, self.pattern, is_recursive=self.recursive)

    async def read(self) -> str:
        """The list. Raises ValueError."""
        try:
            return names_of(await _in_thread(self.list_files), self.path)
        except Exception as error:
            raise ValueError(f"Error reading directory {self.path}: {error}") from error


async def _in_thread(function: Callable[[], T]) -> T:
    from anyio.to_thread import run_sync  # few servers have files

    return await run_sync(function)
