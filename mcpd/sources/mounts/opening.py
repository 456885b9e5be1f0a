"""A new connection to a mounted server: what it receives of this process, and which of its texts are kept.

Loaded when the first connection is opened. A child process gets the usual variables and those that the mount names, but
none of mcpd's. Only headers that the mount names are sent on, never credentials. Characters that hide or reverse what a
person reads are removed from the entries of its lists.

Spec: 2025-11-25 and 2026-07-28 basic/authorization, token passthrough; 2026-07-28 basic/index, icons.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.json import Decoder
from msgspec.structs import replace

from mcpd.client.callbacks import Callbacks, ListKind
from mcpd.client.eras import ClientEra, ModernEra
from mcpd.client.http.options import Challenge, HttpOptions
from mcpd.client.limits import ClientLimits
from mcpd.client.link import ServerLink
from mcpd.client.results import read_list
from mcpd.client.target import Target, resolve
from mcpd.client.targets.named import CommandTarget
from mcpd.errors import ConfigurationError, ConnectionLost
from mcpd.protocol.jsonrpc import MALFORMED, encode
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import ClientCapabilities
from mcpd.protocol.types.events import EVENTS
from mcpd.protocol.versions.table import MODERN
from .carried import for_host
from .settings import HOPS, MountSettings
from .shapes import declared_for

if TYPE_CHECKING:
    from mcpd.client.connection import ClientConnection
    from mcpd.server.context.exchange import Exchange

_LIMITS = ClientLimits(questions=1000, list_entries=10_000, list_bytes=4 * 1024 * 1024, list_pages=1000)

_members = Decoder(dict[str, Raw]).decode

_USUAL = frozenset(
    ("PATH", "HOME", "LANG", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM", "TZ",
     "SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP", "USERPROFILE")
)  # fmt: skip

sender: ContextVar[Exchange | None] = ContextVar("mcpd_mount_sender", default=None)
"""The request for which a mounted server is reached."""


class _Link(ServerLink):
    # A client that declares what the mounted server may know.
    def __init__(
        self, target: Target, callbacks: Callbacks, declared: ClientCapabilities, *, skips_probe: bool, **options: Any
    ) -> None:
        self._declared_here = declared
        super().__init__(target, callbacks, reconnect=False, cache=False, check_results=False, **options)
        self._is_old = skips_probe

    def _declared(self, callbacks: Callbacks, extensions: Mapping[str, Any] | None) -> ClientCapabilities:
        return self._declared_here


def new_link(
    name: str,
    target: Target,
    settings: MountSettings,
    exchange: Exchange | None,
    on_change: Callable[[ListKind], None],
    *,
    skips_probe: bool,
) -> ServerLink:
    """Return a client for a mounted server, which is not open yet. `exchange` is a request of its only client."""
    return _Link(
        with_environment(target, settings),
        Callbacks(list_changed=on_change),
        declared_for(exchange, settings),
        skips_probe=skips_probe,
        version=MODERN[-1] if settings.protocol == "modern" else None,
        timeout=settings.start_timeout,
        limits=_LIMITS,
        http=http_options(name, settings),
    )


def offers(era: ClientEra, capability: str) -> bool:
    """Whether a mounted server has lists of a capability."""
    capabilities = era.connection.session.server_capabilities
    if capability == "events":
        # Servers of other eras cannot be asked for new events.
        return isinstance(era, ModernEra) and EVENTS in (capabilities.extensions or {})
    return getattr(capabilities, capability) is not None


async def read_all(
    connection: ClientConnection, method: str, member: str, kind: type, settings: MountSettings, hops: int
) -> tuple[dict[str, Raw], list[Raw]]:
    """Return the members of the first page of a list, and all entries. Raises the errors of a request.

    `hops` counts the mounts that the request passes.
    """
    first: dict[str, Raw] = {}
    entries: list[Raw] = []

    async def ask(params: Any) -> Raw:
        params = {**(params or {}), "_meta": {HOPS: hops}}
        page = await connection.request(method, params, timeout=settings.start_timeout)
        if not first:
            first.update(_members(page))
        return page

    await read_list(ask, method, member, kind, _LIMITS, connection.session.faults, entries)
    if method == "skills/list":
        return first, entries  # the front matter has a digest
    return first, [clean_entry(entry, settings.csp) for entry in entries]


# ---------------------------------------------------------------- what a mounted server receives


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
    return raw if cleaned == entry else Raw(encode(cleaned))


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
