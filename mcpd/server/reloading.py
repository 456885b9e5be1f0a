"""Replaces a running server by a changed one, for `--reload`.

Theory of operation. Connections, listeners and applications hold the server that they were made with, its handlers, its
notification listeners and its extensions' vocabulary. These objects stay, and from one moment on have the content of
the other server's objects, now and later. A running call keeps its handler. Settings that were fixed when a connection
or listener was made stay too, and are reported if they have changed.

Functions are compared by their code, without line numbers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from types import CodeType
from typing import TYPE_CHECKING, Any

from mcpd.server.registry.resources import FixedResource
from .http_backend import encoded_lists

if TYPE_CHECKING:
    from mcpd.server.registry.catalog import Catalog, Kind
    from .app import Server


def mark_of(value: Any) -> object:
    """Return a value that is equal for functions or objects with the same code; without code, one for the class."""
    while isinstance(value, functools.partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    plain = getattr(value, "__func__", value)
    code = getattr(plain, "__code__", None)
    if isinstance(code, CodeType):
        return _of_code(code)
    kind = value if isinstance(value, type) else type(value)
    codes = sorted(
        (name, _of_code(found))
        for name, one in vars(kind).items()
        if isinstance(found := getattr(one, "__code__", None), CodeType)
    )
    return kind.__module__, kind.__qualname__, codes


def _of_code(code: CodeType) -> str:
    inner = [_of_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {code.co_varnames} {inner}"


_KINDS: tuple[Kind, ...] = ("tools", "resources", "prompts")


def take_over(server: Server, other: Server) -> list[str]:
    """Make `server` what `other` is, from now on. Clients receive one notification per kind of list that changed.

    Returns the settings that could not be exchanged, in words; [] if all were. Safe from any thread, one call at a
    time. Nothing else may serve `other`.
    """
    for id, extension in list(server.extensions.items()):
        if id not in other.extensions:
            extension.leave(other)
    before = server.catalog
    listed = {kind: encoded_lists(before, kind) for kind in _KINDS}
    left = list(_not_exchanged(server, other))

    if server.lifespan is not None and other.lifespan is not None:
        other.lifespan.adopt(server.lifespan)
    elif other.lifespan is not None:
        server.lifespan = other.lifespan  # opened by the first call
    other._connections = server._connections
    other._state_keys, other._state_codec = server._state_keys, server._state_codec
    other.catalog.on_change = before.on_change
    before.on_change = None
    other.allow_frames(server._max_frame_bytes)

    for id, extension in server.extensions.items():
        if extension.is_operators and id not in other.extensions:
            other.add_extension(extension)
    # From here on the new server answers calls; a name that both have is never missing.
    server.catalog = other.catalog
    server.handlers.adopt(other.handlers)
    server._methods.adopt(other._methods)
    server._listeners.update(other._listeners)
    for method in [method for method in server._listeners if method not in other._listeners]:
        del server._listeners[method]
    other._listeners = server._listeners
    for id, extension in other.extensions.items():
        if id in server.extensions:
            extension.succeed(server.extensions[id])
    server.extensions, server._roots_functions = other.extensions, other._roots_functions
    server.identity, server._identity_meta = other.identity, other._identity_meta
    server.max_in_flight = other.max_in_flight

    _notify(server, before, listed)
    return left


def _not_exchanged(server: Server, other: Server) -> Iterable[str]:
    # Yield settings that connections and listeners were made with, and that have changed.
    before, now = server.lifespan, other.lifespan
    if before is not None and now is not None and mark_of(before.function) != mark_of(now.function):
        yield "its lifespan"
    if mark_of(server.authenticate) != mark_of(other.authenticate):
        yield "authenticate"
    routes = [[(one.path, one.methods, mark_of(one.function)) for one in each._routes] for each in (server, other)]
    if routes[0] != routes[1]:
        yield "its HTTP routes"
    known = [type(one).__qualname__ for one in server._observers]
    if any(type(one).__qualname__ not in known for one in other._observers):
        yield "its observers"
    if (server.name, server.catalog.instructions) != (other.name, other.catalog.instructions):
        yield "its name and instructions, for clients that are connected"


def _notify(server: Server, before: Catalog, listed: dict[Kind, list[bytes]]) -> None:
    catalog = server.catalog
    for kind in _KINDS:
        if encoded_lists(catalog, kind) != listed[kind] and catalog.on_change is not None:
            catalog.on_change(kind)
    for entry in before.resources:
        new = catalog.resources.find(entry.key)
        if new is None or new == entry:
            continue
        if isinstance(entry, FixedResource) and isinstance(new, FixedResource):
            uris = {getattr(each, "versioned_uri", entry.key) for each in (entry, new)}
            if len(uris) == 1 and entry.content == new.content:
                continue
        for uri in {entry.key, getattr(entry, "versioned_uri", entry.key)}:
            server.resource_updated(uri)
