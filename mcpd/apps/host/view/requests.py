"""The requests and notifications of a View: one function for each method, the tables of them, and their answers.

A request becomes an ask for the program and is answered when the program has decided. It fails with the first of these
that applies: unknown method, capability not offered, id in use, too many open requests, invalid params, the rules of
its function.

The function of a request receives a `ViewState`, the number for an ask, and the decoded params. It returns an `Ask` for
the program or the answer, or raises the error for the View. The function of a notification returns an event, or None.
Neither changes anything. `view` handles `ui/initialize`, `ping`, and notifications about the state and about requests.

Spec: MCP Apps 2026-01-26, "Standard MCP Messages", "Requests (View -> Host)" and "Notifications from Views"; 2025-11-25
server/utilities/logging, basic/utilities/{cancellation,progress}.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, get_type_hints

from msgspec import UNSET, Raw, Struct, ValidationError, convert, structs
from msgspec.json import decode

from mcpd.apps.tool_metadata import is_for_app
from mcpd.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    LocalProtocolError,
    McpdError,
    MethodNotFound,
    ProtocolError,
    RemoteError,
)
from mcpd.protocol.envelope import PROGRESS_TOKEN
from mcpd.protocol.jsonrpc import ABSENT, MALFORMED, Id, Request, encode, explain, is_object
from mcpd.protocol.printable import printable
from mcpd.protocol.requests import RequestInFlight, RequestsInFlight
from mcpd.protocol.types.base import CancelledParams, LogMessageParams, ProgressParams, Wire
from mcpd.protocol.types.features import ContentBlock, Tool
from . import events, messages
from .context import ContainerDimensions, ContextFeed
from .events import Abort, Ask, Forward, ModeChange, ModelContextUpdate, OpenLink
from .policy import (
    Denied,
    NotOffered,
    NotVisible,
    TooMuch,
    ViewSettings,
    check_downloads,
    check_link,
)
from .wire import ViewOutput


class ViewState(Struct):
    """The state of a View and its host that the functions may read."""

    settings: ViewSettings
    capabilities: messages.HostCapabilities
    feed: ContextFeed
    tools: dict[str, Tool]
    model_context: events.ModelContextUpdate | None = None
    open_updates: int = 0
    """How many updates of the model context the program has not decided on."""


Handle: TypeAlias = Callable[[ViewState, int, Any], Ask | Wire]


class Method(NamedTuple):
    """One method: its params, its function, the capability that it needs, and a function for its result."""

    params: Any
    handle: Handle
    capability: str = ""
    can_deny_by_result: bool = False
    finish: Callable[[Any], Any] | None = None


REQUESTS: Final[dict[str, Method]] = {}
"""All requests but the handshake and `ping`."""


def _request(method: str, capability: str = "", **options: Any) -> Callable[[Handle], Handle]:
    # Decorate the function of a request. The annotation of its last argument is the type of the params.

    def add(function: Handle) -> Handle:
        REQUESTS[method] = Method(get_type_hints(function)["params"], function, capability, **options)
        return function

    return add


def decode_params(kind: Any, params: Raw) -> Any:
    """Decode params to this type; absent ones are `{}`. Raises InvalidParams with the name of the field."""
    try:
        return decode(b"{}" if params is ABSENT else params, type=kind)
    except MALFORMED as error:
        raise InvalidParams(f"Invalid params: {explain(error)}") from None


def progress_token(params: object) -> Id | None:
    """Return the token with which the View wants to receive progress. Raises InvalidParams."""
    meta = params.meta if isinstance(params, messages.CallParams) else None
    token = meta.get(PROGRESS_TOKEN) if meta else None
    if token is not None and (isinstance(token, bool) or not isinstance(token, (int, str))):
        raise InvalidParams(f"_meta.{PROGRESS_TOKEN} must be a string or an integer")
    return token


# -------------------------------------------------------------------------------- for the server


@_request("tools/call", "server_tools")
def _call_tool(state: ViewState, ask_id: int, params: messages.CallToolParams) -> Ask:
    # Spec: "Host MUST reject tools/call requests from apps for tools that don't include "app" in visibility".
    #
    # Only listed tools of the View's own server can be called. A tool that was never listed has no visibility to check.
    tool = state.tools.get(params.name)
    if tool is None:
        raise NotVisible(f"Unknown tool: {params.name[:100]!r}")
    if not is_for_app(tool):
        raise NotVisible(f"Tool {params.name!r} is not for views: its visibility does not include app")
    arguments = Raw(b"{}") if params.arguments == Raw(b"") else params.arguments
    if not is_object(arguments):
        raise InvalidParams("arguments must be an object")
    return _forward(ask_id, "tools/call", structs.replace(params, arguments=arguments), params.name)


@_request("resources/read", "server_resources")
def _read_resource(state: ViewState, ask_id: int, params: messages.ReadResourceParams) -> Ask:
    return _forward(ask_id, "resources/read", params, params.uri)


def _forward(ask_id: int, method: str, params: messages.CallParams, target: str = "") -> Forward:
    clean = structs.replace(params, meta=_clean(params.meta))
    return Forward(ask_id, method, Raw(encode(clean)), target, progress_token(params) is not None)


def _add_list(method: str, capability: str = "", finish: Callable[[Any], Any] | None = None) -> None:
    @_request(method, capability, finish=finish)
    def list_page(state: ViewState, ask_id: int, params: messages.ListParams) -> Ask:
        if method == "prompts/list" and not state.settings.has_prompts:
            raise NotOffered("This view's server has no prompts")
        return _forward(ask_id, method, params)


def _app_tools_only(result: Any) -> Any:
    # Remove the tools that a View may not call from the result of tools/list.
    page = decode(encode(result))
    if isinstance(page, dict) and isinstance(page.get("tools"), list):
        page["tools"] = [tool for tool in page["tools"] if _is_app_tool(tool)]
    return page


def _is_app_tool(tool: object) -> bool:
    try:
        return is_for_app(convert(tool, Tool))
    except ValidationError:
        return False


def _clean(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    # Return `_meta` without the progress token, which the host chooses, and without what only a client may send.
    #
    # Spec: 2025-11-25 basic/index: prefixes whose second label is modelcontextprotocol or mcp are reserved. In
    # 2026-07-28 they carry the capabilities and identity of the client, which a View must not be able to set.
    kept = {key: value for key, value in (meta or {}).items() if key != PROGRESS_TOKEN and not _is_reserved(key)}
    return kept or None


def _is_reserved(key: str) -> bool:
    prefix, slash, _ = key.partition("/")
    return bool(slash) and prefix.split(".")[1:2] in (["modelcontextprotocol"], ["mcp"])


_add_list("tools/list", "server_tools", _app_tools_only)
_add_list("resources/list", "server_resources")
_add_list("resources/templates/list", "server_resources")
_add_list("prompts/list")


# ---------------------------------------------------------------------------------- for the host


@_request("ui/open-link", "open_links", can_deny_by_result=True)
def _open_link(state: ViewState, ask_id: int, params: messages.OpenLinkParams) -> Ask:
    return events.OpenLink(ask_id, check_link(params.url))


@_request("ui/message", "message", can_deny_by_result=True)
def _message(state: ViewState, ask_id: int, params: messages.MessageParams) -> Ask:
    content = params.content if isinstance(params.content, list) else [params.content]
    if not content:
        raise InvalidParams("content: a message needs at least one block")
    _check_kinds(state.capabilities.message, content, "messages")
    return events.ChatMessage(ask_id, content)


@_request("ui/update-model-context", "update_model_context")
def _update_model_context(state: ViewState, ask_id: int, params: messages.UpdateModelContextParams) -> Ask | Wire:
    content = params.content or []
    taken = state.capabilities.update_model_context
    _check_kinds(taken, content, "context updates")
    can_take = taken is None or messages.can_take(taken, "structured_content")
    if params.structured_content is not None and not can_take:
        raise InvalidParams("This host does not take structuredContent in context updates")

    update = ModelContextUpdate(ask_id, content, params.structured_content)
    current = state.model_context
    # Spec: "MAY dedupe identical ui/update-model-context calls", but not while another update is undecided.
    if not state.open_updates and current is not None and structs.replace(current, ask_id=ask_id) == update:
        return messages.NoParams()
    return update


def _check_kinds(modalities: messages.Modalities | None, content: list[ContentBlock], where: str) -> None:
    for block in content:
        kind = str(block.__struct_config__.tag)
        if modalities is not None and not messages.can_take(modalities, kind):
            raise InvalidParams(f"This host does not take {kind} blocks in {where}")


@_request("ui/request-display-mode")
def _request_display_mode(state: ViewState, ask_id: int, params: messages.DisplayModeParams) -> Ask | Wire:
    # Spec: "If the requested mode is not available, Host SHOULD return the current display mode".
    if params.mode == state.feed.mode or params.mode not in state.feed.modes:
        return messages.DisplayModeResult(state.feed.mode)
    return events.ModeChange(ask_id, params.mode)


@_request("ui/download-file", "download_file", can_deny_by_result=True)
def _download_file(state: ViewState, ask_id: int, params: messages.DownloadFileParams) -> Ask:
    return events.Download(ask_id, check_downloads(params.contents, state.settings.limits))


@_request("sampling/createMessage", "sampling")
def _create_message(state: ViewState, ask_id: int, params: dict[str, Any]) -> Ask:
    if not isinstance(params.get("messages"), list):
        raise InvalidParams("messages must be an array")
    offer = state.capabilities.sampling
    if offer is not None and offer.tools is None and ("tools" in params or "toolChoice" in params):
        raise InvalidParams("This host offers sampling without tools")
    return events.Sample(ask_id, Raw(encode(params)))


def find(method: str) -> Method:
    """Return the method. Raises MethodNotFound, with the name that the View may have meant."""
    found = REQUESTS.get(method)
    if found is None:
        hint = "; the handshake of a view is ui/initialize" if method == "initialize" else ""
        raise MethodNotFound(f"Method not found: {method[:100]!r}{hint}")
    return found


def _size_changed(state: ViewState, params: Raw) -> events.Event | None:
    size = decode_params(messages.SizeChangedParams, params)
    container = state.feed.context.container_dimensions or ContainerDimensions()

    width, height = container.fit(size.width, size.height, limit=state.settings.limits.max_pixels)
    if width is None and height is None:
        return None
    return events.SizeChanged(width, height)


def _log_message(state: ViewState, params: Raw) -> events.Event | None:
    if state.capabilities.logging is None:
        raise NotOffered("this host does not offer logging")

    message = decode_params(LogMessageParams, params)
    data = None if message.data is UNSET else message.data
    return events.Logged(message.level, data, message.logger)


def _request_teardown(state: ViewState, params: Raw) -> events.Event | None:
    return events.TeardownRequested()


NOTIFICATIONS: Final[dict[str, Callable[[ViewState, Raw], events.Event | None]]] = {
    "ui/notifications/size-changed": _size_changed,
    "notifications/message": _log_message,
    "ui/notifications/request-teardown": _request_teardown,
}
"""All notifications but those that `view` handles itself."""


class ViewRequest(RequestInFlight, eq=False):
    """A request of the View that the program decides on or carries out as `ask`."""

    ask: Ask
    progress_token: Id | None


class Incoming:
    """The unanswered requests of a View, and the context that it last gave for the model."""

    def __init__(self, state: ViewState, output: ViewOutput) -> None:
        self._view_state = state
        self._output = output
        # The requests for which the View expects an answer.
        self._in_flight: RequestsInFlight[ViewRequest] = RequestsInFlight()
        # The requests that the program has not finished, by `ask_id`.
        #
        # A cancelled request stays here: a View that sends and cancels in a loop causes no more work than one that
        # waits.
        self._asked: dict[int, ViewRequest] = {}
        self._last_ask_id = 0
        self._has_new_context = False

    # -------------------------------------------------------------------------------- from the View

    def receive(self, request: Request, *, is_early: bool) -> object | None:
        """Return the answer, or None if it comes later. Raises the error for the View."""
        method, settings = request.method, self._view_state.settings
        definition = find(method)
        if definition.capability and getattr(self._view_state.capabilities, definition.capability) is None:
            raise NotOffered(f"This host does not offer {definition.capability.replace('_', ' ')} to views")
        if request.id in self._in_flight:
            raise InvalidRequest(f"The id {request.id!r:.80} is in use")
        if len(self._asked) >= settings.limits.calls_in_flight:
            raise TooMuch(f"A view may have {settings.limits.calls_in_flight} requests open")

        params = decode_params(definition.params, request.params)
        token = progress_token(params)
        self._last_ask_id += 1
        try:
            outcome = definition.handle(self._view_state, self._last_ask_id, params)
        except Denied as error:
            if not (definition.can_deny_by_result and settings.denials == "result"):
                raise
            self._output.find("denied", error.message, method)
            return messages.DenialResult(is_error=True)

        if is_early:
            self._output.find("early", "a request before ui/notifications/initialized", method, refused=False)
        self._output.log(logging.INFO, "%s %s", printable(method), printable(_target(outcome)))

        if not isinstance(outcome, Ask):
            return outcome

        asked = self._asked[outcome.ask_id] = ViewRequest(request.id, method, outcome, token)
        self._in_flight.add(asked)
        if isinstance(outcome, ModelContextUpdate):
            self._view_state.open_updates += 1

        self._output.events.append(outcome)
        return None

    def cancel(self, given_up: CancelledParams) -> None:
        # Spec: no answer is sent, and an unknown id is ignored.
        asked = self._in_flight.cancel(given_up.request_id)
        if asked is not None:
            self._output.events.append(Abort(asked.ask.ask_id, given_up.reason or "cancelled by the view"))

    def abort_all(self, reason: str) -> None:
        # The document that sent the requests is gone.
        for asked in self._in_flight.cancel_all():
            self._output.events.append(Abort(asked.ask.ask_id, reason))

    # ----------------------------------------------------------------------------- from the program

    def get(self, ask_id: int) -> ViewRequest:
        """Return a request that is to be answered. Raises LocalProtocolError if it was answered or never existed."""
        asked = self._asked.get(ask_id)
        if asked is None:
            raise LocalProtocolError(f"ask {ask_id} does not exist, or was answered before")
        return asked

    def is_open(self, asked: ViewRequest) -> bool:
        return self._in_flight.is_open(asked)

    def answer(self, asked: ViewRequest, result: Any) -> None:
        """Report that an ask was carried out. A change of the display mode has taken effect before."""
        if not self._done(asked):
            return

        if isinstance(asked.ask, ModeChange):
            result = messages.DisplayModeResult(self._view_state.feed.mode)
        elif isinstance(asked.ask, ModelContextUpdate):
            self._keep(asked.ask)
            result = messages.NoParams()
        elif result is None:
            result = messages.NoParams()
        elif asked.method == "tools/call" and (rewrite := self._view_state.settings.rewrite) is not None:
            result = rewrite(asked.method, result) or result

        finish = REQUESTS[asked.method].finish
        try:
            self._output.result(asked.id, result if finish is None else finish(result))
        except (TypeError, ValueError, RecursionError) as error:
            self._output.log(logging.ERROR, "the result of %s cannot be sent", asked.method, error=error)
            self._output.error(asked.id, InternalError())

    def deny(self, ask_id: int, reason: str) -> None:
        asked = self.get(ask_id)
        if not self._done(asked):
            return

        self._output.log(logging.INFO, "%s denied: %s", asked.method, printable(reason))
        if isinstance(asked.ask, ModeChange):
            # Spec: the answer is "the resulting mode (whether updated or not)", never an error.
            self._output.result(asked.id, messages.DisplayModeResult(self._view_state.feed.mode))
        elif REQUESTS[asked.method].can_deny_by_result and self._view_state.settings.denials == "result":
            self._output.result(asked.id, messages.DenialResult(is_error=True))
        else:
            self._output.error(asked.id, Denied(reason))

    def fail(self, ask_id: int, error: Exception) -> None:
        asked = self.get(ask_id)
        if not self._done(asked):
            return

        if isinstance(error, (RemoteError, ProtocolError)):
            self._output.error(asked.id, error)
        elif isinstance(error, McpdError):
            self._output.error(asked.id, Denied(str(error) or "Failed"))
        else:
            self._output.log(logging.ERROR, "%s failed", asked.method, error=error)
            self._output.error(asked.id, InternalError())

    def progress(self, ask_id: int, progress: float, total: float | None, message: str | None) -> None:
        asked = self._asked.get(ask_id)
        if asked is not None and self.is_open(asked) and asked.progress_token is not None:
            token = asked.progress_token
            params = ProgressParams(progress_token=token, progress=progress, total=total, message=message)
            self._output.notify(messages.PROGRESS, params)

    def take_model_context(self) -> ModelContextUpdate | None:
        if not self._has_new_context:
            return None
        self._has_new_context = False
        return self._view_state.model_context

    def _done(self, asked: ViewRequest) -> bool:
        # Remove a request that the program has finished. Returns whether the View still expects the answer.
        del self._asked[asked.ask.ask_id]
        if isinstance(asked.ask, ModelContextUpdate):
            self._view_state.open_updates -= 1
        return self._in_flight.close(asked)

    def _keep(self, update: ModelContextUpdate) -> None:
        # Spec: "Each request overwrites the previous context sent by the View". The order of requests counts, not of
        # answers.
        current = self._view_state.model_context
        if current is None or current.ask_id < update.ask_id:
            self._view_state.model_context = update
            self._has_new_context = True


def _target(outcome: object) -> str:
    # Return the subject of a request for the log.
    if isinstance(outcome, Forward):
        return repr(outcome.target[:200])
    return repr(outcome.url[:200]) if isinstance(outcome, OpenLink) else ""
