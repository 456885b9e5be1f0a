"""One entry of a configuration as a target, in the shape that any host gives it.

The shapes differ in names only (`command` or `cmd`, `url`, `httpUrl` or `serverUrl`, `env`, `environment` or `envs`):
one reader knows all of them, so that an entry that was copied from one host to another is understood.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.client.targets.urls import read_url
from mcpd.client.targets.variables import Variables
from mcpd.errors import ConfigurationError

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
