"""The kinds of target: a command, a URL, or a file that a child process of mcpd serves.

Header values, environment variables, the query of a URL and tokens or passwords of a command are secrets: neither `str`
nor `repr` shows them.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TypeAlias

from msgspec import Struct, field

from mcpd.protocol.defaults import DEMO, OVER_STDIO
from mcpd.protocol.printable import mask_command, mask_text

_LONG = 200
DEMO_NAME = "the demo server of mcpd"


class CommandTarget(Struct, frozen=True, repr_omit_defaults=True):
    """A server that is started as a child process and speaks over its stdin and stdout.

    `env` is added to the environment of this process. `cwd` is the working directory; None means the current one.
    """

    command: tuple[str, ...]
    env: dict[str, str] | None = None
    cwd: str | None = None
    name: str = ""
    """The user's name for it, if that was not the command itself."""
    is_clean: bool = False
    """Whether `env` is its whole environment."""

    def __str__(self) -> str:
        return self.name or _shorten(shlex.join(mask_command(self.command)))

    def __repr__(self) -> str:
        return f"CommandTarget({self}{_names('env', self.env)})"


class UrlTarget(Struct, frozen=True, repr_omit_defaults=True):
    """A server that is already running: `http`, `https`, `ws` or `wss`.

    `headers` are sent with each request, or with the handshake of a WebSocket. `socket` is the path of a unix socket to
    connect to instead of the URL's host. `ca_file` is a PEM file of certificate authorities to trust instead of the
    system's.
    """

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    socket: str | None = None
    ca_file: str | None = None
    name: str = ""
    """The user's name for it, if that was not the URL itself."""

    def __str__(self) -> str:
        if self.name:
            return self.name
        return _shorten(f"unix:{self.socket}" if self.socket is not None else mask_text(self.url.partition("?")[0]))

    def __repr__(self) -> str:
        return f"UrlTarget({self}{_names('headers', self.headers)})"


class FileTarget(Struct, frozen=True, repr_omit_defaults=True):
    """A file, folder or module that `mcpd serve` serves in a child process. `object` selects a server in it."""

    path: str
    object: str = ""
    name: str = ""
    """The user's name for it, if that was not its path."""

    def __str__(self) -> str:
        return self.name or _shorten(self.words)

    def __repr__(self) -> str:
        return f"FileTarget({self})"

    @property
    def words(self) -> str:
        """The TARGET argument of `mcpd serve`."""
        return f"{self.path}:{self.object}" if self.object else self.path


NamedTarget: TypeAlias = CommandTarget | UrlTarget | FileTarget


def command_of(target: FileTarget | None) -> CommandTarget:
    """Return the command that serves a file: `mcpd serve --stdio`, run by this Python.

    None serves the folder that the command starts in, or the demo server.
    """
    # A file with inline dependencies runs in another Python, which does not have mcpd installed.
    words = [os.environ.get("_MCPD_PYTHON", sys.executable), *OVER_STDIO]
    if target is None:
        return CommandTarget((*words,), name=DEMO_NAME)
    place = target.words
    name = DEMO_NAME if target.path == DEMO else target.name or _shorten(min(os.path.relpath(place), place, key=len))
    return CommandTarget((*words, target.words), name=name)


def _names(what: str, values: dict[str, str] | None) -> str:
    return f", {what}: {', '.join(values)}" if values else ""


def _shorten(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
