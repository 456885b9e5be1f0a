"""The table of the extensions that every server has, and the options of `Server` that they read.

Options for serving are read in `serving.py`, and declared in `options.py`. Loaded with every server.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from .base import Extension


FILES = "io.modelcontextprotocol/files"
FILE_PARAMS = "openai/fileParams"


class BuiltIn(Struct, frozen=True):
    """One extension of mcpd. Classes are named `module:name`, relative to this package."""

    id: str
    # Its class. The keyword arguments of the constructor are options of `Server(…)`.
    extension: str
    # The TypedDict of these options, which are also options of `mcpd serve`.
    options: str = ""
    # Further environment variables for the help, as (`NAME=value`, effect).
    environment: tuple[tuple[str, str], ...] = ()
    # The options of `Server(…)` that need it. With any, it is loaded for one of them, or for the first tool that needs
    # it, and not with every server.
    wanted_by: tuple[str, ...] = ()

    def load_options(self) -> Any:
        """Import the TypedDict of the options; None without options."""
        return _load(self.options) if self.options else None

    def load_class(self) -> type[Extension]:
        """Import the class of the extension."""
        return _load(self.extension)  # type: ignore[no-any-return]


BUILT_IN = (
    BuiltIn(
        "io.modelcontextprotocol/ui",
        extension="ui.extension:AppsExtension",
        options="options:AppsServerOptions",
        environment=(("MCP_APPS_ENABLED=false", "turns MCP Apps off, whatever --apps is"),),
    ),
    BuiltIn("io.modelcontextprotocol/skills", extension="skills:SkillsExtension"),
    BuiltIn(
        "io.modelcontextprotocol/tasks",
        extension="tasks.extension:TasksExtension",
        options="options:TasksServerOptions",
    ),
    BuiltIn(
        FILES,
        extension="files.extension:FilesExtension",
        options="options:FilesServerOptions",
        wanted_by=("file_limits", "files", "allow_path"),
    ),
)


def make_extensions(options: Mapping[str, Any]) -> list[Extension]:
    """Create all extensions with the options of a server. Raises TypeError for an unknown option."""
    left = dict(options)
    made = []
    for row in BUILT_IN:
        if row.wanted_by and left.keys().isdisjoint(row.wanted_by):
            continue
        extension: Any = row.load_class()
        names = extension.__init__.__kwdefaults__ or {}
        made.append(extension(**{name: left.pop(name) for name in names if name in left}))
    if left:
        # Like Python: the options of a server are ordinary keyword arguments.
        raise TypeError(f"Server.__init__() got an unexpected keyword argument {next(iter(left))!r}")
    return made


def make_extension(id: str) -> Extension:
    """Create one extension with its default options."""
    return next(row for row in BUILT_IN if row.id == id).load_class()()  # type: ignore[call-arg]


class ConstructorSignature:
    """The signature of a server for `inspect.signature` and `help`, with each option of the extensions."""

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


def _load(place: str) -> Any:
    home, _, name = place.partition(":")
    return getattr(import_module(f".{home}", __package__), name)
