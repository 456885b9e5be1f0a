"""An entry as each host writes it into its file, by the `shape` that the table of hosts names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcpd.client.targets.hosts import Host
from mcpd.errors import ConfigurationError
from mcpd.install.entry import Entry

OURS = frozenset(
    {
        "type", "transport", "command", "cmd", "args", "env", "envs", "environment", "cwd", "envFile",
        "url", "uri", "httpUrl", "serverUrl", "headers", "http_headers", "requestInit", "bearer_token_env_var",
        "env_http_headers",
    }
)  # fmt: skip
"""Members that say what is started or reached: another entry of the same name loses them. All others are the user's
own (`disabled`, `autoApprove`, `timeout`, …), and stay."""

_TIMEOUT_SECONDS = 300


def shaped(host: Host, name: str, entry: Entry) -> dict[str, Any]:
    """The entry as this host reads it. Raises ConfigurationError for what it does not know."""
    if entry.url:
        if entry.transport == "ws" and host.id not in _KNOW_WEBSOCKET:
            raise ConfigurationError(f"{host.name} connects to no WebSocket; say the http:// URL of the server")
        return _URLS[host.shape](name, entry)
    if entry.cwd is not None and host.id not in _KNOW_CWD:
        raise ConfigurationError(
            f"{host.name} cannot be told a working folder ({entry.cwd}); give the server as a file or with whole paths"
        )
    return _COMMANDS.get(host.shape, _plain)(name, entry)


_KNOW_WEBSOCKET = ("claude-code", "xcode-claude")
_KNOW_CWD = ("codex", "xcode-codex", "gemini-cli", "qwen-code", "vscode", "vscode-insiders")


def _plain(name: str, entry: Entry) -> dict[str, Any]:
    return _with({"command": entry.command, "args": [*entry.args]}, env=entry.env, cwd=entry.cwd)


def _typed(name: str, entry: Entry) -> dict[str, Any]:
    return {"type": "stdio", **_plain(name, entry)}


def _copilot_cli(name: str, entry: Entry) -> dict[str, Any]:
    return {"type": "local", **_plain(name, entry), "tools": ["*"]}


def _local(name: str, entry: Entry) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "local", "command": [entry.command, *entry.args]}
    return {**_with(made, environment=entry.env), "enabled": True}


def _goose(name: str, entry: Entry) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "stdio", "name": name, "cmd": entry.command, "args": [*entry.args]}
    return {**_with(made, envs=entry.env), "enabled": True, "timeout": _TIMEOUT_SECONDS}


def _continue(name: str, entry: Entry) -> dict[str, Any]:
    return {"name": name, **_plain(name, entry)}


_COMMANDS: dict[str, Callable[[str, Entry], dict[str, Any]]] = {
    "typed": _typed,
    "copilot-cli": _copilot_cli,
    "local-remote": _local,
    "goose": _goose,
    "continue": _continue,
}


def _url(member: str = "url", **before: Any) -> Callable[[str, Entry], dict[str, Any]]:
    return lambda name, entry: _with({**before, member: entry.url}, headers=entry.headers)


def _typed_url(name: str, entry: Entry) -> dict[str, Any]:
    return _with({"type": entry.transport, "url": entry.url}, headers=entry.headers)


def _no_url(name: str, entry: Entry) -> dict[str, Any]:
    raise ConfigurationError(
        "Claude Desktop takes no URL in its file: add it in Settings > Connectors, or install the server as a TARGET"
    )


def _request_init(name: str, entry: Entry) -> dict[str, Any]:
    return _with({"url": entry.url}, requestInit={"headers": entry.headers} if entry.headers else {})


def _goose_url(name: str, entry: Entry) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "streamable_http", "name": name, "uri": entry.url}
    return {**_with(made, headers=entry.headers), "enabled": True, "timeout": _TIMEOUT_SECONDS}


def _continue_url(name: str, entry: Entry) -> dict[str, Any]:
    made = {"name": name, "type": "streamable-http", "url": entry.url}
    return _with(made, requestOptions={"headers": entry.headers} if entry.headers else {})


_URLS: dict[str, Callable[[str, Entry], dict[str, Any]]] = {
    "plain": _url(),
    "typed": _typed_url,
    "no-url": _no_url,
    "codex": lambda name, entry: _with({"url": entry.url}, http_headers=entry.headers),
    "http-url": _url("httpUrl"),
    "server-url": _url("serverUrl"),
    "transport": lambda name, entry: _with({"url": entry.url, "transport": "http"}, headers=entry.headers),
    "cline": _url(type="streamableHttp"),
    "streamable-http": _url(type="streamable-http"),
    "copilot-cli": lambda name, entry: {**_url(type="http")(name, entry), "tools": ["*"]},
    "request-init": _request_init,
    "local-remote": lambda name, entry: {**_url(type="remote")(name, entry), "enabled": True},
    "goose": _goose_url,
    "continue": _continue_url,
}


def _with(made: dict[str, Any], **more: Any) -> dict[str, Any]:
    """`made` with those of `more` that say something."""
    return {**made, **{key: value for key, value in more.items() if value}}
