"""The proxy that the environment names for a URL."""

from __future__ import annotations

from urllib.request import getproxies, proxy_bypass

from yarl import URL

from ...errors import ConfigurationError
from ...printable import printable

__all__ = ["proxy_for"]


def proxy_for(url: URL) -> URL | None:
    """What `HTTP_PROXY` or `HTTPS_PROXY` says, unless `NO_PROXY` has the host. Raises ConfigurationError."""
    host = url.host or ""
    proxies = getproxies()
    kind = url.scheme if proxies.get(url.scheme) else "all"
    named = proxies.get(kind)
    if not named or proxy_bypass(f"{host}:{url.port}") or proxy_bypass(host):
        return None

    variable = f"{kind.upper()}_PROXY"
    try:
        proxy = URL(named if "://" in named else f"http://{named}")
    except ValueError:
        raise ConfigurationError(f"{variable} is no URL of a proxy; write it as http://host:port") from None
    if proxy.scheme not in ("http", "https") or not proxy.host:
        todo = f"name one as http://host:port, or go past it with NO_PROXY={printable(host)}"
        raise ConfigurationError(f"{variable} names a {printable(proxy.scheme)} proxy, which cannot be used: {todo}")
    return proxy
