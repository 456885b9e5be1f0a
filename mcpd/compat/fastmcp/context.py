"""Values that a function of `fastmcp` can receive besides its arguments: the `Context`, and dependencies.

A context keeps state for each session, and sends requests to the client. A dependency is the default of a parameter.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from mcpd.compat.auth import AccessToken, caller_token
from mcpd.compat.install import refuse
from mcpd.compat.lowlevel.session import RequestContext, SharedContext, current_exchange, request_ctx
from mcpd.compat.types.features import TextContent
from mcpd.transports.authentication import RequestHeaders
from .base import Visibility

if TYPE_CHECKING:
    from mcpd.compat.types import client_requests, features
    from mcpd.compat.types.features import Resource

T = TypeVar("T", covariant=True)

_NO_SESSION = "{} is not available outside of a request, where `context.request_context` is None."
_MAX_TOKENS = 512

current_context: ContextVar[Any] = ContextVar("fastmcp_context", default=None)


class _SessionState:
    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.values: dict[str, Any] = {}
        self.visibility = Visibility()


# A session's state ends with its connection. Nothing else refers to it.
_states: WeakKeyDictionary[object, _SessionState] = WeakKeyDictionary()


def _session_state() -> _SessionState:
    exchange = current_exchange.get(None)
    if exchange is None:
        raise RuntimeError(
            "session_id is not available because no session exists. "
            "This typically means you're outside a request context."
        )

    session = exchange.call.session
    if session not in _states:
        _states[session] = _SessionState(exchange.origin.headers().get("mcp-session-id") or str(uuid4()))
    return _states[session]


def session_visibility() -> Visibility | None:
    """Return what the current session enables and disables for itself, None if it does not."""
    exchange = current_exchange.get(None)
    state = None if exchange is None else _states.get(exchange.call.session)
    return None if state is None else state.visibility


class Context(SharedContext):
    """Gives a function access to the request that it serves: `ctx: Context`."""

    is_background_task = False
    task_id: str | None = None

    def __init__(self, fastmcp: Any) -> None:
        self.fastmcp = fastmcp
        self._values: dict[str, Any] = {}
        self._tokens: list[Any] = []

    async def __aenter__(self) -> Self:
        outer = current_context.get()
        if outer is not None:
            self._values = outer._values  # the state of a request is shared by mounted servers
        self._tokens.append(current_context.set(self))
        return self

    async def __aexit__(self, *_: object) -> None:
        current_context.reset(self._tokens.pop())

    # -- the request -------------------------------------------------------------------------

    @property
    def request_context(self) -> RequestContext[Any, Any, Any] | None:
        return self._current()

    @property
    def lifespan_context(self) -> Any:
        return {} if self.request_context is None else self.request_context.lifespan_context

    @property
    def session(self) -> Any:
        """The client's session, a `ServerSession`. Raises RuntimeError outside of a request."""
        if self.request_context is None:
            raise RuntimeError(_NO_SESSION.format("session"))
        return self.request_context.session

    @property
    def request_id(self) -> str:
        """The id of the request. Raises RuntimeError outside of a request."""
        if self.origin_request_id is None:
            raise RuntimeError(_NO_SESSION.format("request_id"))
        return self.origin_request_id

    @property
    def origin_request_id(self) -> str | None:
        return None if self.request_context is None else str(self.request_context.request_id)

    @property
    def session_id(self) -> str:
        """A text that is the same for all requests of a session. Raises RuntimeError outside of a request."""
        return _session_state().id

    @property
    def transport(self) -> str | None:
        """ "stdio" or "streamable-http", None outside of a request."""
        exchange = current_exchange.get(None)
        if exchange is None:
            return None
        return "stdio" if exchange.origin.transport in ("stdio", "memory") else "streamable-http"

    def get_http_request(self) -> Any:
        return get_http_request()

    def client_supports_extension(self, extension_id: str) -> bool:
        return self.client_extension_settings(extension_id) is not None

    def client_extension_settings(self, identifier: str) -> dict[str, Any] | None:
        """Return the client's settings of an extension, None if it does not support it."""
        exchange = current_exchange.get(None)
        supported = None if exchange is None else exchange.client.capabilities.extensions
        # Clients with equal capabilities share this object.
        return deepcopy(supported[identifier]) if supported and identifier in supported else None

    # -- this server -------------------------------------------------------------------------

    async def read_resource(self, uri: Any) -> Any:
        return await self.fastmcp.read_resource(str(uri))

    async def list_resources(self) -> list[Resource]:
        return [resource.to_mcp_resource() for resource in await self.fastmcp.list_resources()]

    async def list_prompts(self) -> list[features.Prompt]:
        return [prompt.to_mcp_prompt() for prompt in await self.fastmcp.list_prompts()]

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> features.GetPromptResult:
        result: features.GetPromptResult = (await self.fastmcp.render_prompt(name, arguments)).to_mcp_prompt_result()
        return result

    # -- the client --------------------------------------------------------------------------

    async def log(
        self, message: str, level: Any = None, logger_name: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        await self.session.send_log_message(
            level=level or "info",
            data={"msg": message, "extra": None if extra is None else {**extra}},
            logger=logger_name,
        )

    async def _log(self, level: Any, message: Any, logger_name: str | None, extra: Any) -> None:
        await self.log(message, level, logger_name, extra)

    async def elicit(
        self,
        message: str,
        response_type: Any = None,
        *,
        response_title: str | None = None,
        response_description: str | None = None,
        schema: Any = None,
    ) -> Any:
        """Ask the user with a form for a text, a number, a choice, a model or a dataclass."""
        from mcpd.compat.elicitation import elicit

        kind = schema if response_type is None else response_type
        return await elicit(self.session, message, kind, response_title, response_description)

    async def sample(self, messages: Any, system_prompt: str | None = None, **options: Any) -> SamplingResult:
        """Sample from the client's model. Raises NotHere for tools and typed results."""
        for name in ("tools", "result_type", "tool_choice"):
            if options.pop(name, None) not in (None, str):
                refuse(f"ctx.sample({name}=…)", "fastmcp")

        items = messages if isinstance(messages, (list, tuple)) else [messages]
        sent = [_sampling_message(item) for item in items]
        answer = await self.session.create_message(
            sent,
            max_tokens=options.get("max_tokens") or _MAX_TOKENS,
            system_prompt=system_prompt,
            include_context=options.get("include_context"),
            temperature=options.get("temperature"),
            model_preferences=_model_preferences(options.get("model_preferences")),
        )
        text = getattr(answer.content, "text", None)
        return SamplingResult(text, text if text is not None else answer.content, answer.content, [*sent, answer])

    async def list_roots(self) -> list[client_requests.Root]:
        return list((await self.session.list_roots()).roots)

    async def send_notification(self, notification: Any) -> None:
        await self.session.send_notification(notification)

    # -- state -------------------------------------------------------------------------------

    async def set_state(self, key: str, value: Any, *, serializable: bool = True) -> None:
        """Keep a value for the session. With `serializable=False`, keep it for this request only."""
        self._values.pop(key, None)
        # A value that cannot be serialized may belong to the request, such as an open file.
        values = _session_state().values if serializable else self._values
        values[key] = value

    async def get_state(self, key: str) -> Any:
        return self._values[key] if key in self._values else _session_state().values.get(key)

    async def delete_state(self, key: str) -> None:
        self._values.pop(key, None)
        _session_state().values.pop(key, None)

    async def enable_components(self, **filters: Any) -> None:
        """Enable components for this session, by `names`, `keys`, `tags`, `version` and `components`."""
        _session_state().visibility.add(True, **filters)
        await self._announce_lists(filters)

    async def disable_components(self, **filters: Any) -> None:
        _session_state().visibility.add(False, **filters)
        await self._announce_lists(filters)

    async def reset_visibility(self) -> None:
        """Offer this session the same components as all others."""
        _session_state().visibility.clear()
        await self._announce_lists({})

    async def _announce_lists(self, filters: dict[str, Any]) -> None:
        # Only this session's lists change, but the notifications go to all clients.
        for kind in sorted(_LISTS & set(filters.get("components") or _LISTS)):
            await getattr(self.session, f"send_{kind}_list_changed")()


_LISTS = {"tool", "resource", "prompt"}

# -- sampling --------------------------------------------------------------------------------


@dataclass
class SamplingResult:
    text: str | None
    result: Any
    content: Any = None
    history: list[Any] = field(default_factory=list)
    type: str = "text"


def _sampling_message(message: Any) -> client_requests.SamplingMessage:
    from mcpd.compat.types.client_requests import SamplingMessage

    if isinstance(message, SamplingMessage):
        return message
    block = TextContent(text=message) if isinstance(message, str) else message
    return SamplingMessage(role="user", content=block)


def _model_preferences(preferences: Any) -> Any:
    from mcpd.compat.types.client_requests import ModelHint, ModelPreferences

    if preferences is None or isinstance(preferences, ModelPreferences):
        return preferences
    names = [preferences] if isinstance(preferences, str) else preferences
    return ModelPreferences(hints=[ModelHint(name=name) for name in names])


# -- functions that return what a request brings ---------------------------------------------

_OMITTED_HEADERS = frozenset(
    ("accept", "authorization", "connection", "content-length", "content-type", "cookie", "expect", "host",
     "keep-alive", "mcp-session-id", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
     "transfer-encoding", "upgrade")
)  # fmt: skip


def get_context() -> Any:
    """Return the context of the current request. Raises RuntimeError outside of a request."""
    context = current_context.get()
    if context is None:
        raise RuntimeError("No active context found.")
    return context


def get_server() -> Any:
    return get_context().fastmcp


def get_http_request() -> Any:
    """Return the current HTTP request, Starlette's if that is installed. Raises RuntimeError for other transports."""
    request = request_ctx.get(None)
    if request is None or request.request is None:
        raise RuntimeError("No active HTTP request found.")
    return request.request


def get_http_headers(include_all: bool = False, include: set[str] | None = None) -> dict[str, str]:
    """Return the headers of the HTTP request by lower-case name, {} for other transports.

    Headers of the connection and credentials are omitted, unless `include` names them.
    """
    # Servers pass these headers on to other services, which must not receive credentials by accident.
    omitted = frozenset() if include_all else _OMITTED_HEADERS - {name.lower() for name in include or ()}
    exchange = current_exchange.get(None)
    headers = {} if exchange is None else RequestHeaders.of(exchange.origin.fields)
    return {name: value for name, value in headers.items() if name not in omitted}


get_access_token = caller_token


# -- parameters that receive them ------------------------------------------------------------


class Dependency(ABC, Generic[T]):
    """The default of a parameter that clients do not see. It is entered before the call and exited after it."""

    single: bool = False

    @abstractmethod
    async def __aenter__(self) -> T:
        """Return the value."""

    async def __aexit__(self, *_: object) -> None:
        """Release the value after the call."""


class _Call:
    # Each factory is called once during a call.
    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.values: dict[Any, Any] = {}


_call: ContextVar[_Call] = ContextVar("fastmcp_call")


class _Depends(Dependency[Any]):
    def __init__(self, factory: Callable[..., Any], given: dict[str, Any]) -> None:
        self.factory = factory
        self._given = given

    async def __aenter__(self) -> Any:
        call = _call.get()
        # Functions that need the same factory share its value during a call, such as a database session.
        key = self.factory if not self._given else id(self)
        if key not in call.values:
            arguments = {name: await _enter(value) for name, value in self._given.items()}
            for name, parameter in inspect.signature(self.factory).parameters.items():
                if name not in arguments and isinstance(parameter.default, Dependency):
                    arguments[name] = await _enter(parameter.default)
            call.values[key] = await _open(self.factory(**arguments))
        return call.values[key]


async def _enter(value: Any) -> Any:
    return await _call.get().stack.enter_async_context(value) if isinstance(value, Dependency) else value


async def _open(value: Any) -> Any:
    stack = _call.get().stack
    if isinstance(value, AbstractAsyncContextManager):
        return await stack.enter_async_context(value)
    if isinstance(value, AbstractContextManager):
        return stack.enter_context(value)
    return await value if inspect.isawaitable(value) else value


async def resolve(dependencies: dict[str, Dependency[Any]], stack: AsyncExitStack) -> dict[str, Any]:
    """Return the values of a function's dependencies. `stack` releases them."""
    token = _call.set(_Call(stack))
    try:
        return {name: await _enter(dependency) for name, dependency in dependencies.items()}
    finally:
        _call.reset(token)


class _Returned(Dependency[Any]):
    # The value that a function without parameters returns.
    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    async def __aenter__(self) -> Any:
        return self._function()


# The library's functions are named like classes.


def Depends(dependency: Callable[..., Any], **given: Any) -> Any:  # noqa: N802
    """Inject what `dependency` returns. Awaitables are awaited, and context managers entered for the call."""
    return _Depends(dependency, given)


CurrentContext = partial(_Returned, get_context)
OptionalCurrentContext = partial(_Returned, current_context.get)
"""The `Context`, None outside of a request."""
CurrentFastMCP = partial(_Returned, get_server)
CurrentRequest = partial(_Returned, get_http_request)
CurrentHeaders = partial(_Returned, partial(get_http_headers, include={"authorization"}))


def CurrentAccessToken() -> Any:  # noqa: N802
    """Inject the caller. A call by an anonymous caller fails."""
    missing = "No access token found. Ensure authentication is configured and the request is authenticated."
    return _Returned(partial(_token, missing))


def TokenClaim(name: str) -> Any:  # noqa: N802
    """Inject a claim of the caller. A call without this claim fails."""

    def claim() -> str:
        claims = _token(f"No access token available. Cannot extract claim '{name}'.").claims
        if claims.get(name) is None:
            raise RuntimeError(f"Claim '{name}' not found in access token. Available claims: {list(claims)}")
        return str(claims[name])

    return _Returned(claim)


def _token(missing: str) -> AccessToken:
    token = caller_token()
    if token is None:
        raise RuntimeError(missing)
    return token


class Progress(Dependency["Progress"]):
    """The progress of the call, which is sent to a client that asked for it."""

    def __init__(self) -> None:
        self.current: int | None = None
        self.total = 1
        self.message: str | None = None

    async def __aenter__(self) -> Progress:
        return Progress()

    async def set_total(self, total: int) -> None:
        if total < 1:
            raise ValueError("Total must be at least 1")
        self.total = total

    async def increment(self, amount: int = 1) -> None:
        if amount < 1:
            raise ValueError("Amount must be at least 1")
        self.current = (self.current or 0) + amount
        await self._report()

    async def set_message(self, message: str | None) -> None:
        self.message = message
        await self._report()

    async def _report(self) -> None:
        await get_context().report_progress(self.current or 0, self.total, self.message)
