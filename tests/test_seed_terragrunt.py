"""The seed's checks of resources, on the wire, over the Terragrunt documents: conformance/seeds/terragrunt.toml."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest
from support.terragrunt import SECTIONS, both, greeted, read, resources, talking

BASE = "terragrunt://docs/"
PUBLISHED = "https://terragrunt.gruntwork.io/docs/"
QUICK_START = f"{BASE}page/{quote(f'{PUBLISHED}getting-started/quick-start/', safe='')}"

Factory = pytest.TempPathFactory

# ------------------------------------------------------------------------------- 1. how it begins


@both
async def test_server_info(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """initialization-1, version-2: the name and version that it was given."""
    identity, _ = await greeted(shared, tmp_path_factory, version)
    assert (identity["name"], identity["version"]) == ("terragrunt-mcp-server", "1.0.0")


@both
async def test_resources_are_a_capability(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """initialization-2"""
    assert "resources" in (await greeted(shared, tmp_path_factory, version))[1]


@both
async def test_tools_are_a_capability(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """initialization-3"""
    assert "tools" in (await greeted(shared, tmp_path_factory, version))[1]


# --------------------------------------------------------------------------------- 2. their list


@both
async def test_listed_without_parameters(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-resources-1"""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert len((await wire.result("resources/list"))["resources"]) > 100


@both
async def test_listed_resources_have_what_is_required(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-resources-2: a URI, a name, a type; and a description, where the page says what it is about."""
    async with talking(shared, tmp_path_factory, version) as wire:
        found = await resources(wire)
    assert all(one["uri"].startswith("terragrunt://") and one["name"] and one["mimeType"] for one in found)
    assert len({one["uri"] for one in found}) == len(found)
    assert sum(bool(one.get("description")) for one in found) > 0.9 * len(found)
    page = next(one for one in found if one["uri"] == QUICK_START)
    assert (page["title"], page["description"]) == ("Quick Start", "Start using Terragrunt today!")


@both
async def test_listed_uris_are_uris(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-resources-3: no spaces, and what is special is encoded."""
    async with talking(shared, tmp_path_factory, version) as wire:
        for one in await resources(wire):
            assert re.fullmatch(
                r"terragrunt://docs/(?:overview|section/[\w.~%-]+|page/[\w.~%-]+)", one["uri"], re.ASCII
            )


@both
async def test_listed_resources_are_markdown(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-resources-4"""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert {one["mimeType"] for one in await resources(wire)} == {"text/markdown"}


@both
async def test_the_overview_is_listed(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-resources-5"""
    async with talking(shared, tmp_path_factory, version) as wire:
        first = (await resources(wire))[0]
    assert first["uri"] == f"{BASE}overview"
    assert first["title"] == "Terragrunt Documentation: overview"


@both
async def test_sections_are_listed(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-resources-6"""
    async with talking(shared, tmp_path_factory, version) as wire:
        found = [one["uri"] for one in await resources(wire) if one["uri"].startswith(f"{BASE}section/")]
    assert {uri.rpartition("/")[2] for uri in found} == SECTIONS


@both
async def test_pages_are_listed(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-resources-7: every page of the folder, with the size of its file."""
    pages = [path for path in (shared / "data" / "terragrunt-docs").rglob("*.md*") if path.is_file()]
    async with talking(shared, tmp_path_factory, version) as wire:
        found = [one for one in await resources(wire) if one["uri"].startswith(f"{BASE}page/")]
    assert sorted(one["size"] for one in found) == sorted(path.stat().st_size for path in pages)


@both
async def test_not_too_many_are_listed(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-resources-8"""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert len(await resources(wire)) < 200


# -------------------------------------------------------------------------------- 3. what they hold


@both
async def test_a_resource_is_read(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """read-resource-1"""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert "Install Terragrunt" in (await read(wire, QUICK_START))["text"]


@both
async def test_contents_have_uri_and_text(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """read-resource-2: `contents` of `uri`, `mimeType` and `text`, as the specification has them."""
    async with talking(shared, tmp_path_factory, version) as wire:
        found = await read(wire, f"{BASE}overview")
    assert found.keys() == {"uri", "mimeType", "text"}
    assert found["uri"] == f"{BASE}overview"


@both
async def test_contents_are_markdown(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """read-resource-3: the type stands in each content."""
    async with talking(shared, tmp_path_factory, version) as wire:
        for uri in (f"{BASE}overview", f"{BASE}section/features", QUICK_START):
            assert (await read(wire, uri))["mimeType"] == "text/markdown"


@both
async def test_contents_are_not_empty(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """read-resource-4: of pages too whose file says nothing beside its head."""
    async with talking(shared, tmp_path_factory, version) as wire:
        for uri in (f"{BASE}overview", f"{BASE}section/guides", QUICK_START):
            assert len((await read(wire, uri))["text"]) > 200


@both
async def test_an_encoded_uri_is_read(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """read-resource-5: an encoding that is longer than it has to be means the same page."""
    longer = QUICK_START.replace("-", "%2D")
    async with talking(shared, tmp_path_factory, version) as wire:
        found = await read(wire, longer)
        assert found["uri"] == longer
        assert found["text"] == (await read(wire, QUICK_START))["text"]


@both
async def test_what_is_no_uri_is_an_error(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """read-resource-6: a protocol error that repeats the URI, and no result."""
    async with talking(shared, tmp_path_factory, version) as wire:
        for uri in ("invalid", "terragrunt://", f"{BASE}page/%zz", f"{BASE}page/..%2F..%2Fetc%2Fpasswd"):
            error = await wire.error("resources/read", {"uri": uri})
            assert error["code"] in (-32002, -32602), uri


@both
async def test_what_is_not_there_is_an_error(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """read-resource-7"""
    async with talking(shared, tmp_path_factory, version) as wire:
        for uri in (f"{BASE}page/{quote(f'{PUBLISHED}nowhere/', safe='')}", f"{BASE}section/nowhere", f"{BASE}x"):
            error = await wire.error("resources/read", {"uri": uri})
            assert error["code"] in (-32002, -32602), uri
            assert error["data"] == {"uri": uri}


@both
async def test_every_kind_of_resource_is_read(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """read-resource-8: the overview links sections' pages, a section its pages, a page is its text."""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert QUICK_START in (await read(wire, f"{BASE}overview"))["text"]
        section = (await read(wire, f"{BASE}section/getting-started"))["text"]
        assert f"[Quick Start]({QUICK_START})" in section
        assert "```shell\ntouch terragrunt.hcl\n```" in (await read(wire, QUICK_START))["text"]


# ----------------------------------------------------------------------------------- 8. their URIs


@both
async def test_what_is_special_in_a_uri_is_encoded(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """uri-1"""
    async with talking(shared, tmp_path_factory, version) as wire:
        pages = [one["uri"] for one in await resources(wire) if "/page/" in one["uri"]]
    assert all(not set(uri.removeprefix(f"{BASE}page/")) & set(":/?#[]@ ") for uri in pages)
    assert QUICK_START in pages


@both
async def test_a_uri_can_be_decoded(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """uri-2: what it has encoded is the address of the page."""
    async with talking(shared, tmp_path_factory, version) as wire:
        pages = [one["uri"] for one in await resources(wire) if "/page/" in one["uri"]]
    decoded = [urlsplit(unquote(uri.removeprefix(f"{BASE}page/"))) for uri in pages]
    assert {(one.scheme, one.netloc) for one in decoded} == {("https", "terragrunt.gruntwork.io")}
    assert all(one.path.startswith("/docs/") and one.path.endswith("/") for one in decoded)


@both
async def test_what_is_listed_can_be_read(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """uri-3: under the same URI, each of them."""
    async with talking(shared, tmp_path_factory, version) as wire:
        for one in await resources(wire):
            assert (await read(wire, one["uri"]))["uri"] == one["uri"]


# ------------------------------------------------------------------------------- 9. many at once


@both
async def test_many_resources_at_once(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """concurrency-1: each answer is that of its own request."""
    async with talking(shared, tmp_path_factory, version) as wire:
        uris = [one["uri"] for one in (await resources(wire))[:40]]
        asked = {wire.ask("resources/read", {"uri": uri}): uri for uri in uris}
        for id, uri in asked.items():
            answer = await wire.answer(id)
            assert answer["result"]["contents"][0]["uri"] == uri


@both
async def test_many_tools_at_once(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """concurrency-2"""
    words = ("dependency", "stack", "remote state", "hooks", "cache", "filter", "include", "run", "catalog", "engine")
    async with talking(shared, tmp_path_factory, version) as wire:
        call = {"name": "search_terragrunt_docs"}
        asked = [wire.ask("tools/call", {**call, "arguments": {"query": query}}) for query in words]
        found = [(await wire.answer(id))["result"]["structuredContent"] for id in asked]
    assert [one["query"] for one in found] == list(words)
    assert all(one["results"] for one in found)


@both
async def test_many_at_once_change_nothing(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """concurrency-3: of all kinds, several times: the same question has the same answer each time."""
    async with talking(shared, tmp_path_factory, version) as wire:
        calls = {
            "search_terragrunt_docs": {"query": "include block"},
            "get_terragrunt_sections": {},
            "get_section_docs": {"section": "process"},
            "get_hcl_config_reference": {"config": "remote_state"},
        }
        asked = [
            (name, wire.ask("tools/call", {"name": name, "arguments": arguments}))
            for _ in range(5)
            for name, arguments in calls.items()
        ]
        asked += [("overview", wire.ask("resources/read", {"uri": f"{BASE}overview"})) for _ in range(5)]
        seen: dict[str, set[str]] = {}
        for name, id in asked:
            seen.setdefault(name, set()).add(json.dumps((await wire.answer(id))["result"], sort_keys=True))
    assert {name: len(found) for name, found in seen.items()} == dict.fromkeys([*calls, "overview"], 1)
