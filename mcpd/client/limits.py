"""How much a server may take of the program that is its client.

A server that is merely fast is held back: nothing more is read of it until the program has caught up. One that takes
without giving, or answers without end, gets an error, or loses its connection with an error that names the limit.
"""

from __future__ import annotations

import logging

from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.transports.process import STDERR_BYTES_PER_SECOND
from mcpd.transports.stdio import MAX_FRAME_BYTES


class ClientLimits(Struct, frozen=True, kw_only=True):
    """The limits of one client; each is a number above 0. What happens at them:

    waiting_messages, waiting_bytes
        Of what the server tells, so much waits for callbacks. With more nothing is read of the server until half of
        it was taken; a list or a resource that changed again is not told twice. Where reading has to go on (a
        callback asks the server something itself, or the channel cannot pause) the connection ends at four times that.
    questions
        So many questions (elicitation, sampling, roots) are worked on at a time, with `waiting_bytes` of params
        together; the server gets an error for more. One result that asks for more input than that is an error.
    unread_bytes
        A server that does not read, and still asks, loses its connection when so much of our answers waits for it.
    list_pages, list_entries, list_bytes
        A list of tools, resources or prompts that has more is an error, and so is a page that comes twice.
    cache_bytes
        What is kept of lists and resources while it is fresh; then what was not used for longest is forgotten.
    message_bytes
        One message; a larger one is skipped, and whoever waits for it goes on waiting. For servers in a child process:
        an open channel has its own.
    stderr_bytes_per_second
        So much of what a child process writes to stderr is passed on to ours in the long run, and 16 seconds' worth at
        once; the rest is counted. None gives the child our stderr itself, without a limit.

    Of what a server does wrong the first ten of a kind are logged; then only how many there were, at 100, 1,000, ….
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
            if not (isinstance(value, (int, float)) and value > 0) and (value, name) != (None, _MAY_BE_NONE):
                raise ConfigurationError(f"ClientLimits: {name}={value!r} must be a number above 0")


_MAY_BE_NONE = "stderr_bytes_per_second"

MOST_LINES = 10
"""So many of one kind are logged one by one."""


class Faults:
    """The log lines about one connection. A kind is a text to be formatted: ours, never the peer's."""

    __slots__ = ("_counts", "_log")

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._counts: dict[str, int] = {}

    def say(self, level: int, text: str, *args: object, error: BaseException | None = None) -> None:
        """Log it, or count it; with the traceback of `error` if there is one."""
        count = self._counts[text] = self._counts.get(text, 0) + 1
        if count <= MOST_LINES:
            self._log.log(level, text, *args, exc_info=error)
        elif str(count).rstrip("0") == "1":
            self._log.log(level, f"{text} (%d of these so far)", *args, count)
