"""Where the limits of one host bite a server: what it leaves out, cuts or does not show, said before it happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mcpd.client.targets.hosts import Host
from mcpd.install.launch import Offers

_CUT_BYTES = 2048
_CUT = frozenset(("claude-code", "xcode-claude"))
"""Hosts that cut instructions and the descriptions of tools behind so many bytes."""

_NO_RESOURCES = frozenset(("zed",))
_NO_PROMPTS = frozenset(("codex", "cline", "cline-legacy", "xcode-codex"))
_MOST_SHOWN = 3
_SLOW_SHARE = 0.5
"""Nearer to its limit than this a server is too late on a slower day."""


def bites(host: Host, server: str, offers: Offers, seconds: float = 0.0) -> list[str]:
    """Sentences, none if the host takes everything. `server` is what the host is to call it, `seconds` what it took."""
    return [
        *_of_start(host, seconds),
        *_of_tools(host, server, offers),
        *_of_texts(host, offers),
        *_of_kinds(host, offers),
    ]


def _of_start(host: Host, seconds: float) -> Iterator[str]:
    limit = host.limits.start_seconds
    if seconds > limit * _SLOW_SHARE:
        mend = {"codex": ", or raise startup_timeout_sec", "claude-code": ", or raise MCP_TIMEOUT"}.get(host.id, "")
        yield f"the first answer took {seconds:.1f} s, and this host gives up after {limit:g} s: load less{mend}"


def _of_tools(host: Host, server: str, offers: Offers) -> Iterator[str]:
    limits = host.limits
    if limits.tools is not None and len(offers.tools) > limits.tools:
        yield f"{len(offers.tools)} tools, and this host takes {limits.tools} of all servers together: offer fewer"
    if limits.tool_name is None:
        return
    room = limits.tool_name - len(limits.prefix.format(server=server))
    long = [name for name in _names(offers.tools) if len(name) > room]
    if long:
        text = f"{_some(long)} may be missing: names of tools have room for {room} characters here"
        yield f"{text}; shorten them{', or the name of the server with --name' if '{' in limits.prefix else ''}"


def _of_texts(host: Host, offers: Offers) -> Iterator[str]:
    alone = host.limits.instructions
    if alone is not None and len(offers.instructions) > alone:
        yield f"the first {alone} characters of its instructions have to make sense alone here"
    if host.id not in _CUT:
        return
    size = _bytes(offers.instructions)
    if size > _CUT_BYTES:
        yield f"its instructions have {size:,} bytes, and are cut behind {_CUT_BYTES:,}"
    long = _names(tool for tool in offers.tools if _bytes(tool.get("description")) > _CUT_BYTES)
    if long:
        yield f"the descriptions of {_some(long)} are cut behind {_CUT_BYTES:,} bytes"


def _of_kinds(host: Host, offers: Offers) -> Iterator[str]:
    if offers.apps and not host.has_apps:
        yield f"this host shows no pages: {_some(offers.apps)} will answer with text (--no-apps switches pages off)"
    if host.id in _NO_RESOURCES and (offers.resources or offers.templates):
        yield "this host reads no resources: what is in them has to be had by a tool"
    if host.id in _NO_PROMPTS and offers.prompts:
        yield "this host shows no prompts"


def _names(tools: Iterable[Mapping[str, Any]]) -> list[str]:
    return [str(tool.get("name")) for tool in tools]


def _bytes(text: Any) -> int:
    return len(text.encode("utf-8", "replace")) if isinstance(text, str) else 0


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + more
