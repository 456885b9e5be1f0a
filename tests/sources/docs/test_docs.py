"""The documents of a folder: as resources, and as tools for hosts that read none; what changes of them is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from conftest import REPOSITORY, Child
from support.folders import opened, problems, write
from support.wires import LEGACY, MODERN, Wire, memory_wire, process_wire

from mcpd.errors import ConfigurationError
from mcpd.sources.folder import Folder
from mcpd.sources.lookup import folder_at
from mcpd.sources.watch import WatchedFolder

BOTH = pytest.mark.parametrize("version", [LEGACY[-1], MODERN])

TOML = 'name = "garden"\ntitle = "The garden"\n\n[docs]\nindex = "memory"\n'
DOCS: dict[str, str | bytes] = {
    "mcpd.toml": TOML,
    "docs/index.md": "# Welcome\n\nAll about the garden. Begin with [beds](beds/digging.md).\n",
    "docs/01-beds/digging.md": "---\ntitle: Digging a bed\ndescription: How to dig.\nslug: beds/dig\n---\n"
    "Take the spade.\n\n## How deep\n\nTwo spits, for parsnips three.\n\n"
    "Measure it:\n\n```bash\ngarden measure --deep\n```\n\n## When\n\nIn autumn.\n",
    "docs/01-beds/watering.md": "# Watering\n\nIn the evening.\n\n## garden water\n\nOpens the tap.\n\n"
    "```python\nimport garden\n\ngarden.water()\n```\n",
    "docs/02-tools/spade.txt": "A spade is for digging.\n",
}


async def call(wire: Wire, tool: str, /, **arguments: Any) -> Any:
    """The structured content of a result that is no error."""
    result = await wire.call(tool, None, **arguments)
    assert not result.get("isError"), result
    return result["structuredContent"]


async def listed(wire: Wire) -> dict[str, dict[str, Any]]:
    return {one["uri"]: one for one in (await wire.result("resources/list"))["resources"]}


@BOTH
async def test_as_resources(tmp_path: Path, version: str) -> None:
    """An overview, sections, pages: with titles and descriptions before anything is indexed; each can be read."""
    async with memory_wire(opened(tmp_path, DOCS), version) as wire:
        found = await listed(wire)
        assert [(uri, one["title"], one.get("description")) for uri, one in found.items()][2:] == [
            ("docs://garden/tools/", "Tools", "The pages of the section Tools with their descriptions"),
            ("docs://garden/index.md", "Welcome", None),
            ("docs://garden/01-beds/digging.md", "Digging a bed", "How to dig."),
            ("docs://garden/01-beds/watering.md", "Watering", None),
            ("docs://garden/02-tools/spade.txt", "Spade", None),
        ]
        assert list(found)[:2] == ["docs://garden/overview", "docs://garden/beds/"]
        assert found["docs://garden/02-tools/spade.txt"]["mimeType"] == "text/plain"
        assert found["docs://garden/02-tools/spade.txt"]["size"] == len(DOCS["docs/02-tools/spade.txt"])

        for uri, one in found.items():
            (content,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
            assert (content["uri"], content["mimeType"]) == (uri, one["mimeType"])
        overview = (await wire.result("resources/read", {"uri": "docs://garden/overview"}))["contents"][0]["text"]
        assert "- [Digging a bed](docs://garden/01-beds/digging.md) — How to dig." in overview
        page = (await wire.result("resources/read", {"uri": "docs://garden/01-beds/digging.md"}))["contents"][0]["text"]
        assert page.startswith("Take the spade.")


@BOTH
async def test_the_family_of_all_pages(tmp_path: Path, version: str) -> None:
    """By path, with a heading behind `#`; paths are completed; nothing outside is read, in no encoding."""
    server = opened(tmp_path / "g", DOCS)
    write(tmp_path, {"secret.md": "secret", "g/docs/later.md": "# Later\n"})
    async with memory_wire(server, version) as wire:
        (template,) = (await wire.result("resources/templates/list"))["resourceTemplates"]
        assert template["uriTemplate"] == "docs://garden/{+path}"
        ref = {"type": "ref/resource", "uri": template["uriTemplate"]}
        completed = await wire.result("completion/complete", {"ref": ref, "argument": {"name": "path", "value": "dig"}})
        assert completed["completion"]["values"] == ["01-beds/digging.md"]

        for path, text in (("later.md", "# Later\n"), ("01-beds/digging.md#when", "## When\n\nIn autumn.\n")):
            (one,) = (await wire.result("resources/read", {"uri": f"docs://garden/{path}"}))["contents"]
            assert one["text"].strip() == text.strip()
        for path in ("../secret.md", "%2e%2e/secret.md", "%252e%252e/secret.md", "/etc/passwd", "..%2f..%2fsecret.md",
                     "01-beds/../../../secret.md", "nothing.md", "01-beds/digging.md#nothing", "01-beds"):  # fmt: skip
            error = await wire.error("resources/read", {"uri": f"docs://garden/{path}"})
            assert error["code"] in (-32002, -32602), path


@BOTH
async def test_as_tools(tmp_path: Path, version: str) -> None:
    """Search, then read: each answer names what the next question takes; data fits its schema."""
    async with memory_wire(opened(tmp_path, DOCS), version) as wire:
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        assert list(tools) == [
            "search_docs", "list_docs_sections", "read_docs_section", "read_docs_page", "find_docs_code",
            "look_up_in_docs",
        ]  # fmt: skip
        assert "Search the documents of The garden for words" in tools["search_docs"]["description"]
        assert "then read pages with read_docs_page" in tools["search_docs"]["description"]

        found = await call(wire, "search_docs", query="parsnip")
        assert [(one["path"], one["heading"]) for one in found["results"]] == [("01-beds/digging.md", "How deep")]
        hit = found["results"][0]
        page = await call(wire, "read_docs_page", path=hit["path"], heading=hit["anchor"])
        assert page["text"].startswith("## How deep\n\nTwo spits")
        assert "When" not in page["text"]
        whole = await call(wire, "read_docs_page", path="docs://garden/01-beds/digging.md")
        assert [one["title"] for one in whole["headings"]] == ["How deep", "When"]
        assert whole == await call(wire, "read_docs_page", path="beds/dig"), "by its slug"

        sections = await call(wire, "list_docs_sections")
        assert [(one["name"], one["pages"]) for one in sections["sections"]] == [(".", 1), ("beds", 2), ("tools", 1)]
        section = await call(wire, "read_docs_section", section="beds")
        assert [one["title"] for one in section["pages"]] == ["Digging a bed", "Watering"]
        top = await call(wire, "read_docs_section", section=".")
        assert [one["path"] for one in top["pages"]] == ["index.md"]

        code = await call(wire, "find_docs_code", words="measure", language="bash")
        assert [(one["code"].strip(), one["before"]) for one in code["examples"]] == [
            ("garden measure --deep", "Measure it:")
        ]
        looked = await call(wire, "look_up_in_docs", name="garden water")
        assert (looked["results"][0]["heading"], looked["results"][0]["path"]) == (
            "garden water", "01-beds/watering.md"
        )  # fmt: skip
        for name, data in zip(tools, (found, sections, section, page, code, looked), strict=True):
            jsonschema_rs.validate(tools[name]["outputSchema"], data)


async def test_a_miss_says_what_is_near(tmp_path: Path) -> None:
    async with memory_wire(opened(tmp_path, DOCS), MODERN) as wire:
        for tool, arguments, said in (
            ("read_docs_page", {"path": "beds/diging.md"}, "01-beds/digging.md"),
            ("read_docs_page", {"path": "01-beds/digging.md", "heading": "how deap"}, "How deep"),
            ("read_docs_section", {"section": "bed"}, "beds"),
            ("search_docs", {"query": "spade", "section": "bedz"}, "beds"),
            ("search_docs", {"query": "spade", "cursor": "x"}, "cursor"),
            ("read_docs_page", {"path": "index.md", "cursor": "9999"}, "cursor"),
        ):
            result = await wire.call(tool, None, **arguments)
            assert result["isError"] is True, tool
            assert said in result["content"][0]["text"], result
        for tool, arguments in (
            ("read_docs_page", {"path": "x" * 50_000}),
            ("read_docs_page", {"path": "index.md", "heading": "x" * 50_000}),
            ("read_docs_section", {"section": "x" * 50_000}),
            ("look_up_in_docs", {"name": "x" * 50_000}),
            ("search_docs", {"query": "x" * 50_000}),
            ("find_docs_code", {"words": "x" * 50_000}),
            ("search_docs", {"query": "spade", "section": "x" * 50_000}),
        ):
            text = (await wire.call(tool, None, **arguments))["content"][0]["text"]
            assert len(text) < 1000, tool
        found = await call(wire, "search_docs", query="xylophone")
        assert (found["results"], found["total"]) == ([], 0)
        assert found["suggestion"]


async def test_what_is_only_mentioned_is_shown_where_it_stands(tmp_path: Path) -> None:
    """Of a page that has other forms of the name elsewhere, and of a section that is longer than what is shown."""
    text = "# Settings\n\n## Names\n\n`WORDS_GRACE` and `GRACE_SECONDS` are grace.\n\n## Ends\n\n"
    text += "Something about nothing.\n" * 400 + "It waits as `--grace` says.\n"
    async with memory_wire(opened(tmp_path, {"docs/a.md": text, "mcpd.toml": TOML}), MODERN) as wire:
        (entry,) = (await call(wire, "look_up_in_docs", name="--grace"))["results"]
        assert (entry["heading"], entry["anchor"]) == ("Ends", "ends")
        assert "It waits as `--grace` says." in entry["content"]
        assert len(entry["content"]) <= 4000
        page = await call(wire, "read_docs_page", path="./a.md")
        assert page["path"] == "a.md"
        result = await wire.call("read_docs_page", None, path=" ")
        assert result["content"][0]["text"].startswith("path: is required"), result


async def test_long_pages_come_in_parts(tmp_path: Path) -> None:
    """Nothing is lost between them, and each ends behind a line."""
    text = "# Long\n\n" + "\n".join(f"line {number} " + "word " * 20 for number in range(600))
    async with memory_wire(opened(tmp_path, {"mcpd.toml": TOML, "docs/a/long.md": text}), MODERN) as wire:
        for tool, arguments in (("read_docs_page", {"path": "a/long.md"}), ("read_docs_section", {"section": "a"})):
            parts, cursor = [], None
            while True:
                result = await wire.call(tool, None, cursor=cursor, **arguments)
                data = result["structuredContent"]
                parts.append(data["text"] if "text" in data else data["pages"][0]["content"])
                assert len(parts[-1]) <= 20_000
                cursor = data.get("nextCursor", data.get("next_cursor"))
                if cursor is None:
                    break
                assert f'call {tool} again with cursor = "{cursor}"' in result["content"][0]["text"]
                assert parts[-1].endswith("\n")
            assert "".join(parts).strip() == text.strip()
            assert len(parts) == 4


async def test_published_pages_and_other_words(tmp_path: Path) -> None:
    """Results have the URL; tools, arguments, results under other names, in any tree; one more, and one less."""
    table = """
base-url = "https://garden.example/handbook/"
title = "the handbook"

[docs.tools.search]
name = "search_handbook"
description = "Look for words in {title}; {bed} knows beds."
arguments = { query = "words", limit = { default = 1 }, kind = { hidden = true } }
result = { hits = { of = "results", name = "title", at = "url" }, count = "total" }

[docs.tools.bed]
does = "look_up"
section = "beds"
arguments = { name = { name = "of_what", description = "What is to be known." }, limit = { hidden = true } }

[docs.tools.find_code]
enabled = false
"""
    async with memory_wire(opened(tmp_path, {**DOCS, "mcpd.toml": TOML + table}), MODERN) as wire:
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        assert "find_docs_code" not in tools
        assert tools["search_handbook"]["description"] == "Look for words in the handbook; bed knows beds."
        assert set(tools["search_handbook"]["inputSchema"]["properties"]) == {"words", "section", "limit", "cursor"}
        assert set(tools["bed"]["inputSchema"]["properties"]) == {"of_what"}
        assert tools["read_docs_page"]["description"].startswith("Read a page of the handbook")

        found = await call(wire, "search_handbook", words="spits")
        url = "https://garden.example/handbook/beds/dig/#how-deep"
        assert found == {"hits": [{"name": "Digging a bed", "at": url}], "count": 1}
        looked = await call(wire, "bed", of_what="garden water")
        assert looked["results"][0]["url"] == "https://garden.example/handbook/beds/watering/#garden-water"
        page = await call(wire, "read_docs_page", path=url)
        assert (page["path"], page["heading"]) == ("01-beds/digging.md", "How deep")


async def test_a_view_is_told_the_names_that_it_knows(tmp_path: Path) -> None:
    """Whatever a table calls them: in `_meta`, for hosts with Apps alone."""
    table = '\n[docs.tools.search]\nresult = { found = { of = "results", t = "title" } }\n'
    apps = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
    server = opened(tmp_path, {**DOCS, "mcpd.toml": TOML + table})
    server.extensions["io.modelcontextprotocol/ui"].apps  # type: ignore[attr-defined]  # noqa: B018 - offered from now on
    async with memory_wire(server, MODERN, capabilities=apps) as wire:
        result = await wire.call("search_docs", None, query="parsnip")
        assert result["structuredContent"] == {"found": [{"t": "Digging a bed"}]}
        assert result["_meta"]["mcpd/data"]["results"][0]["path"] == "01-beds/digging.md"
    async with memory_wire(server, MODERN) as wire:
        assert "mcpd/data" not in (await wire.call("search_docs", None, query="parsnip")).get("_meta", {})


@pytest.mark.medium
async def test_what_changes_is_told_once(tmp_path: Path) -> None:
    """One list_changed for a change, an update for who watches the page, and the index knows it."""
    source = Folder(folder_at(str(write(tmp_path, DOCS))), is_growing=True)
    async with memory_wire(source.server, LEGACY[-1]) as wire:
        before = await listed(wire)
        assert (await call(wire, "search_docs", query="parsnip"))["total"] == 1
        uri = "docs://garden/01-beds/watering.md"
        await wire.result("resources/subscribe", {"uri": uri})
        source.refresh(set())
        await wire.quiet()

        path = tmp_path / "docs" / "01-beds" / "watering.md"
        path.write_text("# Watering well\n\nParsnips too.\n")
        source.refresh({str(path)})
        said = [await wire.receive(), await wire.receive()]
        assert sorted(one["method"] for one in said) == [
            "notifications/resources/list_changed", "notifications/resources/updated",
        ]  # fmt: skip
        await wire.quiet()
        assert (await listed(wire))[uri]["title"] == "Watering well"
        assert (await call(wire, "search_docs", query="parsnip"))["total"] == 2

        write(tmp_path, {"docs/03-new/page.rst": "New\n===\n\nMarrows.\n"})
        path.unlink()
        source.refresh({str(tmp_path / "docs" / "03-new"), str(path)})
        assert (await wire.receive())["method"] == "notifications/resources/list_changed"
        await wire.quiet()
        after = await listed(wire)
        assert after.keys() - before.keys() == {"docs://garden/new/", "docs://garden/03-new/page.rst"}
        assert before.keys() - after.keys() == {uri}
        assert (await call(wire, "search_docs", query="parsnip"))["total"] == 1
    assert problems(source.server) == []


async def test_documents_may_come_later_and_lie_elsewhere(tmp_path: Path) -> None:
    """Below the folder, in the folder itself, or where mcpd.toml says; what stands there is watched."""
    source = Folder(folder_at(str(write(tmp_path / "g", {"mcpd.toml": TOML}))), is_growing=True)
    assert source.docs is None
    write(tmp_path / "g", {"docs/a.md": "# A"})
    async with memory_wire(source.server, MODERN) as wire:
        source.refresh({str(tmp_path / "g" / "docs")})
        assert "docs://garden/a.md" in await listed(wire)
        assert (await call(wire, "search_docs", query="a"))["query"] == "a"

    write(tmp_path, {"own/mcpd.toml": 'name = "own"\n[docs]\nfolder = "."\nindex = "memory"\n', "own/x/b.md": "# B"})
    own = Folder(folder_at(str(tmp_path / "own")))
    async with memory_wire(own.server, MODERN) as wire:
        assert list(await listed(wire)) == ["docs://own/overview", "docs://own/x/", "docs://own/x/b.md"]
    assert WatchedFolder(own).concerns(str(tmp_path / "own" / "x" / "b.md"))
    assert not WatchedFolder(own).concerns(str(tmp_path / "b.md"))

    text = f'name = "far"\n[docs]\nfolder = {json.dumps(str(tmp_path / "own" / "x"))}\nindex = "memory"\n'
    far = Folder(folder_at(str(write(tmp_path / "far", {"mcpd.toml": text}))))
    async with memory_wire(far.server, MODERN) as wire:
        assert "docs://far/b.md" in await listed(wire)
    assert WatchedFolder(far).concerns(str(tmp_path / "own" / "x" / "b.md"))
    gone = opened(tmp_path / "gone", {"mcpd.toml": '[docs]\nfolder = "handbook"\n'})
    assert problems(gone) == ["handbook: is not a folder (docs.folder in mcpd.toml); no documents are served"]


async def test_beside_what_a_folder_has_else(tmp_path: Path) -> None:
    """A tool of the author's goes before one of ours, and is named."""
    files = {**DOCS, "tools/own.py": "def search_docs(query: str) -> str:\n    return 'mine'\n", "resources/r.txt": "R"}
    server = opened(tmp_path, files)
    assert problems(server) == ["docs: search_docs already exists; the one of the documents is left out"]
    async with memory_wire(server, MODERN) as wire:
        assert await wire.text("search_docs", query="x") == "mine"
        assert "resource://garden/r.txt" in await listed(wire)
        assert (await call(wire, "read_docs_page", path="index.md"))["title"] == "Welcome"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[docs.tools.search.result]\nx = 'nosuch'", "docs.tools.search_docs.result.x: expected one of query, results"),
        ("[docs.tools.search.result]\nx = { of = 'total' }", "docs.tools.search_docs.result.x: total is not a list"),
        ("[docs.tools.search.result]\n'a b' = 'total'", "docs.tools.search_docs.result.a b: expected one of"),
    ],
)
def test_a_result_that_cannot_be(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        opened(tmp_path, {**DOCS, "mcpd.toml": TOML + table})


async def test_a_repository_is_not_served_unasked(tmp_path: Path, child: Child) -> None:
    """`docs/` alone makes a server of the folder in which one is, but not of a repository."""
    write(tmp_path, {"plain/docs/a.md": "# A", "repository/docs/a.md": "# A", "repository/pyproject.toml": ""})
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name, tool in (("plain", "search_docs"), ("repository", "echo")):
        async with process_wire(child, cwd=tmp_path / name, version=MODERN, env={**child.env, **cache}) as wire:
            assert tool in [one["name"] for one in (await wire.result("tools/list"))["tools"]]
            if name == "plain":
                assert (await call(wire, "search_docs", query="a"))["results"]
        assert "still runs" not in wire.stderr, "the end waits for no thread of the library"


async def test_an_edit_is_served_at_once(tmp_path: Path, child: Child) -> None:
    """`--reload`: the page's list is another one, and its words are found, of a file that was just made too."""
    write(tmp_path, DOCS)
    async with process_wire(child, "--reload", str(tmp_path), version=LEGACY[-1]) as wire:
        assert (await call(wire, "search_docs", query="quince"))["total"] == 0
        await wire.result("resources/subscribe", {"uri": "docs://garden/index.md"})
        write(tmp_path, {"docs/04-trees/quince.md": "# The quince\n"})
        assert (await wire.receive())["method"] == "notifications/resources/list_changed"
        assert [one["path"] for one in (await call(wire, "search_docs", query="quince"))["results"]]
        write(tmp_path, {"docs/index.md": "# Welcome\n\nNow with a medlar.\n"})
        said = {(await wire.receive())["method"] for _ in range(2)}
        assert said == {"notifications/resources/list_changed", "notifications/resources/updated"}
        assert (await call(wire, "search_docs", query="medlar"))["total"] == 1


async def test_an_index_on_disk_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the user's cache; a page that has not changed is not read again, though nobody could read it now."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = {**DOCS, "mcpd.toml": 'name = "garden"\n'}
    for query in ("parsnip", "autumn"):
        source = Folder(folder_at(str(write(tmp_path / "g", files if query == "parsnip" else {}))))
        async with memory_wire(source.server, MODERN) as wire:
            assert (await call(wire, "search_docs", query=query))["total"] == 1
        assert source.docs is not None
        await source.docs.library.aclose()
        for path in (tmp_path / "g" / "docs").rglob("*.*"):
            stamp = path.stat()
            path.write_bytes(b"x" * stamp.st_size)
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert list((tmp_path / "cache").rglob("*.*"))


@pytest.mark.parametrize(
    ("files", "loaded"),
    [
        ({"tools/a.py": "def a() -> int:\n    return 1\n"}, ()),
        (DOCS, ("mcpd.sources.docs", "mcpd.sources.docs.page", "mcpd.sources.docs.files", "mcpd.sources.docs.source")),
    ],
)
def test_a_start_loads_only_what_it_uses(
    tmp_path: Path, child: Child, files: dict[str, str | bytes], loaded: tuple[str, ...]
) -> None:
    """Nothing of documents without any; with some neither the index, nor what answers questions."""
    code = (
        "import sys\nfrom mcpd.sources.folder import Folder\nfrom mcpd.sources.lookup import folder_at\n"
        f"Folder(folder_at({str(write(tmp_path, files))!r}))\nprint(*sys.modules, sep='\\n')"
    )
    # Coverage would load half of Python.
    env = {name: value for name, value in child.env.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=100, check=True
    )
    found = done.stdout.splitlines()
    assert set(loaded) <= set(found)
    if not loaded:
        assert not [name for name in found if name.startswith("mcpd.sources.docs")]
    late = {"sqlite3", "hashlib", "markdown_it", "mcpd.sources.docs.library", "mcpd.sources.docs.readers.reading"}
    late |= {f"mcpd.sources.docs.{name}" for name in ("answers", "tools", "search")}
    assert not late & set(found)


async def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """examples/handbook, without a word of `mcpd check`: found, read, looked up, with the URLs of published pages."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    server = opened(REPOSITORY / "examples" / "handbook")
    assert server.problems() == []
    async with memory_wire(server, MODERN) as wire:
        found = await call(wire, "search_handbook", query="how deep for parsnips")
        assert found["results"][0]["url"] == "https://handbook.example/start/first-bed/#dig"
        looked = await call(wire, "look_up_in_docs", name="litres_per_bed")
        assert "10 unless it is set" in looked["results"][0]["content"]
        command = await call(wire, "find_docs_code", words="water", language="bash")
        assert command["examples"][0]["code"].strip() == "garden water north"


async def test_notebooks_among_documents(tmp_path: Path) -> None:
    """They are listed with their titles, and shown cell by cell."""
    notebook = {"cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# Harvest\n", "By marrow."]}],
                "metadata": {}, "nbformat": 4, "nbformat_minor": 5}  # fmt: skip
    files = {**DOCS, "docs/harvest.ipynb": json.dumps(notebook)}
    async with memory_wire(opened(tmp_path, files), MODERN) as wire:
        assert (await listed(wire))["docs://garden/harvest.ipynb"]["title"] == "Harvest"
        shown = await wire.call("show_notebook", None, path="docs/harvest.ipynb")
        assert "By marrow." in shown["content"][0]["text"]
