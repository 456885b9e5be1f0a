"""Uvicorn's protocol with the attributes that it has in slots: thousands of connections may wait, and each has them.

A dict of so many attributes takes 1.5 KiB. Whatever uvicorn sets beside these goes into a dict as before.
"""

from __future__ import annotations

from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["Pipeline", "SlottedProtocol"]


class SlottedProtocol(HttpToolsProtocol):
    """One connection. A new attribute of uvicorn's goes into a dict: `tests/http/test_waiting_memory.py` shows it."""

    __slots__ = ("access_log", "access_logger", "app", "app_state", "asgi_version", "client", "config", "connections",
                 "cycle", "expect_100_continue", "flow", "headers", "limit_concurrency", "logger", "loop", "parser",
                 "pipeline", "root_path", "scheme", "scope", "server", "server_state", "tasks", "timeout_keep_alive",
                 "timeout_keep_alive_task", "transport", "url", "ws_protocol_class")  # fmt: skip

    parser: Any
    """None while it waits for a head that came before: a parser takes 0.9 KiB, and is made in half a microsecond."""

    def new_parser(self) -> httptools.HttpRequestParser:
        """One as uvicorn makes it at the beginning of a connection."""
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser


class Pipeline(list[Any]):
    """Requests that wait behind another, the newest first: as much of a deque as uvicorn uses. Most connections never
    have anything in it, and an empty deque takes 760 bytes."""

    __slots__ = ()

    def appendleft(self, waiting: Any) -> None:
        """Put in what waits behind all others."""
        self.insert(0, waiting)

    def popleft(self) -> Any:
        """Take out the newest."""
        return self.pop(0)
