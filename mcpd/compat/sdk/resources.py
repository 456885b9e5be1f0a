"""Resources and resource templates of the official SDK."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Self

import pydantic_core
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, validate_call

from mcpd.compat.contents import AtAddress, HoldsBytes, HoldsFile, HoldsFolder, HoldsText
from mcpd.compat.errors import ResourceNotFoundError
from mcpd.compat.sdk.components import Component, Manager
from mcpd.compat.sdk.functions import FuncMetadata, function_name
from mcpd.compat.types.base import Annotations, Icon, Uri
from mcpd.transports.routes import values_between

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

    @staticmethod
    def failure(text: str, error: Exception) -> Exception:
        return ValueError(f"{text}: {error}")

    @abstractmethod
    async def read(self) -> str | bytes:
        """Return the contents."""


class TextResource(HoldsText, Resource):
    """A resource that holds a text."""


class BinaryResource(HoldsBytes, Resource):
    """A resource that holds bytes."""


class HttpResource(AtAddress, Resource):
    """A resource that is fetched from an HTTP address."""


class FileResource(HoldsFile, Resource):
    """A file."""


class DirectoryResource(HoldsFolder, Resource):
    """The names of the files in a folder."""


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
            raise self.failure(f"Error reading resource {self.uri}", error) from error

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


class ResourceTemplate(Component):
    """A function whose parameters are the variables of a URI."""

    uri_template: str
    mime_type: str = "text/plain"

    def __init__(self, **members: Any) -> None:
        super().__init__(**members)
        self._metadata = FuncMetadata(self.fn, self._skipped)
        self.fn = validate_call(self.fn)
        # Fixed texts and names take turns. The library's regular expression takes n³ steps for three variables in a
        # segment of n characters.
        pieces = re.split(r"\{(\w+)\}", self.uri_template)
        self._fixed, self._names = pieces[::2], pieces[1::2]

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
        if not self._names:
            return {} if uri == self.uri_template else None

        values = values_between(self._fixed, uri)
        return None if values is None else dict(zip(self._names, values, strict=True))

    def _resource(self, uri: str, result: Any) -> FunctionResource:
        members: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("name", "title", "description", "mime_type", "icons", "annotations", "meta")
        }
        return FunctionResource(uri=uri, fn=lambda: result, **members)  # type: ignore[arg-type]  # pydantic parses it

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Any:
        """Call the function and return the resource. Raises ValueError."""
        try:
            return self._resource(uri, await self._call(params, context))
        except Exception as error:
            text = "Error creating resource from template"
            # The library's manager puts the same words around the message again.
            raise ValueError(f"{text}: {text}: {error}") from error


class ResourceManager(Manager):
    """The resources and templates of a server."""

    kind = "resource"
    template_type: ClassVar[type[ResourceTemplate]] = ResourceTemplate

    def __init__(self, warn_on_duplicate_resources: bool = True) -> None:
        super().__init__(warn_on_duplicate_resources)
        # Servers of other people read and change these dicts.
        self._resources: dict[str, Resource] = self._items
        self._templates: dict[str, Any] = {}

    list_resources = Manager._list

    def add_resource(self, resource: Resource) -> Any:
        """Add a resource. Returns the resource that has its URI."""
        return self._add(str(resource.uri), resource)

    def add_template(self, fn: Callable[..., Any], uri_template: str, **options: Any) -> Any:
        template = self.template_type.from_function(fn, uri_template, **options)
        self._templates[template.uri_template] = template
        return template

    async def get_resource(self, uri: Any, context: Any = None) -> Any:
        """Return the resource of a URI, which may match a template. Raises ResourceNotFoundError, and ValueError."""
        key = str(uri)
        if key in self._resources:
            return self._resources[key]

        for template in self._templates.values():
            variables = template.matches(key)
            if variables is not None:
                return await template.create_resource(key, variables, context=context)
        raise ResourceNotFoundError(f"Unknown resource: {uri}")

    def list_templates(self) -> list[Any]:
        return list(self._templates.values())
