"""Files as arguments and results, as bytes through a transport: each way in, each limit, and who may read what.

A scripted host stands in for Claude Code 2.1.332 (the extension) and for Codex (`openai/fileParams`). FIL-15 is a
benchmark.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import pytest
from msgspec import Meta
from support.clock import until
from support.http_peer import Answer, Peer, Port, envelope, modern, post, request, serving
from support.wires import MODERN, each_legacy, each_version, memory_wire, stdio_wire

from mcpd import Accept, Context, File, FileSettings, Principal, Refusal, RouteRequest, RouteResponse, Server, SyncFile
from mcpd.errors import RegistrationError
from mcpd.server.extensions.files import store
from mcpd.server.http import HttpSettings

FILES = "io.modelcontextprotocol/files"
HOST = {"extensions": {FILES: {"upload": {}}}}
DATA = b"%PDF-1.7 " + b"page " * 2000


def digest(data: bytes = DATA) -> str:
    return urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def data_uri(data: bytes = DATA, name: str = "a.pdf", kind: str = "application/pdf") -> str:
    return f"data:{kind};name={name};base64,{b64encode(data).decode()}"


def a_server(folder: Path | str | None = None, authenticate: Any = None, **options: Any) -> Server:
    limits = options.pop("limits", FileSettings())
    files = None if folder is None else str(folder)
    server = Server("files", file_limits=limits, files=files, authenticate=authenticate, **options)

    @server.tool
    async def describe(report: Annotated[File, Accept("application/pdf", max_bytes=40_000)]) -> dict[str, Any]:
        """Describe a report."""
        parts = [part async for part in report.chunks()]
        data = await report.read()
        assert b"".join(parts) == data
        return {
            "name": report.name, "type": report.mime_type, "size": report.size, "digest": report.digest,
            "start": data[:8].decode(),
        }  # fmt: skip

    @server.tool
    def count(files: list[SyncFile], extra: SyncFile | None = None) -> int:
        return sum(len(file.read()) for file in files) + (0 if extra is None else len(extra.read()))

    @server.tool
    async def make(size: int) -> File:
        return File.from_bytes(b"x" * size, name="made.txt")

    return server


SERVED = """
from mcpd import File, Server

server = Server("files")


@server.tool
async def size(report: File) -> int:
    return report.size
"""


def by_token(headers: Mapping[str, str]) -> Principal | Refusal:
    name = headers.get("authorization", "").removeprefix("Bearer ")
    return Principal(name) if name in ("ada", "bob") else Refusal(401, "Who are you?")


WANTED = {"name": "a.pdf", "type": "application/pdf", "size": len(DATA), "digest": digest(), "start": "%PDF-1.7"}


def host_file(id: str = "file-1", data: bytes = DATA, **changed: Any) -> dict[str, Any]:
    described = {"algorithm": "sha-256", "value": digest(data)}
    file = {"id": id, "name": "a.pdf", "mimeType": "application/pdf", "size": len(data), "digest": described}
    return {**file, **changed}


async def call(port: Port, tool: str, arguments: Mapping[str, Any], *, token: str = "", **more: Any) -> Any:
    """The result of a call as the scripted host sends it."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    params = {"name": tool, "arguments": dict(arguments), **more}
    answer = await port.ask(modern("tools/call", params, headers, meta=envelope(HOST)))
    (message,) = answer.messages
    return message.get("result") or message


async def put(port: Port, url: str, data: bytes, token: str = "") -> Answer:
    headers = [("Authorization", f"Bearer {token}")] if token else []
    return await port.ask(request("PUT", urlsplit(url).path, headers, data))


async def ask_upload(port: Port, data: bytes = DATA, token: str = "", **changed: Any) -> dict[str, Any]:
    body = {"name": "a.pdf", "mimeType": "application/pdf", "size": len(data), **changed}
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = await port.ask(post(body, headers, path="/mcp/files"))
    assert answer.status == 201, answer.text
    return dict(answer.json)


def left_in(folder: Path) -> list[str]:
    """The files below a folder, besides the marks of used tickets."""
    return [path.name for path in folder.rglob("file-*") if path.suffix != ".once"]


def text_of(result: Mapping[str, Any]) -> str:
    assert result["isError"], result
    return str(result["content"][0]["text"])


# ---------------------------------------------------------------- what clients see


@each_version
async def test_only_clients_with_the_extension_see_it(version: str) -> None:
    """FIL-01, FIL-14."""
    async with memory_wire(a_server(), version, capabilities=HOST) as wire:
        wire.capabilities = HOST
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        schema = tools["describe"]["inputSchema"]["properties"]["report"]
        if version >= "2025-06-18":
            assert tools["describe"]["_meta"]["openai/fileParams"] == ["report"]
        if version == MODERN:
            assert (schema["type"], schema["required"]) == ("object", ["id", "mimeType", "size"])
            assert schema["x-mcp-file"] == {"accept": ["application/pdf"], "maxSize": 40_000}
            offered = (await wire.result("server/discover"))["capabilities"]["extensions"][FILES]
            assert offered == {"upload": {}, "maxInlineBytes": 256 << 10}
        else:
            assert "x-mcp-file" not in json.dumps(tools)
            assert schema["type"] == "string"
            assert "data URI" in schema["description"]


@each_legacy
async def test_an_older_version_never_gets_upload_required(version: str) -> None:
    """FIL-14: the object of the extension is an argument that does not fit."""
    async with memory_wire(a_server(), version, capabilities=HOST) as wire:
        result = await wire.call("describe", report=host_file())
        assert "report: expected" in text_of(result)


# ---------------------------------------------------------------- the extension, as Claude Code speaks it


async def test_the_upload_round_over_http(tmp_path: Path) -> None:
    """FIL-02, FIL-12."""
    async with serving(a_server(tmp_path)) as port:
        arguments = {"report": host_file()}
        asked = await call(port, "describe", arguments)
        (upload,) = targets_of(asked, ["file-1"])
        assert upload.keys() == {"fileId", "url", "method", "credentials"}
        assert (upload["fileId"], upload["method"], upload["credentials"]) == ("file-1", "PUT", "include")
        assert (await put(port, upload["url"], DATA)).status == 201

        state = {"requestState": asked["requestState"]}
        assert (await call(port, "describe", arguments, **state))["structuredContent"] == WANTED
        assert left_in(tmp_path) == []


MEMBERS = {"fileId", "url", "path", "method", "form", "headers", "credentials", "expiresAt", "_meta"}


def targets_of(asked: Any, ids: list[str]) -> list[dict[str, Any]]:
    """The uploads of a result, by the rules of Claude Code 2.1.332, which makes none if one of them is broken."""
    assert asked["resultType"] == "upload_required", asked
    assert isinstance(asked["requestState"], str)
    for upload in asked["uploads"]:
        assert upload.keys() <= MEMBERS
        assert ("url" in upload) != ("path" in upload)
        assert 0 < len(upload.get("url") or upload["path"]) <= 4096
        assert upload.get("method", "PUT") in ("PUT", "POST")
        assert upload["credentials"] in ("omit", "include")
    assert [upload["fileId"] for upload in asked["uploads"]] == ids
    return list(asked["uploads"])


def marked_by_claude_code(schema: Mapping[str, Any]) -> bool:
    """Whether Claude Code shows this schema as the path of a file: an object with these required members, marked."""
    known = {"type", "required", "properties", "additionalProperties", "anyOf", "title", "description", "default"}
    return (
        schema.get("type") == "object"
        and {"id", "mimeType", "size"} <= set(schema["required"]) <= {"id", "mimeType", "size", "digest", "name"}
        and all(key in known or key.startswith("x-") for key in schema)
        and isinstance(schema["x-mcp-file"], dict)
        and isinstance(schema["x-mcp-file"].get("maxSize", 0), int)
    )


async def test_claude_code_finds_the_files_of_a_tool() -> None:
    """FIL-01: by its rules for one file, a list and an optional one."""
    async with memory_wire(a_server(), MODERN) as wire:
        wire.capabilities = HOST
        tools = {tool["name"]: tool["inputSchema"]["properties"] for tool in (await wire.result("tools/list"))["tools"]}
        assert marked_by_claude_code(tools["describe"]["report"])
        several, optional = tools["count"]["files"], tools["count"]["extra"]
        assert several.keys() <= {"type", "items", "minItems", "maxItems", "uniqueItems", "description", "default"}
        assert marked_by_claude_code(several["items"])
        assert marked_by_claude_code(optional["anyOf"][0])
        assert optional["anyOf"][1] == {"type": "null"}


@pytest.mark.parametrize("is_local", [False, True], ids=["http", "stdio"])
async def test_the_one_round(tmp_path: Path, is_local: bool) -> None:
    """FIL-12: the bytes come with the call; a file without bytes is never uploaded."""
    server = a_server(tmp_path)

    async def check(ask: Any) -> None:
        inline = host_file(data=DATA) | {"data": b64encode(DATA).decode()}
        assert (await ask("describe", {"report": inline}))["structuredContent"] == WANTED
        empty = host_file("none", b"")
        assert (await ask("count", {"files": [empty]}))["structuredContent"] == 0
        for wrong in (
            {"data": "!"},
            {"data": b64encode(DATA[:-1]).decode()},
            {"data": b64encode(b"y" * len(DATA)).decode()},
        ):
            assert "the data of the file" in text_of(await ask("describe", {"report": {**host_file(), **wrong}}))
        asked = await ask("count", {"files": [empty, host_file("file-2")]})
        targets_of(asked, ["file-2"])

    if is_local:
        async with memory_wire(server, MODERN) as wire:
            wire.capabilities = HOST
            await check(lambda tool, arguments: wire.result("tools/call", {"name": tool, "arguments": arguments}))
    else:
        async with serving(server) as port:
            await check(lambda tool, arguments: call(port, tool, arguments))
    assert left_in(tmp_path) == []


async def test_every_missing_file_is_named_once(tmp_path: Path) -> None:
    """FIL-02."""
    async with serving(a_server(tmp_path)) as port:
        files = [host_file("one"), host_file("two", b"2"), host_file("one")]
        asked = await call(port, "count", {"files": files, "extra": host_file("two", b"2")})
        assert sorted(upload["fileId"] for upload in asked["uploads"]) == ["one", "two"]


async def test_a_state_is_for_one_call(tmp_path: Path) -> None:
    """FIL-03: other arguments, another tool, another state."""
    async with serving(a_server(tmp_path)) as port:
        asked = await call(port, "describe", {"report": host_file()})
        state = asked["requestState"]
        for tool, arguments, sent in [
            ("describe", {"report": host_file(size=len(DATA) + 1)}, state),
            ("count", {"files": [host_file()]}, state),
            ("describe", {"report": host_file()}, state[:-8] + "AAAAAAAA"),
        ]:
            refused = await call(port, tool, arguments, requestState=sent)
            assert refused["error"]["code"] == -32602, refused


@pytest.mark.parametrize("sent", [DATA[:-1], DATA + b"x", b"y" * len(DATA)], ids=["short", "long", "other"])
async def test_what_differs_from_its_declaration_is_refused(tmp_path: Path, sent: bytes) -> None:
    """FIL-04."""
    async with serving(a_server(tmp_path)) as port:
        asked = await call(port, "describe", {"report": host_file()})
        assert (await put(port, asked["uploads"][0]["url"], sent)).status in (400, 413)
        assert left_in(tmp_path) == []
        result = await call(port, "describe", {"report": host_file()}, requestState=asked["requestState"])
        assert "was not uploaded" in text_of(result)


async def test_a_host_on_stdio_writes_the_file(tmp_path: Path) -> None:
    """FIL-02, FIL-12: a path and no URL."""
    async with memory_wire(a_server(tmp_path), MODERN) as wire:
        wire.capabilities = HOST
        wire.ask("tools/call", {"name": "describe", "arguments": {"report": host_file()}}, id="one")
        asked = (await wire.answer("one"))["result"]
        (upload,) = asked["uploads"]
        assert upload.keys() == {"fileId", "path", "method", "credentials"}
        Path(upload["path"]).write_bytes(DATA)
        params = {"name": "describe", "arguments": {"report": host_file()}, "requestState": asked["requestState"]}
        assert (await wire.result("tools/call", params))["structuredContent"] == WANTED
        assert left_in(tmp_path) == []


# ---------------------------------------------------------------- uploads by id


async def test_an_upload_by_id(tmp_path: Path) -> None:
    """FIL-05, FIL-12."""
    async with serving(a_server(tmp_path)) as port:
        ticket = await ask_upload(port)
        assert (await put(port, ticket["url"], DATA)).status == 201
        assert (await put(port, ticket["url"], DATA)).status == 409
        assert (await call(port, "describe", {"report": ticket["id"]}))["structuredContent"] == WANTED
        assert "no file with this id" in text_of(await call(port, "describe", {"report": ticket["id"]}))
        assert (await put(port, ticket["url"], DATA)).status == 409


async def test_a_ticket_works_on_any_node(tmp_path: Path) -> None:
    """FIL-05: two servers with one key and one folder."""
    key = "k" * 32
    first, second = a_server(tmp_path, state_key=key), a_server(tmp_path, state_key=key)
    async with serving(first) as one, serving(second) as other:
        ticket = await ask_upload(one)
        assert (await put(other, ticket["url"], DATA)).status == 201
        assert (await call(one, "describe", {"report": ticket["id"]}))["structuredContent"] == WANTED


async def test_forged_and_expired_tickets(tmp_path: Path) -> None:
    """FIL-05."""
    async with serving(a_server(tmp_path, limits=FileSettings(unused=-1.0))) as port:
        ticket = await ask_upload(port)
        assert (await put(port, ticket["url"], DATA)).status == 404
        assert (await put(port, ticket["url"][:-4] + "AAAA", DATA)).status == 404
        assert (await put(port, "http://localhost/mcp/files/x", DATA)).status == 404


async def test_files_of_another_caller_do_not_exist(tmp_path: Path) -> None:
    """FIL-05, FIL-07."""
    async with serving(a_server(tmp_path, by_token)) as port:
        ticket = await ask_upload(port, token="ada")
        assert (await put(port, ticket["url"], DATA)).status == 401
        assert (await put(port, ticket["url"], DATA, token="bob")).status == 404
        assert (await put(port, ticket["url"], DATA, token="ada")).status == 201
        theirs = await call(port, "describe", {"report": ticket["id"]}, token="bob")
        unknown = await call(port, "describe", {"report": f"file-{'0' * 32}"}, token="bob")
        assert text_of(theirs) == text_of(unknown)
        assert (await call(port, "describe", {"report": ticket["id"]}, token="ada"))["structuredContent"] == WANTED

        asked = await call(port, "describe", {"report": host_file()}, token="ada")
        refused = await call(port, "describe", {"report": host_file()}, token="bob", requestState=asked["requestState"])
        assert refused["error"]["code"] == -32602


async def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """FIL-06: by what it declares, by its length, and while it arrives in chunks."""
    async with serving(a_server(tmp_path, limits=FileSettings(max_bytes=20_000))) as port:
        answer = await port.ask(post({"size": 20_001}, path="/mcp/files"))
        assert answer.status == 413
        ticket = await ask_upload(port, b"1234")
        path = urlsplit(ticket["url"]).path
        head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
        assert (await port.ask(head.encode())).status == 413
        peer = await port.connect()
        peer.send(f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        peer.send(b"10\r\n" + b"x" * 16 + b"\r\n")  # and no end
        assert (await peer.answer()).status == 413
        assert left_in(tmp_path) == []


async def test_the_files_of_one_caller_are_limited(tmp_path: Path) -> None:
    async with serving(a_server(tmp_path, limits=FileSettings(max_bytes_each=len(DATA)))) as port:
        first, second = await ask_upload(port), await ask_upload(port)
        assert (await put(port, first["url"], DATA)).status == 201
        assert (await put(port, second["url"], DATA)).status == 429


async def test_a_broken_upload_leaves_nothing(tmp_path: Path) -> None:
    """FIL-11."""
    async with serving(a_server(tmp_path)) as port:
        ticket = await ask_upload(port)
        peer = await port.connect()
        head = f"PUT {urlsplit(ticket['url']).path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(DATA)}\r\n\r\n"
        peer.send(head.encode() + DATA[:100])
        peer.writer.write_eof()
        await peer.rest()
        await until(lambda: left_in(tmp_path) == [])
        await until(lambda: not any("Incoming.close" in repr(task) for task in asyncio.all_tasks()))


# ---------------------------------------------------------------- data URIs and paths


@each_version
async def test_a_data_uri_in_every_version(version: str) -> None:
    """FIL-08, FIL-12."""
    async with memory_wire(a_server(), version) as wire:
        result = await wire.call("describe", report=data_uri())
        assert json.loads(result["content"][0]["text"]) == WANTED
        assert await wire.text("count", files=[data_uri(b"123"), data_uri(b"4")], extra=None) == "4"
        assert "application/pdf is expected" in text_of(
            await wire.call("describe", report=data_uri(kind="image/png", name="a.png"))
        )
        too_large = await wire.call("describe", report=data_uri(b"x" * 40_001))
        assert "at most 40,000" in text_of(too_large)


async def test_paths_below_allowed_folders_only(tmp_path: Path) -> None:
    """FIL-08."""
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    other.mkdir()
    (allowed / "a.pdf").write_bytes(DATA)
    (other / "b.pdf").write_bytes(DATA)
    os.symlink(other / "b.pdf", allowed / "link.pdf")
    os.symlink(other, allowed / "folder")
    os.mkfifo(allowed / "pipe.pdf")
    async with memory_wire(a_server(allow_path=[str(allowed)]), MODERN) as wire:
        for text in (str(allowed / "a.pdf"), (allowed / "a.pdf").as_uri()):
            assert (await wire.call("describe", report=text))["structuredContent"] == WANTED
        refusals = {
            text_of(await wire.call("describe", report=str(path)))
            for path in (
                other / "b.pdf", allowed / "link.pdf", allowed / "folder" / "b.pdf", allowed / "pipe.pdf",
                allowed / ".." / "other" / "b.pdf", allowed, other / "missing.pdf", "a.pdf", "file://[", "~\0/a", "/\0",
            )
        }  # fmt: skip
        assert len(refusals) == 1, refusals


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_paths_below_the_roots_of_the_client_only(tmp_path: Path, version: str) -> None:
    """FIL-08: asked for in the way of each version, and only if no folder of the server has the path."""
    root, other = tmp_path / "root", tmp_path / "other"
    root.mkdir()
    other.mkdir()
    (root / "a b.pdf").write_bytes(DATA)
    (other / "b.pdf").write_bytes(DATA)
    os.symlink(other / "b.pdf", root / "link.pdf")
    roots = {"roots": [{"uri": uri} for uri in ("file://[", "file://elsewhere/", "file:///%00", root.as_uri())]}

    async with stdio_wire(a_server(), version, capabilities={"roots": {}}) as wire:
        wire.capabilities = {"roots": {}}

        async def describe(path: Path) -> Any:
            params = {"name": "describe", "arguments": {"report": str(path)}}
            asked = wire.ask("tools/call", params)
            if version == MODERN:
                first = (await wire.answer(asked))["result"]
                ((key, question),) = first["inputRequests"].items()
                assert question["method"] == "roots/list"
                state = {key: first[key] for key in ("requestState",) if key in first}
                return await wire.result("tools/call", {**params, **state, "inputResponses": {key: roots}})
            question = await wire.receive()
            assert question["method"] == "roots/list"
            wire.send({"jsonrpc": "2.0", "id": question["id"], "result": roots})
            return (await wire.answer(asked))["result"]

        assert json.loads((await describe(root / "a b.pdf"))["content"][0]["text"])["digest"] == digest()
        refusals = {text_of(await describe(path)) for path in (other / "b.pdf", root / "link.pdf", root / "none.pdf")}
        assert len(refusals) == 1, refusals


async def test_paths_mean_nothing_over_http(tmp_path: Path) -> None:
    """FIL-08."""
    (tmp_path / "a.pdf").write_bytes(DATA)
    async with serving(a_server(allow_path=[str(tmp_path)])) as port:
        assert "expected" in text_of(await call(port, "describe", {"report": str(tmp_path / "a.pdf")}))


@pytest.mark.parametrize(
    ("name", "shown"),
    [("../../etc/passwd", "passwd"), ("a\\b.pdf", "b.pdf"), ("a\r\nb\0.pdf", "ab.pdf"), ("CON.pdf", "_CON.pdf"),
     ("..", "file"), ("\u202egpj.pdf", "gpj.pdf"), ("x" * 500 + ".pdf", "x" * 196 + ".pdf")],
)  # fmt: skip
async def test_names_are_text_only(tmp_path: Path, name: str, shown: str) -> None:
    """FIL-09."""
    async with serving(a_server(tmp_path)) as port:
        ticket = await ask_upload(port, name=name)
        assert (await put(port, ticket["url"], DATA)).status == 201
        assert all(path.name.startswith(("file-", "node-", "lock")) for path in tmp_path.rglob("*"))
        assert (await call(port, "describe", {"report": ticket["id"]}))["structuredContent"]["name"] == shown


# ---------------------------------------------------------------- as Codex and ChatGPT pass files


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/a.pdf", "https://127.0.0.1/a.pdf", "https://169.254.169.254/", "file:///etc/passwd",
     "https://["],
)  # fmt: skip
async def test_private_addresses_are_not_fetched(url: str) -> None:
    """FIL-10."""
    async with memory_wire(a_server(), MODERN) as wire:
        result = await wire.call("describe", report={"download_url": url, "file_id": "f"})
        assert "the file cannot be fetched" in text_of(result)
        assert url not in text_of(result)


async def test_codex_passes_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FIL-10, FIL-12: what it replaces the path by; too much, or another status, is refused."""
    from mcpd.auth import fetch

    async def from_this_machine(url: str, **options: Any) -> Any:
        return await real(url, **{**options, "reach": ("loopback",)})

    real = fetch.fetch
    monkeypatch.setattr(fetch, "fetch", from_this_machine)
    storage = Server("storage")

    @storage.route("/files/{name}", public=True)
    async def stored(request: RouteRequest) -> RouteResponse:
        found = {"a.pdf": DATA, "large.pdf": b"x" * 40_001}.get(request.params["name"])
        return RouteResponse(b"no" if found is None else found, status=404 if found is None else 200)

    async with serving(storage) as at, memory_wire(a_server(tmp_path), MODERN) as wire:
        base = f"http://127.0.0.1:{at.number}/files"
        passed = {"file_id": "file_1", "mime_type": "application/pdf", "file_name": "a.pdf", "file_size_bytes": 1}
        taken = await wire.call("describe", report={**passed, "download_url": f"{base}/a.pdf?signature=secret"})
        assert taken["structuredContent"] == WANTED
        for name, said in (("large.pdf", "larger than 40,000"), ("none.pdf", "answers 404")):
            refused = text_of(await wire.call("describe", report={**passed, "download_url": f"{base}/{name}?s=secret"}))
            assert said in refused
            assert "secret" not in refused
    assert left_in(tmp_path) == []


# ---------------------------------------------------------------- attackers


async def test_ten_thousand_tickets_keep_nothing(tmp_path: Path) -> None:
    """FIL-05: a ticket is a sealed value; those that were used are limited, too."""
    limits = FileSettings(max_count_each=2)
    async with serving(a_server(tmp_path, limits=limits)) as port:
        peer = await port.connect()
        urls = [(await peer.ask(post({"size": 1}, path="/mcp/files"))).json["url"] for _ in range(10_000)]
        assert len(set(urls)) == 10_000
        assert list(tmp_path.rglob("file-*")) == []
        answers = [(await put(port, url, b"xx")).status for url in urls[:40]]
        assert set(answers) == {413}
        answers = [(await put(port, url, b"x")).status for url in urls[40:80]]
        assert set(answers) == {201, 429}
        assert len(list(tmp_path.rglob("*.once"))) == 2  # those that were refused leave nothing


async def test_uploads_at_once_stay_within_the_limit_together(tmp_path: Path) -> None:
    """FIL-06: half of what is allowed arrives slowly, so there is no room for more than one more."""
    async with serving(a_server(tmp_path, limits=FileSettings(max_bytes_each=2 * len(DATA)))) as port:
        tickets = [await ask_upload(port) for _ in range(3)]
        slow = [await port.connect() for _ in range(2)]
        for peer, ticket in zip(slow, tickets, strict=False):
            path = urlsplit(ticket["url"]).path
            peer.send(f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(DATA)}\r\n\r\n".encode())
            peer.send(DATA[:1])
        await until(lambda: len(left_in(tmp_path)) == 2)
        assert (await put(port, tickets[2]["url"], DATA)).status == 429
        for peer in slow:
            peer.send(DATA[1:])
            assert (await peer.answer()).status == 201


async def test_a_stalled_upload_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FIL-06: without a byte for a time it is refused, and what has arrived is deleted."""
    monkeypatch.setattr("mcpd.server.extensions.files.extension.IDLE_SECONDS", 0.05)
    async with serving(a_server(tmp_path)) as port:
        ticket = await ask_upload(port)
        peer = await port.connect()
        head = f"PUT {urlsplit(ticket['url']).path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(DATA)}\r\n\r\n"
        peer.send(head.encode() + DATA[:100])
        assert (await peer.answer()).status == 408
        assert left_in(tmp_path) == []


async def test_one_file_is_for_one_call(tmp_path: Path) -> None:
    """FIL-05: of two calls at once with one id, one gets the file."""
    async with serving(a_server(tmp_path)) as port:
        ticket = await ask_upload(port)
        assert (await put(port, ticket["url"], DATA)).status == 201
        both = await asyncio.gather(*(call(port, "describe", {"report": ticket["id"]}) for _ in range(2)))
        assert sorted(bool(one.get("isError")) for one in both) == [False, True]


# ---------------------------------------------------------------- stores that processes share


async def test_nodes_share_a_store_of_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FIL-05, FIL-11, FIL-13: any node takes the upload, any serves the call; it is used once."""
    pytest.importorskip("fsspec", reason="needs fsspec: pip install 'mcpd-server[files]'")
    import fsspec

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = fsspec.filesystem("memory")
    key, url = "k" * 32, f"memory://files-{tmp_path.name}"
    limits = FileSettings(max_inline_bytes=10)
    nodes = [a_server(url, by_token, limits=limits, state_key=key) for _ in range(2)]
    async with serving(nodes[0]) as one, serving(nodes[1]) as other:
        ticket = await ask_upload(one, token="ada")
        assert (await put(other, ticket["url"], DATA, token="ada")).status == 201
        assert (await put(one, ticket["url"], DATA, token="ada")).status == 409
        assert "no file" in text_of(await call(one, "describe", {"report": ticket["id"]}, token="bob"))
        taken = await call(one, "describe", {"report": ticket["id"]}, token="ada")
        assert taken["structuredContent"] == WANTED
        assert "no file" in text_of(await call(other, "describe", {"report": ticket["id"]}, token="ada"))
        (link,) = (await call(one, "make", {"size": 11}, token="ada"))["content"]
        answer = await other.ask(modern("resources/read", {"uri": link["uri"]}, {"Authorization": "Bearer ada"}))
        assert answer.messages[0]["result"]["contents"][0]["blob"] == b64encode(b"x" * 11).decode()
        assert left_in(tmp_path) == []
        kept = [name for name in store.ls(url, detail=False) if not name.endswith((".once", ".taken"))]
        assert len(kept) == 2  # the returned file, and its description


# ---------------------------------------------------------------- the end of calls and processes


async def test_a_cancelled_call_deletes_its_files(tmp_path: Path) -> None:
    """FIL-11."""
    server = a_server(tmp_path)
    begun, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait(report: File, ctx: Context) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.pdf").write_bytes(DATA)
    server.need(FILES).configure({"allow_path": (str(tmp_path / "in"),)})
    async with memory_wire(server, MODERN) as wire:
        wire.ask("tools/call", {"name": "wait", "arguments": {"report": str(tmp_path / "in" / "a.pdf")}}, id="w")
        await begun.wait()
        assert [name for name in left_in(tmp_path) if name.endswith(".used")]
        wire.cancel("w")
        await ended.wait()
        await wire.quiet()
        assert left_in(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="the file system has no locks")
@pytest.mark.parametrize("is_given", [False, True], ids=["temporary", "given"])
async def test_a_killed_process_leaves_nothing_behind(child: Any, tmp_path: Path, is_given: bool) -> None:
    """FIL-11: the process is killed in the middle of one upload, and has another that no call has used."""
    (tmp_path / "server.py").write_text(SERVED, encoding="utf-8")
    options = ["--files", str(tmp_path / "files")] if is_given else []
    command = child.mcpd("serve", "--http", "127.0.0.1:0", *options, "server.py")

    def started() -> tuple[subprocess.Popen[bytes], int]:
        process = subprocess.Popen(
            command, cwd=tmp_path, env={**child.env, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                return process, int(found[1])
        raise AssertionError("it ended")

    async def connect(number: int) -> Peer:
        return Peer(*await asyncio.open_connection("127.0.0.1", number))

    process, number = await asyncio.to_thread(started)
    try:
        peers = []
        for sent in (DATA, DATA[:100]):
            peers.append(peer := await connect(number))
            body = {"name": "a.pdf", "size": len(DATA)}
            path = urlsplit((await peer.ask(post(body, path="/mcp/files"))).json["url"]).path
            peers.append(peer := await connect(number))
            peer.send(f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(DATA)}\r\n\r\n".encode() + sent)
        await until(lambda: len(left_in(tmp_path)) == 3)  # a file, its description, and one that arrives
    finally:
        process.kill()
        process.communicate()
        for peer in peers:
            peer.abort()
    assert len(left_in(tmp_path)) == 3

    process, _ = await asyncio.to_thread(started)
    try:
        assert left_in(tmp_path) == []
    finally:
        process.terminate()
        process.communicate()
    assert not list(tmp_path.rglob("node-*"))


# ---------------------------------------------------------------- results


async def test_small_results_are_embedded_and_large_ones_are_links(tmp_path: Path) -> None:
    """FIL-07, FIL-13."""
    limits = FileSettings(max_inline_bytes=10)
    async with serving(a_server(tmp_path, by_token, limits=limits)) as port:
        (small,) = (await call(port, "make", {"size": 10}, token="ada"))["content"]
        assert small["type"] == "resource"
        (link,) = (await call(port, "make", {"size": 11}, token="ada"))["content"]
        assert (link["type"], link["size"], link["name"]) == ("resource_link", 11, "made.txt")
        for token, is_there in (("bob", False), ("ada", True)):
            headers = {"Authorization": f"Bearer {token}"}
            answer = await port.ask(modern("resources/read", {"uri": link["uri"]}, headers))
            (message,) = answer.messages
            assert ("result" in message) is is_there, message


async def test_a_link_of_a_returned_file_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FIL-13: until then it is read again and again; after it, it is unknown, and the next upload removes the file."""
    now = time.time()
    monkeypatch.setattr(store.time, "time", lambda: now)
    async with serving(a_server(tmp_path, limits=FileSettings(max_inline_bytes=10))) as port:
        (link,) = (await call(port, "make", {"size": 11}))["content"]
        for ahead, is_there in ((0, True), (599, True), (602, False)):
            monkeypatch.setattr(store.time, "time", lambda ahead=ahead: now + ahead)
            (message,) = (await port.ask(modern("resources/read", {"uri": link["uri"]}))).messages
            assert ("result" in message) is is_there, message
        assert message["error"]["code"] == -32602
        assert left_in(tmp_path)
        await ask_upload(port)
        assert left_in(tmp_path) == []


async def test_a_folder_with_other_files_keeps_them(tmp_path: Path) -> None:
    """Only what has the name of an upload is counted, expires, and is removed when a server begins or ends."""
    other, upload = tmp_path / "file-of-mine.txt", tmp_path / f"file-{'0' * 32}.{'1' * 32}"
    for path in (other, upload):
        path.write_text("x")
        os.utime(path, (1, 1))
    async with serving(a_server(tmp_path)) as port:
        await ask_upload(port)
        assert not upload.exists()
    assert other.read_text() == "x"


@pytest.mark.parametrize("public_url", ["", "https://example.com/files/mcp"])
async def test_urls_of_uploads_lead_through_a_mount_and_a_proxy(tmp_path: Path, public_url: str) -> None:
    """Both ways to ask for one give the URL that the client can reach."""
    app = a_server(tmp_path).asgi_app(settings=HttpSettings(public_url=public_url))
    await app.start()

    async def ask(path: str, body: Mapping[str, Any], **headers: str) -> dict[str, Any]:
        raw = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
        ]
        raw += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "POST", "scheme": "https", "root_path": "/api", "path": path, "headers": raw}
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": json.dumps(body).encode()}

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return dict(json.loads(b"".join(message.get("body", b"") for message in sent)))

    wanted = f"{public_url or 'https://localhost/api/mcp'}/files/"
    assert (await ask("/api/mcp/files", {"size": 1}))["url"].startswith(wanted)
    params = {"name": "describe", "arguments": {"report": host_file()}, "_meta": envelope(HOST)}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    asked = await ask("/api/mcp", message, mcp_protocol_version=MODERN, mcp_method="tools/call", mcp_name="describe")
    assert "result" in asked, asked
    assert asked["result"]["uploads"][0]["url"].startswith(wanted)
    await app.aclose(0)


# ---------------------------------------------------------------- the commands


@pytest.mark.parametrize("data", [b"small", b"x" * (300 << 10)], ids=["small", "large"])
async def test_the_command_sends_a_file(child: Any, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "server.py").write_text(SERVED, encoding="utf-8")
    (tmp_path / "a.bin").write_bytes(data)
    command = child.mcpd("call", "server.py", "size", "report=@a.bin")
    done = await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, env=child.env, capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == (str(len(data)), 0), done.stderr


def test_a_folder_that_cannot_be_made_is_an_error_in_a_line(child: Any, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVED, encoding="utf-8")
    command = child.mcpd("serve", "--stdio", "--files", "server.py/files", "server.py")
    done = subprocess.run(
        command, cwd=tmp_path, env=child.env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "choose a folder with --files" in done.stderr


def test_a_text_of_base64_is_a_warning() -> None:
    server = Server("files")

    @server.tool
    def upload(content_base64: str, name: str, kind: Literal["base64", "text"] = "text") -> str:
        """Upload a file."""
        return name

    @server.tool
    def store(data: Annotated[str, Meta(description="The file in Base64")], report: SyncFile) -> str:
        """Store a file."""
        return data

    found = [(problem.where, problem.text) for problem in server.problems() if "base64" in problem.text]
    assert [where for where, _ in found] == ["tool upload", "tool store"], found
    assert found[0][1].startswith("content_base64: ")


# ---------------------------------------------------------------- registration


def test_what_cannot_have_files() -> None:
    server = Server("files")
    with pytest.raises(RegistrationError, match="write File, list"):

        @server.tool
        async def wrong(report: dict[str, File]) -> str:
            return ""

    with pytest.raises(RegistrationError, match="process=True"):

        @server.tool(process=True)
        def other(report: SyncFile) -> str:
            return ""
