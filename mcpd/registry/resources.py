"""Resources with a fixed URI, and templates for families of them. Spec: 2026-07-28 server/resources."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from ..context import Context
from ..errors import InternalError, McpdError, ResourceNotFound
from ..types.resources import ReadResourceResult, Resource, ResourceTemplate
from .content import resource_contents
from .pages import Audience
from .signature import Callee
from .threads import run_in_thread
from .uri_template import UriTemplate

__all__ = ["ResourceEntry", "TemplateEntry"]

log = logging.getLogger("mcpd")


class ResourceEntry:
    """One resource. What it holds is the return value of `callee`, or `content` as it stands."""

    def __init__(
        self,
        resource: Resource,
        callee: Callee | None = None,
        *,
        content: str | bytes = "",
        requires: str | None = None,
        content_meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.key = resource.uri
        self.resource = resource
        self.callee = callee
        self.content = content
        self.requires = requires
        self.content_meta = dict(content_meta) if content_meta else None

    def listed(self, audience: Audience) -> Resource:
        """The resource as `resources/list` shows it."""
        return self.resource

    def read(self, ctx: Context) -> Any:
        """The result of `resources/read`, or a coroutine of it."""
        if self.callee is None:
            return self._result(self.content)
        return self._read(self.callee, ctx)

    async def _read(self, callee: Callee, ctx: Context) -> ReadResourceResult:
        return self._result(await _call(callee, {}, ctx, self.key))

    def _result(self, value: Any) -> ReadResourceResult:
        if isinstance(value, ReadResourceResult):
            return value
        contents = resource_contents(value, self.key, self.resource.mime_type)
        if self.content_meta is not None:
            contents = [structs.replace(item, meta={**self.content_meta, **(item.meta or {})}) for item in contents]
        return ReadResourceResult(contents=contents)


class TemplateEntry:
    """A family of resources: the variables of the template are the arguments of the function."""

    def __init__(
        self, template: ResourceTemplate, uri_template: UriTemplate, callee: Callee, requires: str | None = None
    ) -> None:
        self.key = template.uri_template
        self.template = template
        self.uri_template = uri_template
        self.callee = callee
        self.requires = requires

    def listed(self, audience: Audience) -> ResourceTemplate:
        """The template as `resources/templates/list` shows it."""
        return self.template

    async def read(self, uri: str, variables: dict[str, str], ctx: Context) -> ReadResourceResult:
        """The result of `resources/read` for a URI that matches. Raises ResourceNotFound as the function does."""
        value = await _call(self.callee, variables, ctx, uri)
        if isinstance(value, ReadResourceResult):
            return value
        return ReadResourceResult(contents=resource_contents(value, uri, self.template.mime_type))


async def _call(callee: Callee, variables: dict[str, str], ctx: Context, uri: str) -> Any:
    try:
        if callee.is_async:
            return await callee.call_strings(variables, ctx)
        return await run_in_thread(callee.call_strings, variables, ctx)
    except McpdError:
        raise
    except FileNotFoundError:
        raise ResourceNotFound(uri) from None
    except (Exception, SystemExit) as error:
        log.error("resource %s (request %r) failed", uri, ctx.request_id, exc_info=error)
        raise InternalError("The resource could not be read; details are in the server's log") from None
