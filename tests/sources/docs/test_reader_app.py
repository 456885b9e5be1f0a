"""The reader of a folder of documents, on the wire: what opens it, its page, and the tool that only the page calls."""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from support.folders import opened
from support.ui_stage import BOTH_ERAS, NO_APPS, WITH_APPS, tool_of
from support.wires import MODERN, memory_wire

from mcpd.server.joined import join
from mcpd.sources.docs.rendering import MAX_BYTES, MAX_SHOWN_BYTES

FILES: dict[str, str | bytes] = {
    "mcpd.toml": 'name = "garden"\n[docs]\nindex = "memory"\n',
    "docs/index.md": "# Garden handbook\n\nHow to grow things.\n",
    "docs/01-basics/01-soil.md": "# Soil\n\nSee [water](02-water.md#when), [here](#loam), [out](https://example.com/) "
    "and [bad](javascript:x).\n\n<script>x</script>\n\n## Compost\n\nFeeds the soil.\n\n### Deep\n\n#### Deeper\n\n"
    "## Loam\n\n```sh\nfork --turn\n```\n",
    "docs/01-basics/02-water.md": "# Water\n\n## When\n\nIn the *morning*.\n",
    "docs/notes.txt": "Plain <b>notes</b>.",
}


async def shown(wire: Any, **asked: Any) -> Any:
    result = await wire.call("show_docs", **asked)
    assert not result.get("isError"), result
    return result["structuredContent"]


@BOTH_ERAS
async def test_the_tools_open_the_reader(tmp_path: Path, version: str) -> None:
    async with memory_wire(opened(tmp_path, FILES), version, capabilities=WITH_APPS) as wire:
        listed = await wire.result("tools/list")
        assert tool_of(listed, "show_docs")["_meta"]["ui"] == {"visibility": ["app"]}
        links = {tool["_meta"]["ui"].get("resourceUri") for tool in listed["tools"] if tool["name"] != "show_docs"}
        assert len(links) == 1
        [link] = links
        assert link.startswith("ui://garden/docs-reader?v=")
        [page] = (await wire.result("resources/read", {"uri": link}))["contents"]
        assert page["_meta"] == {"ui": {"prefersBorder": True}}
        assert '"calls":"show_docs"' in page["text"]
        assert '"prefix":"docs://garden/"' in page["text"]
        # APP-S-16: what the reader shows comes on two ways, and as text.
        result = await wire.call("search_docs", query="soil")
        assert result["_meta"]["mcpd/data"]["results"][0]["path"] == "01-basics/01-soil.md"
        assert result["structuredContent"]["results"]
        assert "Soil" in result["content"][0]["text"]


@BOTH_ERAS
async def test_without_apps_nothing_of_it_is_there(tmp_path: Path, version: str) -> None:
    async with memory_wire(opened(tmp_path, FILES), version, capabilities=NO_APPS) as wire:
        listed = await wire.result("tools/list")
        assert "show_docs" not in [tool["name"] for tool in listed["tools"]]
        assert not [tool for tool in listed["tools"] if "_meta" in tool]
        assert not [one for one in (await wire.result("resources/list"))["resources"] if one["uri"].startswith("ui:")]
        assert "mcpd/data" not in str(await wire.call("search_docs", query="soil"))
        assert "Unknown tool" in (await wire.error("tools/call", {"name": "show_docs"}))["message"]


async def test_what_it_shows(tmp_path: Path) -> None:
    async with memory_wire(opened(tmp_path, FILES), MODERN, capabilities=WITH_APPS) as wire:
        home = await shown(wire)
        assert home["sections"] == [
            {"name": "", "title": "", "pages": 2},
            {"name": "basics", "title": "Basics", "pages": 2},
        ]
        assert home["kinds"] == ["markdown", "text"]

        listed = await shown(wire, section="basics")
        assert [one["path"] for one in listed["pages"]] == ["01-basics/01-soil.md", "01-basics/02-water.md"]
        assert [one["path"] for one in (await shown(wire, section=""))["pages"]] == ["index.md", "notes.txt"]

        found = await shown(wire, query="morning")
        assert found["total"] == 1
        [hit] = found["results"]
        assert (hit["path"], hit["title"], hit["section"]) == ("01-basics/02-water.md", "Water", "Basics")
        [[start, end]] = hit["highlights"]
        assert hit["snippet"][start:end] == "morning"

        page = await shown(wire, path="01-basics/01-soil.md", anchor="loam")
        assert (page["title"], page["section"], page["section_title"]) == ("Soil", "basics", "Basics")
        assert [(one["level"], one["anchor"]) for one in page["toc"]] == [(2, "compost"), (3, "deep"), (2, "loam")]
        assert page["next"] == {"path": "01-basics/02-water.md", "title": "Water"}
        assert "previous" not in page
        assert 'data-page="01-basics/02-water.md" data-anchor="when"' in page["html"]
        assert not re.search("<script|javascript:", page["html"])
        assert "&lt;b&gt;" in (await shown(wire, path="notes.txt"))["html"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"path": "01-basics/01-soli.md"}, "similar names: 01-basics/01-soil.md"),
        ({"path": "../mcpd.toml"}, "page not found"),
        ({"section": "basic"}, "section not found: 'basic'"),
        ({"query": "soil", "cursor": "x"}, "cursor"),
        ({"query": "soil", "section": "nowhere"}, "section not found"),
        ({"query": "x" * 1001}, "1000"),
    ],
)
async def test_what_is_not_there_is_said(tmp_path: Path, asked: Any, says: str) -> None:
    async with memory_wire(opened(tmp_path, FILES), MODERN, capabilities=WITH_APPS) as wire:
        result = await wire.call("show_docs", **asked)
        assert result["isError"]
        assert says in result["content"][0]["text"]


async def test_a_joined_server_has_it_under_its_name_there(tmp_path: Path) -> None:
    joined = join([opened(tmp_path / "one", FILES), opened(tmp_path / "two", {"tools/t.py": "def t() -> int: ..."})])
    async with memory_wire(joined, MODERN, capabilities=WITH_APPS) as wire:
        link = tool_of(await wire.result("tools/list"), "garden_search_docs")["_meta"]["ui"]["resourceUri"]
        [page] = (await wire.result("resources/read", {"uri": link}))["contents"]
        assert '"calls":"garden_show_docs"' in page["text"]
        assert (await wire.call("garden_show_docs"))["structuredContent"]["total_pages"] == 4
    await joined.aclose()


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
BESIDE: dict[str, str | bytes] = {
    "mcpd.toml": 'name = "garden"\n[docs]\nindex = "memory"\nexclude = ["secret/*"]\n',
    "docs/guides/bed.md": "# Bed\n\n![A bed](../pictures/a%20bed.png) ![none](none.png) ![out](../../out.png) "
    "![away](https://example.com/x.png) ![text](notes.png) ![large](/large.png) "
    "![hidden](../secret/x.png) ![svg](x.svg)",
    "docs/pictures/a bed.png": PNG,
    "docs/guides/notes.png": "no image",
    "docs/guides/x.svg": "<svg/>",
    "docs/secret/x.png": PNG,
    "docs/large.png": PNG + b"\0" * MAX_SHOWN_BYTES,
    "docs/huge.jpg": b"\xff\xd8\xff" + b"\0" * MAX_BYTES,
    "out.png": PNG,
}


async def test_images_beside_documents(tmp_path: Path) -> None:
    """In the reader they are shown as far as a page has room; clients read each as a resource."""
    server = opened(tmp_path, BESIDE)
    (tmp_path / "docs" / "link.png").symlink_to(tmp_path / "out.png")
    async with memory_wire(server, MODERN, capabilities=WITH_APPS) as wire:
        html = (await shown(wire, path="guides/bed.md"))["html"]
        data = b64encode(PNG).decode()
        assert html.count("<img") == 1
        assert f'<img src="data:image/png;base64,{data}" alt="A bed">' in html
        assert all(
            f'<span class="image">{word}</span>' in html for word in ("none", "out", "away", "text", "large", "svg")
        )

        (content,) = (await wire.result("resources/read", {"uri": "docs://garden/pictures/a%20bed.png"}))["contents"]
        assert (content["mimeType"], content["blob"]) == ("image/png", data)
        (content,) = (await wire.result("resources/read", {"uri": "docs://garden/large.png"}))["contents"]
        assert len(content["blob"]) > MAX_SHOWN_BYTES
        assert "is larger than" in (await wire.error("resources/read", {"uri": "docs://garden/huge.jpg"}))["message"]
        for path in ("secret/x.png", "link.png", "guides/notes.png", "guides/x.svg", "..%2Fout.png", "none.png"):
            assert "contents" not in (await wire.error("resources/read", {"uri": f"docs://garden/{path}"}))
