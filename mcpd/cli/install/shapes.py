"""The format of an entry in each host's file and in its links, and the comparison of entries.

The table of hosts names a `shape` for each host.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

from mcpd.cli.install.entry import Entry
from mcpd.cli.install.files import Record, entry_fingerprint
from mcpd.client.targets.configurations import Variables, read_entry
from mcpd.client.targets.hosts import HOSTS, Host
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import mask_command

# Members that determine what is started or reached. An update replaces them. All other members belong to the user
# (`disabled`, `autoApprove`, `timeout`, …) and stay.
LAUNCH_MEMBERS = frozenset(
    {
        "type", "transport", "command", "cmd", "args", "env", "envs", "environment", "cwd", "envFile",
        "url", "uri", "httpUrl", "serverUrl", "headers", "http_headers", "requestInit", "bearer_token_env_var",
        "env_http_headers",
    }
)  # fmt: skip

COMMAND_MEMBERS = ("command", "cmd")
URL_MEMBERS = ("url", "httpUrl", "serverUrl", "uri")
VARIABLE_MEMBERS = ("env", "environment", "envs")
# The names that hosts give to these members of an entry.
HEADER_MEMBERS = ("headers", "http_headers", "requestInit", "requestOptions")

_GOOSE = {"enabled": True, "timeout": 300}


def shaped(host: Host, name: str, entry: Entry) -> dict[str, Any]:
    """Return the entry in this host's format. Raises ConfigurationError for features that the host does not support."""
    if entry.url:
        if entry.transport == "ws" and host.id not in _KNOW_WEBSOCKET:
            raise ConfigurationError(f"{host.name} does not support WebSocket; use the http:// URL of the server")
        if host.shape == "no-url":
            raise ConfigurationError(
                f"{host.name} accepts no URLs in its file: add it in Settings > Connectors, or install the server as a "
                "TARGET"
            )
        return _URLS[host.shape](name, entry)
    if entry.cwd is not None and host.id not in _KNOW_CWD:
        raise ConfigurationError(
            f"{host.name} does not support a working folder ({entry.cwd}); name the server as a file, or "
            "use absolute paths"
        )
    return _COMMANDS.get(host.shape, _plain_command)(name, entry)


_KNOW_WEBSOCKET = ("claude-code", "xcode-claude")
_KNOW_CWD = ("codex", "xcode-codex", "gemini-cli", "qwen-code", "vscode", "vscode-insiders")


def _plain_command(name: str, entry: Entry) -> dict[str, Any]:
    return _with({"command": entry.command, "args": [*entry.args]}, env=entry.env, cwd=entry.cwd)


_Shape: TypeAlias = Callable[[str, Entry], dict[str, Any]]

_COMMANDS: dict[str, _Shape] = {
    "typed": lambda name, entry: {"type": "stdio", **_plain_command(name, entry)},
    "copilot-cli": lambda name, entry: {"type": "local", **_plain_command(name, entry), "tools": ["*"]},
    "local-remote": lambda name, entry: {
        **_with({"type": "local", "command": [entry.command, *entry.args]}, environment=entry.env),
        "enabled": True,
    },
    "goose": lambda name, entry: {
        **_with({"type": "stdio", "name": name, "cmd": entry.command, "args": [*entry.args]}, envs=entry.env),
        **_GOOSE,
    },
    "continue": lambda name, entry: {"name": name, **_plain_command(name, entry)},
}


def _url(member: str = "url", **before: Any) -> _Shape:
    return lambda name, entry: _with({**before, member: entry.url}, headers=entry.headers)


_URLS: dict[str, _Shape] = {
    "plain": _url(),
    "typed": lambda name, entry: _url(type=entry.transport)(name, entry),
    "codex": lambda name, entry: _with({"url": entry.url}, http_headers=entry.headers),
    "http-url": _url("httpUrl"),
    "server-url": _url("serverUrl"),
    "transport": _url(transport="http"),
    "cline": _url(type="streamableHttp"),
    "streamable-http": _url(type="streamable-http"),
    "copilot-cli": lambda name, entry: {**_url(type="http")(name, entry), "tools": ["*"]},
    "request-init": lambda name, entry: _with({"url": entry.url}, requestInit=_with({}, headers=entry.headers)),
    "local-remote": lambda name, entry: {**_url(type="remote")(name, entry), "enabled": True},
    "goose": lambda name, entry: {**_url("uri", type="streamable_http", name=name)(name, entry), **_GOOSE},
    "continue": lambda name, entry: _with(
        {"name": name, "type": "streamable-http", "url": entry.url}, requestOptions=_with({}, headers=entry.headers)
    ),
}


def _with(made: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Add the members of `more` that are not empty."""
    return {**made, **{key: value for key, value in more.items() if value}}


def launch_words(entry: Any) -> list[str] | None:
    """Return the command or the URL of an entry in any host's format; None if it has neither."""
    try:
        found = read_entry(entry, Variables("none", {}, ""), "entry")
    except ConfigurationError:
        return None
    return [found.url] if isinstance(found, UrlTarget) else [*found.command]


def is_ours(entry: Any, records: Iterable[Record] = ()) -> bool:
    """Return whether `mcpd install` wrote the entry: it starts `mcpd serve --stdio`, or the journal has it."""
    words = launch_words(entry)
    if words is None or _served(words) is not None:
        return words is not None
    return any(record.entry == entry_fingerprint(words) for record in records)


def same_server(one: Any, other: Any) -> bool:
    """Return whether two entries start or reach the same server, with whichever Python or copy of mcpd."""
    a, b = launch_words(one), launch_words(other)
    if a is None or b is None:
        return False
    return a == b or (_served(a) is not None and _served(a) == _served(b))


def describe_entry(entry: Any) -> str:
    """Return the command or URL of an entry in one line, without its variables."""
    words = launch_words(entry)
    return "an unreadable entry" if words is None else " ".join(mask_command(words))


def texts_in(value: Any) -> list[str]:
    """Return all strings in a value."""
    if isinstance(value, dict):
        return [text for each in value.values() for text in texts_in(each)]
    if isinstance(value, list):
        return [text for each in value for text in texts_in(each)]
    return [value] if isinstance(value, str) else []


def _served(words: list[str]) -> list[str] | None:
    """The words behind `mcpd serve --stdio`; None for another command."""
    for at in range(len(words) - 2):
        name = os.path.basename(words[at].replace("\\", "/")).lower().removesuffix(".exe")
        if name == "mcpd" and words[at + 1 : at + 3] == ["serve", "--stdio"]:
            return words[at + 3 :]
    return None


def link_to(host: Host, name: str, entry: Entry) -> str:
    """Return a link that adds the server to a host when it is opened.

    Raises ConfigurationError for a host without such links, and for entries that its links cannot express.
    """
    if host.link == "cursor":
        config = b64encode(json.dumps(shaped(host, name, entry)).encode()).decode()
        return f"cursor://anysphere.cursor-deeplink/mcp/install?{urlencode({'name': name, 'config': config})}"
    if host.link in ("vscode", "vscode-insiders"):
        said = json.dumps({"name": name, **shaped(host, name, entry)}, ensure_ascii=False)
        return f"{host.link}:mcp/install?{quote(said, safe='')}"
    if host.link == "goose":
        return _goose_link(name, entry)
    have = ", ".join(each.id for each in HOSTS.values() if each.link)
    raise ConfigurationError(f"{host.name} has no links that add a server; hosts with links: {have}")


def _goose_link(name: str, entry: Entry) -> str:
    if entry.env or entry.headers:
        raise ConfigurationError("Goose's links cannot carry variables or headers; install it without --link")
    if entry.url:
        pairs = [("url", entry.url), ("type", "streamable_http")]
    else:
        pairs = [("cmd", entry.command), *(("arg", arg) for arg in entry.args)]
    return f"goose://extension?{urlencode([*pairs, ('id', name), ('name', name)], quote_via=quote)}"
