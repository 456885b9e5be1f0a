"""OpenAPI documents on the command line and in mcpd.toml."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.raw_http import as_json, raw_server, reply
from support.wires import LEGACY, MODERN, memory_wire, process_wire

from mcpd import Server
from mcpd.errors import ConfigurationError
from mcpd.sources.folder import Folder
from mcpd.sources.lookup import folder_at
from mcpd.sources.openapi.source import serve
from mcpd.sources.watch import Watched

pytestmark = pytest.mark.medium

DOCUMENT: dict[str, Any] = {
    "info": {"title": "Tiny", "version": "3"},
    "paths": {
        "/a": {"get": {"operationId": "first", "tags": ["x"], "summary": "One.", "responses": {}}},
        "/b": {"post": {"operationId": "second", "summary": "Two.", "responses": {}}},
        "/c/{d}": {"get": {"operationId": "third", "responses": {}}},
    },
    "openapi": "3.1.0",
}


def written(folder: Path, **more: Any) -> Path:
    (folder / "tiny.json").write_text(json.dumps({**DOCUMENT, **more}))
    return folder / "tiny.json"


async def test_a_document_is_served_with_a_base_patterns_and_a_token(child: Child, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "token").write_text("t-123456\n")
    async with raw_server(lambda _: as_json({"ok": True})) as api:
        options = ("--base", f"{api.url}/v1/", "--operations", "tag:x", "--api-token-file", "token")
        async with process_wire(child, "tiny.json", *options, version=MODERN, cwd=tmp_path) as wire:
            names = [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]
            assert names == ["first"]
            assert (await wire.call("first"))["structuredContent"] == {"ok": True}
        assert (api.asked[0].path, api.asked[0].headers["authorization"]) == ("/v1/a", "Bearer t-123456")


async def test_a_document_is_read_from_a_url_and_names_its_server(child: Child, tmp_path: Path) -> None:
    """A server in the document is a path at the document's own origin; `openapi:` marks URLs without a suffix."""
    whole = {**DOCUMENT, "servers": [{"url": "/api/v2"}]}
    async with raw_server(lambda asked: as_json(whole if "docs" in asked.path else {"ok": asked.path})) as api:
        for target in (f"{api.url}/docs/tiny.json", f"openapi:{api.url}/docs"):
            async with process_wire(child, target, version=MODERN) as wire:
                assert (await wire.call("first"))["structuredContent"] == {"ok": "/api/v2/a"}


PARTS = {
    "api.yaml": "openapi: 3.1.0\ninfo: {title: T, version: '1'}\npaths:\n  /pets: {$ref: paths/pets.yaml}\n"
    "components: {schemas: {Id: {type: integer}}}\n",
    "paths/pets.yaml": "post:\n  operationId: add\n  requestBody: {$ref: '../shared.json#/body'}\n  responses: {}\n",
    "shared.json": '{"body": {"content": {"application/json": {"schema": {"$ref": "schemas/a%20pet.yaml"}}}}}',
    "schemas/a pet.yaml": "type: object\nproperties:\n  id: {$ref: '../api.yaml#/components/schemas/Id'}\n"
    "  parent: {$ref: '#'}\n",
}


def in_files(folder: Path) -> None:
    for name, text in PARTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


async def test_a_document_may_have_several_files(tmp_path: Path) -> None:
    """Below its folder, or at its own server; they refer to each other, and back."""
    in_files(tmp_path)

    def file(asked: Any) -> bytes:
        return reply(200, PARTS[asked.path.removeprefix("/docs/").replace("%20", " ")].encode())

    async with raw_server(file) as api:
        schemas = []
        for place in (str(tmp_path / "api.yaml"), f"{api.url}/docs/api.yaml"):
            server = Server("parts")
            await asyncio.to_thread(server.add_openapi, place, base="https://pets.example")
            async with memory_wire(server, MODERN) as wire:
                (tool,) = (await wire.result("tools/list"))["tools"]
            schemas.append(tool["inputSchema"])
            await server.aclose()
    assert schemas[0] == schemas[1]
    assert schemas[0]["properties"]["body"]["properties"]["id"] == {"type": "integer"}
    assert len(api.asked) == len(PARTS)


async def test_a_changed_document_is_read_again(tmp_path: Path) -> None:
    """Each of its files counts. While one cannot be read, the tools stay as they were."""
    in_files(tmp_path)
    served = serve(str(tmp_path / "api.yaml"), {"base": "https://pets.example"})
    watched: Watched = served
    assert sorted(watched.files()) == sorted(str(tmp_path / name) for name in PARTS)
    assert set(watched.folders()) == {str(tmp_path), str(tmp_path / "paths"), str(tmp_path / "schemas")}
    async with memory_wire(served.server, MODERN) as wire:

        async def listed() -> list[str]:
            return [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]

        assert await listed() == ["add"]
        (tmp_path / "paths" / "pets.yaml").write_text(PARTS["paths/pets.yaml"].replace("add", "create"))
        assert watched.concerns(str(tmp_path / "paths" / "pets.yaml"))
        watched.refresh({str(tmp_path / "paths" / "pets.yaml")})
        assert await listed() == ["create"]
        (tmp_path / "api.yaml").write_text("openapi: [")
        with pytest.raises(ConfigurationError, match="neither JSON nor YAML"):
            watched.refresh({str(tmp_path / "api.yaml")})
        assert await listed() == ["create"]
    await served.server.aclose()


@pytest.mark.parametrize("target", ["tiny.json", "."])
async def test_a_served_document_is_loaded_again(target: str, child: Child, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "mcpd.toml").write_text('[openapi.tiny]\ndocument = "tiny.json"\nbase = "http://x"\nprefix = ""\n')
    options = ("--base", "http://x") if target != "." else ()
    async with process_wire(child, target, *options, version=LEGACY[-1], cwd=tmp_path) as wire:
        assert len((await wire.result("tools/list"))["tools"]) == 2
        del (paths := dict(DOCUMENT["paths"]))["/a"]
        written(tmp_path, paths=paths)
        assert (await wire.receive())["method"] == "notifications/tools/list_changed"
        assert [tool["name"] for tool in (await wire.result("tools/list"))["tools"]] == ["second"]


def run(child: Child, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        child.mcpd(*words), cwd=folder, env=child.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip


def test_check_lists_tools_and_what_cannot_be_one(child: Child, tmp_path: Path) -> None:
    written(tmp_path)
    done = run(child, tmp_path, "check", "tiny.json", "--base", "https://tiny.example")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:4] == ["tiny 3", "tools (2)", "  first  One.", "  second  Two."]
    assert "problem: GET /c/{d}: the document does not describe d, which is in the path" in done.stderr
    done = run(child, tmp_path, "check", "tiny.json", "--base", "https://tiny.example", "--operations", "POST")
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["tools (1)", "  second  Two."])
    done = run(child, tmp_path, "check", "tiny.json")
    assert "tiny.json names no URL of a server: pass --base URL" in done.stderr
    done = run(child, tmp_path, "serve", "--stdio", "--demo", "--base", "https://tiny.example")
    assert "--base requires one target that is an OpenAPI document" in done.stderr
    (tmp_path / "other.json").write_text('{"mcpServers": {}}')
    assert "other.json" in run(child, tmp_path, "check", "other.json").stderr


async def test_two_documents_and_a_file_are_one_server(child: Child, tmp_path: Path) -> None:
    written(tmp_path, servers=[{"url": "https://tiny.example"}])
    (tmp_path / "own.py").write_text(
        "from mcpd import Server\nserver = Server('own')\n@server.tool\ndef add(a: int) -> int:\n    return a\n"
    )
    async with process_wire(child, "tiny.json", "own.py", version=MODERN, cwd=tmp_path) as wire:
        names = [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]
    assert names == ["tiny_first", "tiny_second", "own_add"]


async def test_a_folder_has_documents_in_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_KEY", "k-123456")
    written(tmp_path)
    (tmp_path / "token").write_text("t-123456")
    async with raw_server(lambda _: as_json({})) as api:
        (tmp_path / "mcpd.toml").write_text(f"""
            [openapi.tiny]
            document = "tiny.json"
            base = "{api.url}"
            deny = ["third"]
            token-file = "token"
            headers = {{ X-Key = "${{TINY_KEY}}" }}
            always-load = ["first"]
        """)
        server = Folder(folder_at(str(tmp_path))).server
        async with memory_wire(server, MODERN) as wire:
            tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
            assert list(tools) == ["tiny_first", "tiny_second"]
            assert tools["tiny_first"]["_meta"]["anthropic/alwaysLoad"] is True
            await wire.call("tiny_first")
        await server.aclose()
        assert {api.asked[0].headers[name] for name in ("x-key", "authorization")} == {"k-123456", "Bearer t-123456"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[openapi.Tiny]\ndocument = "tiny.json"', r"\[openapi.Tiny\]: set document, and use a NAME"),
        ('[openapi.tiny]\nbse = "x"', "line 2: unknown key openapi.tiny.bse; did you mean base"),
        ('[openapi]\ntiny = "x"', "line 2: openapi.tiny: expected a table"),
        ("[openapi.tiny]", r"\[openapi.tiny\]: set document"),
        ('[openapi.tiny]\ndocument = "x.json"', r"\[openapi.tiny\]: the OpenAPI document .*x.json cannot be read"),
        ('[openapi.tiny]\ndocument = "x.json"\ntimeout = 0', "line 3: openapi.tiny.timeout: expected number > 0"),
    ],
)
def test_mistakes_in_the_configuration_are_named(tmp_path: Path, text: str, said: str) -> None:
    written(tmp_path)
    (tmp_path / "mcpd.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        Folder(folder_at(str(tmp_path)))


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="bse"):
        Server("x").add_openapi(DOCUMENT, bse="https://x")  # type: ignore[call-arg]
