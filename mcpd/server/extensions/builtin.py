"""The extensions that every server has, a row each; and what they add to `Server` for authors: methods and help.

What whoever serves may say to them is in `serving.py`, what type checkers have to know of them in `options.py`.
Loaded with every server.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from mcpd.server.extensions.ui import extension as ui

if TYPE_CHECKING:
    from mcpd.server.extensions.base import Extension

C = TypeVar("C", bound=type)


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
    BuiltIn(
        "io.modelcontextprotocol/skills",
        extension="skills.extension:SkillsExtension",
        options="serving:SkillsServerOptions",
    ),
)

_HELP = (ui.HELP,)
"""What each of them says in the help of a server."""


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


class _ConstructorSignature:
    """What `inspect.signature` and `help` show of the constructor: options of extensions one by one."""

    def __get__(self, instance: object, owner: Any) -> Signature:
        own = signature(owner.__init__)
        parameters: list[Parameter] = []
        for parameter in list(own.parameters.values())[1:]:
            if parameter.kind is Parameter.VAR_KEYWORD and "BuiltInOptions" in str(parameter.annotation):
                for row in BUILT_IN:
                    of_extension = signature(row.load_class()).parameters.values()
                    parameters += [each for each in of_extension if each.kind is Parameter.KEYWORD_ONLY]
            else:
                parameters.append(parameter)
        return own.replace(parameters=parameters, return_annotation=Signature.empty)


class BuiltInMethods(ui.AppsMethods):
    """A part of `Server`, no object of its own: its bases are what each of them adds."""

    __signature__ = _ConstructorSignature()


def with_help(cls: C) -> C:
    """Add to the help of a server, and of its methods, what extensions say of their options there."""
    for texts in _HELP:
        for name, text in texts.items():
            described = getattr(cls, name) if name else cls
            if described.__doc__ is not None:
                described.__doc__ = _with_text(described.__doc__, text)
    return cls


def _with_text(documented: str, text: str) -> str:
    """A docstring and more of it, as far to the right as the quotes at its end: `cleandoc` at each start is dear."""
    written = documented.rstrip(" ")
    margin = documented[len(written) :]
    return f"{written.rstrip()}\n\n" + "\n".join(f"{margin}{line}" for line in text.split("\n"))


def _load(place: str) -> Any:
    home, _, name = place.partition(":")
    return getattr(import_module(f".{home}", __package__), name)
