"""docs/folders.md, docs/documents.md and the reference of mcpd.toml: a folder is served, the settings are accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from conftest import REPOSITORY
from support.documentation import blocks, page_modules

from mcpd import Client
from mcpd.sources.configuration import read

__all__ = ["page_modules"]


@pytest.mark.medium
async def test_the_folder_is_a_server(page_modules: Callable[..., list[ModuleType]], tmp_path: Path) -> None:
    page_modules("folders")
    (prompt,) = [text for language, text in blocks(REPOSITORY / "docs" / "folders.md") if language == "markdown"]
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "plan.md").write_text(prompt, encoding="utf-8")
    async with Client(str(tmp_path)) as client:
        tools = sorted(tool.name for tool in await client.list_tools())
        assert tools == ["count_plants", "empty_shed", "list_beds", "water"]
        assert await client.call("count_plants") == 42
        messages = (await client.get_prompt("plan", {"bed": "north"})).messages
    assert [message.role for message in messages] == ["user", "assistant"]
    assert messages[0].content.text == "Plan the north bed for spring."


@pytest.mark.parametrize("page", ["reference/mcpd-toml", "documents"])
def test_the_settings_are_accepted(page: str, tmp_path: Path) -> None:
    tables = [text for language, text in blocks(REPOSITORY / "docs" / f"{page}.md") if language == "toml"]
    for text in tables:
        (tmp_path / "mcpd.toml").write_text(text, encoding="utf-8")
        read(str(tmp_path / "mcpd.toml"))
