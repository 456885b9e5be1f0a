"""The kinds of target: a command, a URL (also read from text here), or a file that a child process of mcpd serves.

Header values, environment variables, the query of a URL and tokens or passwords of a command are secrets: neither `str`
nor `repr` shows them.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

from msgspec import Struct, field

from mcpd.errors import ConfigurationError
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


SCHEMES = ("http", "https", "ws", "wss")
_SOCKETS = {"unix": "http", "http+unix": "http", "ws+unix": "ws"}
_ENDPOINT = "/mcp"


def is_url(text: str) -> bool:
    """Whether the text is meant as a URL or a unix socket, valid or not."""
    scheme, colon, _ = text.partition(":")
    return "://" in text or (bool(colon) and scheme.lower() in _SOCKETS)


def read_url(text: str, headers: Mapping[str, str] | None = None, *, name: str = "") -> UrlTarget:
    """Return the server at a URL or unix socket.

        https://example.com/mcp     http, https, ws, wss; user:password@ becomes Basic authorization.
        unix:/run/mcpd.sock         HTTP over a unix socket, at /mcp; unix:/run/mcpd.sock:/other for another path.
        ws+unix:/run/mcpd.sock      WebSocket over a unix socket.

    Raises ConfigurationError, whose text contains neither password nor query.
    """
    scheme, _, rest = text.strip().partition(":")
    scheme = scheme.lower()
    if scheme in _SOCKETS:
        return _socket(_SOCKETS[scheme], rest, dict(headers or {}), text, name)
    shown = text.partition("?")[0]
    if "@" in shown:
        shown = f"{scheme}://…{shown.rpartition('@')[2]}"
    if scheme not in SCHEMES:
        raise ConfigurationError(f"{shown}: unknown scheme; use http://, https://, ws://, wss:// or unix:/path")

    try:
        parts = urlsplit(text.strip())
        # Both may raise, although the URL was split.
        host, port = parts.hostname, parts.port
    except ValueError as error:
        # Python's message repeats the password of some URLs.
        why = "" if "@" in text else f": {error}"
        raise ConfigurationError(f"{shown} is not a URL{why}") from None
    if not host:
        raise ConfigurationError(f"{shown}: the host is missing; use {scheme}://HOST/mcp")
    if any(ord(c) <= 0x20 or ord(c) == 0x7F for c in text.strip()):
        raise ConfigurationError(f"{shown}: a URL cannot contain spaces or control characters; write %20 for a space")

    found = dict(headers or {})
    if parts.username is not None and not any(each.lower() == "authorization" for each in found):
        from base64 import b64encode

        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        found["Authorization"] = f"Basic {b64encode(secret.encode()).decode()}"
    authority = f"[{host}]" if ":" in host else host
    if port is not None:
        authority = f"{authority}:{port}"
    return UrlTarget(urlunsplit((scheme, authority, parts.path or "/", parts.query, "")), found, name=name)


def _socket(scheme: str, rest: str, headers: dict[str, str], text: str, name: str) -> UrlTarget:
    # Split the path of the socket from the path of the endpoint: `:/mcp`, or `#/mcp` as in VS Code.
    path, mark, endpoint = rest.partition("#")
    if not mark:
        path, mark, endpoint = rest.rpartition(":/")
        if mark and path:
            endpoint = f"/{endpoint}"
        else:
            path, endpoint = rest, _ENDPOINT

    if path.startswith("//"):
        path = path[2:]
    if not path:
        raise ConfigurationError(f"{text}: the path of the socket is missing; write, for example, unix:/run/mcpd.sock")
    if endpoint and not endpoint.startswith("/"):
        endpoint = f"/{endpoint}"
    path = os.path.abspath(os.path.expanduser(path))
    return UrlTarget(f"{scheme}://localhost{endpoint or _ENDPOINT}", headers, socket=path, name=name)


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
