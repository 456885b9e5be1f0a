"""What protects a server, by the flags of `mcpd serve` and the `[auth]` of a folder's file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import convert, structs

from mcpd.errors import ConfigurationError
from mcpd.serve_options import Options

if TYPE_CHECKING:
    from mcpd.sources.lookup import ServerFolder
    from mcpd.sources.tables import AuthTable
    from mcpd.transports.authentication import Protection

_FLAGS = {"issuer": "issuer", "audience": "audience", "scope": "scopes", "tokens_file": "tokens_file"}
"""Members of `Options`, and those of the settings of authorization that they go before."""


def table_of(table: AuthTable, place: ServerFolder) -> dict[str, Any]:
    """What a file says, as settings; paths are those from its folder on."""
    said = structs.asdict(table)
    if said["tokens_file"] is not None:
        said["tokens_file"] = os.path.join(place.root, said["tokens_file"])
    if said["introspection"] is not None:
        asked = structs.asdict(said["introspection"])
        asked["client_secret_file"] = os.path.join(place.root, asked["client_secret_file"])
        said["introspection"] = asked
    return said


def protection_of(options: Options) -> Protection | None:
    """What protects the server; None if nothing was said of it. Raises ConfigurationError."""
    flags = {of: getattr(options, name) for name, of in _FLAGS.items() if getattr(options, name)}
    if not flags and options.auth_table is None:
        return None
    if options.token_file is not None:
        raise ConfigurationError(
            "--token-file is one token for all, --issuer and --tokens-file are other ways: give one"
        )
    said = dict(options.auth_table or {})
    if "issuer" in flags:
        for name in ("tokens_file", "provider", "tenant"):
            said.pop(name, None)
    if "tokens_file" in flags:
        for name in ("issuer", "provider", "tenant", "introspection"):
            said.pop(name, None)
    if options.public_url:
        said["public_url"] = options.public_url
    from mcpd.auth.settings import AuthSettings, auth_of

    return auth_of(convert({**said, **flags}, AuthSettings))
