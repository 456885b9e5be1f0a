"""`mcpd call` without options, as people and scripts write it, read without click: that is a quarter of its time.

All else (options but `--json`, help, mistakes in them) is click's, and where both can read a line they read the same:
tests/cli/test_quick_call.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .talk.early import EarlyServer

__all__ = ["read", "run_quickly"]


def read(words: Sequence[str]) -> tuple[list[str], tuple[str, ...], bool] | None:
    """The words in front of `--`, the command behind it, and whether `--json` was said; None for every other line."""
    if not words or words[0] != "call":
        return None
    before, command = list(words[1:]), tuple[str, ...]()
    if "--" in before:
        at = before.index("--")
        before, command = before[:at], tuple(before[at + 1 :])
        if not command:
            return None
    as_json = "--json" in before
    rest = [word for word in before if word != "--json"]
    if any(len(word) > 1 and word.startswith("-") for word in rest):
        return None
    return rest, command, as_json


def run_quickly(words: Sequence[str]) -> int | None:
    """Do what such a line says, and give the exit code; None for every other line."""
    found = read(words)
    if found is None:
        return None
    from .talk.words import WrongUse, split_words

    names, command, as_json = found
    try:
        target, tool, arguments = split_words(names, command, "tool")
    except WrongUse:
        return None  # click's way says it

    early = _start(target, command)
    try:
        from .talk.calling import CallOptions, call
        from .talk.reach import Reach, run

        reach = Reach(target=target, command=command, early=early)
        options = CallOptions(tool=tool, words=tuple(arguments), as_json=as_json)
        return run(lambda terminal: call(terminal, reach, options), reach)
    finally:
        if early is not None:
            early.drop()


def _start(target: str | None, command: tuple[str, ...]) -> EarlyServer | None:
    """The server, if it is one of our own; None for all others, which are started when the client is loaded."""
    is_file = target is not None and target.endswith(".py") and os.path.isfile(target)
    if command or not (target is None or is_file):
        return None
    # Not by `client.targets`, which loads the library for JSON: the server begins to load that meanwhile.
    from ..serve_defaults import OVER_STDIO
    from .talk.early import EarlyServer

    try:
        return EarlyServer((sys.executable, *OVER_STDIO, *([os.path.abspath(target)] if target else ())))
    except OSError:
        return None
