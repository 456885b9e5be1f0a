"""Apps from a folder: what is good is served, what is broken is logged and left out (APP-S-18)."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY
from support.ui_stage import BOTH_ERAS, HTML, WITH_APPS, uris
from support.wires import memory_wire

from mcpd import Server
from mcpd.server.extensions.ui.assets import MAX_HTML_BYTES


def write(folder: Path, name: str, html: str | bytes = HTML, metadata: Any = None) -> None:
    data = html.encode() if isinstance(html, str) else html
    (folder / f"{name}.html").write_bytes(data)
    if metadata is not None:
        text = metadata if isinstance(metadata, str) else json.dumps(metadata)
        (folder / f"{name}.json").write_text(text)


async def listed(server: Server) -> list[Any]:
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        resources: list[Any] = (await wire.result("resources/list"))["resources"]
        return resources


@BOTH_ERAS
async def test_every_html_file_is_an_app(tmp_path: Path, version: str) -> None:
    """AgentTools: `X.html` with `X.json` is `ui://<ns>/X`, with the file's metadata, under its base name."""
    ui = {"csp": {"connectDomains": ["https://api.example.com"]}, "prefersBorder": False}
    write(tmp_path, "b", metadata="\ufeff" + json.dumps({"title": "Bee", "description": "A bee", "ui": ui}))
    write(tmp_path, "a", html="\ufeff" + HTML)
    write(tmp_path, "my app ä")
    (tmp_path / "readme.md").write_text("no app")
    (tmp_path / ".hidden.html").write_text("no app")
    server = Server("My Folder")
    assert server.add_apps(str(tmp_path)) == [
        "ui://My-Folder/a",
        "ui://My-Folder/b",
        "ui://My-Folder/my%20app%20%C3%A4",
    ]
    async with memory_wire(server, version, capabilities=WITH_APPS) as wire:
        entries = (await wire.result("resources/list"))["resources"]
        assert [entry["name"] for entry in entries] == ["a", "b", "my app ä"]
        assert (entries[1]["title"], entries[1]["description"], entries[1]["_meta"]) == ("Bee", "A bee", {"ui": ui})
        for uri in (entries[0]["uri"], "ui://My-Folder/a"):
            (content,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
            assert content["text"] == HTML


def test_a_namespace_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "a")
    assert Server("x").add_apps(str(tmp_path), "other") == ["ui://other/a"]


@pytest.mark.parametrize("name", ["missing", "file"])
async def test_a_folder_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """APP-S-18: an error in the log, no apps, and the server goes on."""
    (tmp_path / "file").write_text("")
    server = Server("x")
    assert server.add_apps(str(tmp_path / name)) == []
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert f"{tmp_path / name}: cannot be read" in caplog.text
    assert await listed(server) == []
    (problem,) = (problem for problem in server.problems() if problem.is_error)
    assert "cannot be read" in str(problem)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ("{", "cannot be used"),
        ("[]", "is not a JSON object"),
        ('"x"', "is not a JSON object"),
        ("\ud800".encode("utf-8", "surrogatepass"), "cannot be used"),
        ('{"ui": 3}', "_meta.ui must be an object"),
        ('{"title": 3}', "title must be a string"),
        ('{"description": []}', "description must be a string"),
        ('{"ui": {"csp": {"connectDomains": ["*"]}}, "titel": "x"}', "'*' dropped"),
    ],
)
async def test_bad_metadata_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, metadata: str | bytes, said: str
) -> None:
    """AgentTools: bad JSON is no metadata; the app is served all the same."""
    write(tmp_path, "a")
    data = metadata.encode() if isinstance(metadata, str) else metadata
    (tmp_path / "a.json").write_bytes(data)
    server = Server("x")
    assert server.add_apps(str(tmp_path)) == ["ui://x/a"]
    assert said in caplog.text
    (entry,) = await listed(server)
    assert entry.get("_meta") in (None, {"ui": {"csp": {}}})
    assert "title" not in entry
    assert any(said in str(problem) and problem.is_error for problem in server.problems())


UI = {"csp": {"connectDomains": ["https://api.example.com"]}}


@pytest.mark.parametrize(
    ("metadata", "served", "unused"),
    [
        ({"_meta": {"ui": UI}}, UI, []),
        ({"_meta.ui": UI}, UI, []),
        ({"_meta": {"uii": UI}}, None, ["_meta"]),
        ({"_meta": "text"}, None, ["_meta"]),
        ({"_meta": {"ui": UI, "title": "x"}}, None, ["_meta"]),
        ({"_meta": {"ui": {}}, "ui": UI}, UI, ["_meta"]),
        ({"_meta.ui": {}, "ui": UI}, UI, ["_meta.ui"]),
        ({"_meta": {"ui": UI}, "_meta.ui": {}}, UI, ["_meta.ui"]),
    ],
)
async def test_meta_is_taken_for_ui_or_named(tmp_path: Path, metadata: Any, served: Any, unused: list[str]) -> None:
    """`_meta.ui`, as it is called in the resource, is understood; what is not used is said, with the file."""
    write(tmp_path, "a", metadata=metadata)
    server = Server("x")
    server.add_apps(str(tmp_path))
    (entry,) = await listed(server)
    assert entry.get("_meta") == (served and {"ui": served})
    advice = 'write {"ui": {…}} instead, with all metadata of the app'
    said = [str(problem) for problem in server.problems() if "app metadata" in str(problem)]
    assert said == [f"app metadata {tmp_path / 'a.json'}: {name} is not used; {advice}" for name in unused]


@pytest.mark.parametrize(
    ("html", "said"),
    [
        (b"\xff\xfe", "is not UTF-8 (byte 0); save it as UTF-8"),
        (b"<!doctype html>" + b" " * MAX_HTML_BYTES, "is larger than 16777216 bytes"),
        (None, "cannot be read (Is a directory)"),
    ],
    ids=["encoding", "size", "directory"],
)
async def test_a_file_that_cannot_be_used_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, html: bytes | None, said: str
) -> None:
    write(tmp_path, "good")
    if html is None:
        (tmp_path / "bad.html").mkdir()
    else:
        write(tmp_path, "bad", html)
    server = Server("x")
    assert server.add_apps(str(tmp_path)) == ["ui://x/good"]
    assert said in caplog.text
    assert any(said in str(problem) and problem.is_error for problem in server.problems())
    assert len(await listed(server)) == 1


async def test_an_incomplete_document_is_served_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """APP-S-04 from data: browsers bear it, so the log and `mcpd check` say it, and nothing fails."""
    write(tmp_path, "a", "<p>no doctype")
    server = Server("x")
    assert server.add_apps(str(tmp_path)) == ["ui://x/a"]
    assert "no doctype; begin it with <!doctype html>" in caplog.text
    assert len(await listed(server)) == 1
    assert [problem.is_error for problem in server.problems()] == [True, False, False]


async def test_an_app_that_is_there_already_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing raises: of two apps with one URI the first is served."""
    write(tmp_path, "a", HTML + "from the folder")
    server = Server("x")
    server.app("a", HTML)
    assert server.add_apps(str(tmp_path)) == []
    assert "the app ui://x/a exists already; this one is left out" in caplog.text
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        (content,) = (await wire.result("resources/read", {"uri": "ui://x/a"}))["contents"]
        assert content["text"] == HTML


async def test_a_folder_can_be_read_again(tmp_path: Path) -> None:
    """For whoever watches it: the new content under its new URI, and old problems forgotten."""
    write(tmp_path, "a")
    write(tmp_path, "b", b"\xff")
    server = Server("x")
    server.add_apps(str(tmp_path))
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        (before,) = uris(await wire.result("resources/list"))
        write(tmp_path, "a", HTML + "<p>new")
        write(tmp_path, "b")
        assert server.add_apps(str(tmp_path), replace=True) == ["ui://x/a", "ui://x/b"]
        after, _ = uris(await wire.result("resources/list"))
        assert after != before
        (content,) = (await wire.result("resources/read", {"uri": before}))["contents"]
        assert content["text"] == HTML + "<p>new"
    assert not any(problem.is_error for problem in server.problems())


def test_the_diagnostics_app_has_no_problem() -> None:
    """It is what we ask of others."""
    server = Server("x")
    for uri in server.add_apps(str(REPOSITORY / "examples" / "diagnostics")):
        server.add_tool(show, name=uri.rpartition("/")[2], ui=uri)
    assert server.problems() == []


def show() -> str:
    """Shows."""
    return ""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.timeout(20)
async def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """APP-S-18: never fail start-up, nor hang in it."""
    write(tmp_path, "good")
    for name in ("bad.html", "good.json"):
        os.mkfifo(tmp_path / name)
    server = Server("x")
    assert server.add_apps(str(tmp_path)) == ["ui://x/good"]
    problems = [str(problem) for problem in server.problems() if "not a regular file" in str(problem)]
    assert len(problems) == 2
