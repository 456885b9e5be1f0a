"""Resources and resource templates of the official SDK."""

from __future__ import annotations

import inspect
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import pydantic_core
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, validate_call

from mcpd.compat.contents import AtAddress, AtPath, HoldsBytes, HoldsText, file_names, files_below, read_in_thread
from mcpd.compat.errors import McpError, ResourceError, ResourceNotFoundError, UnexpectedResourceError
from mcpd.compat.lowlevel.handlers import is_input_required
from mcpd.compat.sdk.functions import Component, func_metadata, function_name
from mcpd.compat.types.base import Annotations, Icon, Uri
from mcpd.protocol.printable import printable
from mcpd.server.registry.uri_template import UriTemplate

log = logging.getLogger("mcpd")

_MIME_TYPE = r"^[a-zA-Z0-9]+/[a-zA-Z0-9\-+.]+(;\s*[a-zA-Z0-9\-_.]+=[a-zA-Z0-9\-_.]+)*$"


class Resource(BaseModel, ABC):
    """A resource. Subclasses implement `read`."""

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
        """Return the contents."""


class TextResource(HoldsText, Resource):
    """A resource that holds a text."""


class BinaryResource(HoldsBytes, Resource):
    """A resource that holds bytes."""


class HttpResource(AtAddress, Resource):
    """A resource that is fetched from an HTTP address."""


class FunctionResource(Resource):
    """A resource whose function returns text, bytes, or data that become JSON."""

    fn: Callable[[], Any] = Field(exclude=True)

    async def read(self) -> str | bytes:
        """Call the function. Raises ValueError with the message of an exception."""
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
        **members: Any,
    ) -> FunctionResource:
        return cls(
            uri=AnyUrl(uri),
            name=function_name(fn, name),
            title=title,
            description=description or fn.__doc__ or "",
            mime_type=mime_type or "text/plain",
            fn=validate_call(fn),
            **members,
        )


class FileResource(AtPath, Resource):
    """A file, which is read as bytes unless its MIME type is one of text."""

    is_binary: bool = False
    mime_type: str = "text/plain"

    @field_validator("is_binary")
    @classmethod
    def _by_mime_type(cls, is_binary: bool, info: ValidationInfo) -> bool:
        mime_type: str = info.data.get("mime_type", "text/plain")
        return is_binary or not mime_type.startswith("text/")

    async def read(self) -> str | bytes:
        try:
            return await (
                read_in_thread(self.path.read_bytes) if self.is_binary else read_in_thread(self.path.read_text)
            )
        except Exception as error:
            raise ValueError(f"Error reading file {self.path}: {error}") from error


class DirectoryResource(AtPath, Resource):
    """The names of the files in a folder, as JSON."""

    recursive: bool = False
    pattern: str | None = None
    mime_type: str = "application/json"

    def list_files(self) -> list[Path]:
        """Return the files and folders in it. Raises FileNotFoundError, NotADirectoryError."""
        return files_below(self.path, self.pattern, is_recursive=self.recursive)

    async def read(self) -> str:
        try:
            return file_names(await read_in_thread(self.list_files), self.path)
        except Exception as error:
            raise ValueError(f"Error reading directory {self.path}: {error}") from error


# -- templates -------------------------------------------------------------------------------


def _matcher(template: str) -> Callable[[str], dict[str, Any] | None]:
    """Return a function that returns the variables in a URI.

    The library uses a regular expression, which takes n³ steps for three variables in a segment of n characters. It is
    used here only for a template with characters that have a meaning in one.
    """
    pieces = re.split(r"\{(\w+)\}", template)
    fixed, names = pieces[::2], pieces[1::2]
    if names and all(re.fullmatch(r"[\w:/@%=&!~,;-]*", text) for text in fixed):
        from mcpd.transports.routes import values_between  # many servers have no templates

        def values(uri: str) -> dict[str, Any] | None:
            found = values_between(fixed, uri)
            return None if found is None else dict(zip(names, found, strict=True))

        return values

    pattern = re.compile(f"^{template.replace('{', '(?P<').replace('}', '>[^/]+)')}$")

    def groups(uri: str) -> dict[str, Any] | None:
        found = pattern.match(uri)
        return None if found is None else found.groupdict()

    return groups


class ResourceTemplate(Component):
    """A function whose parameters are the variables of a URI."""

    uri_template: str
    mime_type: str = "text/plain"

    def __init__(self, **members: Any) -> None:
        super().__init__(**members)
        self._metadata = func_metadata(self.fn, self._skipped)
        self.fn = validate_call(self.fn)
        self._match = self._matcher(self.uri_template)

    @staticmethod
    def _matcher(uri_template: str) -> Callable[[str], dict[str, Any] | None]:
        return _matcher(uri_template)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        return self._metadata.arg_model.model_json_schema()

    @classmethod
    def from_function(
        cls,
        fn: Callable[..., Any],
        uri_template: str,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        context_kwarg: str | None = None,
        **members: Any,
    ) -> Self:
        members |= {"uri_template": uri_template, "title": title, "mime_type": mime_type or "text/plain"}
        return cls._of_function(fn, name, description, context_kwarg, **members)

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables in a URI, None if it does not match."""
        return self._match(uri)

    def _resource(self, uri: str, result: Any) -> FunctionResource:
        members: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("name", "title", "description", "mime_type", "icons", "annotations", "meta")
        }
        return FunctionResource(uri=uri, fn=lambda: result, **members)  # type: ignore[arg-type]  # pydantic parses it

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Any:
        """Call the function and return the resource. Raises ValueError; version 2 ResourceError and McpError."""
        try:
            result = await self._call(params, context)
            return result if is_input_required(result) else self._resource(uri, result)
        except Exception as error:
            if not self.is_second:
                raise ValueError(f"Error creating resource from template: {error}") from error
            if isinstance(error, (ResourceError, McpError)):
                raise
            raise UnexpectedResourceError(f"Error creating resource from template {uri}") from error


_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True)
class ResourceSecurity:
    """Rejects values of variables that would lead out of a folder."""

    reject_path_traversal: bool = True
    reject_absolute_paths: bool = True
    reject_null_bytes: bool = True
    exempt_params: Iterable[str] = field(default_factory=frozenset)

    def validate(self, params: dict[str, Any]) -> str | None:
        """Return the name of a variable with a rejected value, or None."""
        for name, value in params.items():
            for text in value if isinstance(value, list) else [value]:
                if name not in self.exempt_params and self._rejects(text):
                    return name
        return None

    def _rejects(self, value: str) -> bool:
        if self.reject_null_bytes and "\0" in value:
            return True
        if self.reject_path_traversal and _leads_out(value):
            return True
        return self.reject_absolute_paths and (value.startswith(("/", "\\")) or _DRIVE.match(value) is not None)


DEFAULT_RESOURCE_SECURITY = ResourceSecurity()


def _leads_out(value: str) -> bool:
    depth = 0
    for part in re.split(r"[/\\]", value):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False


class ResourceTemplate2(ResourceTemplate):
    """A template of version 2: of RFC 6570, with values that are checked."""

    is_second = True
    security: ResourceSecurity = DEFAULT_RESOURCE_SECURITY

    @staticmethod
    def _matcher(uri_template: str) -> Callable[[str], dict[str, Any] | None]:
        return UriTemplate(uri_template).match

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables in a URI, None if it does not match. Raises ResourceNotFoundError."""
        found = self._match(uri)
        if found is not None and self.security.validate(found) is not None:
            raise ResourceNotFoundError(f"Unknown resource: {uri}")
        return found


class ResourceManager:
    """The resources and templates of a server. The first resource of a URI stays."""

    template_type: ClassVar[type[ResourceTemplate]] = ResourceTemplate

    def __init__(self, warn_on_duplicate_resources: bool = True) -> None:
        self.warn_on_duplicate_resources = warn_on_duplicate_resources
        self._resources: dict[str, Resource] = {}
        self._templates: dict[str, Any] = {}

    def add_resource(self, resource: Resource) -> Resource:
        """Add a resource. Returns the resource that has its URI."""
        key = str(resource.uri)
        if key in self._resources and self.warn_on_duplicate_resources:
            log.warning("Resource already exists: %s", printable(key))
        return self._resources.setdefault(key, resource)

    def add_template(self, fn: Callable[..., Any], uri_template: str, **options: Any) -> Any:
        template = self.template_type.from_function(fn, uri_template, **options)
        self._templates[template.uri_template] = template
        return template

    async def get_resource(self, uri: Any, context: Any = None) -> Any:
        """Return the resource of a URI, which may match a template. Raises ResourceNotFoundError, and ValueError."""
        key = str(uri)
        found = self._resources.get(key)
        if found is not None:
            return found
        for template in self._templates.values():
            variables = template.matches(key)
            if variables is None:
                continue
            try:
                return await template.create_resource(key, variables, context=context)
            except Exception as error:
                if template.is_second:
                    raise
                raise ValueError(f"Error creating resource from template: {error}") from error
        raise ResourceNotFoundError(f"Unknown resource: {uri}")

    def list_resources(self) -> list[Resource]:
        return list(self._resources.values())

    def list_templates(self) -> list[Any]:
        return list(self._templates.values())


class ResourceManager2(ResourceManager):
    """The resources and templates of a server of version 2."""

    template_type = ResourceTemplate2
