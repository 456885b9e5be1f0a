"""From a URL to a backplane. What one needs is loaded with it."""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from mcpd.backplane.base import Backplane
from mcpd.errors import ConfigurationError

SCHEMES = ("memory", "sqlite", "redis", "rediss", "unix", "redis+cluster", "rediss+cluster",
           "redis+sentinel", "rediss+sentinel")  # fmt: skip
SHARED = "shared://"
"""What a worker's own begins with, which no user writes: the number of the descriptor that leads to its parent."""


def open_backplane(url: str, server_name: str) -> Backplane:
    """The backplane behind a URL, not connected yet. Raises ConfigurationError, without the URL's password.

    memory://                           this process alone
    sqlite:///path                      this machine; outlives restarts
    redis://HOST:PORT/0                 all machines; rediss:// for TLS, unix:///path for a socket of this machine
    redis+cluster://HOST:PORT           a cluster, of which one member is named
    redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/0   whichever server the sentinels say is the master of that service

    `?namespace=NAME` keeps services apart that share one Redis; without it a service is known by its server's name.
    """
    if url.startswith(SHARED) and url[len(SHARED) :].isdecimal():
        import socket

        from mcpd.backplane.shared_backplane import SharedBackplane

        return SharedBackplane(socket.socket(fileno=int(url[len(SHARED) :])))
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise ConfigurationError(f"backplane: a URL that begins with one of {known} is expected")
    if scheme == "memory":
        from mcpd.backplane.memory_backplane import MemoryBackplane

        return MemoryBackplane()
    if scheme == "sqlite":
        from mcpd.backplane.sqlite_backplane import SqliteBackplane

        path = unquote(url[len("sqlite://") :])
        if not path.startswith("/"):
            raise ConfigurationError(f"backplane {url}: write sqlite:///path/to/file, with a path from the root")
        return SqliteBackplane(path)

    try:
        from mcpd.backplane.redis_backplane import RedisBackplane
    except ImportError:
        raise ConfigurationError(f"backplane {scheme}://: pip install 'mcpd-server[redis]'") from None
    plain, namespace = _without_namespace(url)
    return RedisBackplane(plain, namespace or namespace_of(server_name))


def namespace_of(server_name: str) -> str:
    """What a server's keys begin with: its name as far as that reads well, and a digest that tells others apart."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", server_name)[:32].strip("-")
    return f"{readable}-{sha256(server_name.encode()).hexdigest()[:8]}"


def _without_namespace(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    namespace = next((value for name, value in query if name == "namespace"), "")
    if namespace and re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", namespace) is None:
        raise ConfigurationError("backplane: ?namespace= is up to 64 letters, digits, _, . and -")
    rest = [(name, value) for name, value in query if name != "namespace"]
    return urlunsplit(parts._replace(query=urlencode(rest))), namespace
