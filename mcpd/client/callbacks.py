"""What a program does when the server asks for something, or tells something.

A client offers what it has a callback for, and nothing else. Callbacks may be plain functions or coroutine
functions; plain ones must not block.

Spec: 2026-07-28 client/{elicitation,sampling,roots}, server/utilities/logging.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcpd.client.faults import Faults
from mcpd.errors import InternalError, InvalidParams, MethodNotFound, ProtocolError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.printable import printable
from mcpd.types.elicitation import ElicitationCompleteParams, ElicitFormParams, ElicitResult, ElicitUrlParams
from mcpd.types.lifecycle import ClientCapabilities, ElicitationCapability, ListChanged, SamplingCapability
from mcpd.types.notifications import LogMessageParams
from mcpd.types.resources import ResourceUpdatedParams
from mcpd.types.sampling import CreateMessageParams, CreateMessageResult, ListRootsResult, Root

T = TypeVar("T")
ListKind: TypeAlias = Literal["tools", "resources", "prompts"]
_Maybe: TypeAlias = T | Awaitable[T]


class Callbacks(Struct, frozen=True, kw_only=True):
    """Any of these may be left out; then the server cannot ask for it, or what it tells is dropped.

    A question that cannot be answered raises ProtocolError, whose code and text the server gets.
    `sample_tools` says that `sample` can let the model use the tools in its params.
    """

    elicit_form: Callable[[ElicitFormParams], _Maybe[ElicitResult]] | None = None
    elicit_url: Callable[[ElicitUrlParams], _Maybe[ElicitResult]] | None = None
    sample: Callable[[CreateMessageParams], _Maybe[CreateMessageResult]] | None = None
    sample_tools: bool = False
    roots: Callable[[], _Maybe[Sequence[Root]]] | None = None
    log: Callable[[LogMessageParams], _Maybe[None]] | None = None
    list_changed: Callable[[ListKind], _Maybe[None]] | None = None
    resource_updated: Callable[[str], _Maybe[None]] | None = None
    elicitation_complete: Callable[[str], _Maybe[None]] | None = None


def capabilities(callbacks: Callbacks, extensions: Mapping[str, Any] | None = None) -> ClientCapabilities:
    """What a client with these callbacks offers."""
    elicitation = None
    if callbacks.elicit_form is not None or callbacks.elicit_url is not None:
        elicitation = ElicitationCapability(
            form={} if callbacks.elicit_form is not None else None,
            url={} if callbacks.elicit_url is not None else None,
        )

    sampling = None
    if callbacks.sample is not None:
        sampling = SamplingCapability(tools={} if callbacks.sample_tools else None)

    return ClientCapabilities(
        roots=ListChanged(list_changed=True) if callbacks.roots is not None else None,
        sampling=sampling,
        elicitation=elicitation,
        extensions=dict(extensions) if extensions else None,
    )


async def answer_to(callbacks: Callbacks, method: str, params: Raw, faults: Faults) -> Any:
    """The result of a question of the server. Raises ProtocolError with what the server is to be told."""
    try:
        if method == "elicitation/create":
            return _result(await _elicit(callbacks, params))
        if method == "sampling/createMessage":
            return _result(await _sample(callbacks, params))
        if method == "roots/list" and callbacks.roots is not None:
            return ListRootsResult(roots=_files(await _settle(callbacks.roots())))
    except ProtocolError:
        raise
    except Exception as error:
        faults.say(logging.ERROR, "%s: the callback failed", printable(method), error=error)
        raise InternalError from error
    raise MethodNotFound(f"This client does not offer {method}")


def _files(roots: Sequence[Root]) -> list[Root]:
    """Spec: 2025-11-25 client/roots: "This MUST be a `file://` URI", and clients MUST validate them."""
    from urllib.parse import unquote  # most servers never ask for roots

    for root in roots:
        path = root.uri.removeprefix("file://")
        if path == root.uri or ".." in unquote(path).split("/"):
            raise ValueError(f"a root is a file:// URI without '..': {root.uri!r}")
    return list(roots)


def _result(given: Any) -> Any:
    if given is None:  # a callback that forgot its return: `"result": null` would be no answer
        raise TypeError("the callback gave None")
    return given


async def _elicit(callbacks: Callbacks, params: Raw) -> ElicitResult:
    """Spec: 2025-11-25 client/elicitation: "Requests with undeclared modes: -32602"; no mode is a form."""
    form, url = callbacks.elicit_form, callbacks.elicit_url
    if form is None and url is None:
        raise MethodNotFound("This client does not offer elicitation/create")
    mode = _decode(_read_mode, params).mode
    if mode is None or mode == "form":
        if form is not None:
            asked = _decode(_read_form, params)
            return _fitting(await _settle(form(asked)), asked.requested_schema)
    elif mode == "url" and url is not None:
        return await _settle(url(_decode(_read_url, params)))
    raise InvalidParams(f"This client does not offer elicitation in mode {mode or 'form'}")


def _fitting(result: ElicitResult, schema: Mapping[str, Any]) -> ElicitResult:
    """Spec: 2025-11-25 client/elicitation: "Clients SHOULD validate all responses against the provided schema"."""
    if getattr(result, "action", None) == "accept":
        from mcpd.context.forms import check_values

        try:
            check_values(result.content or {}, schema)
        except ValidationError as error:
            raise ValueError(f"what the callback gave does not fit the form: {error}") from None
        except (AttributeError, KeyError, TypeError):
            pass  # the server's schema is none of a form, and nothing can be held against it
    return result


async def _sample(callbacks: Callbacks, params: Raw) -> CreateMessageResult:
    if callbacks.sample is None:
        raise MethodNotFound("This client does not offer sampling/createMessage")
    asked = _decode(_read_sampling, params)
    if not callbacks.sample_tools and (asked.tools is not None or asked.tool_choice is not None):
        raise InvalidParams("This client offers sampling without tools")

    from mcpd.context.questions import conversation_problem

    # Spec: 2025-11-25 client/sampling, error handling: missing and mixed tool results are refused with -32602.
    if problem := conversation_problem(asked):
        raise InvalidParams(f"Invalid params: {problem}")
    return await _settle(callbacks.sample(asked))


def is_heard(callbacks: Callbacks, method: str) -> bool:
    """Whether there is a callback for a notification."""
    name = _HEARD.get(method)
    return name is not None and getattr(callbacks, name) is not None


def is_state(method: str) -> bool:
    """Whether a notification says that something is another now: told twice before anybody looks, it is news once."""
    return method in _CHANGES or method == "notifications/resources/updated"


async def tell(callbacks: Callbacks, method: str, params: Raw, faults: Faults) -> None:
    """Hand on what the server tells; what is malformed, unknown or unwanted is dropped."""
    try:
        found = _call_of(callbacks, method, params)
    except MALFORMED as error:
        faults.say(logging.WARNING, "the server sent a bad %s: %s", printable(method), printable(explain(error)))
        return

    if found is None:
        return
    callback, argument = found
    try:
        await _settle(callback(argument))
    except Exception as error:
        faults.say(logging.ERROR, "%s: the callback failed", printable(method), error=error)


def _call_of(callbacks: Callbacks, method: str, params: Raw) -> tuple[Callable[[Any], Any], Any] | None:
    kind = _CHANGES.get(method)
    if kind is not None:
        return None if callbacks.list_changed is None else (callbacks.list_changed, kind)
    if method == "notifications/message" and callbacks.log is not None:
        return callbacks.log, _read_log(params)
    if method == "notifications/resources/updated" and callbacks.resource_updated is not None:
        return callbacks.resource_updated, _read_updated(params).uri
    if method == "notifications/elicitation/complete" and callbacks.elicitation_complete is not None:
        return callbacks.elicitation_complete, _read_complete(params).elicitation_id
    return None


async def _settle(value: _Maybe[T]) -> T:
    return await value if isawaitable(value) else value


def _decode(read: Callable[[Raw], T], params: Raw) -> T:
    try:
        return read(params)
    except MALFORMED as error:
        raise InvalidParams(f"Invalid params: {explain(error)}") from None


class _Mode(Struct):
    mode: str | None = None


_CHANGES: dict[str, ListKind] = {
    "notifications/tools/list_changed": "tools",
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}
_HEARD = {
    **dict.fromkeys(_CHANGES, "list_changed"),
    "notifications/message": "log",
    "notifications/resources/updated": "resource_updated",
    "notifications/elicitation/complete": "elicitation_complete",
}
_read_mode = Decoder(_Mode).decode
_read_form = Decoder(ElicitFormParams).decode
_read_url = Decoder(ElicitUrlParams).decode
_read_sampling = Decoder(CreateMessageParams).decode
_read_log = Decoder(LogMessageParams).decode
_read_updated = Decoder(ResourceUpdatedParams).decode
_read_complete = Decoder(ElicitationCompleteParams).decode
