"""The extensions that every server has, a row each, and what is said to extensions when a server is made or served.

The table names modules and loads none, so that the command line can read it before there is a server. What type
checkers have to know of the same extensions is in `options.py` and `methods.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import ConfigurationError
from ..serve_options import Option, options_in

if TYPE_CHECKING:
    from .base import Extension

__all__ = [
    "BUILT_IN",
    "BuiltIn",
    "ServeOption",
    "by_extension",
    "configure",
    "make_extensions",
    "serve_options",
    "serve_options_of",
]


class BuiltIn(Struct, frozen=True):
    """One extension that comes with mcpd. Classes are named `module:name`, from this package on."""

    id: str
    extension: str
    """Its class. The keywords of the constructor, with their defaults, are its options in `Server(…)`."""
    options: str
    """The TypedDict of these options, of which some may be said to `mcpd serve` too; loads no more than it needs."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables beside those of options, as (`NAME=value`, what it does), for the help."""

    def load_options(self) -> type:
        """The TypedDict."""
        found: type = _load(self.options)
        return found

    def load_class(self) -> type[Extension]:
        """The class of the extension."""
        found: type[Extension] = _load(self.extension)
        return found


BUILT_IN = (
    BuiltIn(
        "io.modelcontextprotocol/ui",
        extension="ui.extension:AppsExtension",
        options="ui.server_options:AppsServerOptions",
        environment=(("MCP_APPS_ENABLED=false", "no MCP Apps, whatever --apps says"),),
    ),
)


class ServeOption(Struct, frozen=True):
    """An option of an extension that can be said when a server is served."""

    id: str
    """The extension's."""
    name: str
    option: Option
    kind: Any
    """The type of its value."""


def make_extensions(options: Mapping[str, Any]) -> list[Extension]:
    """All of them, with the options of a server. Raises TypeError for an option that none of them has."""
    left = dict(options)
    made = []
    for row in BUILT_IN:
        extension: Any = row.load_class()
        names = extension.__init__.__kwdefaults__ or {}
        made.append(extension(**{name: left.pop(name) for name in names if name in left}))
    if left:
        # As Python says it: the options of a server are keywords like any other.
        raise TypeError(f"Server.__init__() got an unexpected keyword argument {next(iter(left))!r}")
    return made


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


def _load(place: str) -> Any:
    home, _, name = place.partition(":")
    return getattr(import_module(f".{home}", __package__), name)
