"""Servers from configuration files: `FILE.json:NAME`, and `HOST:NAME` from the configuration of an installed host.

Files are only read. For a host, only the user's own file is read. A project's file comes from somebody else, so the
user must name it as a file (`.mcp.json:NAME`). Errors never show values of a file, because they may be tokens.

Hosts differ in names only (`command` or `cmd`; `url`, `httpUrl` or `serverUrl`; `env`, `environment` or `envs`). One
reader accepts all of them, so an entry that was copied from one host to another works.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from .hosts import HOSTS, Host, places, system
from .named import CommandTarget, UrlTarget, read_url

log = logging.getLogger("mcpd.client")

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_BRACES = rf"\$\{{(?P<braces>{_NAME})(?::-(?P<default>[^}}]*))?\}}"
_ENV = rf"\$\{{(?:env:(?P<env>{_NAME})|input:(?P<input>[^}}]*)|(?P<place>userHome|workspaceFolder|pathSeparator|/))\}}"
_PATTERNS = {
    "braces": re.compile(_BRACES),
    "shell": re.compile(rf"\$\{{(?P<shell>{_NAME})\}}|\$(?P<bare>{_NAME})"),
    "env": re.compile(_ENV),
    "file": re.compile(f"{_ENV}|{_BRACES}"),
    "strict": re.compile(rf"{_ENV}|{_BRACES}|\{{env:(?P<curly>{_NAME})\}}"),
    "curly": re.compile(rf"\{{env:(?P<env>{_NAME})\}}"),
    "secrets": re.compile(rf"\$\{{\{{\s*(?:secrets|inputs)\.(?P<env>{_NAME})\s*\}}\}}"),
}
_PERCENT = re.compile(rf"{_PATTERNS['shell'].pattern}|%(?P<percent>{_NAME})%")


class Variables:
    """Replaces variables in the values of one entry. `where` names the entry in errors and in the log.

    `folder` is the workspace folder, by default the current folder. `used` are the values that were inserted.
    `dialect` selects the syntax of the host:

        braces   ${NAME}, ${NAME:-default}; an unset variable without a default stays as text and is logged.
        shell    $NAME, ${NAME}, %NAME% on Windows; an unset variable becomes "".
        env      ${env:NAME}, ${userHome}, ${workspaceFolder}, ${pathSeparator}; an unset variable becomes "".
        file     `braces` and `env`, for a file of an unknown host.
        curly    {env:NAME}; an unset variable becomes "".
        strict   `file` and `curly`; an unset variable is an error, and ${input:ID} is MCPD_INPUT_ID.
        secrets  ${{ secrets.NAME }}, read from the environment.
        none     no variables.
    """

    def __init__(
        self,
        dialect: str,
        environment: Mapping[str, str],
        where: str,
        *,
        is_windows: bool = False,
        folder: str | None = None,
    ) -> None:
        self._pattern = _PERCENT if dialect == "shell" and is_windows else _PATTERNS.get(dialect)
        self._environment = environment
        self._where = where
        self._missing: set[str] = set()
        self._is_strict = dialect == "strict"
        self._folder = folder
        self.used: set[str] = set()

    def expand(self, text: str) -> str:
        """Return the text with its variables replaced. Raises ConfigurationError for a value that the host asks for."""
        return text if self._pattern is None else self._pattern.sub(self._replace, text)

    def get(self, name: str) -> str | None:
        """Return the value of an environment variable that the entry names directly; None if it is not set."""
        return self._environment.get(name)

    def _replace(self, match: re.Match[str]) -> str:
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        if "input" in found and self._is_strict:
            found = {"input": f"MCPD_INPUT_{re.sub(r'[^A-Za-z0-9]', '_', found['input']).upper()}"}
        elif "input" in found:
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
            self.used.add(value)
            return value
        if default is not None:
            return default
        if self._is_strict:
            raise ConfigurationError(f"{self._where}: the variable {name} is not set; set it, or write ${{{name}:-}}")
        if kind != "braces":
            return ""
        if name not in self._missing:
            self._missing.add(name)
            text = f"{self._where}: the variable {name} is not set; {match[0]} is left unchanged"
            log.warning("%s", printable(text))
        return match[0]

    def _place(self, name: str) -> str:
        if name == "userHome":
            return self._environment.get("HOME") or self._environment.get("USERPROFILE") or os.path.expanduser("~")
        return (self._folder or os.getcwd()) if name == "workspaceFolder" else os.sep


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
    # After the file: single variables take precedence.
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
    # Codex names environment variables where other hosts have values.
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
    # Read lines of NAME=VALUE. Empty lines and comments are skipped, and quotes around a value are removed.
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


FORMATS = {".json": "json", ".jsonc": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
"""The format of a file by its suffix. JSON may always contain comments, as most hosts allow them."""

MOST_BYTES = 64 * 1024 * 1024

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_NOT_A_LINE_END = re.compile(r"[^\n]")


def format_of(path: str) -> str | None:
    """The format of a file by its name; None if it is not a configuration file."""
    return FORMATS.get(os.path.splitext(path)[1].lower())


def read_document(path: str, kind: str) -> dict[str, Any]:
    """Read a file of this format as an object. Raises ConfigurationError, with the position of a syntax error."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise ConfigurationError(f"{path} is too large for a configuration file: more than {MOST_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not valid UTF-8: byte {error.start}") from None

    found = _READERS[kind](text, path) if text.strip() else {}
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: the file must contain an object, not a {type(found).__name__}")
    return found


def without_comments(text: str) -> str:
    """Replace comments and trailing commas of JSON by blanks. All other text keeps its line and column."""
    return _COMMA.sub(_blank, _COMMENT.sub(_blank, text))


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return found if found.startswith('"') else _NOT_A_LINE_END.sub(" ", found)


def _json(text: str, path: str) -> Any:
    try:
        return json.loads(without_comments(text))
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: the file is nested too deeply") from None


def _toml(text: str, path: str) -> Any:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _yaml(text: str, path: str) -> Any:
    load, problem = _yaml_library(path)
    try:
        return load(text)
    except (problem, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigurationError(f"{path}{place}: {getattr(error, 'problem', None) or 'invalid YAML'}") from None


def _yaml_library(path: str) -> tuple[Callable[[str], Any], type[Exception]]:
    # Return a YAML loader and its exception: from PyYAML, or from ruamel.yaml, which `mcpd install` uses.
    try:
        yaml: Any = import_module("yaml")
        return yaml.safe_load, yaml.YAMLError
    except ImportError:
        pass
    try:
        ruamel: Any = import_module("ruamel.yaml")
    except ImportError:
        raise ConfigurationError(f"{path}: YAML needs a package: pip install 'mcpd-server[install]'") from None
    return ruamel.YAML(typ="safe", pure=True).load, ruamel.error.YAMLError


_READERS = {"json": _json, "jsonc": _json, "toml": _toml, "yaml": _yaml}

_KEYS = ("mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "extensions")
_MOST_NAMES = 12


def split_file(text: str) -> tuple[str, str] | None:
    """Split `FILE.json:NAME` into file and name. The name is "" if it is missing; None if no such file is meant."""
    colon = len(text)
    while True:
        place = text[:colon]
        if format_of(place) is not None and os.path.basename(place):
            return place, text[colon + 1 :]
        colon = text.rfind(":", 0, colon)
        if colon < 0:
            return None


def read_file(path: str, name: str, environment: Mapping[str, str] = os.environ) -> CommandTarget | UrlTarget:
    """Return the server of this name in a configuration file. Without a name, the file must have exactly one server.

    Raises ConfigurationError.
    """
    servers = read_servers(path)
    if not name and len(servers) == 1:
        (name,) = servers
    return _read(servers, name, path, "file", environment)


def all_servers(text: str) -> dict[str, str]:
    """Return the targets of all enabled servers of a configuration file or an installed host, by name.

    Raises ConfigurationError for a file that is missing or invalid, and for a text that names neither.
    """
    host = HOSTS.get(text)
    servers = read_servers(text) if host is None else servers_of_host(host, host_files(host))

    targets = {name: f"{text}:{name}" for name, entry in servers.items() if not is_disabled(entry)}
    if not targets:
        raise ConfigurationError(f"{text}: {'all its servers are disabled' if servers else 'contains no servers'}")
    return targets


def is_disabled(entry: Any) -> bool:
    """Return whether the entry of a server says that it is off."""
    return isinstance(entry, dict) and (entry.get("disabled") is True or entry.get("enabled") is False)


def host_files(host: Host, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The existing configuration files of this host, the likeliest first."""
    return [path for path in places(host, environment, system()) if os.path.isfile(path)]


def host_servers(host: Host, path: str) -> dict[str, Any]:
    """Return the entries of all servers in a file of this host, by name. Raises ConfigurationError."""
    return servers_in(host, read_document(path, host.format))


def servers_in(host: Host, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of all servers in a file of this host that was already read, by name."""
    servers = _by_name(document.get(host.key))
    folders = document.get(host.folders) if host.folders else None
    if isinstance(folders, dict):
        # Entries of one folder take precedence over the entries for all folders.
        found: dict[str, Any] = next(
            (folders[each] for each in _upwards(os.getcwd()) if isinstance(folders.get(each), dict)), {}
        )
        servers = {**servers, **_by_name(found.get(host.key))}
    return servers


def read_host(host: Host, name: str, environment: Mapping[str, str] = os.environ) -> CommandTarget | UrlTarget:
    """Return the server of this name in the host's configuration. Raises ConfigurationError."""
    files = host_files(host, environment)
    if not files:
        paths = " and ".join(places(host, environment, system()))
        problem = f"has no configuration file at {paths}" if paths else "does not run on this system"
        raise ConfigurationError(f"{host.id}:{name}: {host.name} {problem}")

    found = servers_of_host(host, files)
    if name not in found:
        for project in host.project:
            if os.path.isfile(project) and name in _by_name(read_document(project, host.format).get(host.key)):
                raise ConfigurationError(
                    f"{host.id}:{name}: {host.name} uses this server in this folder only; if you trust {project}, "
                    f"write {project}:{name}"
                )
    return _read(found, name, host.id, host.variables, environment)


def servers_of_host(host: Host, files: list[str]) -> dict[str, Any]:
    """Return the entries of several files; entries of the first files take precedence."""
    return {name: entry for path in reversed(files) for name, entry in host_servers(host, path).items()}


def _read(
    servers: dict[str, Any], name: str, place: str, dialect: str, environment: Mapping[str, str]
) -> CommandTarget | UrlTarget:
    where = f"{place}:{name}"
    if name not in servers:
        raise ConfigurationError(_no_server(servers, name, place))
    variables = Variables(dialect, environment, where, is_windows=sys.platform == "win32")
    return read_entry(servers[name], variables, where)


def _no_server(servers: dict[str, Any], name: str, place: str) -> str:
    if not servers:
        return f"{place} contains no servers (for an OpenAPI document write: -- mcpd serve --stdio {place})"
    names = sorted(servers)
    listed = ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else "")
    if not name:
        return f"{place}: add the name of a server, for example {place}:{names[0]}; available: {listed}"
    near = get_close_matches(name, names, 1)
    hint = f"did you mean {place}:{near[0]}? Available" if near else "available"
    return f"{place}:{name}: no such server; {hint}: {listed}"


def read_servers(path: str) -> dict[str, Any]:
    """Return the entries of all servers in a configuration file, by name. Raises ConfigurationError."""
    kind, full = format_of(path), os.path.expanduser(path)
    if kind is None:
        raise ConfigurationError(f"{path}: not a configuration file, and none of the hosts {', '.join(HOSTS)}")
    if not os.path.isfile(full):
        raise ConfigurationError(f"{path}: no such file{_near_file(full)}")

    document = read_document(full, kind)
    for key in _KEYS:
        if key in document:
            return _by_name(document[key])
    raise ConfigurationError(f"{path}: no mcpServers, servers, context_servers, mcp_servers or mcp in this file")


def _by_name(found: Any) -> dict[str, Any]:
    if isinstance(found, list):
        return {str(each.get("name")): each for each in found if isinstance(each, dict) and each.get("name")}
    return {str(name): entry for name, entry in found.items()} if isinstance(found, dict) else {}


def _upwards(folder: str) -> list[str]:
    # The folder and its parents, as Claude Code writes them.
    found = [folder]
    while (folder := os.path.dirname(found[-1])) != found[-1]:
        found.append(folder)
    return [path.replace(os.sep, "/") for path in found]


def _near_file(path: str) -> str:
    folder, name = os.path.split(path)
    near = get_close_matches(name, filter(format_of, listed(folder)), 1)
    return f"; did you mean {os.path.join(folder, near[0])}?" if near else ""


def listed(folder: str) -> list[str]:
    """The names in a folder; [] if it cannot be read."""
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []
