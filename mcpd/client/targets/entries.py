"""One entry of a host's configuration as a target, the variables in its values, and URLs.

Hosts differ in names only (`command` or `cmd`; `url`, `httpUrl` or `serverUrl`; `env`, `environment` or `envs`). One
reader accepts all of them, so an entry that was copied from one host to another works.
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
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        found["Authorization"] = f"Basic {b64encode(secret.encode()).decode()}"
    authority = f"[{host}]" if ":" in host else host
    if port is not None:
        authority = f"{authority}:{port}"
    return UrlTarget(urlunsplit((scheme, authority, parts.path or "/", parts.query, "")), found, name=name)


def _socket(scheme: str, rest: str, headers: dict[str, str], text: str, name: str) -> UrlTarget:
    """Split the path of the socket from the path of the endpoint: `:/mcp`, or `#/mcp` as in VS Code."""
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
    """Replaces variables in the values of one entry. `where` names the entry in errors and in the log.

    `dialect` selects the syntax of the host:

        braces   ${NAME}, ${NAME:-default}; an unset variable without a default stays as text and is logged.
        shell    $NAME, ${NAME}, %NAME% on Windows; an unset variable becomes "".
        env      ${env:NAME}, ${userHome}, ${workspaceFolder}, ${pathSeparator}; an unset variable becomes "".
        file     `braces` and `env`, for a file of an unknown host.
        curly    {env:NAME}; an unset variable becomes "".
        secrets  ${{ secrets.NAME }}, read from the environment.
        none     no variables.
    """

    def __init__(self, dialect: str, environment: Mapping[str, str], where: str, *, is_windows: bool = False) -> None:
        self._pattern = _PERCENT if dialect == "shell" and is_windows else _PATTERNS.get(dialect)
        self._environment = environment
        self._where = where
        self._missing: set[str] = set()

    def expand(self, text: str) -> str:
        """Return the text with its variables replaced. Raises ConfigurationError for a value that only the host can ask
        for.
        """
        return text if self._pattern is None else self._pattern.sub(self._replace, text)

    def get(self, name: str) -> str | None:
        """Return the value of an environment variable that the entry names directly; None if it is not set."""
        return self._environment.get(name)

    def _replace(self, match: re.Match[str]) -> str:
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        if "input" in found:
            raise ConfigurationError(
                f"{self._where}: the host asks its user for {match[0]}; put the value into a file of your own, "
                "or use the server's command or URL as the target"
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
                "%s: the variable %s is not set; ${%s} is left unchanged",
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
    """Return the command or URL of an entry; `where` names the entry in errors.

    Raises ConfigurationError, whose text contains no value of the entry.
    """
    if not isinstance(entry, dict):
        raise ConfigurationError(f"{where}: the entry must be an object with command or url")
    kind = entry.get("type") or entry.get("transport")
    has_command = any(entry.get(name) for name in _COMMANDS)
    has_url = any(entry.get(name) for name in _URLS)
    if has_command and (not has_url or kind is None or kind in _STDIO):
        return _command(entry, variables, where)
    if has_url:
        return _url(entry, kind, variables, where)

    have = ", ".join(map(str, entry)) or "nothing"
    raise ConfigurationError(f"{where}: the entry has neither command nor url, only: {have}")


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
        raise ConfigurationError(f"{where}: url must be a string")
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
        raise ConfigurationError(f"{where}: {member} must be a list of strings")
    return [str(each) for each in values]


def _strings(values: Any, variables: Variables, member: str, where: str) -> dict[str, str]:
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigurationError(f"{where}: {member} must be an object of strings")
    found = {}
    for name, value in values.items():
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, (str, int, float)):
            found[str(name)] = variables.expand(str(value))
        elif value is not None:
            raise ConfigurationError(f"{where}: {member}.{name} must be a string")
    return found


def _variable(name: str, variables: Variables, where: str) -> str:
    value = variables.get(name)
    if not value:
        raise ConfigurationError(f"{where}: a header needs the environment variable {name}, which is not set")
    return value


def _env_file(path: str, where: str) -> Mapping[str, str]:
    """Read lines of NAME=VALUE. Empty lines and comments are skipped, and quotes around a value are removed."""
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
