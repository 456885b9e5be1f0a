"""Resources and templates on the wire. Spec: 2025-11-25 and 2026-07-28 server/resources; protocol-versions.md 3."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Struct
from support.wires import MODERN, Wire, each_version, memory_wire

from mcpd import Context, Server
from mcpd.errors import InvalidParams, RegistrationError, ResourceNotFound
from mcpd.protocol.types.features import BlobResourceContents, ReadResourceResult, TextResourceContents


async def contents(wire: Wire, uri: str) -> list[Any]:
    found: list[Any] = (await wire.result("resources/read", {"uri": uri}))["contents"]
    return found


@asynccontextmanager
async def resource_wire(version: str, uri: str, function: Any, **options: Any) -> AsyncIterator[Wire]:
    server = Server("t")
    server.resource(uri, **options)(function)
    async with memory_wire(server, version) as wire:
        yield wire


# --------------------------------------------------------------------------------------- listing


@each_version
async def test_all_that_can_be_said_of_a_resource(version: str) -> None:
    """protocol-versions 3, rows Resource and Template."""
    server = Server("t")
    options: dict[str, Any] = {
        "name": "n",
        "title": "T",
        "description": "d",
        "mime_type": "text/x",
        "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-01T00:00:00Z"},
        "icons": [{"src": "https://x.example/i.png"}],
        "meta": {"a.b/c": 1},
    }

    @server.resource("x://fixed", size=7, **options)
    async def fixed() -> str:
        return ""

    @server.resource("x://{a}", **options)
    async def template(a: str) -> str:
        return a

    async with memory_wire(server, version) as wire:
        (resource,) = (await wire.result("resources/list"))["resources"]
        (listed,) = (await wire.result("resources/templates/list"))["resourceTemplates"]
        assert (resource.pop("uri"), listed.pop("uriTemplate")) == ("x://fixed", "x://{a}")
        assert resource.pop("size", None) == (None if version == "2024-10-07" else 7)
        assert resource == listed
        expected = {"name", "description", "mimeType"}
        if version != "2024-10-07":
            expected |= {"annotations"}
            assert ("lastModified" in resource["annotations"]) == (version >= "2025-06-18")
        if version >= "2025-06-18":
            expected |= {"title", "_meta"}
        if version >= "2025-11-25":
            expected |= {"icons"}
        assert resource.keys() == expected


@each_version
async def test_name_and_description_come_from_the_function(version: str) -> None:
    async def notes() -> str:
        """All notes.

        More.
        """
        return ""

    async with resource_wire(version, "x://notes", notes) as wire:
        (resource,) = (await wire.result("resources/list"))["resources"]
        assert (resource["name"], resource["description"]) == ("notes", "All notes.\n\nMore.")


async def test_an_absent_docstring_is_an_absent_description() -> None:
    async def notes() -> str:
        return ""

    async with resource_wire(MODERN, "x://notes", notes) as wire:
        (resource,) = (await wire.result("resources/list"))["resources"]
        assert "description" not in resource


@each_version
async def test_text_and_bytes_that_are_there_already(version: str) -> None:
    server = Server("t")
    server.add_text("x://text", "héllo\n", name="text", mime_type="text/markdown")
    server.add_text("x://bytes", b"\x00\xff", name="bytes")
    async with memory_wire(server, version) as wire:
        listed = {item["uri"]: item for item in (await wire.result("resources/list"))["resources"]}
        if version != "2024-10-07":
            assert (listed["x://text"]["size"], listed["x://bytes"]["size"]) == (7, 2)
        assert await contents(wire, "x://text") == [{"uri": "x://text", "mimeType": "text/markdown", "text": "héllo\n"}]
        (blob,) = await contents(wire, "x://bytes")
        assert base64.b64decode(blob["blob"], validate=True) == b"\x00\xff"
        assert blob["mimeType"] == "application/octet-stream"


# --------------------------------------------------------------------------------------- reading


class Item(Struct):
    name: str


RESULTS: list[tuple[Any, list[dict[str, Any]]]] = [
    ("text", [{"uri": "x://r", "mimeType": "text/plain", "text": "text"}]),
    ("", [{"uri": "x://r", "mimeType": "text/plain", "text": ""}]),
    (b"\0", [{"uri": "x://r", "mimeType": "application/octet-stream", "blob": "AA=="}]),
    (bytearray(b""), [{"uri": "x://r", "mimeType": "application/octet-stream", "blob": ""}]),
    ({"a": [1]}, [{"uri": "x://r", "mimeType": "application/json", "text": '{"a":[1]}'}]),
    ([], [{"uri": "x://r", "mimeType": "application/json", "text": "[]"}]),
    (Item("i"), [{"uri": "x://r", "mimeType": "application/json", "text": '{"name":"i"}'}]),
    (5, [{"uri": "x://r", "mimeType": "application/json", "text": "5"}]),
    (TextResourceContents("x://other", "t"), [{"uri": "x://other", "text": "t"}]),
    (
        [TextResourceContents("x://a", "a", "t/a"), BlobResourceContents("x://b", b"b", "t/b")],
        [{"uri": "x://a", "mimeType": "t/a", "text": "a"}, {"uri": "x://b", "mimeType": "t/b", "blob": "Yg=="}],
    ),
    (
        ReadResourceResult(contents=[TextResourceContents("x://whole", "w")]),
        [{"uri": "x://whole", "text": "w"}],
    ),
]


@each_version
@pytest.mark.parametrize(("value", "expected"), RESULTS, ids=lambda value: repr(value)[:25])
async def test_what_becomes_of_what_a_resource_returns(version: str, value: Any, expected: Any) -> None:
    """S25-065, S26-119: binary data are base64; every content has its uri."""

    async def resource() -> Any:
        return value

    async with resource_wire(version, "x://r", resource) as wire:
        assert await contents(wire, "x://r") == expected


@each_version
async def test_the_mime_type_that_was_registered_counts(version: str) -> None:
    async def resource() -> str:
        return "# x"

    async with resource_wire(version, "x://r", resource, mime_type="text/markdown") as wire:
        (content,) = await contents(wire, "x://r")
        assert content["mimeType"] == "text/markdown"


@each_version
async def test_nothing_is_no_content(version: str) -> None:
    """S26-117: never an empty result."""

    async def resource() -> None:
        return None

    async with resource_wire(version, "x://r", resource) as wire:
        error = await wire.error("resources/read", {"uri": "x://r"})
        assert error["code"] == -32603


@each_version
@pytest.mark.parametrize("uri", ["x://none", "", "x", "no such", "http://[", "x://r/", "X://R", "x://r ", "\u2028"])
async def test_what_is_not_there_is_not_found(version: str, uri: str) -> None:
    """-32002 before 2026-07-28, -32602 since; data names the URI (S26-014, S26-116)."""

    async def resource() -> str:
        return ""

    async with resource_wire(version, "x://r", resource) as wire:
        error = await wire.error("resources/read", {"uri": uri})
        assert error == {
            "code": -32602 if version == MODERN else -32002,
            "message": f"Resource not found: {uri}",
            "data": {"uri": uri},
        }


@each_version
@pytest.mark.parametrize("how", ["os", "ours", "params", "bug"])
async def test_a_resource_may_say_that_there_is_none(version: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def note(name: str) -> str:
        raise {
            "os": FileNotFoundError(2, "No such file", "/home/somebody/notes"),
            "ours": ResourceNotFound("x://given"),
            "params": InvalidParams("name: no such note"),
            "bug": ZeroDivisionError("/home/somebody"),
        }[how]

    with caplog.at_level(logging.ERROR, "mcpd"):
        async with resource_wire(version, "x://{name}", note) as wire:
            error = await wire.error("resources/read", {"uri": "x://a"})
    missing = -32602 if version == MODERN else -32002
    assert error["code"] == {"os": missing, "ours": missing, "params": -32602, "bug": -32603}[how]
    assert "/home" not in str(error)
    assert ("/home/somebody" in caplog.text) == (how == "bug")


@pytest.mark.parametrize("params", [None, {}, {"uri": None}, {"uri": 5}, {"uri": ["x://r"]}])
@each_version
async def test_a_read_names_its_uri(version: str, params: Any) -> None:
    async def resource() -> str:
        return ""

    async with resource_wire(version, "x://r", resource) as wire:
        error = await wire.error("resources/read", params)
        assert error["code"] == -32602
        assert "uri" in error["message"]


# ------------------------------------------------------------------------------------- templates


@each_version
async def test_variables_are_arguments_converted_to_their_types(version: str) -> None:
    async def item(shelf: str, number: int, ctx: Context) -> str:
        assert ctx.method == "resources/read"
        return f"{shelf!r} {number!r}"

    async with resource_wire(version, "x://{shelf}/{number}", item) as wire:
        (content,) = await contents(wire, "x://caf%C3%A9%20b/42")
        assert content["text"] == "'café b' 42"
        assert content["uri"] == "x://caf%C3%A9%20b/42"
        error = await wire.error("resources/read", {"uri": "x://a/many"})
        assert error["code"] == -32602
        assert "number" in error["message"]


async def test_a_fixed_resource_comes_before_a_template_and_templates_in_their_order() -> None:
    server = Server("t")

    @server.resource("x://{a}")
    async def first(a: str) -> str:
        return f"first {a}"

    @server.resource("x://{+b}")
    async def second(b: str) -> str:
        return f"second {b}"

    server.add_text("x://fixed", "fixed", name="fixed")
    async with memory_wire(server, MODERN) as wire:
        texts = [(await contents(wire, uri))[0]["text"] for uri in ("x://fixed", "x://a", "x://a/b")]
        assert texts == ["fixed", "first a", "second a/b"]


async def test_a_variable_cannot_climb_out_of_its_place() -> None:
    """S26-118, S26-120: `{path}` takes one segment; what leads out of it by an encoded slash is refused."""
    seen = []

    async def file(path: str) -> str:
        seen.append(path)
        return ""

    async with resource_wire(MODERN, "file:///notes/{path}", file) as wire:
        for uri in ("file:///notes/../etc/passwd", "file:///notes/a/b", "file:///etc/passwd"):
            assert (await wire.error("resources/read", {"uri": uri}))["message"] == f"Resource not found: {uri}"
        assert not seen
        error = await wire.error("resources/read", {"uri": "file:///notes/..%2Fetc"})
        assert (error["code"], "'..'" in error["message"]) == (-32602, True)
        assert not seen
        await contents(wire, "file:///notes/old%2Fetc")
        assert seen == ["old/etc"]


@settings(max_examples=60)
@given(st.text(st.characters(codec="utf-8")))
async def test_any_uri_is_read_or_not_found(uri: str) -> None:
    async def echo(a: str, b: str = "") -> str:
        return a + b

    async with resource_wire(MODERN, "x:/{a}{?b}", echo) as wire:
        for asked in (uri, f"x:/{uri}"):
            answer = await wire.request("resources/read", {"uri": asked})
            assert "result" in answer or answer["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("x:/a b", "x:/a%20b"),
        ("x:/é", "x:/%C3%A9"),
        ('x:/"<>', "x:/%22%3C%3E"),
        ("x:/100%", None),
        ("x:/a%20b", "x:/a%20b"),
        ("x:/[1]", "x:/%5B1%5D"),
    ],
)
async def test_a_uri_as_people_type_it_is_understood_and_sent_as_a_uri(typed: str, sent: str | None) -> None:
    async def echo(a: str) -> str:
        return a

    async with resource_wire(MODERN, "x:/{a}", echo) as wire:
        answer = await wire.request("resources/read", {"uri": typed})
        if sent is None:
            assert answer["error"]["code"] == -32602
        else:
            assert answer["result"]["contents"][0]["uri"] == sent


# ---------------------------------------------------------------------------------- registration


@pytest.mark.parametrize("uri", ["", "no-scheme", ":x", "1x:y", "x:", "x y:z", "x:a b", "é:x", "x:\n", "x:\x7f"])
def test_what_is_no_uri_is_refused(uri: str) -> None:
    """S25-063, S26-115: RFC 3986."""
    server = Server("t")
    with pytest.raises(RegistrationError, match="URI"):
        server.add_text(uri, "x", name="n")


@pytest.mark.parametrize(
    ("uri", "parameters", "named"),
    [
        ("x://{a}", "b", "a"),
        ("x://{a}/{b}", "a", "b"),
        ("x://fixed", "a", "a"),
        ("x://{a", "a", "{"),
    ],
)
def test_variables_and_parameters_have_to_agree(uri: str, parameters: str, named: str) -> None:
    """Found when it is registered, not when it is read."""
    scope: dict[str, Any] = {}
    exec(f"async def function({parameters}: str) -> str: return ''", scope)
    with pytest.raises(RegistrationError, match=named):
        Server("t").resource(uri)(scope["function"])


def test_uris_are_unique_and_can_be_taken_away() -> None:
    server = Server("t")
    server.add_text("x://a", "1", name="a")
    with pytest.raises(RegistrationError, match="x://a"):
        server.add_text("x://a", "2", name="a")
    assert server.remove_resource("x://a")
    assert not server.remove_resource("x://a")
    server.add_text("x://a", "3", name="a")


async def test_a_template_can_be_taken_away() -> None:
    async def echo(a: str) -> str:
        return a

    server = Server("t")
    server.resource("x://{a}")(echo)
    async with memory_wire(server, MODERN) as wire:
        assert (await contents(wire, "x://y"))[0]["text"] == "y"
        assert server.remove_resource("x://{a}")
        assert (await wire.error("resources/read", {"uri": "x://y"}))["message"] == "Resource not found: x://y"
        assert (await wire.result("resources/templates/list"))["resourceTemplates"] == []


@each_version
async def test_a_server_with_templates_alone_offers_resources(version: str) -> None:
    async def echo(a: str) -> str:
        return a

    server = Server("t")
    server.resource("x://{a}")(echo)
    async with memory_wire(server) as wire:
        assert "resources" in (await wire.open(version))["capabilities"]
        assert (await wire.result("resources/list"))["resources"] == []
