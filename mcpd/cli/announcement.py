"""What `mcpd serve` says when it listens: where, and how to point a host at it, in words to copy."""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
from typing import Any

from msgspec.json import encode, format

from ..errors import ConfigurationError
from ..serve_options import Options
from ..transports.address import parse
from .target import split

__all__ = ["addresses", "claude_desktop", "pointers"]

_WILDCARDS = ("0.0.0.0", "::")
# Addresses for documentation (RFC 5737, RFC 3849): nothing is sent, the system only says from where it would be.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def addresses(url: str, options: Options) -> list[str]:
    """Where one listener can be reached: from this machine and, if it is open to them, from others."""
    found = [f"mcpd: listening on {_reachable(url, options)} (Ctrl-C ends it)"]
    if url.startswith("http://"):
        found.append(f"mcpd: and for WebSocket on {_reachable(url, options).replace('http://', 'ws://', 1)}")
    others = _for_others(url, options)
    if others is not None:
        found.append(f"mcpd: other machines reach it at {others}")
    return found


def pointers(url: str, name: str, options: Options) -> list[str]:
    """How to point hosts at a listener; nothing for who serves stdio too, and so was started by a host."""
    if options.stdio:
        return []
    url = _reachable(url, options)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "mcpd"
    entry = claude_desktop(options.target)
    command = shlex.join([*(f"{key}={value}" for key, value in entry.get("env", {}).items()), entry["command"]])
    words = " ".join([command if "env" not in entry else f"env {command}", shlex.join(entry["args"])])
    auth = options.auth
    if auth is None:
        needs_token = options.token_file is not None or bool(os.environ.get("MCPD_TOKEN"))
        public_url = options.public_url
    else:
        # Where clients log in, no token is handed out, and tokens are made for one URL: by another one hosts stop.
        needs_token = auth.url_of_metadata() is None
        public_url = options.public_url if needs_token else auth.public_url
    if public_url and url.startswith("http://"):
        url = public_url
    code: dict[str, Any] = {"name": name, **entry}
    header = {"headers": {"Authorization": "Bearer TOKEN"}} if needs_token else {}
    inspector = f"npx @modelcontextprotocol/inspector -- {words}"

    claude = f"claude mcp add {name} -- {words}"
    if url.startswith("ws://"):
        claude = f"claude mcp add-json {name} {_quoted({'type': 'ws', 'url': url, **header})}"
    elif url.startswith(("http://", "https://")):
        option = " --header 'Authorization: Bearer TOKEN'" if needs_token else ""
        claude = f"claude mcp add --transport http {name} {url}{option}"
        inspector = f"npx @modelcontextprotocol/inspector --transport http --server-url {url}{option}"
        code = {"name": name, "type": "http", "url": url, **header}

    target = f" {shlex.quote(options.target)}" if options.target is not None else ""
    return [
        "mcpd: point a host at it:" + (" (TOKEN is one that it was started with)" if needs_token else ""),
        f"  Claude Code  {claude}",
        f"  VS Code      code --add-mcp {_quoted(code)}",
        f"  Inspector    {inspector}",
        f"mcpd: Claude Desktop starts its servers itself, over stdio: mcpd install claude-desktop{target}",
        "mcpd: or by hand, the next line in its claude_desktop_config.json (Settings > Developer > Edit Config):",
        format(encode({"mcpServers": {name: entry}}), indent=0).decode(),
    ]


def _quoted(value: Any) -> str:
    return shlex.quote(encode(value).decode())


def _given(url: str, options: Options) -> str:
    """The host that a listener was given, "" for this machine only."""
    text = options.ws if url.startswith("ws://") else options.http
    try:
        return parse(text or ":0").host
    except ConfigurationError:
        return ""


def _reachable(url: str, options: Options) -> str:
    """The URL by the name that was given, where one was: by the address behind it, requests are refused."""
    host = _given(url, options)
    if host in ("", *_WILDCARDS) or "://" not in url or url.startswith("unix:"):
        return url
    scheme, _, rest = url.partition("://")
    port = rest.partition("/")[0].rpartition(":")[2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/{rest.partition('/')[2]}"


def _for_others(url: str, options: Options) -> str | None:
    """The URL of a server that listens on all addresses of this machine, for other machines."""
    if _given(url, options) not in _WILDCARDS:
        return None
    scheme, _, rest = url.partition("://")
    port = rest.partition("/")[0].rpartition(":")[2]
    return f"{scheme}://{_own_address(_given(url, options))}:{port}/{rest.partition('/')[2]}"


def _own_address(wildcard: str) -> str:
    """The address from which this machine would talk to others; words in its place if it would not."""
    for family, elsewhere in _ELSEWHERE:
        if wildcard == "0.0.0.0" and family is not socket.AF_INET:
            continue
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((elsewhere, 9))
                address: str = probe.getsockname()[0]
            except OSError:
                continue

        if address not in _WILDCARDS:
            return f"[{address}]" if ":" in address else address
    return "ADDRESS-OF-THIS-MACHINE"


def claude_desktop(target: str | None) -> dict[str, Any]:
    """The entry of one server in claude_desktop_config.json.

    Every path is absolute: Claude Desktop starts programs in another folder and with another PATH.
    """
    python = os.environ.get("_MCPD_PYTHON", sys.executable)  # of a file with a header it is another one that runs
    entry: dict[str, Any] = {"command": python, "args": ["-m", "mcpd", "serve", "--stdio"]}
    command = _installed_command()
    if command is not None:
        entry = {"command": command, "args": ["serve", "--stdio"]}

    if target is not None:
        place, attribute = split(target)
        if os.path.isfile(place):
            place = os.path.abspath(place)
        elif _is_found_here(place):
            entry["env"] = {"PYTHONPATH": os.getcwd()}
        entry["args"].append(f"{place}:{attribute}" if attribute else place)
    return entry


def _installed_command() -> str | None:
    """The `mcpd` script of this very installation, if it has one."""
    beside = os.path.join(os.path.dirname(sys.executable), "mcpd")
    for candidate in (os.path.abspath(sys.argv[0]), beside):
        if os.path.basename(candidate) == "mcpd" and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    return None


def _is_found_here(module: str) -> bool:
    """Whether a module was imported from the current folder, which Claude Desktop does not know."""
    path = getattr(sys.modules.get(module), "__file__", None)
    return path is not None and os.path.abspath(path).startswith(os.getcwd() + os.sep)
