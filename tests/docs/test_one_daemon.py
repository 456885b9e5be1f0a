"""docs/one-daemon.md: its server says whose folder it is asked from, and its entry is what `mcpd install` writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType

from conftest import REPOSITORY
from support.documentation import blocks, page_modules

from mcpd import Client
from mcpd.cli.attach.shim import is_wanted

__all__ = ["page_modules"]


async def test_the_server(page_modules: Callable[..., list[ModuleType]]) -> None:
    (page,) = page_modules("one-daemon", "server")
    assert page.server.attach.environ == ("GARDEN_TOKEN",)
    async with Client(page.server) as client:
        assert await client.call("where") == ""


def test_the_entry_asks_for_a_daemon() -> None:
    (entry,) = (text for language, text in blocks(REPOSITORY / "docs" / "one-daemon.md") if language == "json")
    assert is_wanted(json.loads(entry)["mcpServers"]["garden"]["args"], {})
