"""Notebooks in a folder that is a server, on the wire: the tool, its page, what only that page asks for, and misses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.folders import opened, write
from support.ui_stage import BOTH_ERAS, NO_APPS, WITH_APPS
from support.wires import MODERN, memory_wire

from mcpd.server.joined import join
from mcpd.sources.folder import Folder
from mcpd.sources.lookup import folder_at

HEAD = '{"nbformat": 4, "nbformat_minor": 5, "metadata": {"language_info": {"name": "python"}}, "cells": '
SPRING = (
    HEAD + '[{"cell_type": "markdown", "source": "# Spring"}, {"cell_type": "code", "source": "x", "outputs": []}]}'
)
FILES: dict[str, str | bytes] = {
    "mcpd.toml": 'name = "garden"\n',
    "resources/spring.ipynb": SPRING,
    "resources/old/spring.ipynb": HEAD + "[]}",
    "resources/old/Autumn.ipynb": HEAD + "[]}",
    "resources/broken.ipynb": "{",
}


async def names(wire: Any) -> list[str]:
    return [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]


@BOTH_ERAS
async def test_a_notebook_is_shown(tmp_path: Path, version: str) -> None:
    server = opened(tmp_path, FILES)
    async with memory_wire(server, version, capabilities=WITH_APPS) as wire:
        shown, cells = (await wire.result("tools/list"))["tools"]
        assert shown["name"] == "show_notebook"
        link = shown["_meta"]["ui"]["resourceUri"]
        assert link.startswith("ui://garden/notebook-viewer?v=")
        assert cells["_meta"]["ui"] == {"visibility": ["app"]}
        assert shown["inputSchema"]["properties"]["path"]["examples"][0] == "resources/broken.ipynb"
        [page] = (await wire.result("resources/read", {"uri": link}))["contents"]
        assert '"calls":"show_notebook_cells"' in page["text"]

        result = await wire.call("show_notebook", path="resources/spring.ipynb")
        about = {"path": "resources/spring.ipynb", "title": "Spring", "language": "python", "cells": 2}
        assert result["structuredContent"] == about
        assert result["_meta"]["mcpd/data"] == about
        assert result["content"][0]["text"].startswith("resources/spring.ipynb: 2 cells, python\n\n# Spring")
        result = await wire.call("show_notebook_cells", path=about["path"], first=2)
        assert result["structuredContent"] == {"path": about["path"], "cells": [{"kind": "code", "source": "x"}]}


@BOTH_ERAS
async def test_without_apps_there_is_the_text(tmp_path: Path, version: str) -> None:
    async with memory_wire(opened(tmp_path, FILES), version, capabilities=NO_APPS) as wire:
        assert await names(wire) == ["show_notebook"]
        result = await wire.call("show_notebook", path="spring.ipynb")
        assert result["isError"]  # two have that name
        result = await wire.call("show_notebook", path="resources/spring.ipynb")
        assert "```python\nx\n```" in result["content"][0]["text"]
        assert "structuredContent" not in result
        assert "Unknown tool" in (await wire.error("tools/call", {"name": "show_notebook_cells"}))["message"]


async def test_a_notebook_is_found_by_what_one_would_say(tmp_path: Path) -> None:
    async with memory_wire(opened(tmp_path, FILES), MODERN) as wire:
        for said in ("resources/old/Autumn.ipynb", "old/autumn", "AUTUMN.ipynb", "resource://garden/old/Autumn.ipynb",
                     "./resources/old/Autumn.ipynb"):  # fmt: skip
            assert "resources/old/Autumn.ipynb: 0 cells" in await wire.text("show_notebook", path=said), said
        for said, says in {
            "resources/sprin.ipynb": "not found: 'resources/sprin.ipynb'; similar notebooks: resources/spring.ipynb",
            "atumn": "similar notebooks: resources/old/Autumn.ipynb",
            "zzzz": "; notebooks: resources/broken.ipynb",
            "../../etc/passwd": "notebook not found",
            "spring": "several notebooks match 'spring': resources/old/spring.ipynb, resources/spring.ipynb",
            "broken": "resources/broken.ipynb cannot be shown: it is not valid JSON",
        }.items():
            result = await wire.call("show_notebook", path=said)
            assert result["isError"]
            assert says in result["content"][0]["text"], said
        result = await wire.call("show_notebook", path="autumn", first_cell=2)
        assert "cell 2 does not exist: the notebook has 0 cells" in result["content"][0]["text"]


async def test_only_where_there_are_notebooks(tmp_path: Path) -> None:
    """And while it is served: they come and go with the files."""
    write(tmp_path, {"mcpd.toml": "", "resources/a.md": "a"})
    folder = Folder(folder_at(str(tmp_path)), is_growing=True)
    async with memory_wire(folder.server, MODERN, capabilities=WITH_APPS) as wire:
        assert await names(wire) == []
        write(tmp_path, {"resources/a.ipynb": SPRING})
        folder.refresh()
        assert await names(wire) == ["show_notebook", "show_notebook_cells"]
        before = folder.server.catalog.tools.find("show_notebook")
        write(tmp_path, {"resources/a.ipynb": SPRING.replace("Spring", "Later")})
        folder.refresh()
        assert folder.server.catalog.tools.find("show_notebook") is before
        assert "# Later" in await wire.text("show_notebook", path="a")
        (tmp_path / "resources/a.ipynb").unlink()
        folder.refresh()
        assert await names(wire) == []


async def test_a_joined_server_has_it_under_its_name_there(tmp_path: Path) -> None:
    joined = join([opened(tmp_path / "one", FILES), opened(tmp_path / "two", {"tools/t.py": "def t() -> int: ..."})])
    async with memory_wire(joined, MODERN, capabilities=WITH_APPS) as wire:
        assert (await names(wire))[:2] == ["garden_show_notebook", "garden_show_notebook_cells"]
        link = (await wire.result("tools/list"))["tools"][0]["_meta"]["ui"]["resourceUri"]
        [page] = (await wire.result("resources/read", {"uri": link}))["contents"]
        assert '"calls":"garden_show_notebook_cells"' in page["text"]
        result = await wire.call("garden_show_notebook_cells", path="resources/spring.ipynb")
        assert len(result["structuredContent"]["cells"]) == 2
    await joined.aclose()


async def test_what_leads_out_or_is_too_large_is_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside.ipynb"
    outside.write_text(SPRING)
    server = opened(tmp_path / "in", FILES)
    target = tmp_path / "in/resources/spring.ipynb"
    target.unlink()
    target.symlink_to(outside)
    async with memory_wire(server, MODERN) as wire:
        result = await wire.call("show_notebook", path="resources/spring.ipynb")
        assert result["isError"]
        assert "cannot be read" in result["content"][0]["text"]
    assert json.loads(SPRING)["nbformat"] == 4
