"""systemd: listening sockets that the service manager passes, and notifications to it (ready, reloading, stopping).

Spec: sd_listen_fds(3), sd_notify(3).
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

from mcpd.errors import ConfigurationError

# The prefix of addresses that name inherited sockets.
HANDED_OVER = "fd://"

_FIRST = 3
_MOST = 1024

# The inherited sockets per process. The environment variables are removed, so that child processes ignore them.
_taken: dict[int, tuple[int, list[str]]] = {}


def sockets_at(address: str) -> list[socket.socket]:
    """Return copies of the inherited listening sockets that `address` names. The caller closes them.

    fd://        all sockets that the service manager passed (LISTEN_FDS, LISTEN_PID)
    fd://NAME    the sockets with this name (LISTEN_FDNAMES; FileDescriptorName= of a socket unit)
    fd://7       file descriptor 7

    Raises ConfigurationError if there is no such socket, or if it is not TCP or a unix socket.
    """
    wanted = address.removeprefix(HANDED_OVER)
    if wanted.isdecimal():
        numbers = [int(wanted)]
    else:
        count, names = _handed_over()
        numbers = [_FIRST + place for place in range(count) if not wanted or names[place : place + 1] == [wanted]]
        if not numbers:
            raise ConfigurationError(
                f"Address {address}: no socket {f'named {wanted!r} ' if wanted else ''}was passed to this process "
                "(LISTEN_FDS); use a systemd socket unit, or name a descriptor, as in fd://7"
            )

    sockets: list[socket.socket] = []
    try:
        for number in numbers:
            sockets.append(_copy_of(number, address))
    except ConfigurationError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _copy_of(number: int, address: str) -> socket.socket:
    try:
        copy = socket.socket(fileno=os.dup(number))
    except OSError as error:
        raise ConfigurationError(
            f"Address {address}: descriptor {number} is not an open socket: {error.strerror}"
        ) from None

    families = (socket.AF_INET, socket.AF_INET6, getattr(socket, "AF_UNIX", None))
    if copy.family not in families or copy.type != socket.SOCK_STREAM:
        copy.close()
        raise ConfigurationError(f"Address {address}: descriptor {number} is neither a TCP nor a unix socket")
    copy.setblocking(False)
    return copy


def _handed_over() -> tuple[int, list[str]]:
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
                with suppress(OSError):  # `_copy_of` reports it
                    os.set_inheritable(number, False)
    return _taken[own]


def notify(state: str) -> None:
    """Send `READY=1`, `RELOADING=1` or `STOPPING=1` to the service manager, if there is one. Never raises."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path[:1] not in ("/", "@"):
        return
    if state == "RELOADING=1":
        state += f"\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            notifier.settimeout(1)
            notifier.connect("\0" + path[1:] if path[0] == "@" else path)
            notifier.sendall(state.encode())
    except OSError:
        pass
