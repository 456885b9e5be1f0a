"""`mcpd serve --stdio` as hosts start it, read without click, which would be a tenth of the time to the first answer.

Only whole words of a few options are read here. All else (other commands and options, help, mistakes, settings
from the environment) is click's, and where both can read a line they read the same: tests/cli/test_quick.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..serve_options import Option, Options, command_options

__all__ = ["read"]

# The variables that are read further in, whichever way the command line was read.
_READ_ELSEWHERE = ("MCPD_TOKEN", "MCPD_STATE_KEY")


def read(words: Sequence[str], environment: Mapping[str, str]) -> Options | None:
    """The options in `serve --stdio [TARGET] [OPTIONS]`, in any order; None for every other line.

    Of the options those are read that stand alone, and those that take one of some words.
    """
    if not words or words[0] != "serve" or "--stdio" not in words:
        return None
    if any(name.startswith("MCPD_") and name not in _READ_ELSEWHERE for name in environment):
        return None
    options = Options(stdio=True)
    known: dict[str, tuple[str, Option]] = {}
    rest = iter(words[1:])
    for word in rest:
        if word == "--stdio":
            continue
        if word.startswith("-"):
            known = known or _readable()
            name, option = known.get(word, ("", None))
            value = next(rest, "") if option is not None and option.choices else True
            if option is None or (option.choices and value not in option.choices):
                return None
            setattr(options, name, value)
        elif options.target is not None or not word:
            return None
        else:
            options.target = word
    return options


def _readable() -> dict[str, tuple[str, Option]]:
    """The options that are read here, by their flags, with the members that they set."""
    table = command_options().items()
    return {option.flag: (name, option) for name, (option, kind) in table if kind is bool or option.choices}
