"""docs/extensions.md: a method for clients with the extension, and options for serving."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
from support.documentation import page_modules

from mcpd import Client
from mcpd.errors import RemoteError

__all__ = ["page_modules"]

Pages = Callable[..., list[ModuleType]]


async def test_only_clients_with_the_extension_may_search(page_modules: Pages) -> None:
    page, program = page_modules("extensions", "server", "client")
    assert await program.ask("bees") == ["Bees dance."]
    async with Client(page.server, extensions={"com.example/other": {}}) as client:
        with pytest.raises(RemoteError, match="com.example/notes") as refused:
            await client.request("com.example/notes/search", {"text": "bees"})
    assert refused.value.code == -32021


async def test_options_override_the_constructor(page_modules: Pages) -> None:
    (page,) = page_modules("extensions", "notes_server")
    async with Client(page.server) as client:
        assert await client.call("open_shelf") == "garden"
        page.notes.configure({"shelf": "kitchen"})
        assert await client.call("open_shelf") == "kitchen"
