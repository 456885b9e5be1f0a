"""What a program wishes to hear of its server, as long as its client lasts: each new connection asks for it again."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Raw
from msgspec.json import encode

from mcpd.client.callbacks import Callbacks
from mcpd.types.lifecycle import ServerCapabilities
from mcpd.types.notifications import LogLevel


class Wishes:
    """The resources that are watched, and the log level; changes of lists are heard by who has a callback for them."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self.uris: set[str] = set()
        self.log_level: LogLevel | None = None

    @property
    def is_listening(self) -> bool:
        """Whether the program hears of the server without asking it anything."""
        callbacks = self._callbacks
        hears_log = callbacks.log is not None and self.log_level is not None
        return callbacks.list_changed is not None or bool(self.uris) or hears_log

    def may_have_changed(self, offered: ServerCapabilities) -> Iterator[tuple[str, Raw]]:
        """The notifications that may have been missed, by method and params."""
        if self._callbacks.list_changed is not None:
            lists = {"tools": offered.tools, "prompts": offered.prompts, "resources": offered.resources}
            for kind, capability in lists.items():
                if capability is not None and capability.list_changed:
                    yield f"notifications/{kind}/list_changed", Raw(b"{}")
        for uri in sorted(self.uris):
            yield "notifications/resources/updated", Raw(encode({"uri": uri}))
