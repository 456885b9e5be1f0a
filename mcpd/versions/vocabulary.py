"""The methods that extensions add to those of a version: a table beside the version table, one for each server.

A session looks here only for what its version does not have. Spec: 2026-07-28 basic/versioning, extensions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from msgspec import Raw
from msgspec.json import Decoder

from mcpd.versions.table import Version

Reader = Callable[[bytes | Raw], Any]


class Vocabulary:
    """What extensions let a client ask and say, and let the server say unasked; by method and version."""

    __slots__ = ("_notifications", "_requests", "_server_notifications", "named")

    def __init__(self) -> None:
        self._requests: dict[str, tuple[Reader, Collection[str] | None]] = {}
        self._notifications: dict[str, tuple[Reader, Collection[str] | None]] = {}
        self._server_notifications: dict[str, tuple[Collection[str] | None, Callable[[Any], bool]]] = {}
        self.named: dict[str, str] = {}
        """Method -> the member of its params that the header `Mcp-Name` repeats over HTTP."""

    def become(self, other: Vocabulary) -> None:
        """Have what another vocabulary has, now and later: sessions keep the one that they were made with."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))

    def add_request(self, method: str, params: type, versions: Collection[str] | None, named: str | None) -> None:
        """A request of clients. `versions` are those that have it, None for all."""
        self._requests[method] = (Decoder(params).decode, versions)
        if named is not None:
            self.named[method] = named

    def add_notification(self, method: str, params: type, versions: Collection[str] | None) -> None:
        """A notification of clients."""
        self._notifications[method] = (Decoder(params).decode, versions)

    def add_server_notification(
        self, method: str, versions: Collection[str] | None, admits: Callable[[Any], bool]
    ) -> None:
        """A notification of the server; `admits` says of a client whether it may be sent to it."""
        self._server_notifications[method] = (versions, admits)

    def __contains__(self, method: str) -> bool:
        """Whether an extension has this request or notification, in any version."""
        return method in self._requests or method in self._notifications

    def request(self, version: Version, method: str) -> Reader | None:
        """What decodes the params of a request; None where no extension has it."""
        return _in_version(self._requests.get(method), version)

    def notification(self, version: Version, method: str) -> Reader | None:
        """What decodes the params of a client's notification; None where no extension has it."""
        return _in_version(self._notifications.get(method), version)

    def may_say(self, version: Version, method: str) -> bool:
        """Whether an extension lets the server send this notification."""
        if method not in self._server_notifications:
            return False
        versions, _ = self._server_notifications[method]
        return versions is None or version.name in versions

    def is_wanted(self, method: str, client: Any) -> bool:
        """Whether a client has the extension that this notification belongs to. Raises KeyError if none has it."""
        _, admits = self._server_notifications[method]
        return admits(client)


def _in_version(row: tuple[Reader, Collection[str] | None] | None, version: Version) -> Reader | None:
    if row is None or (row[1] is not None and version.name not in row[1]):
        return None
    return row[0]


NO_EXTENSIONS = Vocabulary()
"""For sessions of servers without extensions; nothing is added to it."""
