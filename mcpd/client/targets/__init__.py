"""What a target can be: the one grammar of `Client` and of the commands, and the configurations that it reads.

    named       what a target is once its text was read
    grammar     a text, or the words of a command line, as a target
    urls        URLs and unix sockets
    configured  servers out of files: FILE.json:NAME and HOST:NAME
    hosts       the table of hosts, and where each keeps its file
    documents   JSON with comments, TOML and YAML as objects
    entries     one entry of a configuration, in any host's shape
    variables   variables in the values of entries

Nothing is connected to here, and nothing started. The grammar is loaded when a text is read: most programs give a
server or a command.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcpd.client.targets.named import CommandTarget, FileTarget, NamedTarget, UrlTarget, command_of

if TYPE_CHECKING:
    from mcpd.client.targets.grammar import from_words, parse

__all__ = ["CommandTarget", "FileTarget", "NamedTarget", "UrlTarget", "command_of", "from_words", "parse"]


def __getattr__(name: str) -> Any:
    if name in ("from_words", "parse"):
        return getattr(import_module(".grammar", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
