"""Round the handlers: who lacks a scope, or is nobody where somebody is wanted, gets no further.

It is decided before arguments are looked at, middleware is asked or anything is answered, so that over HTTP it can be
a status of its own. What a handler finds out itself ends here too. A server where nobody is asked has none of this.
Spec: 2026-07-28 basic/authorization, insufficient scope.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import CoroutineType
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.json import Decoder

from mcpd.errors import AccessDenied, InvalidParams, McpdError
from mcpd.protocol.jsonrpc import ABSENT, MALFORMED, Request
from mcpd.protocol.methods import METHODS
from mcpd.protocol.principal import Origin
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import NO_JSON
from mcpd.protocol.types.content import TextContent
from mcpd.protocol.types.tools import CallToolResult
from mcpd.server.context.exchange import Exchange, is_asked, lacking
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.listing import ActiveExtensions
from mcpd.server.registry.rules import Needs
from mcpd.transports.authentication import challenges_of

log = logging.getLogger("mcpd")

_OPEN = frozenset(method for method, row in METHODS.items() if row.is_open)
# A request of these may find another entry behind one that a rule hides.
_OF_RESOURCES = frozenset(
    method for method, row in METHODS.items() if not row.is_open and row.capability not in ("tools", "prompts")
)
_NOTHING: ActiveExtensions = frozenset()

_Handler: TypeAlias = Callable[[Exchange, Any], Any]

_decode_arguments = Decoder(dict[str, Any] | None).decode


class _Target(Struct, frozen=True):
    name: str = ""
    uri: str = ""


class _Params(_Target, frozen=True):
    """As much of any params as says what they are about."""

    arguments: Any = None
    ref: _Target = _Target()


_decode_params = Decoder(_Params).decode


def guarding(catalog: Catalog) -> Callable[[str, _Handler], _Handler]:
    """What is put round all handlers, outside of everything else."""

    def wrapped(method: str, handler: _Handler) -> _Handler:
        return handler if method in _OPEN else _guarded(catalog, method, handler)

    return wrapped


def _guarded(catalog: Catalog, method: str, handler: _Handler) -> _Handler:
    is_call = method == "tools/call"

    def handle(exchange: Exchange, params: Any) -> Any:
        try:
            if is_call and not catalog.has_anonymous:
                # Most calls: of a tool that needs nothing, by somebody who was let in.
                entry = catalog.tools.offered(params.name)
                if entry is None or getattr(entry, "needs", None) is None:
                    result = handler(exchange, params)
                    return _watched(catalog, exchange, result, is_call) if result.__class__ is CoroutineType else result
            denied = _denied(catalog, method, params, exchange, _active(catalog, exchange))
            if denied is not None:
                if catalog.rules is not None:
                    return _unless_hidden(catalog, method, handler, exchange, params, denied)
                raise denied
            if catalog.rules is not None and method in _OF_RESOURCES:
                return _watched(catalog, exchange, _as_seen(catalog, method, handler, exchange, params), is_call)
            result = handler(exchange, params)
        except AccessDenied as error:
            raise _told(catalog, exchange, error) from None
        return _watched(catalog, exchange, result, is_call) if result.__class__ is CoroutineType else result

    return handle


def _active(catalog: Catalog, exchange: Exchange) -> ActiveExtensions:
    return catalog.active_extensions(exchange) if catalog.extension_filters else _NOTHING


async def _watched(catalog: Catalog, exchange: Exchange, work: Coroutine[Any, Any, Any], is_call: bool) -> Any:
    """What a handler gives; what it found lacking is an error, in a tool a result that says so."""
    try:
        return await work
    except AccessDenied as error:
        told = _told(catalog, exchange, error)
        if not is_call:
            raise told from None
        return _as_result(catalog, exchange, told)


async def _unless_hidden(
    catalog: Catalog, method: str, handler: _Handler, exchange: Exchange, params: Any, denied: AccessDenied
) -> Any:
    """Deny, unless a rule hides all that it is about: what somebody does not see is unknown, not forbidden."""
    from mcpd.server.registry.visibility import view  # few servers have rules

    seen = await view(catalog, exchange, method, params)
    if seen is not catalog and not any(True for _ in _needs_in(seen, method, params, _active(catalog, exchange))):
        result = handler(exchange, params)
        return await result if asyncio.iscoroutine(result) else result
    raise _told(catalog, exchange, denied)


async def _as_seen(catalog: Catalog, method: str, handler: _Handler, exchange: Exchange, params: Any) -> Any:
    """Deny by what stands behind an entry that a rule hides: that would be read in its place."""
    from mcpd.server.registry.visibility import view  # few servers have rules

    seen = await view(catalog, exchange, method, params)
    denied = None if seen is catalog else _denied(seen, method, params, exchange, _active(catalog, exchange))
    if denied is not None:
        raise denied
    result = handler(exchange, params)
    return await result if asyncio.iscoroutine(result) else result


def _told(catalog: Catalog, exchange: Exchange, denied: AccessDenied) -> AccessDenied:
    """Take down that a call was denied, for transports that have a status for it; the error as the client gets it."""
    exchange.call.denied = denied
    metadata = None if catalog.protection is None else catalog.protection.url_of_metadata()
    if metadata is not None:
        denied.data = {**denied.data, "resource_metadata": metadata}
    return denied


def _as_result(catalog: Catalog, exchange: Exchange, denied: AccessDenied) -> CallToolResult:
    challenges = challenges_of(catalog.protection, denied, exchange.origin.user)
    meta = {"mcp/www_authenticate": challenges}
    return CallToolResult(content=[TextContent(denied.message)], is_error=True, meta=meta)


# -- what a request is about -------------------------------------------------------------------


def _denied(
    catalog: Catalog, method: str, params: Any, exchange: Exchange | Origin, active: ActiveExtensions
) -> AccessDenied | None:
    """Why a request is denied to who sent it; None if it is not."""
    each = list(_needs_in(catalog, method, params, active))
    found = [needs for needs in each if needs is not None]
    if not found and not catalog.has_anonymous:
        return None  # most requests: whoever was let in may do that
    origin = exchange if isinstance(exchange, Origin) else exchange.origin
    if not is_asked(origin):
        return None

    missing: dict[str, None] = {}
    needed: dict[str, None] = {}
    for needs in found:
        scopes = needs.scopes if needs.by_arguments is None else _by_arguments(needs, params)
        needed.update(dict.fromkeys(scopes))
        missing.update(dict.fromkeys(lacking(origin, scopes)))

    is_nobody = not origin.user.is_authenticated
    # Several resources may be listened to at once: one for everybody opens no other.
    is_open = bool(each) and all(needs is not None and needs.is_anonymous for needs in each)
    if is_nobody and catalog.protection is not None and not is_open:
        return AccessDenied("This asks who you are", scopes=tuple(needed), error="unauthorized")
    if not missing:
        return None
    text = f"This needs the scope {' '.join(missing)}, which the token does not have"
    if is_nobody and catalog.protection is None:
        text = f"This needs the scope {' '.join(missing)}, and nobody is asked who they are here: {catalog.how_to_ask}"
    return AccessDenied(text, scopes=tuple(needed))


def _needs_in(catalog: Catalog, method: str, params: Any, active: ActiveExtensions) -> Iterator[Needs | None]:
    """What each entry needs that a request is about; None for one that needs nothing."""
    for entry in _entries(catalog, method, params, active):
        yield getattr(entry, "needs", None)


def _entries(catalog: Catalog, method: str, params: Any, active: ActiveExtensions) -> Iterator[Any]:
    if method == "tools/call":
        yield from _one(catalog.tools.get(params.name, active))
    elif method == "prompts/get":
        yield from _one(catalog.prompts.get(params.name, active))
    elif method in ("resources/read", "resources/subscribe"):
        yield from _one(_resource(catalog, params.uri, active))
    elif method == "completion/complete":
        if getattr(params.ref, "name", ""):
            yield from _one(catalog.prompts.get(params.ref.name, active))
        else:
            uri = params.ref.uri
            yield from _one(catalog.templates.get(uri, active) or _resource(catalog, uri, active))
    elif method == "subscriptions/listen":
        for uri in params.notifications.resource_subscriptions or ():
            yield from _one(_resource(catalog, uri, active))


def _one(entry: Any) -> Iterator[Any]:
    if entry is not None:
        yield entry


def _resource(catalog: Catalog, uri: str, active: ActiveExtensions) -> Any:
    """What would be read under a URI, in the order in which that is looked for."""
    entry = catalog.find_resource(uri, active)
    if entry is not None:
        return entry
    for template in catalog.templates:
        if template.requires is None or template.requires in active:
            try:
                if template.match(uri) is not None:
                    return template
            except McpdError:
                return template  # it has something to say of that URI, to those who may use it
    return None


def _by_arguments(needs: Needs, params: Any) -> list[str]:
    """The scopes that the arguments of a call ask for. Raises InvalidParams if its author's function does not say."""
    assert needs.by_arguments is not None
    try:
        scopes = needs.by_arguments(_arguments(params))
        if isinstance(scopes, str):
            raise TypeError("scopes= gave one text; it gives a list")
        return [str(scope) for scope in scopes]
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # without an answer nobody is let in
        log.info("scopes= failed with %s", printable(type(error).__qualname__))
        raise InvalidParams("The arguments do not say what this call is about; look at its schema") from None


def _arguments(params: Any) -> dict[str, Any]:
    given = getattr(params, "arguments", None)
    if given is None and getattr(params, "argument", None) is not None:  # of a completion
        known = (params.context.arguments if params.context else None) or {}
        return {**known, params.argument.name: params.argument.value}
    if given is None or given is NO_JSON:
        return {"uri": params.uri} if getattr(params, "uri", "") else {}
    if isinstance(given, dict):
        return dict(given)
    try:
        return _decode_arguments(given) or {}
    except MALFORMED:
        return {}


# -- batches -----------------------------------------------------------------------------------


def denied_in(catalog: Catalog, parts: Iterable[object], origin: Origin) -> AccessDenied | None:
    """Why a batch is denied, with the scopes of all its parts: it has one status, and nothing of it runs then."""
    needed: dict[str, None] = {}
    first: AccessDenied | None = None
    for part in parts:
        if not isinstance(part, Request) or part.method in _OPEN:
            continue
        try:
            params = _decode_params(b"{}" if part.params is ABSENT else part.params)
            denied = _denied(catalog, part.method, params, origin, _NOTHING)
        except (*MALFORMED, McpdError, AttributeError):
            continue  # it gets an error of its own
        if denied is not None:
            first = first or denied
            needed.update(dict.fromkeys(denied.scopes))
    return None if first is None else AccessDenied(first.message, scopes=tuple(needed), error=first.error)
