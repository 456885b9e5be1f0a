"""Links that add a server to a host when they are opened, for pages and messages."""

from __future__ import annotations

import json
from base64 import b64encode
from urllib.parse import quote, urlencode

from mcpd.client.targets.hosts import HOSTS, Host
from mcpd.errors import ConfigurationError
from mcpd.install.entry import Entry
from mcpd.install.shapes import shaped


def link_to(host: Host, name: str, entry: Entry) -> str:
    """The link. Raises ConfigurationError for a host that has none, or whose links cannot say this entry."""
    if host.link == "cursor":
        config = b64encode(json.dumps(shaped(host, name, entry)).encode()).decode()
        return f"cursor://anysphere.cursor-deeplink/mcp/install?{urlencode({'name': name, 'config': config})}"
    if host.link in ("vscode", "vscode-insiders"):
        said = json.dumps({"name": name, **shaped(host, name, entry)}, ensure_ascii=False)
        return f"{host.link}:mcp/install?{quote(said, safe='')}"
    if host.link == "goose":
        return _goose_link(name, entry)
    have = ", ".join(each.id for each in HOSTS.values() if each.link)
    raise ConfigurationError(f"{host.name} has no links that add a server; these have: {have}")


def _goose_link(name: str, entry: Entry) -> str:
    if entry.env or entry.headers:
        raise ConfigurationError("Goose's links carry no variables and no headers; install it without --link")
    if entry.url:
        pairs = [("url", entry.url), ("type", "streamable_http")]
    else:
        pairs = [("cmd", entry.command), *(("arg", arg) for arg in entry.args)]
    return f"goose://extension?{urlencode([*pairs, ('id', name), ('name', name)], quote_via=quote)}"
