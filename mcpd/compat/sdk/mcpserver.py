"""Version 2 of the official SDK: `MCPServer`, its `Context`, and parameters that functions resolve.

In this version plain functions run in threads, clients do not receive the messages of unexpected exceptions, and
functions may return requests for input.
"""

from __future__ import annotations

import functools
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_args, get_origin, is_typeddict

from pydantic import ValidationError

from mcpd.compat.contents import Audio, Image
from mcpd.compat.elicitation import AcceptedElicitation, CancelledElicitation, DeclinedElicitation
from mcpd.compat.errors import (
    InvalidSignature,
    McpError,
    ResourceError,
    ResourceNotFoundError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from mcpd.compat.install import refuse, warn_of_unused
from mcpd.compat.lowlevel.server import LifespanResultT, ReadResourceContents, Server, failed_result, read_result
from mcpd.compat.lowlevel.session import SharedContext, current_exchange, current_inputs, is_input_required, running
from mcpd.compat.types import features
from mcpd.compat.types.features import INTERNAL_ERROR, INVALID_PARAMS, ContentBlock, Icon
from mcpd.errors import collects
from mcpd.protocol.printable import printable
from mcpd.server.registry.uri_template import UriTemplate
from . import components
from .functions import FuncMetadata, OutputPlan, call, context_parameter, includes, type_hints
from .server import Context as Context1, FastMCP, _check_called

log = logging.getLogger("mcpd")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_BLOCKS = (Image, Audio, *ContentBlock.__args__)

# -- tools, resources and prompts ------------------------------------------------------------


class _Metadata(FuncMetadata):
    # Members that a TypedDict may omit are omitted, and not null as in version 1.

    @cached_property
    def _plan(self) -> OutputPlan:
        plan = super()._plan
        if plan.schema is not None and is_typeddict(self.returns):
            members = plan.schema.get("properties", {})
            for name in members.keys() - set(plan.schema.get("required", ())):
                members[name].pop("default", None)
        return plan

    def convert_result(self, result: Any) -> Any:
        converted = super().convert_result(result)
        if isinstance(converted, tuple) and is_typeddict(self.returns):
            return converted[0], {name: value for name, value in converted[1].items() if name in result}
        return converted


class Tool(components.Tool):
    """A tool, which may have parameters with `Resolve`."""

    _runs_in_thread = True
    _resolved: dict[str, _Parameter]

    def _set_metadata(self, structured_output: bool | None) -> None:
        self._resolved = _resolved_parameters(self.fn)
        skipped = [*self._resolved, *self._skipped]
        self.fn_metadata = _Metadata(self.fn, skipped, structured_output)
        # Content blocks are not structured output in version 2.
        if structured_output is None and includes(self.fn_metadata.returns, _BLOCKS, in_lists=True):
            self.fn_metadata = _Metadata(self.fn, skipped, False)

    async def run(self, arguments: dict[str, Any], context: Any = None, convert_result: bool = False) -> Any:
        """Call the function. Raises ToolError with a message for the model, and McpError unchanged."""
        prefix = f"Error executing tool {self.name}"
        try:
            values = self.fn_metadata.validated(arguments)
        except ValidationError as error:
            raise ToolError(f"{prefix}: {error}") from error

        try:
            # A function that several parameters need is called once.
            resolved: dict[Any, Any] = {}
            for name, parameter in self._resolved.items():
                values[name] = await _value(name, parameter, values, context, resolved)
            result = await self._call(values, context)
            return self._converted(result) if convert_result else result
        except McpError:
            raise
        except (UnexpectedToolError, UnexpectedResourceError) as error:
            raise UnexpectedToolError(f"{prefix}: {error}") from error
        except (ToolError, ResourceError) as error:
            raise ToolError(f"{prefix}: {error}") from error
        except Exception as error:
            raise UnexpectedToolError(prefix) from error

    def _converted(self, result: Any) -> Any:
        if is_input_required(result):
            return result

        converted = self.fn_metadata.convert_result(result)
        if isinstance(converted, features.CallToolResult):
            return converted
        content, structured = converted if isinstance(converted, tuple) else (converted, None)
        return features.CallToolResult(content=content, structuredContent=structured)


class ToolManager(components.ToolManager):
    tool_type = Tool


@dataclass(frozen=True)
class ResourceSecurity:
    """Rejects values of variables that would lead out of a folder."""

    reject_path_traversal: bool = True
    reject_absolute_paths: bool = True
    reject_null_bytes: bool = True
    exempt_params: Iterable[str] = field(default_factory=frozenset)

    def validate(self, params: dict[str, Any]) -> str | None:
        """Return the name of a variable with a rejected value, or None."""
        checked = (name for name in params if name not in self.exempt_params)
        return next((name for name in checked if self._rejects(params[name])), None)

    def _rejects(self, value: str) -> bool:
        is_absolute = re.match(r"[/\\]|[A-Za-z]:", value) is not None
        return (
            (self.reject_null_bytes and "\0" in value)
            or (self.reject_path_traversal and _leads_out(value))
            or (self.reject_absolute_paths and is_absolute)
        )


DEFAULT_RESOURCE_SECURITY = ResourceSecurity()


def _leads_out(value: str) -> bool:
    # A value may contain `..` as long as it stays below its folder, as in the library.
    depth = 0
    for part in re.split(r"[/\\]", value):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False


class ResourceTemplate(components.ResourceTemplate):
    """A template of RFC 6570, whose values are checked."""

    _runs_in_thread = True
    security: ResourceSecurity = DEFAULT_RESOURCE_SECURITY

    def __init__(self, **members: Any) -> None:
        super().__init__(**members)
        self._template = UriTemplate(self.uri_template)

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables in a URI, None if it does not match. Raises ResourceNotFoundError."""
        variables = self._template.match(uri)
        if variables is not None and self.security.validate(variables) is not None:
            raise ResourceNotFoundError(f"Unknown resource: {uri}")
        return variables

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Any:
        """Call the function and return the resource. Raises ResourceError and McpError."""
        try:
            result = await self._call(params, context)
            return result if is_input_required(result) else self._resource(uri, result)
        except (ResourceError, McpError):
            raise
        except Exception as error:
            raise UnexpectedResourceError(f"Error creating resource from template {uri}") from error


class ResourceManager(components.ResourceManager):
    template_type = ResourceTemplate


class Prompt(components.Prompt):
    _runs_in_thread = True

    async def render(self, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Return the messages. Raises McpError, and ValueError for missing arguments and failures."""
        values = self._checked(arguments)
        try:
            result = await self._call(values, context)
            return result if is_input_required(result) else self._messages(result)
        except McpError:
            raise
        except Exception as error:
            raise ValueError(f"Error rendering prompt {self.name}") from error

    def _message(self, item: Any) -> components.Message:
        return components.UserMessage(content=item) if isinstance(item, _BLOCKS) else super()._message(item)


# -- parameters that a function resolves -----------------------------------------------------

# `Annotated[T, Resolve(function)]`: the function may ask the client. In earlier protocol versions it is asked at once.
# In 2026-07-28 the result asks for input, and the functions are called again with the responses.

_RESULTS = (AcceptedElicitation, DeclinedElicitation, CancelledElicitation)


class Resolve:
    """Marks a parameter whose value a function returns."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn


class Elicit(Generic[T]):
    """Returned by such a function to ask the user with a form for the fields of a model."""

    def __init__(self, message: str, schema: type[T]) -> None:
        self.message = message
        self.schema = schema


class Sample:
    """Returned by such a function to sample from the client's model."""

    def __init__(self, messages: list[Any], *, max_tokens: int, **options: Any) -> None:
        self.messages = messages
        self.options = {"max_tokens": max_tokens, **options}


class ListRoots:
    """Returned by such a function to list the client's roots."""


class _Parameter(NamedTuple):
    fn: Callable[..., Any]
    takes_result: bool  # the whole elicitation result, and not only its data


def _resolved_parameters(fn: Callable[..., Any]) -> dict[str, _Parameter]:
    # Raises InvalidSignature for a resolver whose own parameters are not known.
    parameters = _marked(fn)
    known = set(inspect.signature(fn).parameters) - parameters.keys()
    for parameter in parameters.values():
        _check(parameter.fn, known, ())
    return parameters


def _marked(fn: Callable[..., Any]) -> dict[str, _Parameter]:
    parameters: dict[str, _Parameter] = {}
    for name, hint in type_hints(fn).items():
        if name != "return" and get_origin(hint) is Annotated:
            kind, *marks = get_args(hint)
            takes_result = includes(kind, _RESULTS)
            parameters.update((name, _Parameter(mark.fn, takes_result)) for mark in marks if isinstance(mark, Resolve))
    return parameters


def _check(fn: Callable[..., Any], known: set[str], above: tuple[Any, ...]) -> None:
    name = getattr(fn, "__name__", type(fn).__name__)
    if fn in above:
        raise InvalidSignature(f"Resolver {name!r} has a cyclic dependency")

    hints, marked = type_hints(fn), _marked(fn)
    for parameter in inspect.signature(fn).parameters:
        if parameter in marked:
            _check(marked[parameter].fn, known, (*above, fn))
        elif not includes(hints.get(parameter), SharedContext) and parameter not in known:
            raise InvalidSignature(
                f"Resolver {name!r} parameter {parameter!r} cannot be resolved: expected a Context, an "
                "Annotated[_, Resolve(...)], or a tool argument by name"
            )


async def _value(
    name: str, parameter: _Parameter, arguments: dict[str, Any], context: Any, resolved: dict[Any, Any]
) -> Any:
    fn = parameter.fn
    # Arguments of the tool are values already, and other resolvers run first.
    if fn not in resolved:
        hints, marked = type_hints(fn), _marked(fn)
        values: dict[str, Any] = {}
        for needed in inspect.signature(fn).parameters:
            if needed in marked:
                values[needed] = await _value(needed, marked[needed], arguments, context, resolved)
            else:
                values[needed] = context if includes(hints.get(needed), SharedContext) else arguments[needed]
        result = await call(functools.partial(fn, **values), in_thread=True)
        resolved[fn] = await _outcome(result, context)

    outcome = resolved[fn]
    if parameter.takes_result:
        return outcome
    if isinstance(outcome, AcceptedElicitation):
        return outcome.data
    raise ToolError(f"Resolver for parameter {name!r} could not resolve: elicitation was {outcome.action}")


async def _outcome(result: Any, context: Any) -> Any:
    if isinstance(result, Elicit):
        return await context.elicit(result.message, result.schema)
    if isinstance(result, Sample):
        result = await context.session.create_message(result.messages, **result.options)
    elif isinstance(result, ListRoots):
        result = await context.session.list_roots()
    return AcceptedElicitation.model_construct(action="accept", data=result)


# -- the server ------------------------------------------------------------------------------

# Options whose effect an author would miss.
_UNUSED = frozenset(("cache_hints", "request_state_security", "subscriptions"))


class Context(Context1[Any, Any, Any]):
    """Gives a function access to the request that it serves: `ctx: Context`."""

    def __class_getitem__(cls, parameters: Any) -> Any:
        return cls

    mcp_server = property(attrgetter("fastmcp"))

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The headers of the HTTP request, None for other transports."""
        headers: Mapping[str, str] | None = getattr(self.request_context.request, "headers", None)
        return headers

    @property
    def protocol_version(self) -> str | None:
        exchange = current_exchange.get(None)
        return None if exchange is None else exchange.call.version.name

    @property
    def client_capabilities(self) -> features.ClientCapabilities:
        capabilities: features.ClientCapabilities = self.session.client_params.capabilities
        return capabilities

    @property
    def input_responses(self) -> Any:
        """The client's responses to an `InputRequiredResult`, by name."""
        return current_inputs.get().responses

    @property
    def request_state(self) -> str | None:
        """The state of that `InputRequiredResult`."""
        return current_inputs.get().state

    notify_tools_changed = Context1.send_tool_list_changed
    notify_prompts_changed = Context1.send_prompt_list_changed
    notify_resources_changed = Context1.send_resource_list_changed

    async def notify_resource_updated(self, uri: Any) -> None:
        """Notify clients that subscribe to a resource of its change."""
        await self.session.send_resource_updated(uri)


class MCPServer(FastMCP[LifespanResultT]):
    """A server whose tools, resources and prompts are functions."""

    _prompt_type = Prompt
    _managers = (ToolManager, ResourceManager)

    def __init__(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
        version: str = "",
        auth_server_provider: Any = None,
        token_verifier: Any = None,
        *,
        tools: Sequence[components.Tool] | None = None,
        resources: Sequence[Any] | None = None,
        extensions: Sequence[Any] | None = None,
        resource_security: ResourceSecurity = DEFAULT_RESOURCE_SECURITY,
        middleware: Sequence[Any] | None = None,
        **settings: Any,
    ) -> None:
        if extensions:
            refuse("MCPServer(extensions=…)", "the official SDK")
        for option in _UNUSED & settings.keys():
            warn_of_unused(f"MCPServer({option}=…)", settings.pop(option))

        self._set_up(settings, auth_server_provider, token_verifier, tools)
        self._resource_security = resource_security
        self._mcp_server: Server[LifespanResultT, Any] = Server(
            name or "mcp-server",
            version=version or None,
            instructions=instructions,
            website_url=website_url,
            icons=icons,
            lifespan=self._lifespan(),
            title=title,
            description=description,
            on_list_tools=self._lists(features.ListToolsResult, "tools", "list_tools"),
            on_call_tool=self._on_call_tool,
            on_list_resources=self._lists(features.ListResourcesResult, "resources", "list_resources"),
            on_list_resource_templates=self._lists(
                features.ListResourceTemplatesResult, "resourceTemplates", "list_resource_templates"
            ),
            on_read_resource=self._on_read_resource,
            on_list_prompts=self._lists(features.ListPromptsResult, "prompts", "list_prompts"),
            on_get_prompt=lambda _, params: self.get_prompt(params.name, params.arguments),
        )
        self._mcp_server.middleware.extend(middleware or ())
        for resource in resources or ():
            self.add_resource(resource)
        self._set_authenticator()

    title = property(attrgetter("_mcp_server.title"))
    description = property(attrgetter("_mcp_server.description"))
    # Functions around each request, the outermost first: `async (ctx, call_next)`.
    middleware = property(attrgetter("_mcp_server.middleware"))
    # The name in version 2. Servers change this object, since the library has no public attribute for it.
    _lowlevel_server = property(attrgetter("_mcp_server"))

    def get_context(self) -> Context:
        try:
            request = running()
        except LookupError:
            request = None
        return Context(request_context=request, fastmcp=self)

    def _lists(self, result: type[Any], member: str, method: str) -> Callable[[Any, Any], Awaitable[Any]]:
        # Returns a handler of a list request. It calls a method that a subclass may override.
        async def handle(ctx: Any, params: Any) -> Any:
            return result(**{member: await getattr(self, method)()})

        return handle

    # -- tools -------------------------------------------------------------------------------

    async def _on_call_tool(self, ctx: Any, params: Any) -> Any:
        try:
            return await self.call_tool(params.name, params.arguments or {})
        # Version 2 sends an error response for this one, and results for all others.
        except McpError:
            raise
        except Exception as error:
            is_expected = isinstance(error, ToolError) and not isinstance(error, UnexpectedToolError)
            _log_failure("tool", params.name, error, is_expected)
            return failed_result(str(error))

    # -- resources ---------------------------------------------------------------------------

    @collects
    def resource(self, uri: str, *, security: ResourceSecurity | None = None, **options: Any) -> Callable[[F], F]:
        """Register a function as a resource, or with variables in `uri` as a template."""
        _check_called(uri, "resource", "@resource('uri')")
        variables = set(UriTemplate(uri).variables)

        def register(function: F) -> F:
            context = context_parameter(function)
            expected = set(inspect.signature(function).parameters) - {context}
            if variables != expected:
                raise ValueError(f"Mismatch between URI parameters {variables} and function parameters {expected}")
            if variables:
                self._resource_manager.add_template(
                    function, uri, security=security or self._resource_security, **options
                )
            elif context is not None:
                raise ValueError(
                    f"Resource {uri!r} has no URI template variables, but the handler declares a Context parameter"
                )
            else:
                self.add_resource(components.FunctionResource.from_function(function, uri, **options))
            return function

        return register

    async def _on_read_resource(self, ctx: Any, params: Any) -> Any:
        uri = str((ctx.params or {}).get("uri", params.uri))  # as the client sent it: a model normalizes URIs
        try:
            result = await self.read_resource(uri)
        except ResourceError as error:
            _log_failure("resource", uri, error, not isinstance(error, UnexpectedResourceError))
            code = INVALID_PARAMS if isinstance(error, ResourceNotFoundError) else INTERNAL_ERROR
            raise McpError(code, str(error), {"uri": uri}) from error
        return read_result(uri, result) if isinstance(result, list) else result

    async def read_resource(self, uri: Any, context: Any = None) -> Any:
        """Read a resource. Raises ResourceError, McpError."""
        context = self.get_context() if context is None else context
        try:
            resource = await self._resource_manager.get_resource(uri, context=context)
            if is_input_required(resource):
                return resource
            return [ReadResourceContents(await resource.read(), resource.mime_type, resource.meta)]
        except (McpError, ResourceError):
            raise
        except Exception as error:
            if isinstance(error.__cause__, (McpError, ResourceError)):
                raise error.__cause__ from None
            raise UnexpectedResourceError(f"Error reading resource {uri}") from error

    # -- prompts -----------------------------------------------------------------------------

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt. Raises ValueError for an unknown one."""
        self._prompt_manager.remove_prompt(name)

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Return the messages of a prompt. Raises ValueError, McpError."""
        context = self.get_context() if context is None else context
        messages = await self._prompt_manager.render_prompt(name, arguments, context)
        return self._prompt_result(name, messages) if isinstance(messages, list) else messages

    def completion(self) -> Any:
        """Register a function that completes arguments: of a reference, an argument and a context."""

        def register(function: F) -> F:
            async def complete(ctx: Any, params: Any) -> features.CompleteResult:
                try:
                    completion = await function(params.ref, params.argument, params.context)
                except McpError:
                    raise
                except Exception as error:
                    log.error("completion failed", exc_info=True)
                    raise McpError(INTERNAL_ERROR, f"Error completing argument {params.argument.name}") from error
                return features.CompleteResult(completion=completion or features.Completion(values=[]))

            self._mcp_server.add_request_handler("completion/complete", None, complete)
            return function

        return register


def _log_failure(kind: str, name: str, error: Exception, is_expected: bool) -> None:
    level = logging.INFO if is_expected else logging.ERROR
    log.log(level, "%s %s failed: %s", kind, printable(name), printable(str(error)), exc_info=not is_expected)
