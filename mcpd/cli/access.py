"""Authorization of a served target, from the options of `mcpd serve` and the `[auth]` of mcpd.toml."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec import convert, structs

from mcpd.errors import ConfigurationError
from mcpd.server.settings import Options
from mcpd.transports.address import is_loopback, parse

if TYPE_CHECKING:
    from mcpd.auth.server.login_server import LoginServer
    from mcpd.server import Server
    from mcpd.sources.lookup import ServerFolder
    from mcpd.sources.tables import AuthTable
    from mcpd.transports.authentication import Protection

_FLAGS = {"issuer": "issuer", "audience": "audience", "scope": "scopes", "tokens_file": "tokens_file"}
"""Members of `Options`, and the members of `AuthSettings` that they replace."""


def settings_of_table(table: AuthTable, place: ServerFolder) -> dict[str, Any]:
    """The `[auth]` of mcpd.toml as settings; its paths are relative to its folder."""
    settings = structs.asdict(table)
    if settings["tokens_file"] is not None:
        settings["tokens_file"] = os.path.join(place.root, settings["tokens_file"])
    if settings["introspection"] is not None:
        introspection = structs.asdict(settings["introspection"])
        introspection["client_secret_file"] = os.path.join(place.root, introspection["client_secret_file"])
        settings["introspection"] = introspection
    return settings


def protection_of(options: Options, server: Server) -> Protection | None:
    """The authorization of the server; None if the options set none. Raises ConfigurationError."""
    if options.auth_server is not None:
        return _login_server(options.auth_server, server, options)
    flags = {of: getattr(options, name) for name, of in _FLAGS.items() if getattr(options, name)}
    if not flags and not options.auth_table:
        return None
    if options.token_file is not None:
        raise ConfigurationError(
            "--token-file sets one token for all users; it excludes --issuer, --tokens-file and [auth]"
        )
    settings = dict(options.auth_table or {})
    if "issuer" in flags:
        for name in ("tokens_file", "provider", "tenant"):
            settings.pop(name, None)
    if "tokens_file" in flags:
        for name in ("issuer", "provider", "tenant", "introspection"):
            settings.pop(name, None)
    if options.public_url:
        settings["public_url"] = options.public_url
    from mcpd.auth.settings import AuthSettings, auth_of

    return auth_of(convert({**settings, **flags}, AuthSettings))


def _login_server(file: str, server: Server, options: Options) -> LoginServer:
    """The authorization server that a file describes, or for "dev" one that lets in anybody here."""
    if find_spec("joserfc") is None or find_spec("aiohttp") is None:
        raise ConfigurationError("--auth-server needs joserfc and aiohttp: pip install 'mcpd-server[auth]'")
    table = options.auth_table or {}
    others = {"--token-file": options.token_file, "--issuer": options.issuer, "--tokens-file": options.tokens_file}
    others |= {f"{key} of [auth]": table.get(key) for key in ("issuer", "tokens_file")}
    given = [name for name, value in others.items() if value]
    if given:
        raise ConfigurationError(f"--auth-server and {given[0]} exclude each other: give one of them")
    if server.authenticate is not None:
        raise ConfigurationError("--auth-server: the server has its own authorization (auth= or authenticate=)")

    if file == "dev":
        for address in filter(None, (options.http, options.ws)):
            host = parse(address).host
            if host and not is_loopback(host):
                raise ConfigurationError(
                    f"--auth-server dev lets in anybody, so it serves this machine only: write :PORT, not {host}"
                )
    from mcpd.auth.base import AuthOptions
    from mcpd.auth.server.login_server import LoginServer

    identity = server.identity
    auth_options = AuthOptions(
        resource_name=table.get("resource_name") or identity.title or identity.name,
        scopes=options.scope or table.get("scopes", ()),
        implies=table.get("implies", {}),
        public_url=options.public_url or table.get("public_url") or "",
        dpop=table.get("dpop", "off"),
        dpop_nonces=table.get("dpop_nonces", False),
    )
    return LoginServer(file, **auth_options)
