"""Where the workers listen: bound by the parent, once, so that what is wrong is said once and free ports are known.

On TCP each place in the line of workers has sockets of its own (SO_REUSEPORT), and the kernel spreads connections
among them; one socket for all would let one event loop take a burst as a whole. Unix sockets cannot be shared so, nor
what a service manager handed over, nor ports where the kernel does not spread: there all accept from one queue.
"""

from __future__ import annotations

import os
import socket
import sys

from mcpd.errors import ConfigurationError
from mcpd.serve_options import Options
from mcpd.transports.address import bind_beside, bind_shared, bind_unix, close, parse

_SPREADS = sys.platform == "linux"


class Places:
    """The sockets of `--http` and `--ws`. `addresses` are those that they have, by the option."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self._paths: list[str] = []
        self._kept: dict[str, list[socket.socket]] = {}
        """By option what keeps the address: not listened on where each place has its own."""
        self._for_all: dict[str, list[socket.socket]] = {}
        self._own: dict[int, dict[str, list[socket.socket]]] = {}
        self._ours: set[str] = set()

    async def bind(self, options: Options) -> None:
        """Bind what the options say. Raises ConfigurationError."""
        for name in ("http", "ws"):
            text: str | None = getattr(options, name)
            if text is None:
                continue
            if name in options.sockets:  # handed over, and listened on by whoever did that
                self._for_all[name] = list(options.sockets[name])
                self.addresses[name] = text
                continue

            self._ours.add(name)
            address = parse(text)
            if address.path:
                if name == "ws":
                    raise ConfigurationError(f"Cannot listen on {address} here: give a port, for example :8080")
                self._for_all[name] = [bind_unix(address.path, options.socket_mode)]
                self._paths.append(address.path)
                self.addresses[name] = text
                continue

            kept = self._kept[name] = await bind_shared(address)
            port = kept[0].getsockname()[1]
            self.addresses[name] = text.rpartition(":")[0] + f":{port}"
            if not _SPREADS:
                self._for_all[name] = kept

    def sockets_of(self, number: int) -> dict[str, list[socket.socket]]:
        """Those of one place, by option. They stay open here, so that their queue outlives a worker."""
        if number not in self._own:
            self._own[number] = {
                name: bind_beside(kept) for name, kept in self._kept.items() if name not in self._for_all
            }
        return {**self._own[number], **self._for_all}

    def ends(self, name: str) -> bool:
        """Whether what that option listens on was bound here, and is nobody else's."""
        return name in self._ours

    def give_up(self, number: int) -> None:
        """Nobody will listen in that place for a while: let the kernel give its connections to the others."""
        for sockets in self._own.pop(number, {}).values():
            close(sockets)

    def close(self) -> None:
        """Nobody listens any more. Safe to call twice."""
        for number in list(self._own):
            self.give_up(number)
        for sockets in (*self._kept.values(), *self._for_all.values()):
            close(sockets)
        for path in self._paths:
            try:
                os.unlink(path)
            except OSError:
                pass  # gone already
        self._paths.clear()
