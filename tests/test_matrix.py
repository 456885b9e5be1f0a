"""One server with everything, asked in all six versions; every list and result compared field by field.

What a version has to show is computed from the tables below, which are those of protocol-versions.md,
section 3, and of the schemas it summarizes; never from mcpd's own. Everything that comes over the wire is
also held against the schema of its version, closed to what is newer, by the wire itself.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from msgspec import UNSET, Meta, Struct
from support.wire_schema import VERSIONS
from support.wires import CLIENT_INFO, META, MODERN, Wire, each_version, memory_wire

from mcpd import Context, Server, audio, embedded, image
from mcpd.protocol.types.base import Icon
from mcpd.protocol.types.features import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolExecution,
)
from mcpd.protocol.types.interaction import CreateMessageParams, ModelHint, ModelPreferences, SamplingMessage

# --------------------------------------------------------------------------------------- the table
#
# Kind -> member -> the versions that have it: "0-" from V0 (2024-10-07) on, "4" in V4 (2025-11-25) alone. A member
# whose value is of a kind of its own says so behind a colon.

KINDS = {
    "Implementation": "name 0-, version 0-, title 3-, icons 4-, description 4-, websiteUrl 4-",
    "Tool": (
        "name 0-, description 0-, inputSchema 0-, annotations 2-, title 3-, outputSchema 3-, _meta 3-, "
        "icons 4-, execution 4"
    ),
    "Resource": (
        "uri 0-, name 0-, description 0-, mimeType 0-, size 1-, annotations 1-:Annotations, title 3-, "
        "_meta 3-, icons 4-"
    ),
    "ResourceTemplate": (
        "uriTemplate 0-, name 0-, description 0-, mimeType 0-, annotations 1-:Annotations, title 3-, _meta 3-, icons 4-"
    ),
    "Prompt": "name 0-, description 0-, arguments 0-:PromptArgument, title 3-, _meta 3-, icons 4-",
    "PromptArgument": "name 0-, description 0-, required 0-, title 3-",
    "Annotations": "audience 1-, priority 1-, lastModified 3-",
    "text": "type 0-, text 0-, annotations 1-:Annotations, _meta 3-",
    "image": "type 0-, data 0-, mimeType 0-, annotations 1-:Annotations, _meta 3-",
    "audio": "type 2-, data 2-, mimeType 2-, annotations 2-:Annotations, _meta 3-",
    "resource": "type 1-, resource 1-:Contents, annotations 1-:Annotations, _meta 3-",
    "resource_link": (
        "type 3-, uri 3-, name 3-, title 3-, description 3-, mimeType 3-, size 3-, "
        "annotations 3-:Annotations, _meta 3-, icons 4-"
    ),
    "Contents": "uri 0-, mimeType 0-, text 0-, blob 0-, _meta 3-",
    "PromptMessage": "role 0-, content 0-:Content",
    "CreateMessageParams": (
        "messages 0-:SamplingMessage, modelPreferences 1-, systemPrompt 0-, includeContext 0-, "
        "temperature 0-, maxTokens 0-, stopSequences 0-, metadata 0-"
    ),
    "SamplingMessage": "role 0-, content 0-:Content, _meta 4-",
}
MEMBERS = {kind: dict(member.split(" ") for member in text.split(", ")) for kind, text in KINDS.items()}

# Content that a version does not know becomes a text block; from which version it is itself.
CONTENT_SINCE = {"text": 0, "image": 0, "resource": 1, "audio": 2, "resource_link": 3}

# Members of whole results that come and go.
INSTRUCTIONS_SINCE = 1
COMPLETIONS_SINCE = 2
STRUCTURED_SINCE = 3
ANY_STRUCTURED_SINCE = 5


def position(version: str) -> int:
    return VERSIONS.index(version)


def has(span: str, version: str) -> bool:
    first, dash, last = span.partition(":")[0].partition("-")
    here = position(version)
    return here == int(first) if not dash else int(first) <= here <= int(last or 5)


def shown(kind: str, full: Any, version: str) -> Any:
    """What of `full`, which has every member that 2026-07-28 and 2025-11-25 know, that version shows."""
    if isinstance(full, list):
        return [shown(kind, item, version) for item in full]
    if kind == "Content":
        return content(full, version)
    result = {}
    for member, value in full.items():
        span = MEMBERS[kind].get(member)
        assert span is not None, f"{kind}.{member} is in no table"
        if has(span, version):
            inner = span.partition(":")[2]
            result[member] = shown(inner, value, version) if inner else value
    return result


class TextOf:
    """Equal to a text block that holds some words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict) or other.get("type") != "text":
            return False
        return all(word in other["text"] for word in self.words)

    def __repr__(self) -> str:
        return f"<a text with {self.words}>"

    __hash__ = None  # type: ignore[assignment]


def content(block: dict[str, Any], version: str) -> Any:
    """A content block, or the text that stands for one that the version does not know."""
    kind = block["type"]
    if position(version) >= CONTENT_SINCE[kind]:
        return shown(kind, block, version)
    if kind == "resource_link":
        return TextOf(block["uri"])
    if kind == "resource" and "text" in block["resource"]:
        return TextOf(block["resource"]["text"])
    return TextOf("audio/wav") if kind == "audio" else TextOf(block["resource"]["uri"])


# -------------------------------------------------------------------------------------- the server

PNG, WAV = b"\x89PNG\r\n\x1a\n", b"RIFF"
PNG_64, WAV_64 = "iVBORw0KGgo=", "UklGRg=="
ICON: dict[str, Any] = {
    "src": "https://example.com/i.png",
    "mime_type": "image/png",
    "sizes": ["48x48"],
    "theme": "dark",
}
ICONS = [{"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}]
MARKS = {"com.example/key": {"deep": [1, None]}}
HINTS = {"audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2025-05-03T14:30:00Z"}
NOTES = Annotations(audience=["user", "assistant"], priority=0.5, last_modified="2025-05-03T14:30:00Z")
IDENTITY = {
    "name": "matrix",
    "version": "1.2.3",
    "title": "Matrix",
    "description": "Everything at once",
    "websiteUrl": "https://example.com",
    "icons": ICONS,
}
TOOL_HINTS = {
    "title": "Hint",
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}

BLOCKS: list[tuple[Any, dict[str, Any]]] = [
    (TextContent("words", NOTES, MARKS), {"type": "text", "text": "words", "annotations": HINTS, "_meta": MARKS}),
    (
        ImageContent(PNG, "image/png", NOTES, MARKS),
        {"type": "image", "data": PNG_64, "mimeType": "image/png", "annotations": HINTS, "_meta": MARKS},
    ),
    (
        AudioContent(WAV, "audio/wav", NOTES, MARKS),
        {"type": "audio", "data": WAV_64, "mimeType": "audio/wav", "annotations": HINTS, "_meta": MARKS},
    ),
    (
        EmbeddedResource(TextResourceContents("test://t", "inside", "text/plain", MARKS), NOTES, MARKS),
        {
            "type": "resource",
            "resource": {"uri": "test://t", "text": "inside", "mimeType": "text/plain", "_meta": MARKS},
            "annotations": HINTS,
            "_meta": MARKS,
        },
    ),
    (
        EmbeddedResource(BlobResourceContents("test://b", PNG, "image/png", MARKS), NOTES, MARKS),
        {
            "type": "resource",
            "resource": {"uri": "test://b", "blob": PNG_64, "mimeType": "image/png", "_meta": MARKS},
            "annotations": HINTS,
            "_meta": MARKS,
        },
    ),
    (
        ResourceLink(
            uri="test://l", name="link", title="Link", description="A link", mime_type="text/plain", size=3,
            icons=[Icon(**ICON)], annotations=NOTES, meta=MARKS,
        ),
        {
            "type": "resource_link", "uri": "test://l", "name": "link", "title": "Link", "description": "A link",
            "mimeType": "text/plain", "size": 3, "icons": ICONS, "annotations": HINTS, "_meta": MARKS,
        },
    ),
]  # fmt: skip


class Point(Struct):
    x: int
    y: int


class Node(Struct):
    """A tree."""

    name: str
    children: list[Node] = []


DATA: dict[str, Any] = {
    "an object": {"a": [1, {"b": None}]},
    "an array": [1, 2],
    "a string": "s",
    "a number": 1.5,
    "a boolean": False,
    "null": None,
}


def make_server() -> Server:
    server = Server(
        "matrix",
        version="1.2.3",
        title="Matrix",
        description="Everything at once",
        website_url="https://example.com",
        icons=ICONS,
        instructions="Read the matrix.",
    )

    @server.tool(title="Full", annotations=TOOL_HINTS, icons=ICONS, meta=MARKS)
    async def full(a: Annotated[int, Meta(description="A number")], b: str = "x") -> Point:
        """All that a tool can say of itself."""
        return Point(a, 2)

    server.catalog.tools.get("full").tool.execution = ToolExecution(task_support="forbidden")  # type: ignore[union-attr]

    @server.tool
    async def points() -> list[Point]:
        return [Point(1, 2)]

    @server.tool
    async def tree() -> Node | None:
        return Node("root", [Node("leaf")])

    @server.tool
    async def no_tree() -> Node | None:
        return None

    @server.tool(output_schema={"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}})
    async def nested() -> Any:
        return [1, [2, [3]]]

    @server.tool
    async def blocks() -> list[ContentBlock]:
        return [block for block, _ in BLOCKS]

    @server.tool
    async def by_hand(which: str) -> CallToolResult:
        return CallToolResult(
            content=[TextContent("by hand")],
            structured_content=DATA[which],
            meta={"com.example/mine": 1},
            result_type="complete",  # as the newest version has it; older ones must not see it
        )

    @server.tool
    async def nothing() -> CallToolResult:
        return CallToolResult(content=[], is_error=True, structured_content=UNSET)

    @server.tool
    async def progress(ctx: Context) -> None:
        await ctx.progress(1, 2, "half")
        await ctx.log("notice", [1], "logger")

    @server.tool
    async def sampling(ctx: Context) -> str:
        question = {
            "model_preferences": ModelPreferences(
                hints=[ModelHint("claude")], cost_priority=0.25, speed_priority=0.5, intelligence_priority=1
            ),
            "system_prompt": "Be kind.",
            "include_context": "none",
            "temperature": 0.5,
            "stop_sequences": ["stop"],
            "metadata": {"a": 1},
        }
        messages = [
            SamplingMessage("user", TextContent("words", NOTES, MARKS), MARKS),
            SamplingMessage("assistant", [AudioContent(WAV, "audio/wav", NOTES, MARKS)]),
        ]
        return (await ctx.sample(messages, max_tokens=5, **question)).text

    @server.resource(
        "test://full", title="Full", mime_type="text/plain", size=4, annotations=HINTS, icons=ICONS, meta=MARKS
    )
    async def full_resource() -> list[Any]:
        """All that a resource can say of itself."""
        return [
            TextResourceContents("test://full", "text", "text/plain", MARKS),
            BlobResourceContents("test://full/b", PNG, "image/png", MARKS),
        ]

    @server.resource(
        "test://many/{name}", title="Many", mime_type="text/plain", annotations=HINTS, icons=ICONS, meta=MARKS
    )
    async def many(name: str) -> str:
        """A family of resources."""
        return name

    @server.prompt(title="Full", icons=ICONS, meta=MARKS)
    async def full_prompt(
        who: Annotated[str, Meta(title="Who", description="Who it is for")],
        how: Annotated[str, Meta(title="How")] = "x",
    ) -> Any:
        """All that a prompt can say of itself."""
        return [PromptMessage("assistant", block) for block, _ in BLOCKS]

    return server


# ------------------------------------------------------------------------------------ comparisons


def result_of(body: dict[str, Any], version: str, *, hints: bool = False) -> dict[str, Any]:
    """A whole result: `body` and what each version puts around it."""
    if version != MODERN:
        return body
    envelope: dict[str, Any] = {
        "resultType": "complete",
        "_meta": {f"{META}serverInfo": IDENTITY, **body.get("_meta", {})},
    }
    return {**body, **envelope, **({"ttlMs": 0, "cacheScope": "private"} if hints else {})}


@each_version
async def test_identity_and_capabilities(version: str) -> None:
    """S25-021, S25-055, S25-062, S25-066, S25-071, S25-076, S26-037, S26-103, S26-112, S26-121, S26-133, S26-138."""
    capabilities: dict[str, Any] = {
        "logging": {},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "tools": {"listChanged": True},
    }
    if position(version) >= COMPLETIONS_SINCE:
        capabilities["completions"] = {}
    body: dict[str, Any] = {"capabilities": capabilities}
    if position(version) >= INSTRUCTIONS_SINCE:
        body["instructions"] = "Read the matrix."
    if version == MODERN:
        body["supportedVersions"] = list(reversed(VERSIONS))
    else:
        body |= {"protocolVersion": version, "serverInfo": shown("Implementation", IDENTITY, version)}
    async with memory_wire(make_server()) as wire:
        assert await wire.open(version) == result_of(body, version, hints=True)


@each_version
async def test_tools(version: str) -> None:
    full = {
        "name": "full",
        "title": "Full",
        "description": "All that a tool can say of itself.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "A number"},
                "b": {"type": "string", "default": "x"},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
        "outputSchema": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
            "required": ["x", "y"],
        },
        "annotations": TOOL_HINTS,
        "icons": ICONS,
        "execution": {"taskSupport": "forbidden"},
        "_meta": MARKS,
    }
    async with memory_wire(make_server(), version) as wire:
        result = await wire.result("tools/list")
        assert result == result_of({"tools": result["tools"]}, version, hints=True)
        listed = {tool["name"]: tool for tool in result["tools"]}
        assert listed["full"] == shown("Tool", full, version)
        # The last member that a version added is there, so the table is not merely never longer.
        assert ("execution" in listed["full"]) == (version == "2025-11-25")
        for tool in result["tools"]:
            assert ("outputSchema" in tool) <= (position(version) >= STRUCTURED_SINCE)
            if "outputSchema" in tool and version != MODERN:
                assert tool["outputSchema"]["type"] == "object"


def wrapped(schema: dict[str, Any], version: str) -> dict[str, Any]:
    """An output schema whose root is no object, in the versions that want one."""
    if version == MODERN:
        return schema
    return {"type": "object", "properties": {"result": schema}, "required": ["result"]}


@pytest.mark.parametrize("version", [v for v in VERSIONS if position(v) >= STRUCTURED_SINCE])
async def test_output_schemas_that_are_no_objects(version: str) -> None:
    """SEP-2106: any root in 2026-07-28; before that schema and content are wrapped together, references and all."""
    from jsonschema_rs import validator_for

    point = {
        "title": "Point",
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
        "required": ["x", "y"],
    }
    async with memory_wire(make_server(), version) as wire:
        listed = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        items = {"type": "array", "items": point}
        assert listed["points"]["outputSchema"] == wrapped(items, version)
        if version != MODERN:
            nested = listed["nested"]["outputSchema"]["properties"]["result"]
            assert nested["items"]["anyOf"][1] == {"$ref": "#/properties/result"}
        for name, value in (
            ("points", [{"x": 1, "y": 2}]),
            ("tree", {"name": "root", "children": [{"name": "leaf", "children": []}]}),
            ("no_tree", None),
            ("nested", [1, [2, [3]]]),
        ):
            result = await wire.call(name)
            expected = value if version == MODERN else {"result": value}
            assert result["structuredContent"] == expected
            assert json.loads(result["content"][0]["text"]) == value
            # The specification asks the server for content that conforms: S25-057, S26-107.
            schema = listed[name]["outputSchema"]
            validator = validator_for(schema)
            assert validator.is_valid(result["structuredContent"]), (name, schema)
            assert not validator.is_valid({"result": "wrong"}), f"the schema of {name} admits anything: {schema}"


@each_version
async def test_structured_content(version: str) -> None:
    """From V3 an object, from V5 any JSON, null included; what is no object is wrapped between."""
    async with memory_wire(make_server(), version) as wire:
        for which, value in DATA.items():
            body: dict[str, Any] = {"content": [{"type": "text", "text": "by hand"}], "_meta": {"com.example/mine": 1}}
            if position(version) >= ANY_STRUCTURED_SINCE or (
                position(version) >= STRUCTURED_SINCE and isinstance(value, dict)
            ):
                body["structuredContent"] = value
            elif position(version) >= STRUCTURED_SINCE:
                body["structuredContent"] = {"result": value}
                body["_meta"]["fastmcp"] = {"wrap_result": True}  # so that its client unwraps it
            if position(version) == 0:
                body["toolResult"] = "by hand"
            assert await wire.call("by_hand", which=which) == result_of(body, version), which
        result = await wire.call("full", a=1)
        assert ("structuredContent" in result) == (position(version) >= STRUCTURED_SINCE)
        assert result["content"] == [{"type": "text", "text": '{"x":1,"y":2}'}]


@each_version
async def test_an_empty_failed_result(version: str) -> None:
    body: dict[str, Any] = {"content": [], "isError": True}
    if position(version) == 0:
        body["toolResult"] = []
    async with memory_wire(make_server(), version) as wire:
        assert await wire.call("nothing") == result_of(body, version)


@each_version
async def test_content_blocks(version: str) -> None:
    """S25-065, S25-067, S25-068, S25-069, S26-119, S26-124, S26-125, S26-126.

    Binary data are base64; MIME types and URIs are there.
    """
    expected = [content(block, version) for _, block in BLOCKS]
    async with memory_wire(make_server(), version) as wire:
        result = await wire.call("blocks")
        assert result["content"] == expected
        if position(version) == 0:
            assert result["toolResult"] == expected
        else:
            assert "toolResult" not in result
        prompt = await wire.result("prompts/get", {"name": "full_prompt", "arguments": {"who": "me"}})
        messages = [{"role": "assistant", "content": block} for block in expected]
        body = {"messages": messages, "description": "All that a prompt can say of itself."}
        assert prompt == result_of(body, version)


@each_version
async def test_resources(version: str) -> None:
    full = {
        "uri": "test://full",
        "name": "full_resource",
        "title": "Full",
        "description": "All that a resource can say of itself.",
        "mimeType": "text/plain",
        "size": 4,
        "annotations": HINTS,
        "icons": ICONS,
        "_meta": MARKS,
    }
    template = {
        "uriTemplate": "test://many/{name}",
        "name": "many",
        "title": "Many",
        "description": "A family of resources.",
        "mimeType": "text/plain",
        "annotations": HINTS,
        "icons": ICONS,
        "_meta": MARKS,
    }
    contents = [
        {"uri": "test://full", "text": "text", "mimeType": "text/plain", "_meta": MARKS},
        {"uri": "test://full/b", "blob": PNG_64, "mimeType": "image/png", "_meta": MARKS},
    ]
    async with memory_wire(make_server(), version) as wire:
        assert await wire.result("resources/list") == result_of(
            {"resources": [shown("Resource", full, version)]}, version, hints=True
        )
        assert await wire.result("resources/templates/list") == result_of(
            {"resourceTemplates": [shown("ResourceTemplate", template, version)]}, version, hints=True
        )
        assert await wire.result("resources/read", {"uri": "test://full"}) == result_of(
            {"contents": shown("Contents", contents, version)}, version, hints=True
        )


@each_version
async def test_prompts(version: str) -> None:
    full = {
        "name": "full_prompt",
        "title": "Full",
        "description": "All that a prompt can say of itself.",
        "arguments": [
            {"name": "who", "title": "Who", "description": "Who it is for", "required": True},
            {"name": "how", "title": "How", "required": False},
        ],
        "icons": ICONS,
        "_meta": MARKS,
    }
    async with memory_wire(make_server(), version) as wire:
        assert await wire.result("prompts/list") == result_of(
            {"prompts": [shown("Prompt", full, version)]}, version, hints=True
        )


@each_version
async def test_progress_and_log_messages(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        meta = {"progressToken": "t", f"{META}logLevel": "debug"} if version == MODERN else {"progressToken": "t"}
        await wire.call("progress", meta)
        progress = {"progressToken": "t", "progress": 1, "total": 2}
        if position(version) >= 2:
            progress["message"] = "half"
        level = "notice" if position(version) >= 1 else "info"
        assert [message["params"] for message in wire.heard] == [
            progress,
            {"level": level, "logger": "logger", "data": [1]},
        ]


@each_version
async def test_empty_results(version: str) -> None:
    """S25-044: legacy empty results hold nothing at all; modern results always say what they are (S26-005)."""
    async with memory_wire(make_server(), version) as wire:
        if version == MODERN:
            for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
                result = await wire.result(method)
                assert result["resultType"] == "complete"
                assert result["_meta"] == {f"{META}serverInfo": IDENTITY}
            return
        assert await wire.result("ping") == {}
        assert await wire.result("logging/setLevel", {"level": "error"}) == {}
        assert await wire.result("resources/subscribe", {"uri": "test://full"}) == {}
        assert await wire.result("resources/unsubscribe", {"uri": "test://full"}) == {}


@each_version
async def test_completion(version: str) -> None:
    params = {"ref": {"type": "ref/prompt", "name": "full_prompt"}, "argument": {"name": "who", "value": ""}}
    async with memory_wire(make_server(), version) as wire:
        body = {"completion": {"values": [], "total": 0, "hasMore": False}}
        assert await wire.result("completion/complete", params) == result_of(body, version)


# ------------------------------------------------------------------------- what we ask the client


async def asked(wire: Wire, tool: str) -> Any:
    """The params of the one question that a tool asks; answered with an error, so that it ends."""
    request_id = wire.ask("tools/call", {"name": tool})
    message = await wire.receive()
    if wire.version == MODERN:
        (question,) = message["result"]["inputRequests"].values()
        return question["params"]
    assert message["method"], message
    wire.send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -1, "message": "no"}})
    await wire.answer(request_id)
    return message["params"]


@each_version
async def test_sampling(version: str) -> None:
    full = {
        "messages": [
            {
                "role": "user",
                "content": {"type": "text", "text": "words", "annotations": HINTS, "_meta": MARKS},
                "_meta": MARKS,
            },
            {
                "role": "assistant",
                "content": {
                    "type": "audio",
                    "data": WAV_64,
                    "mimeType": "audio/wav",
                    "annotations": HINTS,
                    "_meta": MARKS,
                },
            },
        ],
        "modelPreferences": {
            "hints": [{"name": "claude"}],
            "costPriority": 0.25,
            "speedPriority": 0.5,
            "intelligencePriority": 1,
        },
        "systemPrompt": "Be kind.",
        "includeContext": "none",
        "temperature": 0.5,
        "maxTokens": 5,
        "stopSequences": ["stop"],
        "metadata": {"a": 1},
    }
    expected = shown("CreateMessageParams", full, version)
    if position(version) >= 4:  # a message may hold several blocks
        expected["messages"][1]["content"] = [expected["messages"][1]["content"]]
    async with memory_wire(make_server(), version, capabilities={"sampling": {}}) as wire:
        assert await asked(wire, "sampling") == expected


def test_the_table_is_about_what_is_there() -> None:
    """Each member of a struct of ours that is shown to clients stands in the table."""
    from msgspec.structs import fields

    from mcpd.protocol.types import base, features

    described = {
        "Implementation": base.Implementation,
        "Tool": features.Tool,
        "Resource": features.Resource,
        "ResourceTemplate": features.ResourceTemplate,
        "Prompt": features.Prompt,
        "PromptArgument": features.PromptArgument,
        "Annotations": Annotations,
        "resource_link": ResourceLink,
        "text": TextContent,
        "image": ImageContent,
        "audio": AudioContent,
        "resource": EmbeddedResource,
        "PromptMessage": PromptMessage,
        "SamplingMessage": SamplingMessage,
        # Tools of sampling have tests of their own.
        "CreateMessageParams": CreateMessageParams,
    }
    for kind, struct in described.items():
        names = {field.encode_name for field in fields(struct)} - {"tools", "toolChoice"}
        assert names | {"type"} == MEMBERS[kind].keys() | {"type"}, kind
    assert CLIENT_INFO["name"]
    assert audio(WAV, "audio/wav").data
    assert image(PNG, "image/png").data
    assert embedded("test://e", "x").resource.text == "x"
