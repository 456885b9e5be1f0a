"""Tools on the wire: what is listed, what they take, what becomes of what they return.

Spec: 2025-11-25 and 2026-07-28 server/tools; protocol-versions.md section 3.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime
import enum
import logging
import pathlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from msgspec import Meta, Struct
from support.wires import MODERN, Wire, each_version, memory_wire

from mcpd import Context, Server, ToolError
from mcpd.errors import RegistrationError
from mcpd.protocol.types.features import Annotations, CallToolResult, ContentBlock, ImageContent, TextContent
from mcpd.server.registry.content import audio, embedded, image, link, text

HAS_STRUCTURED = ("2025-06-18", "2025-11-25", MODERN)


@asynccontextmanager
async def tool_wire(version: str, *functions: Any, **options: Any) -> AsyncIterator[Wire]:
    server = Server("t")
    for function in functions:
        server.add_tool(function, **options)
    async with memory_wire(server, version) as wire:
        yield wire


async def only_tool(wire: Wire) -> Any:
    (tool,) = (await wire.result("tools/list"))["tools"]
    return tool


# --------------------------------------------------------------------------------------- listing


async def greet(name: Annotated[str, Meta(min_length=1)], times: int = 1, *, ctx: Context) -> str:
    """Say hello.

    Further words.

    Args:
        name: Whom to greet.
        times: How often.
    """
    return f"Hello, {name}! " * times


@each_version
async def test_what_is_listed_comes_from_the_signature_and_the_docstring(version: str) -> None:
    """S25-056, S26-106; the context is no argument."""
    async with tool_wire(version, greet) as wire:
        assert await only_tool(wire) == {
            "name": "greet",
            "description": "Say hello.\n\nFurther words.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1, "description": "Whom to greet."},
                    "times": {"type": "integer", "default": 1, "description": "How often."},
                },
                "required": ["name"],
                "additionalProperties": False,
            },
        }


@each_version
async def test_a_tool_without_arguments_has_a_closed_schema(version: str) -> None:
    """protocol-versions 3, row inputSchema."""

    async def nothing() -> str:
        return ""

    async with tool_wire(version, nothing) as wire:
        tool = await only_tool(wire)
        schema = {"type": "object", "properties": {}, "additionalProperties": False}
        assert tool == {"name": "nothing", "inputSchema": schema}


@each_version
async def test_all_that_can_be_said_of_a_tool(version: str) -> None:
    server = Server("t")

    @server.tool(
        name="other.name-1_x",
        title="Title",
        description="Mine",
        annotations={"readOnlyHint": True, "title": "Old title"},
        icons=[{"src": "https://x.example/i.png", "mimeType": "image/png", "sizes": ["any"]}],
        meta={"a.b/c": 1},
    )
    async def function() -> str:
        """Not mine."""
        return ""

    async with memory_wire(server, version) as wire:
        tool = await only_tool(wire)
        assert (tool["name"], tool["description"]) == ("other.name-1_x", "Mine")
        shown = {key for key in ("title", "annotations", "icons", "_meta") if key in tool}
        later = version in HAS_STRUCTURED
        assert shown == {
            *(["annotations"] if version >= "2025-03-26" else []),
            *(["title", "_meta"] if later else []),
            *(["icons"] if version >= "2025-11-25" else []),
        }
        if later:
            assert tool["_meta"] == {"a.b/c": 1}


@pytest.mark.parametrize("name", ["", "a b", "é", "a/b", "x" * 129, "a\n", "tab\t", "💡"])
def test_names_that_no_host_takes_are_refused(name: str) -> None:
    """2025-11-25 server/tools, tool names."""
    with pytest.raises(RegistrationError, match="tool name"):
        Server("t").tool(name=name or "")(greet) if name else Server("t").add_tool(_named(""))


def _named(name: str) -> Any:
    async def function() -> str:
        return ""

    function.__name__ = name
    return function


def test_names_are_unique() -> None:
    server = Server("t")
    server.tool(greet)
    with pytest.raises(RegistrationError, match="'greet' is already registered"):
        server.tool(greet)
    assert server.remove_tool("greet")
    assert not server.remove_tool("greet")
    server.tool(greet)


async def test_decorators_give_the_function_back() -> None:
    server = Server("t")
    assert server.tool(greet) is greet
    assert server.tool(name="second")(greet) is greet


# ------------------------------------------------------------------------------------- arguments


@each_version
@pytest.mark.parametrize("absent", [{}, {"arguments": None}, {"arguments": {}}])
async def test_absent_arguments_are_none(version: str, absent: dict[str, Any]) -> None:
    async def defaults(a: int = 1, b: str = "x") -> str:
        return f"{a}{b}"

    async with tool_wire(version, defaults) as wire:
        result = await wire.result("tools/call", {"name": "defaults", **absent})
        assert result["content"] == [{"type": "text", "text": "1x"}]


@each_version
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"n": "many"}, "n"),
        ({}, "n"),
        ({"n": 1, "other": 2}, "other"),
        ({"n": None}, "n"),
        ({"n": 101}, "n"),
        ({"n": [1]}, "n"),
    ],
)
async def test_arguments_that_do_not_fit_are_told_to_the_model(
    version: str, arguments: dict[str, Any], named: str
) -> None:
    """S25-058, S26-108, SEP-1303: a result with isError that names the argument."""
    called = []

    async def count(n: Annotated[int, Meta(le=100)]) -> str:
        called.append(n)
        return str(n)

    async with tool_wire(version, count) as wire:
        result = await wire.call("count", **arguments)
        assert result["isError"] is True
        assert named in result["content"][0]["text"]
        assert not called


@each_version
@pytest.mark.parametrize("arguments", [[], [1], "text", 5, True])
async def test_arguments_that_are_no_object_are_bad_params(version: str, arguments: Any) -> None:
    async with tool_wire(version, greet) as wire:
        error = await wire.error("tools/call", {"name": "greet", "arguments": arguments})
        assert error["code"] == -32602
        assert "arguments" in error["message"]


@each_version
async def test_an_unknown_tool_is_a_protocol_error(version: str) -> None:
    async with tool_wire(version, greet) as wire:
        for name in ("no such", "", "Greet", "greet "):
            error = await wire.error("tools/call", {"name": name, "arguments": {"name": "x"}})
            assert error["code"] == -32602
            assert "tool" in error["message"]


async def test_numbers_and_objects_as_strings_are_what_they_can_only_mean() -> None:
    async def add(a: int, b: float, c: list[int], d: dict[str, int], e: bool) -> str:
        return repr((a, b, c, d, e))

    async with tool_wire(MODERN, add) as wire:
        assert await wire.text("add", a="1", b="2.5", c="[1,2]", d='{"x": 1}', e="true") == (
            "(1, 2.5, [1, 2], {'x': 1}, True)"
        )
        assert (await wire.call("add", a="1.5", b="x", c="1", d="[]", e="yes"))["isError"] is True


@each_version
async def test_text_arrives_as_it_was_sent(version: str) -> None:
    """S25-026, S26-043: U+2028, quotes, control characters, and what stands outside the basic plane."""

    async def echo(text: str) -> str:
        return text

    async with tool_wire(version, echo) as wire:
        for sent in ("", "\u2028\u2029", "\x00\x1f\x7f", '"\\', "héllo \U0001f600", "line\nline\r\n", "x" * 100_000):
            assert await wire.text("echo", text=sent) == sent


# --------------------------------------------------------------------------------------- results


class Point(Struct):
    x: int
    y: int = 0


@dataclasses.dataclass
class Circle:
    radius: float


class Row(TypedDict):
    name: str


class Pair(NamedTuple):
    left: int
    right: str


class Colour(enum.Enum):
    RED = "red"


RETURNS: list[tuple[Any, Any, str, Any]] = [
    # annotation, value, text, structured content in 2026-07-28 (... if there is none)
    (str, "hi", "hi", ...),
    (str, "", "", ...),
    (int, 5, "5", 5),
    (float, 0.5, "0.5", 0.5),
    (bool, False, "false", False),
    (list[int], [1, 2], "[1,2]", [1, 2]),
    (list[int], [], "[]", []),
    (list[str], ["a"], '["a"]', ["a"]),
    (dict[str, int], {"a": 1}, '{"a":1}', {"a": 1}),
    (dict[str, Any], {}, "{}", {}),
    (Point, Point(1), '{"x":1,"y":0}', {"x": 1, "y": 0}),
    (list[Point], [Point(1, 2)], '[{"x":1,"y":2}]', [{"x": 1, "y": 2}]),
    (Point | None, None, "null", None),
    (Point | None, Point(1, 2), '{"x":1,"y":2}', {"x": 1, "y": 2}),
    (Circle, Circle(1.5), '{"radius":1.5}', {"radius": 1.5}),
    (Row, {"name": "é"}, '{"name":"é"}', {"name": "é"}),
    (Pair, Pair(1, "r"), '[1,"r"]', [1, "r"]),
    (tuple[int, str], (1, "a"), '[1,"a"]', [1, "a"]),
    (Colour, Colour.RED, "red", "red"),
    (Literal["a", "b"], "a", "a", "a"),
    (datetime.date, datetime.date(2026, 7, 28), "2026-07-28", "2026-07-28"),
    (int | str, "five", "five", "five"),
    (None, None, "", ...),
    (Any, {"a": 1}, '{"a":1}', {"a": 1}),
    (Any, [1, "a"], '[1,"a"]', ...),
    (Any, Point(1), '{"x":1,"y":0}', {"x": 1, "y": 0}),
    (Any, 5, "5", ...),
    (list, [1, {"a": 2}], '[1,{"a":2}]', ...),
    (list[Any], [], "[]", ...),
    (Any, pathlib.PurePosixPath("/a/b"), "/a/b", ...),
]


@each_version
@pytest.mark.parametrize(("returns", "value", "text", "structured"), RETURNS, ids=lambda value: repr(value)[:30])
async def test_what_becomes_of_what_a_tool_returns(
    version: str, returns: Any, value: Any, text: str, structured: Any
) -> None:
    """Always a text block; structured content where the version has it, wrapped where it has to be an object."""

    async def tool() -> Any:
        return value

    tool.__annotations__["return"] = returns
    async with tool_wire(version, tool) as wire:
        listed = await only_tool(wire)
        result = await wire.call("tool")
        blocks = [block["text"] for block in result["content"]]
        assert blocks == ([text] if value is not None or structured is not ... else [])
        assert "isError" not in result
        if version not in HAS_STRUCTURED or structured is ...:
            assert "structuredContent" not in result
        elif version == MODERN:
            assert result["structuredContent"] == structured
        else:
            assert result["structuredContent"] in (structured, {"result": structured})
        if "outputSchema" in listed and "structuredContent" in result:
            # S25-057, S26-107: what is sent is what was promised, in every version.
            import jsonschema_rs

            jsonschema_rs.validate(listed["outputSchema"], result["structuredContent"])
        assert ("outputSchema" in listed) <= ("structuredContent" in result)


PIXEL = ImageContent(b"\x89PNG", "image/png")


@each_version
@pytest.mark.parametrize("returns", [list, list[Any], tuple, list[object], list | None, Any, "unannotated"], ids=repr)
async def test_blocks_among_other_items_go_out_as_blocks(version: str, returns: Any) -> None:
    """A model cannot see an image in base64; what stands beside it is text, or data as their JSON."""

    async def tool() -> Any:
        return ["look:", PIXEL, {"width": 1}, 3, None]

    del tool.__annotations__["return"]
    if returns != "unannotated":
        tool.__annotations__["return"] = returns
    async with tool_wire(version, tool) as wire:
        assert "outputSchema" not in await only_tool(wire)
        result = await wire.call("tool")
        shown = [block.get("text", block["type"]) for block in result["content"]]
        assert shown == ["look:", "image", '{"width":1}', "3", "null"]
        assert "structuredContent" not in result


@pytest.mark.parametrize(
    "returns", [list[ContentBlock], list[ImageContent], list[str | ImageContent], tuple[TextContent, ...]]
)
async def test_no_blocks_are_no_content(returns: Any) -> None:
    async def tool() -> Any:
        return []

    tool.__annotations__["return"] = returns
    async with tool_wire(MODERN, tool) as wire:
        assert (await wire.call("tool"))["content"] == []


async def test_bytes_among_blocks_are_blocks() -> None:
    async def tool() -> Any:
        return [PIXEL, b"x"]

    async with tool_wire(MODERN, tool) as wire:
        assert [block["type"] for block in (await wire.call("tool"))["content"]] == ["image", "resource"]


@each_version
async def test_content_goes_out_as_it_is(version: str) -> None:
    async def blocks(kind: str) -> list[ContentBlock] | ContentBlock | CallToolResult | str:
        made: dict[str, Any] = {
            "one": text("a"),
            "list": [text("a"), TextContent("b", Annotations(priority=1.0))],
            "tuple": ("a", text("b")),
            "mixed": ["a", image(b"\x89PNG", "image/png")],
            "result": CallToolResult(content=[text("r")], structured_content={"k": 1}, is_error=True),
            "nothing": [],
        }
        return made[kind]

    async with tool_wire(version, blocks) as wire:
        assert "outputSchema" not in await only_tool(wire)
        texts = {
            kind: [block.get("text") for block in (await wire.call("blocks", kind=kind))["content"]]
            for kind in ("one", "list", "tuple", "mixed", "result")
        }
        assert texts == {
            "one": ["a"], "list": ["a", "b"], "tuple": ["a", "b"], "mixed": ["a", None], "result": ["r"],
        }  # fmt: skip
        result = await wire.call("blocks", kind="result")
        assert result["isError"] is True
        assert result.get("structuredContent") == ({"k": 1} if version in HAS_STRUCTURED else None)
        mixed = (await wire.call("blocks", kind="mixed"))["content"][1]
        assert base64.b64decode(mixed["data"]) == b"\x89PNG"


@each_version
async def test_every_kind_of_content(version: str) -> None:
    """protocol-versions 3, rows content types and downgrades."""

    async def all_kinds() -> list[ContentBlock]:
        return [
            image(b"i", "image/png"),
            audio(b"a", "audio/wav"),
            embedded("x:text", "T"),
            embedded("x:blob", b"B"),
            link("x:link", "name", description="d", mime_type="t/x"),
        ]

    async with tool_wire(version, all_kinds) as wire:
        kinds = [block["type"] for block in (await wire.call("all_kinds"))["content"]]
        number = ["2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN].index(version)
        assert kinds == [
            "image",
            "audio" if number >= 2 else "text",
            *["resource" if number >= 1 else "text"] * 2,
            "resource_link" if number >= 3 else "text",
        ]


@each_version
@pytest.mark.parametrize("returns", [bytes, bytes | None, Any])
async def test_bytes_are_an_image_a_sound_or_a_resource(version: str, returns: Any) -> None:
    """By what they begin with; a resource's URI is the digest of what it holds."""
    values = {"png": b"\x89PNG\r\n\x1a\n", "wave": b"RIFF....WAVE", "other": b"abc"}

    async def raw(name: str) -> Any:
        return values[name]

    raw.__annotations__["return"] = returns
    async with tool_wire(version, raw) as wire:
        tool = (await wire.result("tools/list"))["tools"][0]
        assert "outputSchema" not in tool
        found = {name: (await wire.call("raw", name=name)) for name in values}
        contents = {name: result["content"] for name, result in found.items()}
    assert contents["png"] == [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]
    if version >= "2025-03-26":
        assert contents["wave"] == [{"type": "audio", "data": "UklGRi4uLi5XQVZF", "mimeType": "audio/wav"}]
    if version >= "2024-11-05":
        uri = "urn:sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        (block,) = contents["other"]
        assert block["resource"] == {"uri": uri, "blob": "YWJj", "mimeType": "application/octet-stream"}


@each_version
@pytest.mark.parametrize(
    ("returns", "value"),
    [(int, "five"), (Point, {"x": "one"}), (list[int], None), (Annotated[int, Meta(le=3)], 5), (Literal["a"], "b")],
)
async def test_a_result_that_breaks_its_schema_is_not_sent(
    version: str, returns: Any, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """S25-057, S26-107: the server's own fault, told to the log."""

    async def wrong() -> Any:
        return value

    wrong.__annotations__["return"] = returns
    with caplog.at_level(logging.ERROR, "mcpd"):
        async with tool_wire(version, wrong) as wire:
            result = await wire.call("wrong")
            assert result["isError"] is True
            assert "structuredContent" not in result
            assert "output schema" in result["content"][0]["text"]
            assert "wrong" in caplog.text


async def test_nan_that_breaks_a_schema_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def mean() -> float:
        return float("nan")

    async with tool_wire(MODERN, mean) as wire:
        assert (await wire.call("mean"))["isError"] is True
    assert "expected float, got null (nan and infinity are null in JSON)" in caplog.text


@each_version
async def test_nan_and_infinity_become_null_in_json(version: str) -> None:
    """JSON has no word for them."""

    async def odd() -> Any:
        return {"a": float("nan"), "b": [float("inf")]}

    async with tool_wire(version, odd) as wire:
        assert await wire.text("odd") == '{"a":null,"b":[null]}'


@each_version
async def test_tool_errors_need_no_output_schema(version: str) -> None:
    async def picky(n: int) -> Point:
        raise ToolError(f"{n} is too much")

    async with tool_wire(version, picky) as wire:
        assert "outputSchema" in await only_tool(wire) or version not in HAS_STRUCTURED
        result = await wire.call("picky", n=5)
        assert result["isError"] is True
        assert result["content"] == [{"type": "text", "text": "5 is too much"}]
        assert "structuredContent" not in result


@pytest.mark.parametrize("returns", [ImageContent, list[TextContent], CallToolResult, bytes, None, "str"])
async def test_content_and_text_have_no_output_schema(returns: Any) -> None:
    async def tool() -> Any:
        return text("x")

    tool.__annotations__["return"] = returns
    async with tool_wire(MODERN, tool) as wire:
        assert "outputSchema" not in await only_tool(wire)


def test_image_and_audio_from_files(tmp_path: pathlib.Path) -> None:
    picture = tmp_path / "a.PNG"
    picture.write_bytes(b"i")
    assert image(picture).mime_type == "image/png"
    assert image(str(picture)).data == b"i"
    assert image(picture, "image/webp").mime_type == "image/webp"
    sound = tmp_path / "a.wav"
    sound.write_bytes(b"a")
    assert audio(sound).mime_type == "audio/wav"
    with pytest.raises(ValueError, match="mime_type="):
        image(b"i")
    with pytest.raises(ValueError, match="a.wav"):
        image(sound)
    with pytest.raises(FileNotFoundError):
        image(tmp_path / "none.png")


# ------------------------------------------------------------------------------ tools that change


@each_version
async def test_tools_come_and_go_while_clients_are_connected(version: str) -> None:
    server = Server("t")
    server.tool(greet)

    async def other() -> str:
        return "other"

    async with memory_wire(server, version) as wire:
        assert (await only_tool(wire))["name"] == "greet"
        server.tool(other)
        await asyncio.sleep(0)
        assert [tool["name"] for tool in (await wire.result("tools/list"))["tools"]] == ["greet", "other"]
        assert await wire.text("other") == "other"
        server.remove_tool("other")
        await asyncio.sleep(0)
        assert (await only_tool(wire))["name"] == "greet"
        assert (await wire.error("tools/call", {"name": "other"}))["code"] == -32602


@each_version
async def test_the_last_tool_goes_and_the_capability_stays(version: str) -> None:
    """S26-104: what was declared answers with the current set, even if that is empty."""
    server = Server("t")
    server.tool(greet)
    async with memory_wire(server, version) as wire:
        server.remove_tool("greet")
        await asyncio.sleep(0)
        assert (await wire.result("tools/list"))["tools"] == []


@each_version
async def test_the_first_tool_may_come_after_the_client(version: str) -> None:
    server = Server("t")
    async with memory_wire(server, version) as wire:
        assert (await wire.result("tools/list"))["tools"] == []
        server.tool(greet)
        await asyncio.sleep(0)
        assert (await only_tool(wire))["name"] == "greet"


async def test_a_call_goes_on_though_its_tool_was_taken_away() -> None:
    server = Server("t")
    entered, go = asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> str:
        entered.set()
        await go.wait()
        return "done"

    async with memory_wire(server, "2025-06-18") as wire:
        wire.ask("tools/call", {"name": "slow"}, id=1)
        await entered.wait()
        server.remove_tool("slow")
        go.set()
        assert (await wire.answer(1))["result"]["content"][0]["text"] == "done"


@pytest.mark.medium
async def test_a_list_of_a_thousand_tools_is_one_page_and_costs_no_call_anything() -> None:
    server = Server("t")
    for number in range(1000):
        server.add_tool(greet, name=f"t{number}")
    async with memory_wire(server, MODERN) as wire:
        result = await wire.result("tools/list")
        assert len(result["tools"]) == 1000
        assert "nextCursor" not in result
        assert (await wire.text("t999", name="x")).startswith("Hello, x!")


def test_the_schemas_are_json_schema_2020_12() -> None:
    """S25-016, S26-023."""
    import jsonschema_rs

    server = Server("t")

    @server.tool
    async def everything(
        a: Annotated[int, Meta(ge=0)],
        b: list[Point] | None = None,
        c: Literal["x", "y"] = "x",
        d: dict[str, float] | None = None,
        e: Colour = Colour.RED,
    ) -> list[Point]:
        return []

    (entry,) = server.catalog.tools
    listed = entry.listed(frozenset())
    for schema in (listed.input_schema, listed.output_schema):
        built = msgspec.to_builtins(schema)
        jsonschema_rs.meta.validate(built)
        jsonschema_rs.Draft202012Validator(built)
