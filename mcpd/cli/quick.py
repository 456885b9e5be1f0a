"""Reads the command line of `mcpd serve --stdio` without click, which takes a fifth of the time to the first answer.

Reads flags and options with fixed words only, as hosts use them. click reads everything else: other commands and
options, help, mistakes and environment variables. tests/cli/test_quick.py compares both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcpd.server.settings import Option, Options, command_option

if TYPE_CHECKING:
    from mcpd.server.extensions.serving import ServeOption

# These variables are read later, not as options.
_NOT_OPTIONS = ("MCPD_TOKEN", "MCPD_STATE_KEY")


def stdio_options(words: Sequence[str], environment: Mapping[str, str]) -> Options | None:
    """The options of `serve --stdio [TARGET…] [OPTIONS]`, in any order; None if click must read the line."""
    ours = words[: words.index("--")] if "--" in words else words
    if not words or words[0] != "serve" or "--stdio" not in ours:
        return None
    if any(name.startswith("MCPD_") and name not in _NOT_OPTIONS for name in environment):
        return None

    options = Options(stdio=True)
    extensions: dict[str, dict[str, Any]] = {}
    given = {"stdio"}
    rest = iter(words[1:])
    for word in rest:
        if word == "--stdio":
            continue
        if word == "--" and options.target is not None:
            options.arguments = tuple(rest)
            break
        if word.startswith("-"):
            name, found = _readable(word)
            if found is None:
                return None
            option = found if isinstance(found, Option) else found.option
            value = next(rest, "") if option.choices else True
            if option.choices and value not in option.choices:
                return None
            if isinstance(found, Option):
                setattr(options, name, value)
                given.add(name)
            else:
                extensions.setdefault(found.id, {})[name] = value
        elif not word:
            return None
        elif options.target is not None:
            options.more_targets += (word,)
        else:
            options.target = word

    options.extensions = extensions
    options.given = frozenset(given)
    return options


def _readable(flag: str) -> tuple[str, Option | ServeOption | None]:
    """The member that a flag sets, and its option, which may be one of an extension; None if it is not read here."""
    name = flag.removeprefix("--").replace("-", "_")
    found = command_option(name)
    if found is not None:
        option, kind = found
        is_read = option.flag == flag and (kind is bool or bool(option.choices))
        return name, option if is_read else None
    from mcpd.server.extensions.serving import serve_options  # few command lines have such options

    for each in serve_options():
        if each.option.flag == flag and (each.kind is bool or each.option.choices):
            return each.name, each
    return name, None
