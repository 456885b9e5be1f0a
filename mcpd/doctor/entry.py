"""The entry of a server in a host's configuration: what the host makes of it, where that is not what it says.

Only what hosts get wrong in silence; an entry that cannot be read at all is told by who reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ..client.targets.configured import host_files, host_servers
from ..client.targets.hosts import HOSTS
from ..errors import ConfigurationError
from ..printable import printable
from .report import Report

__all__ = ["look_at_entry"]

_URLS = ("url", "httpUrl", "serverUrl", "uri")
_NEED_TYPE = {"claude-code": "http", "copilot-cli": "http", "cline": "streamableHttp", "cline-legacy": "streamableHttp",
              "roo": "streamable-http", "kilo": "remote", "opencode": "remote", "goose": "streamable_http"}  # fmt: skip
"""Hosts that take an entry with a URL and without `type` for something else."""


def look_at_entry(target: str, report: Report) -> None:
    """Judge the entry that HOST:NAME names; nothing for other targets."""
    host, colon, name = target.partition(":")
    if not colon or host not in HOSTS:
        return
    try:
        path, entry = _entry(host, name)
    except ConfigurationError:
        return  # it is told where the entry is read
    if not isinstance(entry, dict):
        return

    found = list(_problems(host, entry))
    for text, advice in found:
        report.fail("configuration", f"{HOSTS[host].name}: {text}", advice, file=path)
    if not found:
        report.ok("configuration", printable(path, 1000), file=path)


def _entry(host: str, name: str) -> tuple[str, Any]:
    """The file of a host that has this entry, and the entry."""
    for path in host_files(HOSTS[host]):
        servers = host_servers(HOSTS[host], path)
        if name in servers:
            return path, servers[name]
    return "", None


def _problems(host: str, entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if entry.get("disabled") is True or entry.get("enabled") is False:
        yield "the server is switched off in it", "switch it on in the host, or take `disabled` or `enabled` out"
    has_url = any(entry.get(member) for member in _URLS)
    if has_url:
        yield from _of_url(host, entry)
    elif isinstance(command := entry.get("command"), str):
        yield from _of_command(command)


def _of_url(host: str, entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    kind = _NEED_TYPE.get(host)
    if kind is not None and "type" not in entry:
        instead = "it says `transport`, which the host does not know" if "transport" in entry else "it has no `type`"
        yield f"{instead}, and is not taken for Streamable HTTP", f'write "type": "{kind}"'
    elif host == "codex" and "transport" in entry:
        yield "it says `transport`, which the host does not know", "take it out: a `url` is enough"
    elif host == "windsurf" and "serverUrl" not in entry:
        yield "it has a `url`, which the host does not connect to", "write `serverUrl` in place of `url`"
    elif host == "gemini-cli" and "httpUrl" not in entry and not str(entry.get("url")).rstrip("/").endswith("/sse"):
        yield "a `url` means HTTP+SSE of 2024-11-05 there", "write `httpUrl` in place of `url`"


def _of_command(command: str) -> Iterator[tuple[str, str]]:
    if " " in command and not os.path.exists(command):
        advice = "put the program alone into `command`, and each other word into `args`"
        yield f"its `command` has spaces: {printable(command)}", advice
    elif os.sep in command and not os.path.isabs(command) and not command.startswith(("~", "$")):
        yield f"its `command` is looked for in whatever folder the host runs in: {printable(command)}", "write it whole"
