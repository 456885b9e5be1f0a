"""What a target is once its text was read: a command, a URL, or a file that a child process of ours serves.

Values of headers and variables are secrets: neither `str` nor `repr` shows them, nor what a URL has behind its `?`, nor
what a command is given as a token or password.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TypeAlias

from msgspec import Struct, field

from mcpd.protocol.printable import mask_command, mask_text
from mcpd.serve_defaults import DEMO, OVER_STDIO

_LONG = 200
DEMO_NAME = "the demo server of mcpd"


class CommandTarget(Struct, frozen=True, repr_omit_defaults=True):
    """A server that is started as a child process and spoken to over its stdin and stdout.

    `env` are variables beside those of this process, `cwd` is the folder that it runs in, None for this one.
    """

    command: tuple[str, ...]
    env: dict[str, str] | None = None
    cwd: str | None = None
    name: str = ""
    """What the user called it, if that was not the command itself."""

    def __str__(self) -> str:
        return self.name or _shorten(shlex.join(mask_command(self.command)))

    def __repr__(self) -> str:
        return f"CommandTarget({self}{_names('env', self.env)})"


class UrlTarget(Struct, frozen=True, repr_omit_defaults=True):
    """A server that runs already: `http`, `https`, `ws` or `wss`.

    `headers` go with each request, or with the handshake of a WebSocket. `socket` is the path of the unix socket that
    is connected to in place of the URL's host, `ca_file` a PEM file of the authorities that `https` and `wss` trust
    in place of the system's.
    """

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    socket: str | None = None
    ca_file: str | None = None
    name: str = ""
    """What the user called it, if that was not the URL itself."""

    def __str__(self) -> str:
        if self.name:
            return self.name
        return _shorten(f"unix:{self.socket}" if self.socket is not None else mask_text(self.url.partition("?")[0]))

    def __repr__(self) -> str:
        return f"UrlTarget({self}{_names('headers', self.headers)})"


class FileTarget(Struct, frozen=True, repr_omit_defaults=True):
    """A file, a folder or a module that `mcpd serve` serves, in a child process; `object` in it, or its only one."""

    path: str
    object: str = ""
    name: str = ""
    """What the user called it, if that was not its path."""

    def __str__(self) -> str:
        return self.name or _shorten(self.words)

    def __repr__(self) -> str:
        return f"FileTarget({self})"

    @property
    def words(self) -> str:
        """It as TARGET of `mcpd serve`."""
        return f"{self.path}:{self.object}" if self.object else self.path


NamedTarget: TypeAlias = CommandTarget | UrlTarget | FileTarget


def command_of(target: FileTarget | None) -> CommandTarget:
    """The child process that serves this: `mcpd serve --stdio`, by the Python that runs us.

    None is the folder that is meant where it starts, or the demo server.
    """
    # Of a file with a header another Python runs us, which has no mcpd of its own.
    words = [os.environ.get("_MCPD_PYTHON", sys.executable), *OVER_STDIO]
    if target is None:
        return CommandTarget((*words,), name=DEMO_NAME)
    name = DEMO_NAME if target.path == DEMO else target.name or _shorten(_nearby(target.words))
    return CommandTarget((*words, target.words), name=name)


def _nearby(words: str) -> str:
    """A path as it is written from here, or the whole of it where that is shorter."""
    return min(os.path.relpath(words), words, key=len)


def _names(what: str, values: dict[str, str] | None) -> str:
    return f", {what}: {', '.join(values)}" if values else ""


def _shorten(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
