"""Checks scopes around the handlers: a request without them, or without a user where one is required, goes no further.

The check comes before arguments are read, middleware runs or anything is sent, so that over HTTP it can be a status of
its own. Denials by the handlers themselves end here too. Servers without authentication never load this module. Spec:
2026-07-28 basic/authorization, insufficient scope.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import CoroutineType
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from mcpd.errors import AccessDenied, InvalidParams, McpdError
from mcpd.protocol.jsonrpc import ABSENT, MALFORMED, Request, read_object
from mcpd.protocol.methods import METHODS, entries_named
from mcpd.protocol.principal import Origin
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import NO_JSON
from mcpd.protocol.types.features import CallToolResult, TextContent
from mcpd.server.context.exchange import Exchange, Handler, checks_scopes, finished, missing_scopes
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.entries import ActiveExtensions
from mcpd.server.registry.rules import Needs
from mcpd.transports.authentication import challenges_of

log = logging.getLogger("mcpd")

_OPEN = frozenset(method for method, row in METHODS.items() if row.is_open)
# A request for one of these may find another entry behind one that a rule hides.
_OF_RESOURCES = frozenset(
    method for method, row in METHODS.items() if not row.is_open and row.capability not in ("tools", "prompts")
)
_NOTHING: ActiveExtensions = frozenset()


class _Target(Struct, frozen=True):
    name: str = ""
    uri: str = ""


class _Params(_Target, frozen=True):
    arguments: Any = None
    ref: _Target = _Target()


_decode_params = Decoder(_Params).decode


def guarding(catalog: Catalog) -> Callable[[str, Handler], Handler]:
    """Return the wrapper for all handlers, outside all other wrappers."""

    def wrapped(method: str, handler: Handler) -> Handler:
        return handler if method in _OPEN else _guarded(catalog, method, handler)

    return wrapped


def _guarded(catalog: Catalog, method: str, handler: Handler) -> Handler:
    is_call = method == "tools/call"

    def handle(exchange: Exchange, params: Any) -> Any:
        try:
            if is_call and not catalog.has_anonymous:
                # Most calls need nothing and come from an admitted user.
                entry = catalog.tools.find_enabled(params.name)
                if entry is None or getattr(entry, "needs", None) is None:
                    result = handler(exchange, params)
                    return _finish(catalog, exchange, result, is_call) if result.__class__ is CoroutineType else result
            denied = _denied(catalog, method, params, exchange, catalog.active_extensions(exchange))
            if denied is not None:
                if catalog.rules is not None:
                    return _unless_hidden(catalog, method, handler, exchange, params, denied)
                raise denied
            if catalog.rules is not None and method in _OF_RESOURCES:
                work = _behind_hidden(catalog, method, handler, exchange, params)
                return _finish(catalog, exchange, work, is_call)
            result = handler(exchange, params)
        except AccessDenied as error:
            raise _record(catalog, exchange, error) from None
        return _finish(catalog, exchange, result, is_call) if result.__class__ is CoroutineType else result

    return handle


async def _finish(catalog: Catalog, exchange: Exchange, work: Coroutine[Any, Any, Any], is_call: bool) -> Any:
    # Await a handler. A denial becomes an error, or for a tool a result.
    try:
        return await work
    except AccessDenied as error:
        recorded = _record(catalog, exchange, error)
        if not is_call:
            raise recorded from None
        return _as_result(catalog, exchange, recorded)


async def _unless_hidden(
    catalog: Catalog, method: str, handler: Handler, exchange: Exchange, params: Any, denied: AccessDenied
) -> Any:
    # Deny, unless a rule hides all entries that the request is about: hidden entries are unknown, not forbidden.
    from mcpd.server.registry.visibility import view  # few servers have rules

    seen = await view(catalog, exchange, method, params)
    if seen is not catalog and not any(
        True for _ in _needs_in(seen, method, params, catalog.active_extensions(exchange))
    ):
        return await finished(handler(exchange, params))
    raise _record(catalog, exchange, denied)


async def _behind_hidden(catalog: Catalog, method: str, handler: Handler, exchange: Exchange, params: Any) -> Any:
    # Also check the entry behind a hidden one, which would be read instead.
    from mcpd.server.registry.visibility import view  # few servers have rules

    seen = await view(catalog, exchange, method, params)
    denied = None if seen is catalog else _denied(seen, method, params, exchange, catalog.active_extensions(exchange))
    if denied is not None:
        raise denied
    return await finished(handler(exchange, params))


def _record(catalog: Catalog, exchange: Exchange, denied: AccessDenied) -> AccessDenied:
    # Record a denial for transports that have a status for it. Returns the error for the client.
    exchange.call.denied = denied
    metadata = None if catalog.protection is None else catalog.protection.url_of_metadata()
    if metadata is not None:
        denied.data = {**denied.data, "resource_metadata": metadata}
    return denied


def _as_result(catalog: Catalog, exchange: Exchange, denied: AccessDenied) -> CallToolResult:
    challenges = challenges_of(catalog.protection, denied, exchange.origin.user)
    meta = {"mcp/www_authenticate": challenges}
    return CallToolResult(content=[TextContent(denied.message)], is_error=True, meta=meta)


# -- the entries of a request --------------------------------------------------------------------


def _denied(
    catalog: Catalog, method: str, params: Any, exchange: Exchange | Origin, active: ActiveExtensions
) -> AccessDenied | None:
    all_needs = list(_needs_in(catalog, method, params, active))
    protected = [needs for needs in all_needs if needs is not None]
    if not protected and not catalog.has_anonymous:
        return None  # most requests need only an admitted user
    origin = exchange if isinstance(exchange, Origin) else exchange.origin
    if not checks_scopes(origin):
        return None

    missing: dict[str, None] = {}
    needed: dict[str, None] = {}
    for needs in protected:
        scopes = needs.scopes if needs.by_arguments is None else _by_arguments(needs, params)
        needed.update(dict.fromkeys(scopes))
        missing.update(dict.fromkeys(missing_scopes(origin, scopes)))

    is_nobody = not origin.user.is_authenticated
    # A subscription may name several resources: one that is open to everybody opens no other.
    is_open = bool(all_needs) and all(needs is not None and needs.is_anonymous for needs in all_needs)
    if is_nobody and catalog.protection is not None and not is_open:
        return AccessDenied("This requires authentication", scopes=tuple(needed), error="unauthorized")
    if not missing:
        return None
    text = f"This needs the scope {' '.join(missing)}, which the token does not have"
    if is_nobody and catalog.protection is None:
        why = f"this server authenticates nobody: {catalog.authentication_hint}"
        text = f"This needs the scope {' '.join(missing)}, but {why}"
    return AccessDenied(text, scopes=tuple(needed))


def _needs_in(catalog: Catalog, method: str, params: Any, active: ActiveExtensions) -> Iterator[Needs | None]:
    # Yield the needs of each entry that a request is about; None for an entry without needs.
    for entry in _entries(catalog, method, params, active):
        yield getattr(entry, "needs", None)


def _entries(catalog: Catalog, method: str, params: Any, active: ActiveExtensions) -> Iterator[Any]:
    listing, names = entries_named(method, params)
    for name in names:
        entry: Any = None
        if listing != "resources":
            entry = getattr(catalog, listing).get(name, active)
        if entry is None and listing in ("resources", "templates"):
            entry = _resource(catalog, name, active)
        if entry is not None:
            yield entry


def _resource(catalog: Catalog, uri: str, active: ActiveExtensions) -> Any:
    # Return the entry that would be read under a URI, in the order of the lookup.
    entry = catalog.find_resource(uri, active)
    if entry is not None:
        return entry
    for template in catalog.templates:
        if template.requires is None or template.requires in active:
            try:
                if template.match(uri) is not None:
                    return template
            except McpdError:
                return template  # its error is for callers that may use it
    return None


def _by_arguments(needs: Needs, params: Any) -> list[str]:
    # Return the scopes for the arguments of a call. Raises InvalidParams if the author's function fails.
    assert needs.by_arguments is not None
    try:
        scopes = needs.by_arguments(_arguments(params))
        if isinstance(scopes, str):
            raise TypeError("scopes= returned a str; it must return a list")
        return [str(scope) for scope in scopes]
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # without an answer nobody is admitted
        log.info("A function of scopes= failed: %s", printable(type(error).__qualname__))
        raise InvalidParams("The arguments do not identify what this call is about; see its schema") from None


def _arguments(params: Any) -> dict[str, Any]:
    arguments = getattr(params, "arguments", None)
    if arguments is None and getattr(params, "argument", None) is not None:  # completion
        known = (params.context.arguments if params.context else None) or {}
        return {**known, params.argument.name: params.argument.value}
    if arguments is None or arguments is NO_JSON:
        return {"uri": params.uri} if getattr(params, "uri", "") else {}
    if isinstance(arguments, dict):
        return dict(arguments)
    try:
        return read_object(arguments, "arguments")
    except InvalidParams:
        return {}


# -- batches -----------------------------------------------------------------------------------


def denied_in(catalog: Catalog, parts: Iterable[object], origin: Origin) -> AccessDenied | None:
    """Return why a batch is denied, with the scopes of all its parts: it has one status and runs as a whole or not at
    all.
    """
    needed: dict[str, None] = {}
    first: AccessDenied | None = None
    for part in parts:
        if not isinstance(part, Request) or part.method in _OPEN:
            continue
        try:
            params = _decode_params(b"{}" if part.params is ABSENT else part.params)
            denied = _denied(catalog, part.method, params, origin, _NOTHING)
        except (*MALFORMED, McpdError, AttributeError):
            continue  # it has an error of its own
        if denied is not None:
            first = first or denied
            needed.update(dict.fromkeys(denied.scopes))
    return None if first is None else AccessDenied(first.message, scopes=tuple(needed), error=first.error)
