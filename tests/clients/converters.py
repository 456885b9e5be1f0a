"""Runs where `requirements-converters.txt` is installed. A line in: {"schema", "values", "is_output"}; a line out:
{"failed": what each converter and validator had to say, "strict": whether OpenAI's strict mode takes the schema}.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

import fastjsonschema  # noqa: E402
import jsonschema  # noqa: E402
from agents.exceptions import UserError  # noqa: E402
from agents.strict_schema import ensure_strict_json_schema  # noqa: E402
from google.adk.tools._gemini_schema_util import _to_gemini_schema  # noqa: E402
from google.genai import _mcp_utils  # noqa: E402

DRAFTS = (jsonschema.Draft7Validator, jsonschema.Draft201909Validator, jsonschema.Draft202012Validator)


class _Tool:
    name = "tool"
    description = "A tool."

    def __init__(self, schema: Any) -> None:
        self.input_schema = schema


def is_strict(schema: Any) -> bool:
    """Whether openai-agents hands it to the model in strict mode, as it does with a server's tools."""
    try:
        ensure_strict_json_schema(copy.deepcopy(schema), _reject_open_objects=True)
    except UserError:
        return False
    return True


def _without_closing(node: Any) -> Any:
    """google-genai up to 3.4 fails on `additionalProperties: false`, which the specification recommends."""
    if isinstance(node, list):
        return [_without_closing(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _without_closing(value)
        for key, value in node.items()
        if key != "additionalProperties" or not isinstance(value, bool)
    }


def _untyped(schema: Any, path: str = "") -> Iterator[str]:
    """What Gemini would be told nothing of: parts of a converted schema without a type. `items` may be of any."""
    if not (schema.type or schema.any_of or schema.nullable):
        yield path or "/"
    for name, member in (schema.properties or {}).items():
        yield from _untyped(member, f"{path}/{name}")
    for member in schema.any_of or ():
        yield from _untyped(member, f"{path}/anyOf")
    if schema.items:
        yield from _untyped(schema.items, f"{path}/items")


def judge(schema: Any, values: list[Any], is_output: bool) -> Iterator[str]:
    """What goes wrong with a schema, a line each."""
    for draft in DRAFTS:
        try:
            draft.check_schema(schema)
            for value in values:
                draft(schema, format_checker=draft.FORMAT_CHECKER if is_output else None).validate(value)
        except jsonschema.exceptions.ValidationError as error:
            yield f"jsonschema {draft.__name__}: {error.message}"
        except jsonschema.exceptions.SchemaError as error:
            yield f"jsonschema {draft.__name__}: the schema: {error.message}"
    try:
        check = fastjsonschema.compile(
            {"$schema": "http://json-schema.org/draft-07/schema#", **schema}, use_default=False, use_formats=is_output
        )
        for value in values:
            check(value)
    except Exception as error:
        yield f"fastjsonschema: {error}"
    if is_output:
        return
    try:
        ensure_strict_json_schema(copy.deepcopy(schema))
    except UserError as error:
        # A map has no strict form, and the converter says so itself.
        if "additionalProperties should not be set" not in str(error):
            yield f"openai-agents: {error}"
    except Exception as error:
        yield f"openai-agents: {error!r}"
    try:
        for place in _untyped(_to_gemini_schema(copy.deepcopy(schema))):
            yield f"google-adk: nothing is left of {place}"
        _mcp_utils.mcp_to_gemini_tool(_Tool(_without_closing(schema)))  # type: ignore[arg-type]
    except Exception as error:
        yield f"Gemini's converters: {error!r}"


for line in sys.stdin:
    asked = json.loads(line)
    answer = {"failed": list(judge(**asked)), "strict": is_strict(asked["schema"])}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
