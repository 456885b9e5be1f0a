"""What a server offers as JSON, entries as the newest protocol version lists them to a client with every extension."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from msgspec.json import decode

from mcpd.protocol.jsonrpc import encode
from mcpd.server import Server

KINDS = {"tools": "name", "resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}
"""Each kind of offering, and the member that tells its entries apart."""

Offerings: TypeAlias = dict[str, Any]
"""`server`, and a list of entries for each of `KINDS`."""


def offerings(server: Server) -> Offerings:
    """What it offers, in the order in which it was registered. Entries that cannot be listed are left out."""
    catalog = server.catalog
    everything = frozenset(extension.id for extension in server.extensions.values())
    identity = decode(encode(server.identity))
    if catalog.instructions is not None:
        identity["instructions"] = catalog.instructions

    found: Offerings = {"server": identity}
    listings: dict[str, Iterable[Any]] = {
        "tools": catalog.tools,
        "resources": catalog.resources,
        "resourceTemplates": catalog.templates,
        "prompts": catalog.prompts,
    }
    for kind in KINDS:
        entries = found[kind] = []
        for entry in listings[kind]:
            try:
                entries.append(decode(encode(entry.listed(everything))))
            except Exception:  # whatever the author's code raises: `Server.problems` names it
                continue
    return found
