"""docs/openapi.md: its program, its command lines and its tables do what the page says."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from support.documentation import blocks, page_modules
from support.raw_http import as_json, raw_server

from mcpd import Client
from mcpd.server.options import OpenApiOptions
from mcpd.sources.folder import Folder
from mcpd.sources.lookup import folder_at

__all__ = ["page_modules"]

PAGE = REPOSITORY / "docs" / "openapi.md"
PETS: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://pets.example/v3"}],
    "paths": {
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {"operationId": "getPetById", "tags": ["pets"], "summary": "Get a pet.", "responses": {}},
            "delete": {"operationId": "deletePet", "tags": ["pets"], "summary": "Remove a pet.", "responses": {}},
        },
        "/store/stock": {"get": {"operationId": "stock", "summary": "Count pets.", "responses": {}}},
        "/users": {"get": {"operationId": "users", "summary": "List users.", "responses": {}}},
    },
}


async def test_the_program(page_modules: Callable[..., list[ModuleType]], monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server(lambda asked: as_json({"path": asked.path})) as api:
        monkeypatch.setenv("ORDERS_URL", api.url)
        (page,) = page_modules("openapi", "server")
        async with Client(page.server) as client:
            result = await client.call_tool("getOrder", {"id": "7/8"})
            assert result.structured_content == {"path": "/orders/7%2F8"}
        await page.server.aclose()


@pytest.mark.medium
def test_the_command_lines(child: Child, tmp_path: Path) -> None:
    (tmp_path / "petstore.json").write_text(json.dumps(PETS))
    (tmp_path / "token.txt").write_text("token")
    (text,) = [text for language, text in blocks(PAGE) if language == "sh"]
    lines = [shlex.split(line) for line in text.splitlines()]
    assert lines[0][:2] == ["pip", "install"]
    for _, command, *words in lines[1:]:
        hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        over_stdio = [word for word in words if word not in ("--http", ":8080", "--stdio")]
        options = [] if command == "check" else ["--stdio"]
        done = subprocess.run(
            child.mcpd(command, *options, *over_stdio), cwd=tmp_path, env=child.env, capture_output=True, text=True,
            input=json.dumps(hello) + "\n", timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        names = [name for name in ("getPetById", "deletePet", "stock", "users") if name in done.stdout]
        if command == "check":
            assert len(names) == 4, done.stdout


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETS_KEY", "key")
    scheme = {"ApiKey": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    (tmp_path / "petstore.json").write_text(json.dumps({**PETS, "components": {"securitySchemes": scheme}}))
    (text,) = [text for language, text in blocks(PAGE) if language == "toml"]
    (tmp_path / "mcpd.toml").write_text(text)
    server = Folder(folder_at(str(tmp_path))).server
    tools = {entry.key: entry.listed(frozenset()) for entry in server.catalog.tools}
    assert list(tools) == ["pets_get_pet", "pets_stock"]
    assert (tools["pets_get_pet"].meta or {})["anthropic/alwaysLoad"] is True
    assert not server.problems()


def test_no_setting_is_missing() -> None:
    text = (REPOSITORY / "docs" / "reference" / "mcpd-toml.md").read_text(encoding="utf-8")
    names = OpenApiOptions.__annotations__
    assert not [name for name in names if f"`{name.replace('_', '-')}`" not in text]
