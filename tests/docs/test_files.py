"""docs/files.md: its tools take and return files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from support.documentation import page_modules
from support.wires import MODERN, memory_wire

__all__ = ["page_modules"]

Pages = Callable[..., list[ModuleType]]


async def test_a_client_sends_a_path(page_modules: Pages, tmp_path: Path) -> None:
    page, sending = page_modules("files", "server", "send")
    (tmp_path / "notes.txt").write_text("one\ntwo", encoding="utf-8")
    assert await sending.send(page.server, str(tmp_path / "notes.txt")) == "one"


async def test_files(page_modules: Pages) -> None:
    (page,) = page_modules("files", "server")
    async with memory_wire(page.server, MODERN) as wire:
        text = "data:text/plain;name=a.txt,one%0Atwo"
        assert await wire.text("first_line", report=text) == "one"
        pdf = "data:application/pdf;name=a.pdf,%2FType%20%2FPage%20%2FType%20%2FPage"
        assert await wire.text("pages", report=pdf) == "2"
        assert (await wire.call("pages", report=text))["isError"]
        (block,) = (await wire.call("upper", report=text))["content"]
        assert block["resource"]["blob"] == "T05FClRXTw=="
