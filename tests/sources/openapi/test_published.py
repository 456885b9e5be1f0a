"""Published OpenAPI documents: each operation becomes a tool, and a call with made-up arguments sends its request."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from conftest import REPOSITORY
from support.raw_http import as_json, raw_server
from support.wires import MODERN, memory_wire

from mcpd import Server

pytestmark = pytest.mark.slow

FOLDER = REPOSITORY / ".tools" / "openapi"
METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
# How many operations each has that cannot be tools, since they are at another server.
DOCUMENTS = {
    "github.json": 1, "galaxy.yaml": 0, "petstore.json": 0, "petstore31.json": 0, "openai.yml": 0, "anthropic.yml": 0,
    "cohere.yml": 0,
}  # fmt: skip


def content_of(path: Path) -> Any:
    if not path.exists():
        pytest.skip("needs published OpenAPI documents: make setup-test gets them")
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=yaml.CSafeLoader)


def example(schema: Any, root: Any, depth: int = 0) -> Any:
    """A value that fits most schemas: required members only."""
    if depth > 12 or not isinstance(schema, dict):
        return "x"
    if "$ref" in schema:
        return example(root["$defs"][schema["$ref"].rpartition("/")[2]], root, depth + 1)
    if "default" in schema or schema.get("enum"):
        return schema.get("default", (schema.get("enum") or [None])[0])
    for several in ("anyOf", "oneOf"):
        if several in schema and not schema.get("properties"):
            return example(schema[several][0], root, depth + 1)
    if "allOf" in schema:
        parts = [example({**part}, root, depth + 1) for part in schema["allOf"]]
        return {name: each for part in parts if isinstance(part, dict) for name, each in part.items()} or parts[0]
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            return {name: example(properties.get(name), root, depth + 1) for name in schema.get("required", ())}
        case "array":
            return [example(schema.get("items"), root, depth + 1)] * max(1, schema.get("minItems", 1))
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
    return "x" * max(1, schema.get("minLength", 1))


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_each_operation_is_a_tool_that_sends_its_request(name: str) -> None:
    content = content_of(FOLDER / name)
    operations = [
        (method, path)
        for path, item in content["paths"].items()
        for method in METHODS
        if isinstance(item.get(method), dict)
    ]  # fmt: skip
    async with raw_server(lambda _: as_json([1])) as api:
        server = Server("published", page_size=5000)
        names = server.add_openapi(FOLDER / name, base=f"{api.url}/base", timeout=20)
        assert len(operations) - len(names) == DOCUMENTS[name]
        assert sum(problem.is_error for problem in server.problems()) == DOCUMENTS[name]
        async with memory_wire(server, MODERN) as wire:
            tools = (await wire.result("tools/list"))["tools"]
            assert [tool["name"] for tool in tools] == names
            assert all(len(each) <= 64 for each in names)
            templates = {
                re.compile(
                    re.sub(r"\\\{[^{}]*\\\}", "[^/]+", re.escape(f"{method.upper()} /base{path.partition('?')[0]}"))
                )
                for method, path in operations
            }
            sent = 0
            for tool in tools:
                schema = tool["inputSchema"]
                jsonschema_rs.meta.validate(schema)
                arguments = example(schema, schema)
                before = len(api.asked)
                result = await wire.call(tool["name"], **arguments)
                if len(api.asked) > before:
                    request = api.asked[-1]
                    shown = f"{request.method} {request.path.partition('?')[0]}"
                    assert any(each.fullmatch(shown) for each in templates), shown
                    sent += 1
                else:
                    assert result["isError"], result
        await server.aclose()
    # The others have schemas for which this file makes no value that fits.
    assert sent >= 0.9 * len(tools)
