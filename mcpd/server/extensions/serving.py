"""Options of extensions for serving: on the command line, in the environment, and in `Server.run`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.server.settings import Option, options_in
from .base import Extension
from .builtin import BUILT_IN


class ServeOption(Struct, frozen=True):
    """An option of an extension for serving."""

    # The id of the extension.
    id: str
    name: str
    option: Option
    # The type of its value.
    kind: Any


@cache
def serve_options() -> tuple[ServeOption, ...]:
    """Return the options of the built-in extensions."""
    return tuple(found for row in BUILT_IN for found in _declared(row.id, row.load_options()))


def serve_options_of(extension: Extension) -> list[ServeOption]:
    """Return the options of one extension."""
    return _declared(extension.id, extension.serve_options())


def configure(installed: Mapping[str, Extension], options: Mapping[str, Mapping[str, Any]]) -> None:
    """Configure extensions by id with options for serving. Raises ConfigurationError."""
    for id, values in options.items():
        if id not in installed and any(row.id == id and row.wanted_by for row in BUILT_IN):
            continue  # no tool needs it
        if id not in installed:
            raise ConfigurationError(f"the server has no extension {id!r}; it has {', '.join(installed)}")
        known = [each.name for each in serve_options_of(installed[id])]
        for name in values:
            if name not in known:
                there = ", ".join(known) or "none"
                raise ConfigurationError(f"extension {id} has no option {name!r} for serving; it has: {there}")

        try:
            installed[id].configure(values)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error


def by_extension(installed: Iterable[Extension], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Group options by the first extension that has them. Unknown options are left out."""
    grouped: dict[str, dict[str, Any]] = {}
    if options:
        owners = {each.name: each.id for extension in reversed([*installed]) for each in serve_options_of(extension)}
        for name, value in options.items():
            if name in owners:
                grouped.setdefault(owners[name], {})[name] = value
    return grouped


def _declared(id: str, kind: type | None) -> list[ServeOption]:
    options = {} if kind is None else options_in(kind)
    return [ServeOption(id, name, option, hint) for name, (option, hint) in options.items()]
