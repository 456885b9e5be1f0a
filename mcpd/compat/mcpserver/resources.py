"""Resources and templates: as in version 1, with templates of RFC 6570, values that are screened, and threads."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from mcpd.compat.exceptions import McpError
from mcpd.compat.fastmcp1 import templates as first
from mcpd.compat.fastmcp1.resources import FunctionResource, Resource
from mcpd.compat.fastmcp1.signature import is_async
from mcpd.compat.lowlevel.context import current_exchange
from mcpd.compat.mcpserver.errors import ResourceError, ResourceNotFoundError, UnexpectedResourceError
from mcpd.server.functions.threads import run_in_thread
from mcpd.server.registry.uri_template import UriTemplate

__all__ = ["DEFAULT_RESOURCE_SECURITY", "ResourceManager", "ResourceSecurity", "ResourceTemplate"]

_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True)
class ResourceSecurity:
    """Which values of variables are refused: those that would lead out of a folder."""

    reject_path_traversal: bool = True
    reject_absolute_paths: bool = True
    reject_null_bytes: bool = True
    exempt_params: Iterable[str] = field(default_factory=frozenset)

    def validate(self, params: dict[str, Any]) -> str | None:
        """The name of a variable whose value is refused, None if there is none."""
        for name, value in params.items():
            for one in value if isinstance(value, list) else [value]:
                if name not in self.exempt_params and self._refuses(one):
                    return name
        return None

    def _refuses(self, value: str) -> bool:
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


class ResourceTemplate(first.ResourceTemplate):
    """A function whose parameters are the variables of a URI."""

    security: ResourceSecurity = DEFAULT_RESOURCE_SECURITY

    def __init__(self, *, uri_template: str, **options: Any) -> None:
        super().__init__(uri_template="x:", **options)
        self.uri_template = uri_template
        self._parsed = UriTemplate(uri_template)

    def matches(self, uri: str) -> dict[str, Any] | None:
        """The variables in a URI of this family, None if it is none of it. Raises ResourceNotFoundError."""
        found = self._parsed.match(uri)
        if found is not None and self.security.validate(found) is not None:
            raise ResourceNotFoundError(f"Unknown resource: {uri}")
        return found

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Any:
        """The resource of a URI: calls the function. Raises ResourceError, McpError as they were raised."""
        given = {**params, self.context_kwarg: context} if self.context_kwarg else params
        call = functools.partial(self.fn, **given)
        try:
            result = await (call() if is_async(self.fn) else run_in_thread(call, exchange=current_exchange.get(None)))
        except (ResourceError, McpError):
            raise
        except Exception as error:
            raise UnexpectedResourceError(f"Error creating resource from template {uri}") from error
        if getattr(result, "resultType", None) == "input_required":
            return result
        return FunctionResource(
            uri=uri,  # type: ignore[arg-type]  # pydantic reads it
            name=self.name,
            mime_type=self.mime_type,
            meta=self.meta,
            fn=lambda: result,
        )


class ResourceManager(first.ResourceManager):
    """The resources and templates of a server."""

    def add_template(
        self, fn: Callable[..., Any], uri_template: str, security: ResourceSecurity | None = None, **options: Any
    ) -> ResourceTemplate:
        """Add a function as a template."""
        template = ResourceTemplate.from_function(fn, uri_template, **options)
        assert isinstance(template, ResourceTemplate)
        if security is not None:
            template.security = security
        self._templates[template.uri_template] = template
        return template

    async def get_resource(self, uri: Any, context: Any = None) -> Any:
        """The resource of a URI, of a template if need be. Raises ResourceNotFoundError, ResourceError."""
        key = str(uri)
        found: Resource | None = self._resources.get(key)
        if found is not None:
            return found
        for template in self._templates.values():
            variables = template.matches(key)
            if variables is not None:
                return await template.create_resource(key, variables, context=context)
        raise ResourceNotFoundError(f"Unknown resource: {uri}")
