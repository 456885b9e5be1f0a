"""Forms: the flat object schemas of elicitation, from Python types, and their values back into those types.

Spec: 2026-07-28 client/elicitation, requested schema: strings, numbers, booleans, and enums of strings,
single or several, with titles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import ValidationError, convert
from msgspec.json import schema as json_schema

from ..errors import LocalProtocolError

__all__ = ["check_values", "form_schema", "read_form"]

_KEPT = {
    "string": ("title", "description", "default", "minLength", "maxLength", "format", "enum", "enumNames", "oneOf"),
    "number": ("title", "description", "default", "minimum", "maximum"),
    "integer": ("title", "description", "default", "minimum", "maximum"),
    "boolean": ("title", "description", "default"),
    "array": ("title", "description", "default", "minItems", "maxItems", "items"),
}
_FORMATS = ("email", "uri", "date", "date-time")


def form_schema(form: type | Mapping[str, Any]) -> tuple[dict[str, Any], type | None]:
    """The schema to ask with, and the type to read the answer into (None for a schema given as a mapping).

    Raises LocalProtocolError for what a form cannot hold, naming the field.
    """
    if isinstance(form, Mapping):
        if form.get("type") != "object" or not isinstance(form.get("properties"), Mapping):
            raise LocalProtocolError('a form schema is {"type": "object", "properties": {…}}')
        for name, member in form["properties"].items():
            if not isinstance(member, Mapping) or member.get("type") not in _KEPT:
                raise LocalProtocolError(f"form field {name!r}: only {', '.join(_KEPT)} can stand in a form")
        return dict(form), None
    try:
        whole = json_schema(form)
    except TypeError as error:
        raise LocalProtocolError(f"{form!r} cannot be a form: {error}") from None
    definitions = whole.pop("$defs", {})
    root = _resolve(whole, definitions)
    if root.get("type") != "object" or "properties" not in root:
        raise LocalProtocolError(f"{form!r} cannot be a form: use a struct, dataclass or TypedDict")
    members = {name: _member(name, member, definitions) for name, member in root["properties"].items()}
    schema: dict[str, Any] = {"type": "object", "properties": members}
    if root.get("required"):
        schema["required"] = list(root["required"])
    return schema, form


def _resolve(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    reference = node.get("$ref")
    if reference is None:
        return dict(node)
    target: dict[str, Any] = definitions[reference.rpartition("/")[2]]
    return {**target, **{key: value for key, value in node.items() if key != "$ref"}}


def _member(name: str, node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    member = _resolve(node, definitions)
    choices = member.pop("anyOf", None)
    if choices is not None:
        real = [choice for choice in choices if choice.get("type") != "null"]
        if len(real) != 1:
            raise LocalProtocolError(f"form field {name!r}: a form field has one type")
        member = {**_resolve(real[0], definitions), **member}
    if member.get("default", ...) is None:
        del member["default"]
    if "enum" in member:
        member["enum"] = [value for value in member["enum"] if value is not None]
        if not all(isinstance(value, str) for value in member["enum"]):
            raise LocalProtocolError(f"form field {name!r}: the values of a choice are strings")
        member["type"] = "string"
        member.pop("title", None) if "oneOf" in member else None
    kind = member.get("type")
    if kind not in _KEPT:
        raise LocalProtocolError(f"form field {name!r}: only strings, numbers, booleans and choices can stand in a form")
    if kind == "array":
        items = _resolve(member.get("items") or {}, definitions)
        if "enum" not in items and "anyOf" not in items:
            raise LocalProtocolError(f"form field {name!r}: a list in a form is a choice of several strings")
        member["items"] = {"type": "string", "enum": list(items["enum"])} if "enum" in items else {"anyOf": items["anyOf"]}
    if member.get("format") not in (None, *_FORMATS):
        del member["format"]
    if "oneOf" in member:
        member.pop("enum", None)
    return {"type": kind} | {key: member[key] for key in _KEPT[kind] if key in member}


def read_form(content: Mapping[str, Any], form: type) -> Any:
    """The values as `form`. Raises ValidationError naming the field."""
    return convert(dict(content), form)


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


def check_values(content: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Check a form's values against a flat schema given as JSON. Raises ValidationError naming the field."""
    members: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in content:
            raise ValidationError(f"Expected a value for {name}")
    for name, value in content.items():
        member = members.get(name)
        if member is None:
            continue
        kind = member.get("type", "string")
        if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
            raise ValidationError(f"Expected {kind} for {name}")
        allowed = _allowed(member)
        if allowed is not None and any(item not in allowed for item in (value if kind == "array" else [value])):
            raise ValidationError(f"Expected one of {', '.join(map(str, allowed))} for {name}")


def _allowed(member: Mapping[str, Any]) -> list[Any] | None:
    if member.get("type") == "array":
        member = member.get("items", {})
    if "enum" in member:
        return list(member["enum"])
    choices = member.get("oneOf") or member.get("anyOf")
    return [choice.get("const") for choice in choices] if choices else None
