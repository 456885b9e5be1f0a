"""docs/dependencies.md: one database per process, dependencies around a call, and replacements in tests."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
from support.documentation import page_modules

from mcpd import Client, ToolError

__all__ = ["page_modules"]

Pages = Callable[..., list[ModuleType]]


async def test_a_database_lasts_as_long_as_the_lifespan(page_modules: Pages) -> None:
    page, _ = page_modules("dependencies", "server", "transactions")
    async with Client(page.server) as client:
        assert await client.call("add_book", title="Dune", shelf="shelf 4") == "Dune is on shelf 4."
        assert await client.call("where_is", title="Dune") == "Dune is on shelf 4."
        assert await client.call("remove_book", title="Dune") == "Removed Dune."
        with pytest.raises(ToolError, match="There is no book 'Dune'"):
            await client.call("where_is", title="Dune")


async def test_clients_cannot_set_a_dependency(page_modules: Pages) -> None:
    (page,) = page_modules("dependencies", "server")
    async with Client(page.server) as client:
        await client.call("add_book", title="Dune", shelf="shelf 4")
        with pytest.raises(ToolError, match="shelf"):
            await client.call("where_is", title="Dune", shelf="mine")


async def test_an_override_lasts_until_its_block_ends(page_modules: Pages) -> None:
    page, fake = page_modules("dependencies", "server", "fake")
    async with Client(page.server) as client:
        await client.call("add_book", title="Dune", shelf="shelf 4")
        with page.server.override(page.database, fake.empty), pytest.raises(ToolError, match="no book"):
            await client.call("where_is", title="Dune")
        assert await client.call("where_is", title="Dune") == "Dune is on shelf 4."
