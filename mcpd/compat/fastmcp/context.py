"""`Context` of `fastmcp`, the state that it keeps for each session, and its requests to the client's model."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4
from weakref import WeakKeyDictionary

from mcpd.compat.fastmcp.components import Visibility
from mcpd.compat.fastmcp.dependencies import current_context, get_http_request
from mcpd.compat.lowlevel.context import RequestContext, SharedContext, current_exchange, request_ctx
from mcpd.compat.missing import refuse
from mcpd.compat.types.base import TextContent

if TYPE_CHECKING:
    from mcpd.compat.types import client_requests, features
    from mcpd.compat.types.base import Resource

_NO_SESSION = (
    "{} is not available because the MCP session has not been established yet. "
    "Check `context.request_context` for None before accessing this attribute."
)
_MAX_TOKENS = 512


class _SessionState:
    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.values: dict[str, Any] = {}
        self.visibility = Visibility()


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
    return state.visibility if state is not None and state.visibility else None


class Context(SharedContext):
    """Gives a function access to the request that it serves: `ctx: Context`."""

    is_background_task = False
    task_id: str | None = None

    def __init__(self, fastmcp: Any, session: Any = None) -> None:
        self._fastmcp = fastmcp
        self._session = session
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

    def _current(self) -> RequestContext[Any, Any, Any] | None:
        return request_ctx.get(None)

    # -- the request -------------------------------------------------------------------------

    @property
    def fastmcp(self) -> Any:
        return self._fastmcp

    @property
    def request_context(self) -> RequestContext[Any, Any, Any] | None:
        """The request, None outside of a request."""
        return request_ctx.get(None)

    @property
    def lifespan_context(self) -> Any:
        request = request_ctx.get(None)
        return {} if request is None else request.lifespan_context

    @property
    def session(self) -> Any:
        """The client's session, a `ServerSession`. Raises RuntimeError outside of a request."""
        request = request_ctx.get(None)
        if request is not None:
            return request.session
        if self._session is None:
            raise RuntimeError(_NO_SESSION.format("session"))
        return self._session

    @property
    def request_id(self) -> str:
        """The id of the request. Raises RuntimeError outside of a request."""
        found = self.origin_request_id
        if found is None:
            raise RuntimeError(_NO_SESSION.format("request_id"))
        return found

    @property
    def origin_request_id(self) -> str | None:
        """The id of the request, None outside of a request."""
        request = request_ctx.get(None)
        return None if request is None else str(request.request_id)

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
        """Return the HTTP request. Raises RuntimeError for other transports."""
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
        """Read a resource of this server. Returns a `ResourceResult`."""
        return await self._fastmcp.read_resource(str(uri))

    async def list_resources(self) -> list[Resource]:
        return [one.to_mcp_resource() for one in await self._fastmcp.list_resources()]

    async def list_prompts(self) -> list[features.Prompt]:
        return [one.to_mcp_prompt() for one in await self._fastmcp.list_prompts()]

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> features.GetPromptResult:
        result: features.GetPromptResult = (await self._fastmcp.render_prompt(name, arguments)).to_mcp_prompt_result()
        return result

    # -- the client --------------------------------------------------------------------------

    async def log(
        self,
        message: str,
        level: Any = None,
        logger_name: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        await self.session.send_log_message(
            level=level or "info",
            data={"msg": message, "extra": None if extra is None else {**extra}},
            logger=logger_name,
            related_request_id=self.origin_request_id,
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

        wanted = schema if response_type is None else response_type
        return await elicit(self.session, message, wanted, response_title, response_description)

    async def sample(self, messages: Any, system_prompt: str | None = None, **options: Any) -> SamplingResult:
        """Sample from the client's model. Raises NotHere for tools and typed results."""
        for name in ("tools", "result_type", "tool_choice"):
            if options.pop(name, None) not in (None, str):
                refuse(f"ctx.sample({name}=…)", "fastmcp")

        sent = [_sampling_message(one) for one in (messages if isinstance(messages, (list, tuple)) else [messages])]
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
        await self.session.send_notification(notification, related_request_id=self.request_id)

    # -- state -------------------------------------------------------------------------------

    async def set_state(self, key: str, value: Any, *, serializable: bool = True) -> None:
        """Keep a value for the session. With `serializable=False`, keep it for this request only."""
        self._values.pop(key, None)
        values = _session_state().values if serializable else self._values
        values[key] = value

    async def get_state(self, key: str) -> Any:
        """Return a value that `set_state` kept, or None."""
        return self._values[key] if key in self._values else _session_state().values.get(key)

    async def delete_state(self, key: str) -> None:
        self._values.pop(key, None)
        _session_state().values.pop(key, None)

    async def enable_components(self, **filters: Any) -> None:
        """Enable components for this session, by `names`, `keys`, `tags`, `version` and `components`."""
        await self._change_visibility(True, filters)

    async def disable_components(self, **filters: Any) -> None:
        await self._change_visibility(False, filters)

    async def reset_visibility(self) -> None:
        """Offer this session the same components as all others."""
        await self._change_visibility(None, {})

    async def _change_visibility(self, enables: bool | None, filters: dict[str, Any]) -> None:
        visibility = _session_state().visibility
        if enables is None:
            visibility.clear()
        else:
            visibility.add(enables, **{key: value for key, value in filters.items() if key != "match_all"})

        # Only this session's lists change, but the notifications go to all clients.
        for kind in sorted({"tool", "resource", "prompt"} & set(filters.get("components") or _LISTS)):
            await getattr(self.session, f"send_{kind}_list_changed")()


_LISTS = ("tool", "resource", "prompt")

# -- sampling --------------------------------------------------------------------------------


@dataclass
class SamplingResult:
    """The response of the client's model."""

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
