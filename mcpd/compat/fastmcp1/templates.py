"""`ResourceTemplate` and `ResourceManager`."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import validate_call

from mcpd.compat.fastmcp1.resources import FunctionResource, Resource
from mcpd.compat.fastmcp1.signature import context_parameter, func_metadata
from mcpd.compat.types.content import Annotations, Icon
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.compat.fastmcp1.context import Context

__all__ = ["ResourceManager", "ResourceTemplate"]

log = logging.getLogger("mcpd")


def _matcher(template: str) -> Callable[[str], dict[str, Any] | None]:
    """What gives the values in a URI. A regular expression, as there, where the template has signs that mean something
    in one; it takes n³ steps for three values in a segment of n characters.
    """
    pieces = re.split(r"\{(\w+)\}", template)
    fixed, names = pieces[::2], pieces[1::2]
    if names and all(re.fullmatch(r"[\w:/@%=&!~,;-]*", text) for text in fixed):
        from mcpd.server.registry.routes import values_between  # many servers have no templates

        def values(uri: str) -> dict[str, Any] | None:
            found = values_between(fixed, uri)
            return None if found is None else dict(zip(names, found, strict=True))

        return values
    pattern = re.compile(f"^{template.replace('{', '(?P<').replace('}', '>[^/]+)')}$")

    def groups(uri: str) -> dict[str, Any] | None:
        found = pattern.match(uri)
        return None if found is None else found.groupdict()

    return groups


class ResourceTemplate:
    """A function whose parameters are the variables of a URI."""

    def __init__(
        self,
        *,
        fn: Callable[..., Any],
        uri_template: str,
        name: str,
        title: str | None = None,
        description: str | None = None,
        mime_type: str = "text/plain",
        icons: list[Icon] | None = None,
        annotations: Annotations | None = None,
        meta: dict[str, Any] | None = None,
        context_kwarg: str | None = None,
    ) -> None:
        self._metadata = func_metadata(fn, [context_kwarg] if context_kwarg else [])
        self.fn = validate_call(fn)
        self.uri_template = uri_template
        self.name = name
        self.title = title
        self.description = description
        self.mime_type = mime_type
        self.icons = icons
        self.annotations = annotations
        self.meta = meta
        self.context_kwarg = context_kwarg
        self._match = _matcher(uri_template)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the variables."""
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
        icons: list[Icon] | None = None,
        annotations: Annotations | None = None,
        meta: dict[str, Any] | None = None,
        context_kwarg: str | None = None,
    ) -> ResourceTemplate:
        """A template of a function."""
        name = name or fn.__name__
        if name == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        return cls(
            fn=fn,
            uri_template=uri_template,
            name=name,
            title=title,
            description=description or fn.__doc__ or "",
            mime_type=mime_type or "text/plain",
            icons=icons,
            annotations=annotations,
            meta=meta,
            context_kwarg=context_kwarg or context_parameter(fn),
        )

    def matches(self, uri: str) -> dict[str, Any] | None:
        """The variables in a URI of this family, None if it is none of it."""
        return self._match(uri)

    async def create_resource(
        self, uri: str, params: dict[str, Any], context: Context[Any, Any, Any] | None = None
    ) -> Resource:
        """The resource of a URI: calls the function. Raises ValueError with its error's text."""
        given = {self.context_kwarg: context} if self.context_kwarg and context is not None else {}
        try:
            result = self.fn(**params, **given)
            if inspect.isawaitable(result):
                result = await result
            return FunctionResource(
                uri=uri,  # type: ignore[arg-type]  # pydantic reads it
                name=self.name,
                title=self.title,
                description=self.description,
                mime_type=self.mime_type,
                icons=self.icons,
                annotations=self.annotations,
                meta=self.meta,
                fn=lambda: result,
            )
        except Exception as error:
            raise ValueError(f"Error creating resource from template: {error}") from error


class ResourceManager:
    """The resources and templates of a server. The first resource of a URI stays."""

    def __init__(self, warn_on_duplicate_resources: bool = True) -> None:
        self.warn_on_duplicate_resources = warn_on_duplicate_resources
        self._resources: dict[str, Resource] = {}
        self._templates: dict[str, ResourceTemplate] = {}

    def add_resource(self, resource: Resource) -> Resource:
        """Add a resource; gives the one that has its URI."""
        key = str(resource.uri)
        if key in self._resources and self.warn_on_duplicate_resources:
            log.warning("Resource already exists: %s", printable(key))
        return self._resources.setdefault(key, resource)

    def add_template(self, fn: Callable[..., Any], uri_template: str, **options: Any) -> ResourceTemplate:
        """Add a function as a template."""
        template = ResourceTemplate.from_function(fn, uri_template, **options)
        self._templates[template.uri_template] = template
        return template

    async def get_resource(self, uri: Any, context: Context[Any, Any, Any] | None = None) -> Resource | None:
        """The resource of a URI, of a template if need be. Raises ValueError if there is none."""
        key = str(uri)
        found = self._resources.get(key)
        if found is not None:
            return found
        for template in self._templates.values():
            variables = template.matches(key)
            if variables:
                try:
                    return await template.create_resource(key, variables, context=context)
                except Exception as error:
                    raise ValueError(f"Error creating resource from template: {error}") from error
        raise ValueError(f"Unknown resource: {uri}")

    def list_resources(self) -> list[Resource]:
        """All resources."""
        return list(self._resources.values())

    def list_templates(self) -> list[ResourceTemplate]:
        """All templates."""
        return list(self._templates.values())
