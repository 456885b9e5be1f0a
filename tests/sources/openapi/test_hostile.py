"""Hostile documents and servers: they cost little time and memory, and nothing is sent to another server."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from support.raw_http import Asked, as_json, raw_server, reply
from support.wires import MODERN, memory_wire

from mcpd import Server
from mcpd.errors import ConfigurationError

BASE = "https://api.example"


def document(paths: Any, schemas: Any = None, version: str = "3.1.0") -> dict[str, Any]:
    return {"openapi": version, "info": {"title": "T", "version": "1"}, "paths": paths,
            "components": {"schemas": schemas or {}}}  # fmt: skip


def taking(schema: Any) -> dict[str, Any]:
    body = {"content": {"application/json": {"schema": schema}}}
    return {"/a": {"post": {"operationId": "op", "requestBody": body, "responses": {}}}}


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def problems(given: Any, **options: Any) -> list[str]:
    server = Server("hostile")
    server.add_openapi(given, **{"base": BASE, **options})
    (found,) = server.catalog.source_problems.values()
    server.problems()  # lists each tool
    return [str(problem) for problem in found]


# ------------------------------------------------------------------------------------------ documents

LEVELS = range(25)
CIRCLES = {
    "itself": {"A": ref("A")},
    "a choice": {"A": {"anyOf": [ref("B"), {"type": "null"}]}, "B": {"oneOf": [ref("A")]}},
    "not itself": {"A": {"not": ref("A")}},
    "twice each": {f"A{n or ''}": {"type": "object", "properties": {"x": ref(f"A{n + 1}"), "y": ref(f"A{n + 1}")}}
                   for n in LEVELS} | {"A25": {}},
    "three times each": {f"A{n or ''}": {"anyOf": [ref(f"A{n + 1}")] * 3} for n in LEVELS} | {"A25": {}},
}  # fmt: skip


@pytest.mark.parametrize("name", CIRCLES)
async def test_references_in_circles_end(name: str) -> None:
    """Such a tool is left out, or its arguments are checked without end or overflow."""
    given = document(taking({"type": "object", "properties": {"x": ref("A")}}), CIRCLES[name])
    began = process_time()
    async with raw_server(lambda _: as_json({})) as api:
        server = Server("circles")
        names = server.add_openapi(given, base=api.url)
        async with memory_wire(server, MODERN) as wire:
            assert [tool["name"] for tool in (await wire.result("tools/list"))["tools"]] == names
            for value in (1, {"x": {"y": {}}}, [[]]):
                if names:
                    await wire.call("op", body={"x": value})
        await server.aclose()
    assert process_time() - began < 10


def test_a_path_in_a_circle_is_left_out() -> None:
    given = document({"/a": {"$ref": "#/paths/~1b"}, "/b": {"$ref": "#/paths/~1a", "get": {"responses": {}}}})
    assert problems(given) == ["GET /b: the reference #/paths/~1b leads in a circle; it is left out"]


def test_large_and_deep_schemas_are_left_out() -> None:
    deep: Any = {}
    for _ in range(3000):
        deep = {"type": "array", "items": deep}
    wide = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "description": "x" * 80} for n in range(10**5)},
    }
    chain = {f"A{n}": {"type": "object", "properties": {"x": ref(f"A{n + 1}")}} for n in range(3000)}
    for schema, schemas in ((deep, {}), (wide, {}), (ref("A0"), chain)):
        (found,) = problems(document(taking(schema), schemas))
        assert "its schema is too large, nested too deep, or not an object; it is left out" in found


def test_aliases_that_repeat_each_other_cost_a_limited_time(tmp_path: Path) -> None:
    lines = ["openapi: 3.1.0", "info: {title: T, version: '1'}", "x0: &x0 {type: string}"]
    for level in range(1, 12):
        members = ", ".join(f"p{n}: *x{level - 1}" for n in range(10))
        lines.append(f"x{level}: &x{level} {{type: object, properties: {{{members}}}}}")
    lines.append("paths:")
    for number in range(300):
        body = "{content: {application/json: {schema: *x11}}}"
        lines.append(f"  /a{number}: {{post: {{requestBody: {body}, responses: {{}}}}}}")
    (tmp_path / "laughs.yaml").write_text("\n".join(lines))
    began = process_time()
    assert len(problems(tmp_path / "laughs.yaml")) == 300
    assert process_time() - began < 20


def test_the_number_of_operations_is_limited() -> None:
    paths = {f"/p{number}": {"get": {"responses": {}}} for number in range(5002)}
    assert problems(document(paths)) == ["the document: only the first 5,000 operations are served"]


BROKEN = [
    '{"openapi":"3.1.0","paths":' + "[" * 100_000,
    "openapi: 3.1.0\npaths: " + "[" * 100_000,
    "a: !!python/object:os.system {}",
]


@pytest.mark.parametrize("text", BROKEN, ids=["json", "yaml", "tag"])
def test_files_that_break_parsers_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match="neither JSON nor YAML"):
        problems(tmp_path / "bad.yaml")


OUTSIDE = [
    "file:///etc/passwd", "/etc/passwd", "http://127.0.0.1:9/x", "../out.json#/a", "%2e%2e/out.json#/a", "in/link#/a",
    "in", "pipe", "//host/x", "",
]  # fmt: skip


@pytest.mark.parametrize("reference", OUTSIDE)
def test_no_reference_leaves_the_folder_of_the_document(tmp_path: Path, reference: str) -> None:
    folder = tmp_path / "api"
    (folder / "in").mkdir(parents=True)
    os.mkfifo(folder / "pipe")
    (tmp_path / "out.json").write_text('{"a": {"type": "string"}}')
    (folder / "in" / "link").symlink_to(tmp_path / "out.json")
    (folder / "api.json").write_text(json.dumps(document(taking({"$ref": reference}))))
    found = problems(folder / "api.json")
    if reference:
        assert f"the reference {reference} cannot be followed: it leads to nothing that belongs" in found[0]


def test_the_number_of_files_is_limited(tmp_path: Path) -> None:
    """Each names the next one, which is in a circle of so many."""
    for number in range(300):
        (tmp_path / f"{number}.json").write_text(f'{{"x": {{"$ref": "{(number + 1) % 300}.json#/x"}}}}')
    (tmp_path / "api.json").write_text(json.dumps(document(taking({"$ref": "0.json#/x"}))))
    assert len(problems(tmp_path / "api.json")) == 1


GARBAGE: list[Any] = [
    5, None, True, "x", [], [5], {"a": 5}, {"$ref": 5}, {"$ref": "#/nope"}, {"$ref": "#"}, {"$ref": ""}, {"type": 5},
    {"type": []}, {"properties": 5}, {"properties": {"a": 5}}, {"required": [5]}, {"enum": 5}, {"items": [{}]},
    {"allOf": [5]}, {"anyOf": []}, {"pattern": "(a+)+$"}, {"pattern": 5}, {"$dynamicRef": "#meta"}, {"minimum": "x"},
    {"exclusiveMinimum": True}, {"nullable": 5}, {"type": ["null"]}, {"type": ["null", "null"]}, {"format": 5},
]  # fmt: skip


@pytest.mark.parametrize("version", ["3.0.0", "3.1.0"])
def test_garbage_anywhere_leaves_out_operations_and_fails_nothing(version: str) -> None:
    for each in GARBAGE:
        schema = {"content": {"application/json": {"schema": each}}}
        form = {"type": "object", "properties": {"f": each}}
        for operation in (
            {"requestBody": schema}, {"requestBody": each}, {"parameters": each}, {"parameters": [each]},
            {"parameters": [{"name": "q", "in": "query", "schema": each}]}, {"responses": {"200": schema}},
            {"responses": each}, {"requestBody": {"content": {"multipart/form-data": {"schema": form}}}},
            {"operationId": each, "tags": each, "summary": each, "servers": each, "description": each},
        ):  # fmt: skip
            problems(document({"/a": {"post": operation}}, version=version))
        problems(document({"/a": each}, version=version))
        for member in ("paths", "info", "components", "servers"):
            problems({**document({}, version=version), member: each})


PATHS = ["@evil.example/x", ".evil.example/", ":9@evil.example/", "relative"]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_would_change_the_host_is_left_out(path: str) -> None:
    """`https://api.example` + `@evil.example/x` is a URL of evil.example, with our credentials."""
    assert problems(document({path: {"get": {"responses": {}}}})) == [
        f"GET {path}: its path does not begin with /; it is left out"
    ]


@pytest.mark.parametrize(("path", "sent"), [("//evil.example/x", "//evil.example/x"), ("/a#b", "/a%23b"),
                                            ("/a\r\nX: y", "/a%0D%0AX:%20y"), ("/a?b=c", "/a?b=c")])  # fmt: skip
async def test_an_odd_path_stays_at_the_server(path: str, sent: str) -> None:
    async with raw_server(lambda _: as_json({})) as api:
        server = Server("odd")
        (name,) = server.add_openapi(document({path: {"get": {"responses": {}}}}), base=api.url)
        async with memory_wire(server, MODERN) as wire:
            assert "isError" not in await wire.call(name)
        await server.aclose()
        assert api.asked[0].path == sent


# ------------------------------------------------------------------------------------------ servers


@asynccontextmanager
async def called(answer: Callable[[Asked], bytes | None], **options: Any) -> Any:
    async with raw_server(answer) as api:
        server = Server("hostile")
        given = document({"/a": {"get": {"operationId": "op", "responses": {}}}})
        server.add_openapi(given, base=f"{api.url}/v1", **{"headers": {"X-Key": "k-123456"}, **options})
        async with memory_wire(server, MODERN) as wire:
            result = await wire.call("op")
            yield api, result, result["content"][0].get("text", "")
        await server.aclose()


async def test_redirects_stay_at_the_origin() -> None:
    async with raw_server(lambda _: as_json({})) as other:
        for place in (f"{other.url}/x", f"//127.0.0.2:{other.url[-5:]}/", "file:///etc/passwd", "http://[::1"):
            async with called(lambda _, place=place: reply(302, location=place)) as (api, result, text):
                assert result["isError"]
                assert "redirects to" in text
                assert len(api.asked) == 1
        assert not other.asked

    def inside(asked: Asked) -> bytes:
        return as_json({"ok": True}) if asked.path == "/elsewhere" else reply(307, location="/elsewhere")

    async with called(inside) as (_, result, _):
        assert result["structuredContent"] == {"ok": True}
    async with called(lambda _: reply(302, location="/v1/a")) as (api, result, text):
        assert "redirects too often" in text
        assert len(api.asked) == 6


async def test_bodies_and_waiting_are_limited() -> None:
    endless = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n"
    async with called(lambda _: endless, timeout=0.3) as (_, result, text):
        assert text == "GET /a: no complete response within 0.3 s"
    async with called(lambda _: None, timeout=0.3) as (_, result, text):
        assert text == "GET /a: no complete response within 0.3 s"
    for data in (
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 3000,
        reply(200, b"x" * 3000),
        reply(200, gzip.compress(b"x" * 10**7), content_encoding="gzip"),
    ):
        async with called(lambda _, data=data: data, max_bytes=2000) as (_, result, text):
            assert result["isError"]
            assert text == "GET /a: the response is larger than 2,000 bytes"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/9.9 hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        reply(200, b"x", content_encoding="br"),
        reply(200, b"not gzip", content_encoding="gzip"),
        reply(101),
        reply(999, b"\x1b[31mred"),
    ],
)
async def test_broken_responses_are_errors(data: bytes) -> None:
    async with called(lambda _: data) as (_, result, text):
        assert result["isError"]
        assert "GET /a" in text
        assert "\x1b" not in text


async def test_odd_content_is_text() -> None:
    for kind in ("text/plain; charset=hex", "text/plain; charset=punycode", "text/plain; charset=undefined", "odd"):
        async with called(lambda _, kind=kind: reply(200, b"abc", content_type=kind)) as (_, result, text):
            assert text == "abc" or result["content"][0]["resource"]["blob"] == "YWJj"
    deep = b"[" * 10_000 + b"]" * 10_000
    async with called(lambda _: reply(200, deep, content_type="application/json")) as (_, result, text):
        assert text == deep.decode()
    async with called(lambda _: reply(200, b'"\\ud800"', content_type="application/json")) as (_, result, text):
        assert "isError" not in result


async def test_a_name_that_moves_to_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A public name, when first used; the next lookup leads to a private address (DNS rebinding)."""
    loop = asyncio.get_running_loop()
    found = iter(["93.184.216.34", "127.0.0.1"])

    async def getaddrinfo(host: str, port: int, **how: Any) -> Any:
        import socket

        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(found), port))]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    server = Server("moving")
    server.add_openapi(document({"/a": {"get": {"operationId": "op", "responses": {}}}}), base="http://moving.example")
    async with memory_wire(server, MODERN) as wire:
        text = await wire.text("op")
    assert "its address has changed to one that is not allowed" in text
    await server.aclose()


async def test_a_document_cannot_choose_an_address_of_this_network() -> None:
    for host, kind in (("127.0.0.1:9", "loopback"), ("10.0.0.1", "private"), ("169.254.169.254", "never")):
        server = Server("chosen")
        given = {
            **document({"/a": {"get": {"operationId": "op", "responses": {}}}}),
            "servers": [{"url": f"http://{host}"}],
        }
        server.add_openapi(given)
        async with memory_wire(server, MODERN) as wire:
            text = await wire.text("op")
            assert f"is at a {kind} address" in text
        await server.aclose()
