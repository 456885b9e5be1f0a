"""Writes `assets/mcpd.schema.json` anew, after a change of what mcpd.toml may say.

The schema is built from the structs in `mcpd.sources.tables` and the options of `mcpd serve`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from mcpd.sources.configuration import serve_keys
from mcpd.sources.mounts.settings import MountTable
from mcpd.sources.scaffold import shipped_file
from mcpd.sources.tables import PROFILES, Configuration, OpenApiTable, ToolTable

__all__ = ["written"]


def written() -> str:
    """The text of the file."""
    return json.dumps(_configuration_schema(), indent=2, ensure_ascii=False) + "\n"


def _configuration_schema() -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([Configuration])
    whole = {name: _without_defaults(table) for name, table in components.items()}
    root = whole.pop(schema["$ref"].rpartition("/")[2])
    properties = {
        name: {**whole[one["$ref"].rpartition("/")[2]], "default": {}} if "$ref" in one else one
        for name, one in _resolved(root["properties"]).items()
    }
    properties["serve"] = {
        "type": "object",
        "description": properties["serve"]["description"],
        "properties": {
            key: {"description": option.help, **_type(option, kind)}
            for key, (_, _, option, kind) in serve_keys().items()
        },
        "additionalProperties": False,
    }
    properties["mounts"] = {**properties["mounts"], "additionalProperties": _mount_schema()}
    inner = properties["auth"]["properties"]
    asked = _resolved(inner)["introspection"]
    inner["introspection"] = {
        **whole[asked["$ref"].rpartition("/")[2]],
        "description": inner["introspection"]["description"],
    }
    (table,), tables = msgspec.json.schema_components([OpenApiTable])
    properties["openapi"]["additionalProperties"] = _without_defaults(tables[table["$ref"].rpartition("/")[2]])
    docs = properties["docs"]["properties"]
    docs["tools"], argument = _tools_schema(docs["tools"])
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "mcpd.toml",
        "description": "Settings of a folder that is served as an MCP server.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "definitions": {"argument": argument},
    }


def _mount_schema() -> dict[str, Any]:
    (table,), components = msgspec.json.schema_components([MountTable])
    found = _without_defaults(components[table["$ref"].rpartition("/")[2]])
    return {**found, "properties": _resolved(found["properties"])}


def _tools_schema(said: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of `tools` in `[docs]` and the schema of one argument."""
    (tool,), components = msgspec.json.schema_components([ToolTable])
    whole = {name: _without_defaults(table) for name, table in components.items()}
    table = whole[tool["$ref"].rpartition("/")[2]]
    properties = _resolved(table["properties"])
    arguments = whole[properties["arguments"]["$ref"].rpartition("/")[2]]
    argument = {"$ref": "#/definitions/argument"}
    names = {
        name: {**one, "anyOf": [*(part for part in one["anyOf"] if part.get("type") == "string"), argument]}
        for name, one in arguments["properties"].items()
    }
    properties["arguments"] = {**arguments, "properties": names, "default": {}}
    tables = {"type": "object", "additionalProperties": {**table, "properties": properties}}
    found = {"description": said["description"], "anyOf": [{"enum": list(PROFILES)}, tables], "default": {}}
    return found, whole["ArgumentTable"]


def _resolved(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        name: next((part for part in one.get("anyOf", ()) if "$ref" in part), one) if "anyOf" in one else one
        for name, one in properties.items()
    }


def _without_defaults(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table's schema without null defaults, which TOML cannot express."""
    found = {name: value for name, value in table.items() if name not in ("title", "required")}
    found["properties"] = {
        name: {key: value for key, value in _not_null(one).items() if key != "default" or value is not None}
        for name, one in table["properties"].items()
    }
    return found


def _not_null(one: dict[str, Any]) -> dict[str, Any]:
    kinds = [part for part in one.get("anyOf", ()) if part != {"type": "null"}]
    if len(kinds) != 1:
        return one
    return {**{key: value for key, value in one.items() if key != "anyOf"}, **kinds[0]}


def _type(option: Any, kind: Any) -> dict[str, Any]:
    kinds = (kind, *get_args(kind))
    if kind is bool:
        return {"type": "boolean"}
    if option.choices:
        return {"enum": list(option.choices)}
    if float in kinds:
        return {"type": "number", "minimum": 0}
    if int in kinds:
        number = {"type": "integer", "minimum": 1}
        return {"anyOf": [number, {"type": "string", "pattern": "^[0-9]+ *[KMGkmg]?"}]} if option.is_size else number
    if get_origin(kind) is tuple:
        return {"type": "array", "items": {"type": "string"}}
    return {"type": "string"}


if __name__ == "__main__":
    Path(shipped_file()).write_text(written(), encoding="utf-8")
