"""Which words of a command line name the server, and which what is asked of it.

TARGET comes first, but may be left out: for the built-in starter, and where a command stands behind `--`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from mcpd.errors import ConfigurationError


class WrongUse(ConfigurationError):
    """A command line that cannot be meant; the text says what to write. Exit code 2."""


_ARGUMENT = re.compile(r"[^\s={}\[\]\"/?]+?:?=", re.DOTALL)
_TARGET = re.compile(r"(https?|wss?)://|unix:|.*\.(py|json)(:[\w.-]+)?$|[\w.-]+:[\w.-]+$|[.~]*/")


def is_argument(word: str) -> bool:
    """Whether a word is `name=value`, `name:=json`, an object, `@file` or `-`."""
    return word == "-" or word[:1] in ("{", "@") or _ARGUMENT.match(word) is not None


def looks_like_target(word: str) -> bool:
    """Whether a word can only name a server, and no tool or prompt."""
    return _TARGET.match(word) is not None or os.path.exists(word)


def split_words(words: Sequence[str], command: Sequence[str], what: str) -> tuple[str | None, str, list[str]]:
    """TARGET (None if it was left out), the name of a tool or prompt ("" if it was), and the arguments.

    `what` is the kind of thing that is named, for the error. Raises WrongUse.
    """
    count = next((at for at, word in enumerate(words) if is_argument(word)), len(words))
    names, arguments = list(words[:count]), list(words[count:])
    if command:
        if len(names) > 1:
            raise WrongUse(f"the command behind -- is the server, so that {names[0]} is one too many")
        return None, names[0] if names else "", arguments
    if len(names) > 2 or any(not is_argument(word) for word in arguments):
        extra = next((word for word in arguments if not is_argument(word)), names[-1])
        raise WrongUse(f"{extra!r}: an argument of the {what} is written name=value, in quotes if it has spaces")
    if len(names) == 2:
        return names[0], names[1], arguments
    if names and looks_like_target(names[0]):
        return names[0], "", arguments
    return None, names[0] if names else "", arguments


def with_help(error: Exception, command: str) -> str:
    """The text of an error; of a target that is not there, with the command that lists all forms of targets."""
    from mcpd.client.targets.grammar import UnknownTarget

    text = str(error)
    if not isinstance(error, UnknownTarget):
        return text
    return f"{text} See {command} --help" if text.endswith("?") else f"{text}; see {command} --help"


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like it, or ""."""
    from difflib import get_close_matches

    known = list(known)
    near = get_close_matches(name, known, 1, 0.6) or get_close_matches(name.lower(), map(str.lower, known), 1, 0.6)
    return next((one for one in known if near and one.lower() == near[0].lower()), "")
