"""`fastmcp.resources`: resources and resource templates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_origin
from urllib.parse import parse_qs, quote, unquote

import pydantic_core
from pydantic import BaseModel, BeforeValidator, Field, PrivateAttr, model_validator

from mcpd.compat.contents import AtAddress, AtPath, HoldsBytes, HoldsText, file_names, files_below, read_in_thread
from mcpd.compat.errors import ResourceError
from mcpd.compat.fastmcp.components import Component, mark, public_meta, unmarked
from mcpd.compat.fastmcp.functions import Function
from mcpd.compat.fastmcp.results import pruned
from mcpd.compat.lowlevel.server import resource_contents
from mcpd.compat.types import features
from mcpd.compat.types.base import Annotations, Resource as ListedResource, Uri
from mcpd.transports.routes import values_across, values_between

_TEXT = "text/plain"

MimeType = Annotated[str, BeforeValidator(lambda value: value or _TEXT)]


class ResourceContent(BaseModel):
    """One content of a resource: text, bytes, or data that become JSON."""

    content: str | bytes
    mime_type: str | None = None
    meta: dict[str, Any] | None = None

    def __init__(self, content: Any, mime_type: str | None = None, meta: dict[str, Any] | None = None) -> None:
        default = _TEXT
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
        if not isinstance(contents, list):
            raise TypeError(f"contents must be str, bytes, or list[ResourceContent], got {type(contents).__name__}")
        for at, content in enumerate(contents):
            if not isinstance(content, ResourceContent):
                raise TypeError(
                    f"contents[{at}] must be ResourceContent, got {type(content).__name__}. "
                    f"Use ResourceContent({content!r}) to wrap the value."
                )
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
            result.contents = [one.model_copy(update={"meta": {**meta, **(one.meta or {})}}) for one in result.contents]
        return result
    if value is None or isinstance(value, (dict, list, tuple, int, float, bool)):
        return ResourceResult([ResourceContent(json.dumps(value), mime_type or "application/json", meta)])
    return ResourceResult(value)


def _listed_members(component: Any, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what clients see of a resource and of a template alike, with some members changed."""
    return {
        "name": changed.get("name", component.name),
        "title": component.title,
        "description": component.description,
        "mimeType": component.mime_type,
        "icons": component.icons,
        "annotations": component.annotations,
        "_meta": component.get_meta(),
    }


def _members(function: Function, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a decorator as members. Without a description, the docstring is used."""
    members = {"description": function.doc, **{key: value for key, value in options.items() if value is not None}}
    if isinstance(members.get("annotations"), dict):
        members["annotations"] = Annotations(**members["annotations"])
    return {"fn": function.fn, "name": function.component_name, **members}


# -- resources -------------------------------------------------------------------------------


class Resource(Component):
    """A resource. Subclasses implement `read`."""

    KEY_PREFIX: ClassVar[str] = "resource"

    uri: Uri
    name: str = ""
    mime_type: MimeType = _TEXT
    annotations: Annotations | None = None

    @model_validator(mode="after")
    def _name_or_uri(self) -> Self:
        self.name = self.name or str(self.uri)
        return self

    @property
    def identity(self) -> str:
        return str(self.uri)

    @classmethod
    def from_function(cls, fn: Any, uri: Any, *, name: str | None = None, **options: Any) -> FunctionResource:
        return FunctionResource.made_of(fn, uri, name=name, **options)

    async def read(self) -> Any:
        raise NotImplementedError("Subclasses must implement read()")

    async def result(self) -> ResourceResult:
        return _result(await self.read(), self.mime_type, self.meta)

    def to_mcp_resource(self, **changed: Any) -> ListedResource:
        return ListedResource(uri=changed.get("uri", str(self.uri)), **_listed_members(self, changed))


class FunctionResource(Resource):
    """A resource whose function returns its contents."""

    fn: Callable[..., Any] = Field(exclude=True)

    @classmethod
    def made_of(cls, fn: Any, uri: Any, *, name: str | None = None, **options: Any) -> FunctionResource:
        function = Function(unmarked(fn), "resources", name=name)
        made = cls(uri=uri, **_members(function, options))
        made._function = function
        return made

    async def read(self) -> Any:
        found = await self._function.call({})
        return await found.read() if isinstance(found, Resource) else found


class TextResource(HoldsText, Resource):
    """A resource that holds a text."""


class BinaryResource(HoldsBytes, Resource):
    """A resource that holds bytes."""


class HttpResource(AtAddress, Resource):
    """A resource that is fetched from an HTTP address."""

    read_error: ClassVar[type[Exception]] = ResourceError

    mime_type: MimeType = "application/json"


class FileResource(AtPath, Resource):
    """A file, which is read as bytes unless its MIME type is one of text."""

    is_binary: bool = False
    encoding: str | None = "utf-8"

    @model_validator(mode="after")
    def _by_mime_type(self) -> Self:
        if "is_binary" not in self.model_fields_set:
            self.is_binary = not self.mime_type.startswith("text/")
        return self

    async def read(self) -> Any:
        try:
            if self.is_binary:
                return await read_in_thread(self.path.read_bytes)
            return await read_in_thread(self.path.read_text, self.encoding)
        except Exception as error:
            raise ResourceError(f"Error reading file {self.path}") from error


class DirectoryResource(AtPath, Resource):
    """The names of the files in a folder, as JSON."""

    recursive: bool = False
    pattern: str | None = None
    mime_type: MimeType = "application/json"

    async def list_files(self) -> list[Path]:
        """Return the files in it. Raises FileNotFoundError, NotADirectoryError."""
        found = await read_in_thread(lambda: files_below(self.path, self.pattern, is_recursive=self.recursive))
        return [file for file in found if file.is_file()]

    async def read(self) -> Any:
        try:
            return file_names(await self.list_files(), self.path)
        except Exception as error:
            raise ResourceError(f"Error reading directory {self.path}") from error


def resource(uri: str, **options: Any) -> Any:
    """Mark a function as a resource for `mcp.add_resource`: `@resource("uri")`."""
    if callable(uri):
        raise TypeError("The @resource decorator requires a URI. Use @resource('uri') instead of @resource")
    return mark("resource", None, None, {"uri": uri, **options})


# -- templates: `{name}`, `{name*}` for several segments, and `{?name}` ------------------------

_QUERY = re.compile(r"\{\?([^}]+)\}")
_RESERVED = ":/?#[]@!$&'()*+,;="


def _variables_in(template: str) -> tuple[set[str], set[str]]:
    """Return the names in the path of a template, and the names in its query."""
    query = _QUERY.search(template)
    names = {name.strip().removesuffix("*") for name in query[1].split(",")} if query else set()
    return set(re.findall(r"\{([\w-]+)\*?\}", template)), names


def _matcher(template: str) -> Callable[[str], dict[str, str] | None]:
    """Return a function that returns the variables in the path of a URI.

    It makes one pass, unless the template has characters that a URI may write in two ways. Then it is a regular
    expression, which takes n³ steps for three variables in a segment of n characters.
    """
    parts = re.split(r"(\{[^}]+\})", _QUERY.sub("", template))
    fixed, names = parts[::2], [part[1:-1].removesuffix("*").replace("-", "_") for part in parts[1::2]]
    wide = {index for index, part in enumerate(parts[1::2]) if part.endswith("*}")}
    is_plain = all(quote(text, safe=_RESERVED + "%") == text for text in fixed)
    if names and is_plain:

        def values(path: str) -> dict[str, str] | None:
            found = values_across(fixed, path, wide) if wide else values_between(fixed, path)
            return None if found is None else dict(zip(names, found, strict=True))

        return values

    pattern = _pattern(parts)

    def groups(path: str) -> dict[str, str] | None:
        found = pattern.match(path)
        return None if found is None else found.groupdict()

    return groups


def _pattern(parts: list[str]) -> re.Pattern[str]:
    whole = ""
    for part in parts:
        if part.startswith("{") and part.endswith("}"):
            name = part[1:-1]
            whole += f"(?P<{name.removesuffix('*').replace('-', '_')}>{'.+' if name.endswith('*') else '[^/]+'})"
        else:
            for letter in part:
                written = quote(letter, safe=_RESERVED + "%")
                whole += re.escape(letter) if written == letter else f"(?:{re.escape(letter)}|{written})"
    return re.compile(f"^{whole}$")


class ResourceTemplate(Component):
    """A template of resources. Subclasses implement `read`, or `create_resource`."""

    KEY_PREFIX: ClassVar[str] = "template"

    uri_template: str
    mime_type: MimeType = _TEXT
    parameters: dict[str, Any] = {}
    annotations: Annotations | None = None
    security: Any = Field(default=None, exclude=True)

    _lists: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def identity(self) -> str:
        return self.uri_template

    @staticmethod
    def from_function(fn: Any, uri_template: str, **options: Any) -> FunctionResourceTemplate:
        """Return a function as a template. Raises ValueError if its parameters do not match the template."""
        return FunctionResourceTemplate.made_of(fn, uri_template, **options)

    @cached_property
    def _match(self) -> Callable[[str], dict[str, str] | None]:
        return _matcher(self.uri_template)

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables in a URI, None if it does not match."""
        if "#" not in self.uri_template:
            uri = uri.partition("#")[0]
        path, _, query = uri.partition("?")
        found = self._match(path)
        if found is None:
            return None

        variables: dict[str, Any] = {name: unquote(value) for name, value in found.items()}
        given = parse_qs(query, keep_blank_values=True) if query else {}
        for name in _variables_in(self.uri_template)[1]:
            key = name.replace("-", "_")
            if name in given and key not in variables:
                if key in self._lists:
                    values = given[name]
                    variables[key] = values if len(values) > 1 else (values[0].split(",") if values[0] else [])
                else:
                    variables[key] = given[name][0]
        return variables

    async def read(self, arguments: dict[str, Any]) -> Any:
        raise NotImplementedError("Subclasses must implement read() or override create_resource()")

    async def create_resource(self, uri: str, params: dict[str, Any]) -> Resource:
        """Return the resource of a URI with these variables."""

        async def read() -> Any:
            return await self.read(params)

        return FunctionResource.made_of(
            read, uri, name=self.name, description=self.description, mime_type=self.mime_type, tags=self.tags
        )

    async def result(self, uri: str, variables: dict[str, Any]) -> ResourceResult:
        """Return the contents of the resource of a URI."""
        if type(self).read is ResourceTemplate.read:
            made = await self.create_resource(uri, variables)
            return _result(await made.read(), self.mime_type, self.meta)
        return _result(await self.read(variables), self.mime_type, self.meta)

    def to_mcp_template(self, **changed: Any) -> features.ResourceTemplate:
        uri_template = changed.get("uriTemplate", self.uri_template)
        return features.ResourceTemplate(uriTemplate=uri_template, **_listed_members(self, changed))


class FunctionResourceTemplate(ResourceTemplate):
    """A function as a template."""

    fn: Callable[..., Any] = Field(exclude=True)

    @classmethod
    def made_of(cls, fn: Any, uri_template: str, *, name: str | None = None, **options: Any) -> Self:
        """Return a function as a template. Raises ValueError if its parameters do not match the template."""
        function = Function(unmarked(fn), "resource templates", name=name, takes_keywords=True)
        _check(uri_template, function)
        parameters = pruned(function.adapter.json_schema())
        made = cls(uri_template=uri_template, parameters=parameters, **_members(function, options))
        made._function = function
        made._lists = frozenset(one for one in function.arguments if _is_list(function.hints.get(one)))
        return made

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


def _is_list(hint: Any) -> bool:
    return hint is list or get_origin(hint) is list


def _check(template: str, function: Function) -> None:
    path, query = ({name.replace("-", "_") for name in names} for names in _variables_in(template))
    if not path | query:
        raise ValueError("URI template must contain at least one parameter")

    has_keywords = any(one.kind is one.VAR_KEYWORD for one in function.arguments.values())
    known = {name: one for name, one in function.arguments.items() if one.kind is not one.VAR_KEYWORD}
    required = {name for name, one in known.items() if one.default is one.empty}
    if query - (known.keys() - required):
        raise ValueError(
            f"Query parameters {query - (known.keys() - required)} must be optional function parameters with default "
            "values"
        )
    if not required <= path:
        raise ValueError(f"Required function arguments {required} must be a subset of the URI path parameters {path}")
    if not has_keywords and not path | query <= known.keys():
        raise ValueError(f"URI parameters {path | query} must be a subset of the function arguments: {set(known)}")
