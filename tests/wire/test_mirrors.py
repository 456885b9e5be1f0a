"""`x-mcp-header` in schemas: where it may stand, and what becomes of a tool that has it elsewhere."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import pytest
from msgspec import Meta, Raw, Struct

from mcpd import Server
from mcpd.errors import RegistrationError
from mcpd.protocol.wire.headers import Mirror, mirrors, without_mirrors

STRING = {"type": "string", "x-mcp-header": "Region"}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_annotated_properties_are_found_at_any_depth() -> None:
    """S26-079: reached by `properties` alone."""
    found = mirrors(
        schema(
            region=STRING,
            plain={"type": "string"},
            deep=schema(
                shard={"type": "integer", "x-mcp-header": "X-Shard"}, dry={"type": "boolean", "x-mcp-header": "Dry"}
            ),
        )
    )
    assert found == (
        Mirror("Mcp-Param-Region", b"mcp-param-region", ("region",)),
        Mirror("Mcp-Param-X-Shard", b"mcp-param-x-shard", ("deep", "shard")),
        Mirror("Mcp-Param-Dry", b"mcp-param-dry", ("deep", "dry")),
    )


@pytest.mark.parametrize(
    "harmless",
    [
        schema(),
        schema(**{"x-mcp-header": {"type": "string"}}),
        schema(a={"type": "object", "default": {"x-mcp-header": "no"}}),
        schema(
            a={"enum": [{"x-mcp-header": "no"}], "const": {"x-mcp-header": "no"}, "examples": [{"x-mcp-header": 1}]}
        ),
        {"type": "object", "$defs": {"x-mcp-header": {"type": "string"}}},
        Raw(b'{"x-mcp-header": 5}'),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_only_looks_like_it(harmless: Any) -> None:
    """A property of that name, and data inside the schema, are no annotations."""
    assert mirrors(harmless) == ()
    if isinstance(harmless, dict):
        assert without_mirrors(harmless) == harmless


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (schema(a={"type": "string", "x-mcp-header": ""}), "S26-074 empty"),
        (schema(a={"type": "string", "x-mcp-header": None}), "S26-074 null"),
        (schema(a={"type": "string", "x-mcp-header": {}}), "S26-074 an object"),
        (schema(a={"type": "string", "x-mcp-header": ["A"]}), "S26-074 an array"),
        (schema(a={"type": "string", "x-mcp-header": 5}), "S26-074 a number"),
        (schema(a={"type": "string", "x-mcp-header": "a b"}), "S26-075 a space"),
        (schema(a={"type": "string", "x-mcp-header": "a:b"}), "S26-075 a colon"),
        (schema(a={"type": "string", "x-mcp-header": "ä"}), "S26-075 not ASCII"),
        (schema(a={"type": "string", "x-mcp-header": "a\r\nb"}), "S26-075 control characters"),
        (schema(a=STRING, b={"type": "integer", "x-mcp-header": "REGION"}), "S26-076 twice but for case"),
        (schema(a=STRING, b=schema(c=STRING)), "S26-076 twice at different depths"),
        (schema(a={"type": "number", "x-mcp-header": "A"}), "S26-077 a number"),
        (schema(a={"type": "object", "x-mcp-header": "A"}), "S26-077 an object"),
        (schema(a={"type": ["string", "null"], "x-mcp-header": "A"}), "S26-077 not one type"),
        (schema(a={"x-mcp-header": "A"}), "S26-077 no type"),
        ({"type": "object", "x-mcp-header": "A"}, "S26-079 the root"),
        (schema(a={"type": "array", "items": STRING}), "S26-079 items"),
        (schema(a={"anyOf": [STRING]}), "S26-079 a combination"),
        ({"type": "object", "if": schema(a=STRING)}, "S26-079 a condition"),
        ({"type": "object", "$defs": {"a": STRING}}, "S26-079 behind $ref"),
        ({"type": "object", "patternProperties": {"^a": STRING}}, "S26-079 patternProperties"),
        ({"type": "object", "additionalProperties": STRING}, "S26-079 additionalProperties"),
        (schema(a={"type": "array", "prefixItems": [schema(b=STRING)]}), "S26-079 below an array"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_allowed(wrong: dict[str, Any], why: str) -> None:
    """S26-074, S26-075, S26-076, S26-077, S26-078, S26-079.

    Each breach is named, and the schema is published without its annotations.
    """
    with pytest.raises(RegistrationError, match="x-mcp-header at"):
        mirrors(wrong)
    assert mirrors(without_mirrors(wrong)) == ()
    assert "x-mcp-header" not in str(without_mirrors(wrong))


def test_a_typed_tool_names_its_headers() -> None:
    server = Server("typed")

    class Place(Struct):
        city: str

    @server.tool
    async def forecast(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})], place: Place) -> str:
        return region

    entry = server.catalog.tools.find("forecast")
    assert entry is not None
    assert [mirror.header for mirror in entry.mirrors] == ["Mcp-Param-Region"]
    assert entry.listed(frozenset()).input_schema["properties"]["region"]["x-mcp-header"] == "Region"
    assert not any("x-mcp-header" in str(problem) for problem in server.problems())


def test_a_wrong_annotation_is_a_problem_and_is_not_published(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("wrong")

    @server.tool
    async def forecast(region: Annotated[float, Meta(extra_json_schema={"x-mcp-header": "Region"})]) -> str:
        return str(region)

    assert any("x-mcp-header" in str(problem) for problem in server.problems())
    entry = server.catalog.tools.find("forecast")
    assert entry is not None
    with caplog.at_level(logging.ERROR, "mcpd"):
        assert entry.mirrors == ()
        assert "x-mcp-header" not in str(entry.listed(frozenset()).input_schema)
    assert len(caplog.records) <= 1
