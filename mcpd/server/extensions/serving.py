"""What is said to extensions when their server is served: on the command line, in the environment, to `Server.run`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypedDict

from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.serve_options import Option, options_in
from mcpd.server.extensions.base import Extension
from mcpd.server.extensions.builtin import BUILT_IN


class SkillsServerOptions(TypedDict, total=False):
    """The keywords of `SkillsExtension`."""


class ServeOption(Struct, frozen=True):
    """An option of an extension that can be said when a server is served."""

    id: str
    """The extension's."""
    name: str
    option: Option
    kind: Any
    """The type of its value."""


@cache
def serve_options() -> tuple[ServeOption, ...]:
    """What can be said to the extensions that every server has."""
    return tuple(found for row in BUILT_IN for found in _declared(row.id, row.load_options()))


def serve_options_of(extension: Extension) -> list[ServeOption]:
    """What can be said to one extension, whosever it is."""
    declared = extension.serve_options()
    return [] if declared is None else _declared(extension.id, declared)


def configure(installed: Mapping[str, Extension], given: Mapping[str, Mapping[str, Any]]) -> None:
    """Tell extensions what was said when their server is served, by their id. Raises ConfigurationError."""
    for id, values in given.items():
        if id not in installed:
            raise ConfigurationError(f"the server has no extension {id!r}; it has {', '.join(installed)}")
        known = [each.name for each in serve_options_of(installed[id])]
        for name in values:
            if name not in known:
                there = ", ".join(known) or "none"
                raise ConfigurationError(f"extension {id} has no option {name!r} for serving; there are {there}")

        try:
            installed[id].configure(values)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error


def by_extension(installed: Iterable[Extension], given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Options by the extension that has them; those that none has are left out. The first that has one gets it."""
    found: dict[str, dict[str, Any]] = {}
    if given:
        owners = {each.name: each.id for extension in reversed([*installed]) for each in serve_options_of(extension)}
        for name, value in given.items():
            if name in owners:
                found.setdefault(owners[name], {})[name] = value
    return found


def _declared(id: str, kind: type) -> list[ServeOption]:
    return [ServeOption(id, name, option, hint) for name, (option, hint) in options_in(kind).items()]
