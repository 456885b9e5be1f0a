"""The targets of a client: a command, a URL, a file, or an entry of a configuration file.

    named           the three kinds of target, after their text was read.
    grammar         reads the text of a target, or the words of a command line; start here.
    entries         one entry of a configuration in the format of any host, its variables, and URLs.
    configurations  configuration files: `FILE.json:NAME` and `HOST:NAME`.
    hosts           the table of hosts, and where each keeps its configuration.

Nothing here opens a connection or starts a process: that is `mcpd.client.target`. The grammar is imported when a text
is read, because most programs pass a server or a command.
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
