"""`mcpd serve --auth-server`: from the option to what protects the server."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from mcpd.errors import ConfigurationError
from mcpd.serve_options import Options
from mcpd.transports.address import is_loopback, parse

if TYPE_CHECKING:
    from mcpd.auth.server.login_server import LoginServer
    from mcpd.server import Server

_OTHERS = ("issuer", "tokens_file")


def login_server(said: str, server: Server, options: Options) -> LoginServer:
    """The authorization server that a file describes, or the one for development. Raises ConfigurationError."""
    if find_spec("joserfc") is None or find_spec("aiohttp") is None:
        raise ConfigurationError("--auth-server needs joserfc and aiohttp: pip install 'mcpd-server[auth]'")
    others = {"--token-file": options.token_file, "--issuer": options.issuer, "--tokens-file": options.tokens_file}
    table = options.auth_table or {}
    given = [flag for flag, value in others.items() if value] + [
        f"{key} of [auth]" for key in _OTHERS if table.get(key)
    ]
    if given:
        raise ConfigurationError(f"--auth-server and {given[0]} are two ways to say who may call: give one")
    if server.authenticate is not None:
        raise ConfigurationError("--auth-server: the server says itself who may call it (auth=, authenticate=)")

    if said == "dev":
        for address in filter(None, (options.http, options.ws)):
            host = parse(address).host
            if host and not is_loopback(host):
                raise ConfigurationError(
                    f"--auth-server dev lets anybody in, so that it is for this machine alone: write :PORT, not {host}"
                )
    from mcpd.auth.base import AuthOptions
    from mcpd.auth.server.login_server import LoginServer

    identity = server.identity
    found = AuthOptions(
        resource_name=table.get("resource_name") or identity.title or identity.name,
        scopes=options.scope or table.get("scopes", ()),
        implies=table.get("implies", {}),
        public_url=options.public_url or table.get("public_url") or "",
        dpop=table.get("dpop", "off"),
        dpop_nonces=table.get("dpop_nonces", False),
    )
    return LoginServer(said, **found)
