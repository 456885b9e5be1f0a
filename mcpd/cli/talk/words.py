"""Splits the words of a command line into TARGET, the name of a tool or prompt, and arguments.

TARGET comes first, but it may be left out: the command then uses the current folder or the demo server, or the command
after `--`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable


class WrongUse(ConfigurationError):
    """The command line is wrong; the text says what to write instead. Exit code 2."""


def note(text: str) -> None:
    """Print a line for people on stderr."""
    print(f"mcpd: {text}", file=sys.stderr)


_ARGUMENT = re.compile(r"[^\s={}\[\]\"/?]+?:?=", re.DOTALL)
_TARGET = re.compile(r"(https?|wss?)://|unix:|.*\.(py|json)(:[\w.-]+)?$|[\w.-]+:[\w.-]+$|[.~]*/")


def is_argument(word: str) -> bool:
    """Whether a word is `name=value`, `name:=json`, an object, `@file` or `-`."""
    return word == "-" or word[:1] in ("{", "@") or _ARGUMENT.match(word) is not None


def looks_like_target(word: str) -> bool:
    """Whether a word can only name a server, not a tool or a prompt."""
    return _TARGET.match(word) is not None or os.path.exists(word)


def split_words(words: Sequence[str], command: Sequence[str], what: str) -> tuple[str | None, str, list[str]]:
    """Return TARGET (None if left out), the name of a tool or prompt ("" if left out), and the arguments.

    `what` is "tool" or "prompt", for the error message. Raises WrongUse.
    """
    count = next((at for at, word in enumerate(words) if is_argument(word)), len(words))
    names, arguments = list(words[:count]), list(words[count:])
    if command:
        if len(names) > 1:
            raise WrongUse(f"the command after -- is the server, so leave out {names[0]}")
        return None, names[0] if names else "", arguments
    if len(names) > 2 or any(not is_argument(word) for word in arguments):
        extra = next((word for word in arguments if not is_argument(word)), names[-1])
        raise WrongUse(f"{extra!r}: write an argument of the {what} as name=value, in quotes if it contains spaces")
    if len(names) == 2:
        return names[0], names[1], arguments
    if names and looks_like_target(names[0]):
        return names[0], "", arguments
    return None, names[0] if names else "", arguments


def pairs(words: Sequence[str], sign: str, option: str, form: str) -> dict[str, str]:
    """Split words such as NAME=VALUE at `sign`. Raises WrongUse, without the value: it may be a secret."""
    found: dict[str, str] = {}
    for word in words:
        name, has_sign, value = word.partition(sign)
        if not has_sign or not name.strip() or any(c.isspace() for c in name.strip()):
            raise WrongUse(f"{option} …: write {option} {form}")
        found[name.strip()] = value.strip() if sign == ":" else value
    return found


def with_help(error: Exception, command: str) -> str:
    """The text of an error; if the target does not exist, with a pointer to the command's help."""
    from mcpd.client.targets.grammar import UnknownTarget

    text = str(error)
    if not isinstance(error, UnknownTarget):
        return text
    return f"{text} See {command} --help" if text.endswith("?") else f"{text}; see {command} --help"


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like `name`, in upper or lower case; "" if none is similar."""
    from difflib import get_close_matches

    known = list(known)
    near = get_close_matches(name, known, 1, 0.6) or get_close_matches(name.lower(), map(str.lower, known), 1, 0.6)
    return next((each for each in known if near and each.lower() == near[0].lower()), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question whether a similar name was meant; "" if none is similar."""
    near = nearest(name, known)
    return f"did you mean {near}?" if near else ""


def no_such(kind: str, name: str, known: Iterable[str], inside: str = "") -> WrongUse:
    """The error for an unknown or missing name of a tool, prompt or argument: with a similar one, or with all."""
    known = list(known)
    names = f"the {kind}s are {', '.join(known)}" if known else f"there are no {kind}s"
    if not name:
        return WrongUse(f"which {kind}? {printable(names, 500)}")
    shown = printable(f"{inside}.{name}" if inside else name)
    return WrongUse(f"no {kind} {shown}; {printable(did_you_mean(name, known) or names, 500)}")
