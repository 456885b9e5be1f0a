"""The limits between this process and a mounted server: environment, headers, tokens, texts and pinned tools.

A child process gets the usual variables and those that the mount names, but none of mcpd's. Only
headers that the mount names are sent on, never credentials. Characters that hide or reverse what a person reads are
removed from the texts of a server. `pin` keeps a digest of each tool in mcpd.lock, and withholds a tool that has
changed until `mcpd mounts accept NAME`.

Spec: 2025-11-25 and 2026-07-28 basic/authorization, token passthrough; 2026-07-28 basic/index, icons.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace

from mcpd.client.http.options import Challenge, HttpOptions
from mcpd.client.target import Target, resolve
from mcpd.client.targets.named import CommandTarget
from mcpd.errors import ConfigurationError, ConnectionLost
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable
from .carried import for_host

if TYPE_CHECKING:
    from mcpd.protocol.types.features import Tool
    from mcpd.server.context.exchange import Exchange
    from .settings import MountSettings

log = logging.getLogger("mcpd.mounts")

_USUAL = frozenset(
    ("PATH", "HOME", "LANG", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM", "TZ",
     "SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP", "USERPROFILE")
)  # fmt: skip

sender: ContextVar[Exchange | None] = ContextVar("mcpd_mount_sender", default=None)
"""The request for which a mounted server is reached."""


def with_environment(target: Target, settings: MountSettings) -> Target:
    """Return a target whose process gets a clean environment."""
    found = resolve(target)
    if not isinstance(found, CommandTarget):
        return found
    usual = {
        name: value
        for name, value in os.environ.items()
        if (settings.inherit_env or name.upper() in _USUAL or name.startswith("LC_")) and not name.startswith("MCPD_")
    }
    return replace(found, env={**usual, **(found.env or {})}, is_clean=True)


def http_options(name: str, settings: MountSettings) -> HttpOptions | None:
    """Return the options for a mounted URL: its token, and the headers that are sent on. None without any."""
    if settings.token_file is None and not settings.forward_headers and settings.identity == "proxy":
        return None
    token = None if settings.token_file is None else _TokenFile(name, settings.token_file)
    forwarded = {header.lower() for header in settings.forward_headers}

    async def fields() -> Mapping[str, str]:
        found = {} if token is None else token.fields()
        exchange = sender.get()
        if exchange is not None and forwarded:
            given = exchange.origin.headers()
            found.update({header: given[header] for header in forwarded & given.keys()})
        if settings.identity == "upstream":
            found["Authorization"] = f"Bearer {await _own_token(name, exchange)}"
        return found

    return HttpOptions(headers=fields, authenticate=None if token is None else token.refused)


async def _own_token(name: str, exchange: Exchange | None) -> str:
    # The user's own token at the identity provider, which the login server keeps; never the token for this server.
    upstream = None if exchange is None else exchange.origin.user.upstream
    if upstream is None:
        raise ConnectionLost(f"{name} needs the login of each user, and this request has none")
    return await upstream()


class _TokenFile:
    # A bearer token in a file, which is read again after a refusal.
    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._path = os.path.expanduser(path)
        self._token = ""

    def fields(self) -> dict[str, str]:
        self._token = self._token or self._read()
        return {"Authorization": f"Bearer {self._token}"}

    async def refused(self, challenge: Challenge) -> Mapping[str, str] | None:
        before, self._token = self._token, self._read()
        return None if self._token == before else self.fields()

    def _read(self) -> str:
        try:
            return Path(self._path).read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"mount {self._name}: {printable(self._path)} cannot be read: {error}") from None


# ------------------------------------------------------------------------------- texts of servers

# Control characters except newline and tab, marks that change the direction of text, and invisible tags.
_HIDDEN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
_TEXTS = ("title", "description")
_read = Decoder().decode
_write = Encoder().encode
_write_sorted = Encoder(order="deterministic").encode


def clean_text(text: str) -> str:
    """Return a text without invisible characters."""
    return _HIDDEN.sub("", text)


def clean_entry(raw: Raw, csp: Any = None) -> Raw:
    """Return an entry of a list with clean texts, https: or data: icons (S26-210), and apps within `csp`."""
    data = bytes(raw)
    is_plain = data.isascii() and b"\\" not in data and b"\x7f" not in data
    if is_plain and b'"icons"' not in data and b'"ui"' not in data:
        return raw
    try:
        entry = _read(raw)
    except MALFORMED:
        return raw
    cleaned = _cleaned(entry)
    if isinstance(cleaned, dict) and "_meta" in cleaned:
        cleaned["_meta"] = for_host(cleaned["_meta"], csp)
    return raw if cleaned == entry else Raw(_write(cleaned))


def _cleaned(value: Any) -> Any:
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for name, member in value.items():
        if name in _TEXTS and isinstance(member, str):
            found[name] = clean_text(member)
        elif name == "icons" and isinstance(member, list):
            found[name] = [icon for icon in member if _is_safe_icon(icon)]
        else:
            found[name] = _cleaned(member)
    return found


def _is_safe_icon(icon: Any) -> bool:
    source = icon.get("src") if isinstance(icon, dict) else None
    return isinstance(source, str) and source.lower().startswith(("https:", "data:"))


# -------------------------------------------------------------------------------------------- pins

LOCK = "mcpd.lock"


class Pins:
    """The accepted definitions of the tools of one mount, in a file that all mounts of a folder share.

    The first definitions are accepted. Later ones are withheld until somebody accepts them.
    """

    def __init__(self, mount: str, path: str = LOCK) -> None:
        self._mount = mount
        self._path = Path(path)

    def withheld(self, tools: list[Tool]) -> set[str]:
        """Return the names of the tools whose definition is not the accepted one, and write them into the file."""
        now = {tool.name: f"sha256:{sha256(_write_sorted(tool)).hexdigest()}" for tool in tools}
        document = read_lock(self._path)
        accepted = document["accepted"].setdefault(self._mount, now)
        changed = {name: digest for name, digest in now.items() if accepted.get(name) != digest}
        before = document["withheld"].get(self._mount, {})
        document["withheld"][self._mount] = changed
        if accepted is now or changed != before:
            write_lock(self._path, document)
        for name in changed.keys() - before.keys():
            text = "mount %s: the tool %s has changed and is withheld: read it, then run mcpd mounts accept %s"
            log.warning(text, printable(self._mount), printable(name), printable(self._mount))
        return set(changed)


def accept(mount: str, path: str = LOCK) -> list[str]:
    """Accept the withheld tools of a mount, and return their names. Raises ConfigurationError for an unknown mount."""
    file = Path(path)
    document = read_lock(file)
    if mount not in document["accepted"]:
        known = ", ".join(document["accepted"]) or "none"
        raise ConfigurationError(f"{file}: no mount {mount!r} is pinned; pinned mounts: {known}")
    changed = document["withheld"].pop(mount, {})
    document["accepted"][mount].update(changed)
    write_lock(file, document)
    return sorted(changed)


def read_lock(file: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Return the content of a lock file, empty without a file. Raises ConfigurationError for an unreadable one."""
    empty: dict[str, dict[str, dict[str, str]]] = {"accepted": {}, "withheld": {}}
    try:
        found = _read(file.read_bytes())
        return {**empty, **{name: dict(found[name]) for name in empty if name in found}}
    except FileNotFoundError:
        return empty
    except (OSError, TypeError, ValueError, *MALFORMED) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}; delete it to accept all tools anew") from None


def write_lock(file: Path, document: Mapping[str, Any]) -> None:
    """Write a lock file, at once or not at all."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.write_bytes(_write_sorted(document) + b"\n")
    temporary.replace(file)
