"""docs/combine-servers.md: its server mounts another one, and its mcpd.toml names two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import REPOSITORY
from support.documentation import blocks, page_modules
from support.wires import MODERN, memory_wire

from mcpd.sources.configuration import read
from mcpd.sources.mounts.targets import of_table

__all__ = ["page_modules"]


async def test_its_server_offers_the_plants_of_another(page_modules: Callable[..., list[ModuleType]]) -> None:
    (page,) = page_modules("combine-servers", "server")
    server: Any = page.server
    server.extensions["mcpd/mounts"].remove("notes")  # a program that is not installed here
    async with memory_wire(server, MODERN) as wire:
        assert await wire.text("plants_find", name="thyme") == "thyme is in the north bed"
    await server.aclose()


def test_its_file_names_two_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = (text for language, text in blocks(REPOSITORY / "docs" / "combine-servers.md") if language == "toml")
    file = tmp_path / "mcpd.toml"
    file.write_text(text)
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    monkeypatch.delenv("DSN", raising=False)
    found = {each.name: each for each in of_table(read(str(file)).mounts, str(file))}
    github: Any = found["github"].target
    assert github.headers == {"Authorization": "Bearer secret"}
    assert found["github"].settings.rename == {"get_file_contents": "read_file"}
    assert "the variable DSN is not set" in found["db"].problem
