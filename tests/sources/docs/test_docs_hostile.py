"""Trees of documents that mean harm, or are only large: what is left out is named, the rest served, nothing hangs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.folders import opened, problems, write
from support.wires import MODERN, Wire, memory_wire

TOML = 'name = "h"\n[docs]\nindex = "memory"\n'
ODD = ["new\nline.md", "emoji \U0001f331.md", "bidi \u202etxt.md", "per%cent#hash?.md", "quote\"'.md", " space .md"]


async def uris(wire: Wire) -> list[str]:
    found: list[str] = []
    params: dict[str, str] = {}
    while True:
        page = await wire.result("resources/list", params)
        found += [one["uri"] for one in page["resources"]]
        if "nextCursor" not in page:
            return found
        params = {"cursor": page["nextCursor"]}


async def test_what_leads_out_or_is_no_document(tmp_path: Path) -> None:
    """Links, a pipe, a file of 1 GB, one that nobody may read: each is named; none is listed, found or read."""
    (tmp_path / "secret.md").write_text("# Secret\n\nhidden-treasure\n")
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "x.md").write_text("# Secret\n\nhidden-treasure\n")
    root = write(tmp_path / "h", {"mcpd.toml": TOML, "docs/a.md": "# A\n\nplain-text\n", "docs/.git/b.md": "# no"})
    docs = root / "docs"
    (docs / "out.md").symlink_to(tmp_path / "secret.md")
    (docs / "folder").symlink_to(tmp_path / "others")
    (docs / "gone.md").symlink_to("nothing")
    (docs / "loop.md").symlink_to("loop.md")
    (docs / "in.md").symlink_to("a.md")
    os.mkfifo(docs / "pipe.md")
    with (docs / "sparse.md").open("wb") as file:
        file.truncate(1 << 30)
    server = opened(root)
    told = "\n".join(problems(server))
    for name in ("out.md", "gone.md", "loop.md", "pipe.md", "sparse.md"):
        assert f"docs/{name}: " in told, told
    async with memory_wire(server, MODERN) as wire:
        assert await uris(wire) == ["docs://h/overview", "docs://h/a.md", "docs://h/in.md"]
        found = await wire.call("search_docs", None, query="hidden-treasure")
        assert found["structuredContent"]["results"] == []
        for path in ("out.md", "folder/x.md", "pipe.md", "sparse.md", "loop.md", ".git/b.md", "../secret.md"):
            assert (await wire.call("read_docs_page", None, path=path))["isError"] is True, path
            assert "error" in await wire.request("resources/read", {"uri": f"docs://h/{path}"}), path

        (docs / "a.md").unlink()
        (docs / "a.md").symlink_to(tmp_path / "secret.md")  # after it was looked at
        assert "hidden-treasure" not in str(await wire.request("resources/read", {"uri": "docs://h/a.md"}))
        assert "Secret" not in str(await wire.request("resources/read", {"uri": "docs://h/overview"}))


async def test_odd_names_and_odd_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each has a URI of its own under which it is read, and can be found; binary data under a text's name is none."""
    files: dict[str, str | bytes] = {f"docs/{name}": f"# T\n\nword{at}\n" for at, name in enumerate(ODD)}
    files |= {
        "mcpd.toml": TOML,
        "docs/binary.md": os.urandom(5000) + b"\0" * 100,
        "docs/latin.md": b"caf\xe9 au lait\n",
    }
    root = write(tmp_path / "h", files)
    Path(os.fsdecode(os.fsencode(root) + b"/docs/\xff\xfe.md")).write_text("# not UTF-8")
    server = opened(root)
    assert all("\n" not in one and "\u202e" not in one for one in problems(server))
    async with memory_wire(server, MODERN) as wire:
        listed = await uris(wire)
        assert len(listed) == len(set(listed))
        assert all(uri.isascii() and " " not in uri and "\n" not in uri for uri in listed)
        for at, name in enumerate(ODD):
            found = (await wire.call("search_docs", None, query=f"word{at}"))["structuredContent"]["results"]
            assert [one["path"] for one in found] == [name]
            assert found[0]["uri"] in listed
            (content,) = (await wire.result("resources/read", {"uri": found[0]["uri"]}))["contents"]
            assert f"word{at}" in content["text"]
            page = await wire.call("read_docs_page", None, path=name)
            assert f"word{at}" in page["structuredContent"]["text"]
        assert "docs/binary.md: " in caplog.text, "it is told once all is indexed"
        answer = await wire.request("resources/read", {"uri": "docs://h/binary.md"})
        assert "error" in answer or "\0" not in answer["result"]["contents"][0]["text"]
        assert (await wire.call("read_docs_section", None, section="."))["structuredContent"]["total"] >= len(ODD)


@pytest.mark.medium
async def test_what_is_written_to_deceive(tmp_path: Path) -> None:
    """Heads without end, a heading as long as a book, fences, front matter that is none: shown short, and found."""
    files: dict[str, str | bytes] = {
        "docs/a.md": "---\ntitle: " + "x" * 100_000 + "\n---\nalpha\n",
        "docs/b.md": "# " + "y" * 100_000 + "\n\nbeta\n",
        "docs/c.md": "---\n" * 5000 + "gamma\n",
        "docs/d.md": "[" * 20_000 + "delta",
        "docs/e.md": "> " * 5000 + "epsilon",
        "docs/f.html": "<div>" * 20_000 + "zeta",
        "docs/g.ipynb": '{"cells": ' + "[" * 50_000,
        "mcpd.toml": TOML,
    }
    async with memory_wire(opened(tmp_path, files), MODERN) as wire:
        page = await wire.result("resources/list")
        assert all(len(one.get("title", "")) <= 300 for one in page["resources"])
        assert len(str(page)) < 10_000
        for word, path in (("alpha", "a.md"), ("beta", "b.md")):
            found = (await wire.call("search_docs", None, query=word))["structuredContent"]["results"]
            assert path in [one["path"] for one in found]


@pytest.mark.nightly
async def test_very_many_files(tmp_path: Path) -> None:
    """100,000: as many as the limit says are served, it is told that there are more, and a list is there at once."""
    for number in range(100):
        folder = tmp_path / "docs" / f"s{number}"
        folder.mkdir(parents=True)
        for each in range(1000):
            (folder / f"{each}.md").write_bytes(b"# T\n")
    began = time.monotonic()
    server = opened(tmp_path, {"mcpd.toml": TOML + "max-files = 20000\n"})
    async with memory_wire(server, MODERN) as wire:
        first = (await wire.result("resources/list"))["resources"]
        took = time.monotonic() - began
    assert len(first) == 1000
    # Pages, sections and the overview; the reader's page is beside them.
    assert sum(entry.key.startswith("docs://") for entry in server.catalog.resources) == 20_000 + 20 + 1
    assert problems(server) == ["docs: 80000 documents beyond the limit of 20000 are left out"]
    assert took < 60
