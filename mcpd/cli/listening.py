"""The parts of `mcpd serve` for servers on a port: the authorization, and the lines that show its addresses."""

from __future__ import annotations

import os
import shlex
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import convert, structs
from msgspec.json import encode, format

from mcpd.cli.install.entry import Entry, entry_name, entry_of_files, shaped
from mcpd.client.targets.hosts import HOSTS
from mcpd.client.targets.named import FileTarget
from mcpd.errors import ConfigurationError
from mcpd.protocol.defaults import DEMO
from mcpd.server.settings import Options
from mcpd.sources.lookup import folder_here
from mcpd.transports.address import is_loopback, parse
from .target import find, split

if TYPE_CHECKING:
    from mcpd.auth.server.login_server import LoginServer
    from mcpd.server import Server
    from mcpd.sources.lookup import ServerFolder
    from mcpd.sources.tables import AuthTable
    from mcpd.transports.authentication import Protection


# Members of `Options`, and the members of `AuthSettings` that they replace.
_FLAGS = {"issuer": "issuer", "audience": "audience", "scope": "scopes", "tokens_file": "tokens_file"}


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


_WILDCARDS = ("0.0.0.0", "::")
# Addresses for documentation (RFC 5737, RFC 3849). Nothing is sent to them; they only select the own address.
_REMOTE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def addresses(url: str, options: Options) -> list[str]:
    """Lines with the addresses of a listener, for this machine and for others if they can connect."""
    found = [f"mcpd: listening on {_reachable(url, options)} (Ctrl-C stops it)"]
    if url.startswith("http://"):
        found.append(f"mcpd: listening for WebSocket on {_reachable(url, options).replace('http://', 'ws://', 1)}")
    host = _given_host(url, options)
    if host in _WILDCARDS:
        found.append(f"mcpd: other machines connect to {_with_host(url, _own_address(host))}")
    return found


def pointers(url: str, name: str, options: Options) -> list[str]:
    """Lines that say how to connect hosts to a listener; none if stdio is served too, because then a host has started
    mcpd.
    """
    if options.stdio:
        return []
    url = _reachable(url, options)
    name = entry_name(name) or "mcpd"
    made = stdio_entry(options)
    entry = shaped(HOSTS["claude-desktop"], name, made)
    variables = [f"{key}={value}" for key, value in made.env.items()]
    words = shlex.join([*(["env", *variables] if variables else []), made.command, *made.args])
    auth = options.auth
    if auth is None:
        needs_token = options.token_file is not None or bool(os.environ.get("MCPD_TOKEN"))
        public_url = options.public_url
    else:
        # If clients log in, the tokens are only valid for the public URL, and the user needs no TOKEN.
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

    what = "the demo server of mcpd (to serve your own: mcpd serve FILE)" if options.target == DEMO else "this server"
    target = shlex.quote(options.target or os.path.relpath(_root_here()))
    if options.more_targets:
        target = f"--name {name} -- {words}"
    return [
        f"mcpd: to connect a host to {what}:" + (" (replace TOKEN with the server's token)" if needs_token else ""),
        f"  Claude Code  {claude}",
        f"  VS Code      code --add-mcp {_quoted(code)}",
        f"  Inspector    {inspector}",
        f"mcpd: Claude Desktop starts servers itself, over stdio: mcpd install claude-desktop {target}",
        "mcpd: or add this to its claude_desktop_config.json (Settings > Developer > Edit Config):",
        format(encode({"mcpServers": {name: entry}}), indent=0).decode(),
    ]


def _quoted(value: Any) -> str:
    return shlex.quote(encode(value).decode())


def _given_host(url: str, options: Options) -> str:
    text = options.ws if url.startswith("ws://") else options.http
    try:
        return parse(text or ":0").host
    except ConfigurationError:
        return ""


def _reachable(url: str, options: Options) -> str:
    # A request to the IP address of a host name would be refused, so the URL keeps the name that was given.
    host = _given_host(url, options)
    if host in ("", *_WILDCARDS) or "://" not in url or url.startswith("unix:"):
        return url
    return _with_host(url, f"[{host}]" if ":" in host else host)


def _with_host(url: str, host: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{host}:{parts.port}").geturl()


def _own_address(wildcard: str) -> str:
    for family, remote in _REMOTE:
        if wildcard == "0.0.0.0" and family is not socket.AF_INET:
            continue
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((remote, 9))
                address: str = probe.getsockname()[0]
            except OSError:
                continue

        if address not in _WILDCARDS:
            return f"[{address}]" if ":" in address else address
    return "ADDRESS-OF-THIS-MACHINE"


def stdio_entry(options: Options) -> Entry:
    """The entry that `mcpd install` writes for the targets; it works in any folder and with any PATH."""
    if options.target is None:
        return entry_of_files([FileTarget(_root_here())]).entry
    return entry_of_files([_file_target(each) for each in (options.target, *options.more_targets)]).entry


def _root_here() -> str:
    place = folder_here()
    return os.getcwd() if place is None else place.root


def _file_target(target: str) -> FileTarget:
    place, attribute = split(target)
    found = find(target)
    if found.place is not None:
        return FileTarget(found.place.root)
    return FileTarget(os.path.abspath(place) if os.path.isfile(place) else place, attribute)
