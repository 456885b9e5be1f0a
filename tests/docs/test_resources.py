"""docs/resources.md: resources, templates, completion, paths that lead out of a folder, and caching."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.documentation import page_modules

from mcpd import Client
from mcpd.errors import RemoteError
from mcpd.types import ResourceTemplateReference

__all__ = ["page_modules"]

Pages = Callable[..., list[ModuleType]]


async def read(server: Any, uri: str) -> Any:
    async with Client(server) as client:
        return (await client.read_resource(uri)).contents[0]


async def test_resources_and_templates(page_modules: Pages) -> None:
    (page,) = page_modules("resources", "server")
    plan = await read(page.server, "garden://plan")
    assert (plan.mime_type, plan.text[:6]) == ("text/markdown", "# Plan")
    assert json.loads((await read(page.server, "garden://beds/south")).text)["plants"] == ["beans"]
    with pytest.raises(RemoteError, match="Resource not found"):
        await read(page.server, "garden://beds/west")


async def test_subscribers_and_completion(page_modules: Pages) -> None:
    (page,) = page_modules("resources", "server")
    async with Client(page.server) as client:
        template = ResourceTemplateReference(uri="garden://beds/{name}")
        assert (await client.complete(template, "name", "no")).completion.values == ["north"]
        assert await client.call("plant", name="north", what="kale") == "Planted kale."


@pytest.mark.parametrize("path", ["../secret", "%2e%2e/secret", "a/%252e%252e/secret", "/etc/passwd", "C:/secret"])
async def test_paths_out_of_the_folder_are_refused(page_modules: Pages, path: str) -> None:
    (page,) = page_modules("resources", "notes")
    assert "NOTES" in (await read(page.server, "notes:///notes.py")).text
    assert "server.py" in (await read(page.server, "found:///.?pattern=*.py")).text
    with pytest.raises(RemoteError, match="the value of 'path'"):
        await read(page.server, f"notes:///{path}")


async def test_fresh_results_are_not_requested_again(page_modules: Pages) -> None:
    (page,) = page_modules("resources", "cached")
    async with Client(page.server) as client:
        for _ in range(3):
            await client.read_resource("garden://plan")
            await client.read_resource("garden://beds/south")
        assert page.reads == ["plan", "south"]
        await client.read_resource("garden://plan", fresh=True)
        assert page.reads == ["plan", "south", "plan"]
