"""Finds the id of a message that is too large to be read, or no JSON, in its first and last bytes.

Clients and servers write the id near the one end or the other, beside members that are short. One that stands
between large members is not looked for.
"""

from __future__ import annotations

import re
from functools import cache

from msgspec import DecodeError, Struct
from msgspec.json import decode

END_BYTES = 512
"""How much of each end is kept."""

_ID = rb'("(?:[^"\\]|\\.)*"|-?[0-9]{1,18})'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_IS_ANSWER = {b"result": True, b"error": True, b"method": False, b"params": False}


class _Patterns(Struct, frozen=True):
    first_member: re.Pattern[bytes]
    id_first: re.Pattern[bytes]
    id_last: re.Pattern[bytes]
    """Only scalars stand between it and the end of the message: it is the message's own id, and not one deep inside."""


@cache
def _patterns() -> _Patterns:
    # Made when the first message is torn: to compile them costs start-up.
    return _Patterns(
        re.compile(rb'\s*\{\s*(?:%b\s*,\s*)?"(\w+)"\s*:' % _VERSION),
        re.compile(rb'\s*\{\s*(?:%b\s*,\s*)?"id"\s*:\s*%b\s*,\s*(?:%b\s*,\s*)?"(\w+)"\s*:' % (_VERSION, _ID, _VERSION)),
        re.compile(rb',\s*"id"\s*:\s*%b\s*(?:,\s*%b\s*)?\}\s*\Z' % (_ID, _VERSION)),
    )


class Torn(Struct, frozen=True):
    """The two ends of a message that was not taken."""

    head: bytes
    tail: bytes
    is_refused: bool = False
    """Not for its size alone: whoever reads had no room for it."""

    def isspace(self) -> bool:
        """It never is: so a list of lines can be sifted without a look at what each of them is."""
        return False

    @property
    def id(self) -> int | str | None:
        """The message's id; None if it has none, or it is unknown."""
        found = _patterns().id_first.match(self.head) or _patterns().id_last.search(self.tail)
        try:
            return None if found is None else decode(found[1], type=int | str)
        except (DecodeError, UnicodeDecodeError):
            return None

    @property
    def is_answer(self) -> bool | None:
        """Whether it answers a request, or is one, or a notification; None if that is unknown."""
        found = _patterns().id_first.match(self.head)
        if found is not None:
            return _IS_ANSWER.get(found[2])
        found = _patterns().first_member.match(self.head)
        return None if found is None else _IS_ANSWER.get(found[1])


def answered_by(message: bytes) -> int | str | None:
    """The id of the request that a message answers which cannot be read; None if it is none, or unknown."""
    torn = Torn(message[:END_BYTES], message[-END_BYTES:])
    return torn.id if torn.is_answer else None
