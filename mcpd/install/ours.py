"""Whose an entry is: one that we wrote, one for the same server, or somebody else's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from mcpd.client.targets.entries import Variables, read_entry
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import ConfigurationError
from mcpd.install.journal import Record, entry_fingerprint


def essence(entry: Any) -> list[str] | None:
    """What an entry starts (its words) or reaches (its URL), in any host's shape; None if that cannot be seen."""
    try:
        found = read_entry(entry, Variables("none", {}, ""), "entry")
    except ConfigurationError:
        return None
    return [found.url] if isinstance(found, UrlTarget) else [*found.command]


def is_ours(entry: Any, records: Iterable[Record] = ()) -> bool:
    """Whether `mcpd install` wrote it: it starts `mcpd serve --stdio`, or is remembered."""
    words = essence(entry)
    if words is None:
        return False
    if _served(words) is not None:
        return True
    return any(record.entry == entry_fingerprint(words) for record in records)


def same_server(one: Any, other: Any) -> bool:
    """Whether two entries are for one server, whichever Python or copy of mcpd starts it."""
    a, b = essence(one), essence(other)
    if a is None or b is None:
        return False
    return a == b or (_served(a) is not None and _served(a) == _served(b))


def shown(entry: Any) -> str:
    """What an entry starts or reaches, in one line without its variables."""
    words = essence(entry)
    if words is None:
        return "what cannot be read"
    from mcpd.protocol.printable import mask_command

    return " ".join(mask_command(words))


def _served(words: list[str]) -> list[str] | None:
    """The words behind `mcpd serve --stdio`; None for another command."""
    for at in range(len(words) - 2):
        name = os.path.basename(words[at].replace("\\", "/")).lower().removesuffix(".exe")
        if name == "mcpd" and words[at + 1 : at + 3] == ["serve", "--stdio"]:
            return words[at + 3 :]
    return None
