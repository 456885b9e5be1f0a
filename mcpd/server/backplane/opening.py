"""Opens a backplane by its URL, and measures its commands. Each implementation is imported when it is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from hashlib import sha256
from inspect import iscoroutinefunction
from time import perf_counter
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from mcpd.errors import ConfigurationError
from mcpd.server.backplane.base import Backplane, BackplaneAway

SCHEMES = ("memory", "sqlite", "redis", "rediss", "unix", "redis+cluster", "rediss+cluster",
           "redis+sentinel", "rediss+sentinel")  # fmt: skip
SHARED = "shared://"
"""Internal scheme of a worker process, followed by the number of the descriptor that leads to its parent."""


def open_backplane(url: str, server_name: str) -> Backplane:
    """Return the backplane of a URL, not connected yet. Raises ConfigurationError, without the URL's password.

    memory://                           this process alone
    sqlite:///path                      this machine; survives restarts
    redis://HOST:PORT/0                 all machines; rediss:// for TLS, unix:///path for a socket of this machine
    redis+cluster://HOST:PORT           a cluster, by the address of one member
    redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/0   the server that the sentinels name as master of that service

    `?namespace=NAME` separates services that share one Redis; by default the server's name does.
    """
    if url.startswith(SHARED) and url[len(SHARED) :].isdecimal():
        import socket

        from mcpd.server.backplane.shared_memory import SharedBackplane

        return SharedBackplane(socket.socket(fileno=int(url[len(SHARED) :])))
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise ConfigurationError(f"backplane: expected a URL that begins with one of {known}")
    if scheme == "memory":
        from mcpd.server.backplane.memory import MemoryBackplane

        return MemoryBackplane()
    if scheme == "sqlite":
        from mcpd.server.backplane.sqlite import SqliteBackplane

        path = unquote(url[len("sqlite://") :])
        if not path.startswith("/"):
            raise ConfigurationError(f"backplane {url}: write sqlite:///path/to/file, with an absolute path")
        return SqliteBackplane(path)

    try:
        from mcpd.server.backplane.redis import RedisBackplane
    except ImportError:
        raise ConfigurationError(f"backplane {scheme}://: pip install 'mcpd-server[redis]'") from None
    plain, namespace = _without_namespace(url)
    return RedisBackplane(plain, namespace or namespace_of(server_name))


def namespace_of(server_name: str) -> str:
    """Return the prefix of a server's keys: the readable part of its name, and a digest that makes it unique."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", server_name)[:32].strip("-")
    return f"{readable}-{sha256(server_name.encode()).hexdigest()[:8]}"


def _without_namespace(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    namespace = next((value for name, value in query if name == "namespace"), "")
    if namespace and re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", namespace) is None:
        raise ConfigurationError("backplane: ?namespace= takes up to 64 letters, digits, _, . and -")
    others = [(name, value) for name, value in query if name != "namespace"]
    return urlunsplit(parts._replace(query=urlencode(others))), namespace


def timed_backplane(backplane: Backplane, counters: Sequence[Callable[[str, float, str], object]]) -> Backplane:
    """Return a backplane that sends every command to `backplane` and reports it to `counters`.

    A counter receives the name of the command, its duration in seconds, and `away` or the class of the exception that
    was raised, or "".
    """
    return cast("Backplane", _TimedBackplane(backplane, counters))


class _TimedBackplane:
    def __init__(self, backplane: Backplane, counters: Sequence[Callable[[str, float, str], object]]) -> None:
        self._backplane = backplane
        self._counters = counters

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._backplane, name)
        if name == "aclose" or not iscoroutinefunction(member):
            return member
        return lambda *arguments, **options: self._timed(name, member(*arguments, **options))

    async def _timed(self, command: str, work: Coroutine[Any, Any, Any]) -> Any:
        began, error = perf_counter(), ""
        try:
            return await work
        except BackplaneAway:
            error = "away"
            raise
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            seconds = perf_counter() - began
            for counter in self._counters:
                counter(command, seconds, error)
