"""`mcpd serve --stdio` as hosts start it, read without click, which would be a tenth of the time to the first answer.

Only whole words of a few options are read here. All else (other commands and options, help, mistakes, settings
from the environment) is click's, and where both can read a line they read the same: tests/cli/test_quick.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .serve_options import LOG_LEVELS, Options

__all__ = ["read"]

# The variables that are read further in, whichever way the command line was read.
_READ_ELSEWHERE = ("MCPD_TOKEN", "MCPD_STATE_KEY")


def read(words: Sequence[str], environment: Mapping[str, str]) -> Options | None:
    """The options in `serve [TARGET] --stdio [--log-level LEVEL]`, in any order; None for every other line."""
    if not words or words[0] != "serve" or "--stdio" not in words:
        return None
    if any(name.startswith("MCPD_") and name not in _READ_ELSEWHERE for name in environment):
        return None
    options = Options(stdio=True)
    rest = iter(words[1:])
    for word in rest:
        if word == "--log-level":
            level = next(rest, "")
            if level not in LOG_LEVELS:
                return None
            options.log_level = level
        elif word != "--stdio":
            if options.target is not None or not word or word.startswith("-"):
                return None
            options.target = word
    return options
