"""What a server does wrong, in the log: the first few of each kind, then only how many there were.

The log of a program that uses a client is the program's own: a server must not be able to fill it. No clock is
needed for that, as the number of lines grows with the logarithm of what there is to say.
"""

from __future__ import annotations

import logging

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
