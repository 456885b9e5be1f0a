"""`fastmcp.resources`: resources and resource templates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Self, get_origin
from urllib.parse import parse_qs, quote, unquote

import pydantic_core
from pydantic import BaseModel, Field, PrivateAttr, model_validator

from mcpd.compat.contents import AtAddress, HoldsBytes, HoldsFile, HoldsFolder, HoldsText, MimeType
from mcpd.compat.errors import ResourceError
from mcpd.compat.fastmcp.base import Component, check_items, given, mark, public_meta
from mcpd.compat.fastmcp.functions import Function, pruned
from mcpd.compat.lowlevel.server import resource_contents
from mcpd.compat.types import features
from mcpd.compat.types.base import Annotations, Resource as ListedResource, Uri
from mcpd.transports.routes import values_across


class ResourceContent(BaseModel):
    """One content of a resource: text, bytes, or data that become JSON."""

    content: str | bytes
    mime_type: str | None = None
    meta: dict[str, Any] | None = None

    def __init__(self, content: Any, mime_type: str | None = None, meta: dict[str, Any] | None = None) -> None:
        default = "text/plain"
        if isinstance(content, bytes):
            default = "application/octet-stream"
        elif not isinstance(content, str):
            content, default = pydantic_core.to_json(content, fallback=str).decode(), "application/json"
        super().__init__(content=content, mime_type=mime_type or default, meta=meta)

    def to_mcp_resource_contents(self, uri: Any) -> Any:
        return resource_contents(str(uri), self.content, self.mime_type, self.meta)


class ResourceResult(BaseModel):
    """The contents of a resource, and `_meta`."""

    contents: list[ResourceContent]
    meta: dict[str, Any] | None = None

    def __init__(self, contents: Any, meta: dict[str, Any] | None = None) -> None:
        if isinstance(contents, (str, bytes)):
            contents = [ResourceContent(contents)]
        check_items("contents", contents, ResourceContent, "str, bytes, or")
        super().__init__(contents=contents, meta=meta)

    def to_mcp_result(self, uri: Any) -> features.ReadResourceResult:
        contents = [content.to_mcp_resource_contents(uri) for content in self.contents]
        return features.ReadResourceResult(contents=contents, meta=self.meta)


def _result(value: Any, mime_type: str | None, meta: dict[str, Any] | None) -> ResourceResult:
    if isinstance(value, ResourceResult):
        return value

    meta = public_meta(meta)
    if isinstance(value, (str, bytes)):
        return ResourceResult([ResourceContent(value, mime_type, meta)])
    if isinstance(value, list) and value and isinstance(value[0], ResourceContent):
        result = ResourceResult(value)
        if meta is not None:
            result.contents = [
                content.model_copy(update={"meta": {**meta, **(content.meta or {})}}) for content in result.contents
            ]
        return result
    if value is None or isinstance(value, (dict, list, tuple, int, float, bool)):
        return ResourceResult([ResourceContent(json.dumps(value), mime_type or "application/json", meta)])
    return ResourceResult(value)


def _members(function: Function, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a decorator as members. Without a description, the docstring is used."""
    members = {"description": function.doc, **given(options)}
    if isinstance(members.get("annotations"), dict):
        members["annotations"] = Annotations(**members["annotations"])
    return {"fn": function.fn, "name": function.component_name, **members}


# -- resources -------------------------------------------------------------------------------


class Resource(Component):
    """A resource. Subclasses implement `read`."""

    KEY_PREFIX: ClassVar[str] = "resource"

    uri: Uri
    name: str = ""
    mime_type: MimeType = "text/plain"
    annotations: Annotations | None = None

    @model_validator(mode="after")
    def _name_or_uri(self) -> Self:
        self.name = self.name or str(self.uri)
        return self

    @property
    def identity(self) -> str:
        return str(self.uri)

    @staticmethod
    def failure(text: str, error: Exception) -> Exception:
        return ResourceError(text)

    @classmethod
    def from_function(cls, fn: Any, uri: Any, *, name: str | None = None, **options: Any) -> FunctionResource:
        function = Function(fn, "resources", name=name)
        if function.arguments:
            raise ValueError(
                f"Resource {uri!r} has no URI template variables, but its function has parameters; "
                "add them to the URI as {name}, or remove them"
            )

        made = FunctionResource(uri=uri, **_members(function, options))
        made._function = function
        return made

    async def read(self) -> Any:
        raise NotImplementedError("Subclasses must implement read()")

    async def result(self) -> ResourceResult:
        return _result(await self.read(), self.mime_type, self.meta)

    def to_mcp_resource(self, **changed: Any) -> ListedResource:
        members = {"uri": str(self.uri), "mimeType": self.mime_type, "annotations": self.annotations}
        return self._listed(ListedResource, changed, **members)


class FunctionResource(Resource):
    """A resource whose function returns its contents."""

    fn: Callable[..., Any] = Field(exclude=True)

    async def read(self) -> Any:
        contents = await self._function.call({})
        return await contents.read() if isinstance(contents, Resource) else contents


class TextResource(HoldsText, Resource):
    """A resource that holds a text."""


class BinaryResource(HoldsBytes, Resource):
    """A resource that holds bytes."""


class HttpResource(AtAddress, Resource):
    """A resource that is fetched from an HTTP address."""


class FileResource(HoldsFile, Resource):
    """A file. `is_binary` is decided by the MIME type unless it is given."""

    encoding: str | None = "utf-8"

    def _reads_bytes(self) -> bool:
        return self.is_binary if "is_binary" in self.model_fields_set else super()._reads_bytes()


class DirectoryResource(HoldsFolder, Resource):
    """The names of the files in a folder."""


def resource(uri: str, **options: Any) -> Any:
    """Mark a function as a resource for `mcp.add_resource`: `@resource("uri")`."""
    if callable(uri):
        raise TypeError("The @resource decorator requires a URI. Use @resource('uri') instead of @resource")
    return mark("resource", None, None, {"uri": uri, **options})


# -- templates: `{name}`, `{name*}` for several segments, and `{?name}` ------------------------

_QUERY = re.compile(r"\{\?([^}]+)\}")


def _encoded(text: str) -> str:
    """Return a text with the characters percent-encoded that a URI may write in two ways."""
    return quote(text, safe=":/?#[]@!$&'()*+,;=%", errors="replace")


class ResourceTemplate(Component):
    """A template of resources. Subclasses implement `read`, or `create_resource`."""

    KEY_PREFIX: ClassVar[str] = "template"

    uri_template: str
    mime_type: MimeType = "text/plain"
    parameters: dict[str, Any] = {}
    annotations: Annotations | None = None
    security: Any = Field(default=None, exclude=True)

    _lists: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def identity(self) -> str:
        return self.uri_template

    @staticmethod
    def from_function(
        fn: Any, uri_template: str, *, name: str | None = None, **options: Any
    ) -> FunctionResourceTemplate:
        """Return a function as a template. Raises ValueError if its parameters do not match the template."""
        function = Function(fn, "resource templates", name=name, takes_keywords=True)
        parameters = pruned(function.adapter.json_schema())
        made = FunctionResourceTemplate(uri_template=uri_template, parameters=parameters, **_members(function, options))
        made._check(function)
        made._function = function
        hints = {name: function.hints.get(name) for name in function.arguments}
        made._lists = frozenset(name for name, hint in hints.items() if list in (hint, get_origin(hint)))
        return made

    @cached_property
    def _path(self) -> tuple[list[str], list[str], set[int]]:
        """The fixed texts of the path, the variables between them, and the indexes of those that may contain "/"."""
        parts = re.split(r"\{([^}]+)\}", _QUERY.sub("", self.uri_template))
        names = parts[1::2]
        wide = {index for index, name in enumerate(names) if name.endswith("*")}
        return [_encoded(text) for text in parts[::2]], [_identifier(name.removesuffix("*")) for name in names], wide

    @cached_property
    def _query(self) -> dict[str, str]:
        """The variables of the query, and their names as parameters."""
        query = _QUERY.search(self.uri_template)
        names = [name.strip().removesuffix("*") for name in query[1].split(",")] if query else ()
        return {name: _identifier(name) for name in names}

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables in a URI, None if it does not match."""
        if "#" not in self.uri_template:
            uri = uri.partition("#")[0]
        path, _, query = uri.partition("?")
        fixed, names, wide = self._path
        values: list[str] | None
        if not names:
            values = [] if _encoded(path) == fixed[0] else None
        else:
            # The library's regular expression takes n³ steps for three variables in a segment of n characters.
            values = values_across(fixed, _encoded(path), wide)
        if values is None:
            return None

        variables: dict[str, Any] = dict(zip(names, map(unquote, values), strict=True))
        sent = parse_qs(query, keep_blank_values=True)
        for name, parameter in self._query.items():
            if name in sent and parameter not in variables:
                first, *more = sent[name]
                if parameter in self._lists:
                    variables[parameter] = [first, *more] if more else first.split(",") if first else []
                else:
                    variables[parameter] = first
        return variables

    def _check(self, function: Function) -> None:
        path, query = set(self._path[1]), set(self._query.values())
        if not path | query:
            raise ValueError("URI template must contain at least one parameter")

        known = {name: each for name, each in function.arguments.items() if each.kind is not each.VAR_KEYWORD}
        required = {name for name, each in known.items() if each.default is each.empty}
        if wrong := query - (known.keys() - required):
            raise ValueError(f"Query parameters {wrong} must be optional function parameters with default values")
        if not required <= path:
            raise ValueError(
                f"Required function arguments {required} must be a subset of the URI path parameters {path}"
            )
        if known == function.arguments and not path | query <= known.keys():
            raise ValueError(f"URI parameters {path | query} must be a subset of the function arguments: {set(known)}")

    async def read(self, arguments: dict[str, Any]) -> Any:
        raise NotImplementedError("Subclasses must implement read() or override create_resource()")

    async def create_resource(self, uri: str, params: dict[str, Any]) -> Resource:
        """Return the resource of a URI with these variables."""

        async def read() -> Any:
            return await self.read(params)

        members: dict[str, Any] = {"description": self.description, "mime_type": self.mime_type, "tags": self.tags}
        return Resource.from_function(read, uri, name=self.name, **members)

    async def result(self, uri: str, variables: dict[str, Any]) -> ResourceResult:
        """Return the contents of the resource of a URI."""
        if type(self).read is ResourceTemplate.read:
            contents = await (await self.create_resource(uri, variables)).read()
        else:
            contents = await self.read(variables)
        return _result(contents, self.mime_type, self.meta)

    def to_mcp_template(self, **changed: Any) -> features.ResourceTemplate:
        members = {"uriTemplate": self.uri_template, "mimeType": self.mime_type, "annotations": self.annotations}
        return self._listed(features.ResourceTemplate, changed, **members)


class FunctionResourceTemplate(ResourceTemplate):
    """A function as a template."""

    fn: Callable[..., Any] = Field(exclude=True)

    async def read(self, arguments: dict[str, Any]) -> Any:
        """Call the function. Raises ValueError for a variable that does not match its annotation."""
        values = {name: self._parsed(name, value) for name, value in arguments.items()}
        return await self._function.call(self._function.validated(values, by_name=True))

    def _parsed(self, name: str, value: Any) -> Any:
        parameter = self._function.arguments.get(name)
        hint = None if parameter is None else parameter.annotation
        # pydantic parses values whose annotations are strings, as all are with `from __future__ import annotations`.
        if not isinstance(value, str) or hint not in (int, float, bool):
            return value
        if hint is not bool:
            return hint(value)
        if value.lower() in ("true", "1", "yes"):
            return True
        if value.lower() in ("false", "0", "no"):
            return False
        raise ValueError(f"Invalid boolean value for {name}: {value!r}")


def _identifier(name: str) -> str:
    return name.replace("-", "_")
