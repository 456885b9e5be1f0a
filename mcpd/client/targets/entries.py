"""One entry of a configuration as a target, in the shape that any host gives it.

The shapes differ in names only (`command` or `cmd`, `url`, `httpUrl` or `serverUrl`, `env`, `environment` or `envs`):
one reader knows all of them, so that an entry that was copied from one host to another is understood.
"""

from __future__ import annotations

import logging
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

SCHEMES = ("http", "https", "ws", "wss")
_SOCKETS = {"unix": "http", "http+unix": "http", "ws+unix": "ws"}
_ENDPOINT = "/mcp"


def is_url(text: str) -> bool:
    """Whether this is meant as a URL or as a unix socket, good or bad."""
    scheme, colon, _ = text.partition(":")
    return "://" in text or (bool(colon) and scheme.lower() in _SOCKETS)


def read_url(text: str, headers: Mapping[str, str] | None = None, *, name: str = "") -> UrlTarget:
    """The server at a URL or unix socket. Raises ConfigurationError, which shows no password and no query."""
    scheme, _, rest = text.strip().partition(":")
    scheme = scheme.lower()
    if scheme in _SOCKETS:
        return _socket(_SOCKETS[scheme], rest, dict(headers or {}), text, name)
    shown = text.partition("?")[0]
    if "@" in shown:
        shown = f"{scheme}://…{shown.rpartition('@')[2]}"
    if scheme not in SCHEMES:
        raise ConfigurationError(f"{shown}: a server is reached at http://, https://, ws://, wss:// or unix:/path")

    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError as error:
        # What Python says of some hosts repeats the password that stands before them.
        why = "" if "@" in text else f": {error}"
        raise ConfigurationError(f"{shown}: this is no URL{why}") from None
    if not host:
        raise ConfigurationError(f"{shown}: the host is missing; write {scheme}://HOST/mcp")
    if any(ord(c) <= 0x20 or ord(c) == 0x7F for c in text.strip()):
        raise ConfigurationError(f"{shown}: a URL has no spaces and no control characters; write %20 for a space")

    found = dict(headers or {})
    if parts.username is not None and not any(each.lower() == "authorization" for each in found):
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        found["Authorization"] = f"Basic {b64encode(secret.encode()).decode()}"
    authority = f"[{host}]" if ":" in host else host
    if port is not None:
        authority = f"{authority}:{port}"
    return UrlTarget(urlunsplit((scheme, authority, parts.path or "/", parts.query, "")), found, name=name)


def _socket(scheme: str, rest: str, headers: dict[str, str], text: str, name: str) -> UrlTarget:
    """`/path`, `//` and a path, and behind it the path of the endpoint: `:/mcp`, or `#/mcp` as VS Code has it."""
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
        raise ConfigurationError(f"{text}: write the path of the socket, as unix:/run/mcpd.sock")
    if endpoint and not endpoint.startswith("/"):
        endpoint = f"/{endpoint}"
    path = os.path.abspath(os.path.expanduser(path))
    return UrlTarget(f"{scheme}://localhost{endpoint or _ENDPOINT}", headers, socket=path, name=name)


log = logging.getLogger("mcpd.client")

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_BRACES = rf"\$\{{(?P<braces>{_NAME})(?::-(?P<default>[^}}]*))?\}}"
_ENV = rf"\$\{{(?:env:(?P<env>{_NAME})|input:(?P<input>[^}}]*)|(?P<place>userHome|workspaceFolder|pathSeparator|/))\}}"
_PATTERNS = {
    "braces": re.compile(_BRACES),
    "shell": re.compile(rf"\$\{{(?P<shell>{_NAME})\}}|\$(?P<bare>{_NAME})"),
    "env": re.compile(_ENV),
    "file": re.compile(f"{_ENV}|{_BRACES}"),
    "curly": re.compile(rf"\{{env:(?P<env>{_NAME})\}}"),
    "secrets": re.compile(rf"\$\{{\{{\s*(?:secrets|inputs)\.(?P<env>{_NAME})\s*\}}\}}"),
}
_PERCENT = re.compile(rf"{_PATTERNS['shell'].pattern}|%(?P<percent>{_NAME})%")


class Variables:
    """Replaces variables in the values of one entry; `where` names the entry in errors and in the log."""

    def __init__(self, dialect: str, environment: Mapping[str, str], where: str, *, is_windows: bool = False) -> None:
        self._pattern = _PERCENT if dialect == "shell" and is_windows else _PATTERNS.get(dialect)
        self._environment = environment
        self._where = where
        self._missing: set[str] = set()

    def expand(self, text: str) -> str:
        """The value as the host uses it. Raises ConfigurationError for what only a host could ask its user for."""
        return text if self._pattern is None else self._pattern.sub(self._replace, text)

    def get(self, name: str) -> str | None:
        """A variable that the entry names without any signs, None if it is not set."""
        return self._environment.get(name)

    def _replace(self, match: re.Match[str]) -> str:
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        if "input" in found:
            raise ConfigurationError(
                f"{self._where}: the host asks its user for {match[0]}; put the value into a file of your own, "
                "or give the server as a command or URL"
            )
        if "place" in found:
            return self._place(found["place"])

        default = found.pop("default", None)
        ((kind, name),) = found.items()
        value = self._environment.get(name)
        if value is not None and (value or default is None):
            return value
        if default is not None:
            return default
        if kind != "braces":
            return ""
        if name not in self._missing:
            self._missing.add(name)
            log.warning(
                "%s: the variable %s is not set, and ${%s} stays as it is",
                printable(self._where),
                printable(name),
                printable(name),
            )
        return match[0]

    def _place(self, name: str) -> str:
        if name == "userHome":
            return self._environment.get("HOME") or self._environment.get("USERPROFILE") or os.path.expanduser("~")
        return os.getcwd() if name == "workspaceFolder" else os.sep


_COMMANDS = ("command", "cmd")
_URLS = ("httpUrl", "url", "serverUrl", "uri")
_ENVIRONMENTS = ("env", "environment", "envs")
_STDIO = ("stdio", "local")
_WEBSOCKET = ("ws", "websocket")


def read_entry(entry: Any, variables: Variables, where: str) -> CommandTarget | UrlTarget:
    """What an entry starts or where it connects; `where` names it. Raises ConfigurationError, without its values."""
    if not isinstance(entry, dict):
        raise ConfigurationError(f"{where}: an entry is an object with command or url, and this is none")
    kind = entry.get("type") or entry.get("transport")
    has_command = any(entry.get(name) for name in _COMMANDS)
    has_url = any(entry.get(name) for name in _URLS)
    if has_command and (not has_url or kind is None or kind in _STDIO):
        return _command(entry, variables, where)
    if has_url:
        return _url(entry, kind, variables, where)

    have = ", ".join(map(str, entry)) or "nothing"
    raise ConfigurationError(f"{where}: neither command nor url in it; it has {have}")


def _command(entry: dict[str, Any], variables: Variables, where: str) -> CommandTarget:
    found = _first(entry, _COMMANDS)
    words = _texts(found if isinstance(found, list) else [found], "command", where)
    words += _texts(entry.get("args") or [], "args", where)
    expanded = tuple(variables.expand(word) for word in words)
    if not expanded or not expanded[0]:
        raise ConfigurationError(f"{where}: command is empty")

    env: dict[str, str] = {}
    file = entry.get("envFile")
    if isinstance(file, str):
        env.update(_env_file(variables.expand(file), where))
    env.update(_strings(_first(entry, _ENVIRONMENTS), variables, "env", where))
    cwd = entry.get("cwd")
    folder = variables.expand(cwd) if isinstance(cwd, str) and cwd else None
    return CommandTarget(expanded, env or None, folder, where)


def _url(entry: dict[str, Any], kind: Any, variables: Variables, where: str) -> UrlTarget:
    url = _first(entry, _URLS)
    if not isinstance(url, str):
        raise ConfigurationError(f"{where}: url is to be a text")
    url = variables.expand(url)
    if kind in _WEBSOCKET and url.startswith("http"):
        url = f"ws{url[4:]}"

    request = entry.get("requestInit")
    headers = entry.get("headers") or entry.get("http_headers")
    if not headers and isinstance(request, dict):
        headers = request.get("headers")
    found = _strings(headers, variables, "headers", where)
    for header, name in _strings(entry.get("env_http_headers"), variables, "env_http_headers", where).items():
        found[header] = _variable(name, variables, where)
    token = entry.get("bearer_token_env_var")
    if isinstance(token, str):
        found["Authorization"] = f"Bearer {_variable(token, variables, where)}"

    try:
        return read_url(url, found, name=where)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _first(entry: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((entry[name] for name in names if entry.get(name)), None)


def _texts(values: Any, member: str, where: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(each, (str, int, float)) for each in values):
        raise ConfigurationError(f"{where}: {member} is to be a list of texts")
    return [str(each) for each in values]


def _strings(values: Any, variables: Variables, member: str, where: str) -> dict[str, str]:
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigurationError(f"{where}: {member} is to be an object of texts")
    found = {}
    for name, value in values.items():
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, (str, int, float)):
            found[str(name)] = variables.expand(str(value))
        elif value is not None:
            raise ConfigurationError(f"{where}: {member}.{name} is to be a text")
    return found


def _variable(name: str, variables: Variables, where: str) -> str:
    value = variables.get(name)
    if not value:
        raise ConfigurationError(f"{where}: the variable {name} is not set, and its value is needed for a header")
    return value


def _env_file(path: str, where: str) -> Mapping[str, str]:
    """Lines of NAME=VALUE; empty ones and those that begin with # say nothing, quotes round a value are not its own."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{where}: envFile {path} cannot be read: {error}") from None

    found = {}
    for line in map(str.strip, lines):
        name, equals, value = line.removeprefix("export ").partition("=")
        if equals and not line.startswith("#"):
            value = value.strip()
            is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            found[name.strip()] = value[1:-1] if is_quoted else value
    return found
