"""Limits on a server's use of its client: message sizes, queues, lists, and log lines.

A server that sends faster than the program processes is slowed down: the client stops reading. If a server ignores
requests or never ends a list, the client raises an error, or closes the connection with an error that names the limit.
"""

from __future__ import annotations

import logging

from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.transports.process import STDERR_BYTES_PER_SECOND
from mcpd.transports.stdio import MAX_FRAME_BYTES


class ClientLimits(Struct, frozen=True, kw_only=True):
    """The limits of one client. Each is a number above 0.

    waiting_messages, waiting_bytes
        Notifications that wait for callbacks. With more, the client stops reading from the server until half are
        processed. Repeated changes of the same list or resource count once. If the client must read on (a callback
        waits for a response, or the channel cannot pause), it closes the connection at four times the limit.
    questions
        Requests of the server (elicitation, sampling, roots) that are processed concurrently, with params of at most
        `waiting_bytes` together. Further requests get an error. A result that asks for more input raises an error.
    unread_bytes
        Size of the responses that a server may leave unread while it sends further requests. With more, the client
        closes the connection.
    list_pages, list_entries, list_bytes
        Size of a list of tools, resources or prompts. Larger lists, and repeated pages, raise an error.
    cache_bytes
        Size of cached lists and resources. The least recently used results are discarded first.
    message_bytes
        Size of one message. A larger message is skipped. Applies to servers in a child process and to URLs.
    stderr_bytes_per_second
        Average rate at which the stderr of a child process is forwarded, with bursts of 16 seconds' worth. The rest is
        counted. None lets the child write to this process's stderr directly.

    The first ten protocol violations of a kind are logged; after that, only their number at 100, 1,000, ….
    """

    waiting_messages: int = 1000
    waiting_bytes: int = 16 * 1024 * 1024
    questions: int = 64
    unread_bytes: int = 4 * 1024 * 1024
    list_pages: int = 1000
    list_entries: int = 100_000
    list_bytes: int = 64 * 1024 * 1024
    cache_bytes: int = 16 * 1024 * 1024
    message_bytes: int = MAX_FRAME_BYTES
    stderr_bytes_per_second: float | None = STDERR_BYTES_PER_SECOND

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name == "stderr_bytes_per_second":
                continue
            if not isinstance(value, (int, float)) or value <= 0:
                raise ConfigurationError(f"ClientLimits: {name}={value!r} must be a number above 0")


MOST_LINES = 10
"""Number of messages of one kind that are logged individually."""


class Faults:
    """The log of protocol violations on one connection, limited so that a server cannot fill the program's log.

    The number of lines grows with the logarithm of the number of violations. A kind is a format string of this program.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._counts: dict[str, int] = {}

    def log(self, level: int, text: str, *args: object, error: BaseException | None = None) -> None:
        """Log a violation, or count it, with the traceback of `error`."""
        count = self._counts[text] = self._counts.get(text, 0) + 1
        if count <= MOST_LINES:
            self._log.log(level, text, *args, exc_info=error)
        elif str(count).rstrip("0") == "1":
            self._log.log(level, f"{text} (%d of these so far)", *args, count)
