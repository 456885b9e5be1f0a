"""Resources with a fixed URI, and templates for families of them. Spec: 2026-07-28 server/resources."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import structs

from mcpd.errors import InternalError, InvalidParams, McpdError, ResourceNotFound, as_told
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import ReadResourceResult, Resource, ResourceTemplate
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.peer import is_failure
from mcpd.server.functions.signature import Callee
from .content import resource_contents
from .entries import ActiveExtensions, Entry
from .uri_template import UriTemplate, as_uri, problem_of

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import Completion
    from .caching import CacheHint

log = logging.getLogger("mcpd")

# A function that converts one part of the contents to the form that is sent.
Finisher: TypeAlias = Callable[[Any], Any]


class _Resource(Entry):
    of_tool: str | None = None
    extension_data: Mapping[str, Any] = MappingProxyType({})
    hint: Callable[[], CacheHint] | None = None

    def __init__(self, resource: Resource, requires: str | None, finish: Finisher | None) -> None:
        self.key = resource.uri
        self.resource = resource
        self.requires = requires
        self._finish = finish

    def listed(self, active: ActiveExtensions) -> Resource:
        return self.resource

    def _result(self, value: Any, uri: str) -> ReadResourceResult:
        return _hinted(_read_result(value, uri, self.resource.mime_type, self._finish), self.hint)


class FixedResource(_Resource):
    """One resource with fixed content."""

    def __init__(
        self, resource: Resource, content: str | bytes, *, requires: str | None = None, finish: Finisher | None = None
    ) -> None:
        super().__init__(resource, requires, finish)
        self.content = content

    def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        """Return the result of `resources/read`; `uri` is the URI that the client sent."""
        return self._result(self.content, uri)


class FunctionResource(_Resource):
    """One resource whose content a function returns."""

    def __init__(
        self, resource: Resource, callee: Callee, *, requires: str | None = None, finish: Finisher | None = None
    ) -> None:
        super().__init__(resource, requires, finish)
        self.callee = callee

    async def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        """Return the result of `resources/read`; `uri` is the URI that the client sent."""
        return self._result(await _call(self.callee, {}, exchange, uri), uri)


class FunctionTemplate(Entry):
    """A family of resources: the variables of the template are the arguments of the function."""

    hint: Callable[[], CacheHint] | None = None

    def __init__(
        self,
        template: ResourceTemplate,
        uri_template: UriTemplate,
        callee: Callee,
        *,
        requires: str | None = None,
        finish: Finisher | None = None,
        unsafe_paths: Collection[str] = (),
    ) -> None:
        """`unsafe_paths` are variables whose values may be any text, such as `..` and absolute paths."""
        self.key = template.uri_template
        self.template = template
        self.uri_template = uri_template
        self.callee = callee
        self.requires = requires
        self._finish = finish
        self._unsafe_paths = frozenset(unsafe_paths)

    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        """Return the template as `resources/templates/list` shows it."""
        return self.template

    @property
    def arguments(self) -> Collection[str]:
        """The variables of the template."""
        return self.uri_template.variables

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        """Return the values that the parameter's annotation allows."""
        from .prompts import choices, rank  # few clients ask

        return rank(choices(self.callee.input_schema, argument), value)

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables in a URI, or None if the URI does not match.

        Raises InvalidParams for a value that could lead a path out of its folder.
        """
        variables = self.uri_template.match(uri)
        if variables:
            problem = problem_of(variables, self._unsafe_paths)
            if problem is not None:
                # Other templates are not tried: one that refuses a value must not pass it to one that accepts all.
                text = f"uri: the value of {problem[0]!r} {problem[1]}; ask for a path below the resource's own"
                raise InvalidParams(text, {"uri": uri})
        return variables

    async def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> ReadResourceResult:
        """Return the result of `resources/read` for a matching URI. Raises ResourceNotFound as the function does."""
        value = await _call(self.callee, variables, exchange, uri)
        # A template also accepts URIs as people type them; the result has a valid URI (S26-119).
        return _hinted(_read_result(value, as_uri(uri), self.template.mime_type, self._finish), self.hint)


def _hinted(result: ReadResourceResult, hint: Callable[[], CacheHint] | None) -> ReadResourceResult:
    if hint is None:
        return result
    from .caching import apply_hint  # few entries have one

    hinted = structs.replace(result)  # the author may return the same object again
    apply_hint(hinted, hint())
    return hinted


def _read_result(value: Any, uri: str, mime_type: str | None, finish: Finisher | None) -> ReadResourceResult:
    if isinstance(value, ReadResourceResult):
        return value if finish is None else structs.replace(value, contents=list(map(finish, value.contents)))
    contents = resource_contents(value, uri, mime_type)
    return ReadResourceResult(contents=contents if finish is None else list(map(finish, contents)))


async def _call(callee: Callee, variables: dict[str, str], exchange: Exchange, uri: str) -> Any:
    try:
        if callee.is_async:
            return await callee.call_strings(variables, exchange)
        from mcpd.server.functions.threads import run_in_thread  # loaded with the first plain function

        return await run_in_thread(callee.call_strings, variables, exchange, exchange=exchange)
    except McpdError:
        raise
    except FileNotFoundError:
        raise ResourceNotFound(uri) from None
    except BaseException as error:
        if not is_failure(error):
            raise
        log.error(
            "resource %s (request %s) failed", printable(uri), printable(exchange.request_id), exc_info=as_told(error)
        )
        raise InternalError("The resource could not be read; details are in the server's log") from error
