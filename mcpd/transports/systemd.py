"""What a service manager such as systemd hands over, listening sockets, and is told: ready, reloading, stopping.

Spec: sd_listen_fds(3), sd_notify(3). Nothing of systemd is needed for it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from mcpd.errors import ConfigurationError

HANDED_OVER = "fd://"
"""What an address begins with that names sockets which are open already."""

_FIRST = 3
_MOST = 1024

_taken: dict[int, tuple[int, list[str]]] = {}
"""By process what was handed over: the variables are removed, so that no child takes them for its own."""


def sockets_at(address: str) -> list[socket.socket]:
    """The listening sockets that `address` names, each a copy that the caller closes.

    fd://        all that the service manager handed over (LISTEN_FDS, LISTEN_PID)
    fd://NAME    those that it gave this name (LISTEN_FDNAMES; FileDescriptorName= of a socket unit)
    fd://7       descriptor 7, whoever opened it

    Raises ConfigurationError if there is none, or one that does not listen, or not on TCP or a Unix socket.
    """
    wanted = address.removeprefix(HANDED_OVER)
    if wanted.isdecimal():
        numbers = [int(wanted)]
    else:
        count, names = _handed_over()
        numbers = [_FIRST + place for place in range(count) if not wanted or names[place : place + 1] == [wanted]]
        if not numbers:
            raise ConfigurationError(
                f"Address {address}: no socket {f'of the name {wanted!r} ' if wanted else ''}was handed over "
                "(LISTEN_FDS); start it by a socket unit of systemd, or name a descriptor, as fd://7"
            )

    found: list[socket.socket] = []
    try:
        for number in numbers:
            found.append(_copy_of(number, address))
    except ConfigurationError:
        for each in found:
            each.close()
        raise
    return found


def _copy_of(number: int, address: str) -> socket.socket:
    try:
        copy = socket.socket(fileno=os.dup(number))
    except OSError as error:
        raise ConfigurationError(
            f"Address {address}: descriptor {number} is no open socket: {error.strerror}"
        ) from None
    families = (socket.AF_INET, socket.AF_INET6, getattr(socket, "AF_UNIX", None))
    if copy.family not in families or copy.type != socket.SOCK_STREAM:
        copy.close()
        raise ConfigurationError(f"Address {address}: descriptor {number} is no socket of TCP, and no Unix socket")
    copy.setblocking(False)
    return copy


def _handed_over() -> tuple[int, list[str]]:
    """How many sockets this process was handed over, and their names."""
    own = os.getpid()
    if own not in _taken:
        pid, count = os.environ.get("LISTEN_PID", ""), os.environ.get("LISTEN_FDS", "")
        names = os.environ.get("LISTEN_FDNAMES", "")
        is_ours = pid == str(own) and count.isdecimal()
        _taken[own] = min(int(count), _MOST) if is_ours else 0, names.split(":")
        if is_ours:
            for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
                os.environ.pop(name, None)
            for number in range(_FIRST, _FIRST + _taken[own][0]):
                try:
                    os.set_inheritable(number, False)
                except OSError:
                    pass  # `_copy_of` says it
    return _taken[own]


def is_told(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a service manager wants to hear when this process is ready (Type=notify of systemd)."""
    return bool(environment.get("NOTIFY_SOCKET"))


def tell(state: str) -> None:
    """Tell the service manager `READY=1`, `RELOADING=1` or `STOPPING=1`, if one wants to hear it. Never raises."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path[:1] not in ("/", "@"):
        return
    if state == "RELOADING=1":
        state += f"\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
            telling.settimeout(1)
            telling.connect("\0" + path[1:] if path[0] == "@" else path)
            telling.sendall(state.encode())
    except OSError:
        pass
