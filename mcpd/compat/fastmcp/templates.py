"""`ResourceTemplate`: a function whose parameters are in a URI, `{name}`, `{name*}` for several parts, `{?name}`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Self, get_origin
from urllib.parse import parse_qs, quote, unquote

from pydantic import Field, PrivateAttr, field_validator

from mcpd.compat.fastmcp.components import Component
from mcpd.compat.fastmcp.functions import Function
from mcpd.compat.fastmcp.marks import Marked
from mcpd.compat.fastmcp.resources import (
    FunctionResource,
    Resource,
    ResourceResult,
    converted,
    listed_members,
    options_for,
)
from mcpd.compat.fastmcp.schemas import pruned
from mcpd.compat.types.content import Annotations
from mcpd.compat.types.resources import ResourceTemplate as ListedTemplate
from mcpd.server.registry.routes import values_across, values_between

__all__ = ["FunctionResourceTemplate", "ResourceTemplate", "expanded", "variables_in"]

_QUERY = re.compile(r"\{\?([^}]+)\}")
_RESERVED = ":/?#[]@!$&'()*+,;="


def variables_in(template: str) -> tuple[set[str], set[str]]:
    """The names in the path of a template, and those of its query."""
    query = _QUERY.search(template)
    names = {one.strip().removesuffix("*") for one in query[1].split(",")} if query else set()
    return set(re.findall(r"\{([\w-]+)\*?\}", template)), names


def _values_of(template: str) -> Callable[[str], dict[str, str] | None]:
    """What gives the variables in the path of a URI: in one pass, unless a letter may be written in two ways.

    A regular expression takes n³ steps for three values in a segment of n characters.
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


def expanded(template: str, variables: dict[str, Any]) -> str:
    """A URI of a template."""

    def query(found: re.Match[str]) -> str:
        pairs = []
        for name in (one.strip().removesuffix("*") for one in found[1].split(",")):
            value = variables.get(name, variables.get(name.replace("-", "_")))
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if one is not None:
                    pairs.append(f"{quote(name, safe='')}={quote(str(one), safe='')}")
        return "?" + "&".join(pairs) if pairs else ""

    def path(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_")
        value = variables.get(found[1], variables.get(name))
        return found[0] if value is None else quote(str(value), safe="/" if found[2] else "")

    return re.sub(r"\{([\w-]+)(\*?)\}", path, _QUERY.sub(query, template))


class ResourceTemplate(Component):
    """A family of resources; a class of one's own has `read`, or `create_resource`."""

    KEY_PREFIX: ClassVar[str] = "template"

    uri_template: str
    mime_type: str = "text/plain"
    parameters: dict[str, Any] = {}
    annotations: Annotations | None = None
    security: Any = Field(default=None, exclude=True)

    _lists: frozenset[str] = PrivateAttr(default=frozenset())

    @field_validator("mime_type", mode="before")
    @classmethod
    def _or_text(cls, value: str | None) -> str:
        return value or "text/plain"

    @property
    def identity(self) -> str:
        """The template."""
        return self.uri_template

    @staticmethod
    def from_function(fn: Any, uri_template: str, **options: Any) -> FunctionResourceTemplate:
        """A template of a function. Raises ValueError for parameters that are not in the template."""
        return FunctionResourceTemplate.made_of(fn, uri_template, **options)

    @cached_property
    def _matcher(self) -> Callable[[str], dict[str, str] | None]:
        return _values_of(self.uri_template)

    def matches(self, uri: str) -> dict[str, Any] | None:
        """The variables in a URI of this family, None if it is none of it."""
        if "#" not in self.uri_template:
            uri = uri.partition("#")[0]
        path, _, query = uri.partition("?")
        found = self._matcher(path)
        if found is None:
            return None
        variables: dict[str, Any] = {name: unquote(value) for name, value in found.items()}
        given = parse_qs(query, keep_blank_values=True) if query else {}
        for name in variables_in(self.uri_template)[1]:
            key = name.replace("-", "_")
            if name in given and key not in variables:
                if key in self._lists:
                    values = given[name]
                    variables[key] = values if len(values) > 1 else (values[0].split(",") if values[0] else [])
                else:
                    variables[key] = given[name][0]
        return variables

    async def read(self, arguments: dict[str, Any]) -> Any:
        """What the resource with these variables holds."""
        raise NotImplementedError("Subclasses must implement read() or override create_resource()")

    async def create_resource(self, uri: str, params: dict[str, Any]) -> Resource:
        """The resource of a URI."""

        async def reads() -> Any:
            return await self.read(params)

        return FunctionResource.made_of(
            reads, uri, name=self.name, description=self.description, mime_type=self.mime_type, tags=self.tags
        )

    async def result(self, uri: str, variables: dict[str, Any]) -> ResourceResult:
        """What the resource of a URI holds, as a result."""
        if type(self).read is ResourceTemplate.read:
            made = await self.create_resource(uri, variables)
            return converted(await made.read(), self.mime_type, self.meta)
        return converted(await self.read(variables), self.mime_type, self.meta)

    def to_mcp_template(self, **changed: Any) -> ListedTemplate:
        """As clients see it."""
        return ListedTemplate(
            uriTemplate=changed.get("uriTemplate", self.uri_template), **listed_members(self, changed)
        )


class FunctionResourceTemplate(ResourceTemplate):
    """A function as a template."""

    fn: Callable[..., Any] = Field(exclude=True)

    _function: Function = PrivateAttr()

    @classmethod
    def made_of(cls, fn: Any, uri_template: str, *, name: str | None = None, **options: Any) -> Self:
        """A template of a function. Raises ValueError for parameters that are not in the template."""
        marked = getattr(fn, "__fastmcp__", None)
        function = Function(
            marked.bare(fn) if isinstance(marked, Marked) else fn, "resource templates", takes_keywords=True
        )
        if (name or function.name) == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        _check(uri_template, function)
        made = cls(
            fn=function.fn,
            uri_template=uri_template,
            name=name or function.name,
            parameters=pruned(function.adapter.json_schema()),
            **options_for(function, options),
        )
        made._function = function
        made._lists = frozenset(one for one in function.given if _is_list(function, one))
        return made

    async def read(self, arguments: dict[str, Any]) -> Any:
        """Call the function. Raises ValueError for a variable that is not what its annotation says."""
        given = {name: self._read_as(name, value) for name, value in arguments.items()}
        return await self._function.call(self._function.read(given, by_name=True))

    def _read_as(self, name: str, value: Any) -> Any:
        parameter = self._function.given.get(name)
        hint = None if parameter is None else parameter.annotation
        # Annotations that are texts, as all are with `from __future__ import annotations`, are pydantic's to read.
        if not isinstance(value, str) or hint not in (int, float, bool):
            return value
        if hint is not bool:
            return hint(value)
        if value.lower() in ("true", "1", "yes"):
            return True
        if value.lower() in ("false", "0", "no"):
            return False
        raise ValueError(f"Invalid boolean value for {name}: {value!r}")


def _is_list(function: Function, name: str) -> bool:
    hint = function.hints.get(name)
    return hint is list or get_origin(hint) is list


def _check(template: str, function: Function) -> None:
    path, query = ({one.replace("-", "_") for one in names} for names in variables_in(template))
    if not path | query:
        raise ValueError("URI template must contain at least one parameter")
    has_keywords = any(one.kind is one.VAR_KEYWORD for one in function.given.values())
    known = {name: one for name, one in function.given.items() if one.kind is not one.VAR_KEYWORD}
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
