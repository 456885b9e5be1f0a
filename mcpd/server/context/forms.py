"""Forms of elicitation: flat object schemas from Python types or JSON, and their values.

A field is a string, number, boolean, one of some strings, or several of some strings. Only keywords of the
specification are sent. Older versions' forms are made elsewhere. Spec: 2026-07-28 client/elicitation, requested schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import EnumMeta
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Meta, Struct, ValidationError, convert, defstruct, to_builtins
from msgspec.inspect import type_info
from msgspec.json import schema as json_schema

from mcpd.errors import LocalProtocolError
from mcpd.protocol.schemas import Schema
from mcpd.server.functions.results import dec_hook

_ROOT = ("$schema", "type", "properties", "required")
_KEPT = {
    "string": ("title", "description", "default", "minLength", "maxLength", "format", "enum", "enumNames", "oneOf"),
    "number": ("title", "description", "default", "minimum", "maximum"),
    "integer": ("title", "description", "default", "minimum", "maximum"),
    "boolean": ("title", "description", "default"),
    "array": ("title", "description", "default", "minItems", "maxItems", "items"),
}
_FORMATS = ("email", "uri", "date", "date-time")


def choices(titles: Mapping[str, str] | Iterable[str]) -> Meta:
    """Return metadata for one of several values with titles: `Annotated[str, choices({"r": "Red", "g": "Green"})]`.

    With a list each value is its own title. For a choice of several use `list[Annotated[str, choices({…})]]`. Without
    titles use a Literal or an Enum.
    """
    if not isinstance(titles, Mapping):
        titles = {value: value for value in titles}
    return Meta(extra_json_schema={"oneOf": [{"const": value, "title": title} for value, title in titles.items()]})


class _Single(Struct):
    # A form of one field, for a bare type: its answer is the value alone.
    value: Any


def form_schema(form: type | Mapping[str, Any]) -> tuple[dict[str, Any], type | None]:
    """Return the schema to send, and the type of the answer (None for a schema given as a mapping).

    Raises LocalProtocolError for a field that a form cannot have, naming the field.
    """
    if isinstance(form, Mapping):
        return _flat(form, form.get("$defs", {}), 'a form schema is {"type": "object", "properties": {…}}'), None
    if problem := _why_no_type(form):
        raise LocalProtocolError(problem)
    # Other types are equal although their order differs, as Literal["a", "b"] and Literal["b", "a"].
    is_class: bool = isinstance(form, type)  # not for Annotated and the like
    return _type_schema(form) if is_class else _type_schema.__wrapped__(form)


@lru_cache(256)
def _type_schema(form: Any) -> tuple[dict[str, Any], type]:
    if hasattr(form, "model_json_schema"):  # a pydantic model
        whole = form.model_json_schema()
        return _flat(whole, whole.get("$defs", {}), f"{form!r} cannot be a form"), form

    if _is_bare(form):
        form = defstruct("Form", [("value", form)], bases=(_Single,))
    try:
        whole = json_schema(form)
    except TypeError as error:
        raise LocalProtocolError(f"{form!r} cannot be a form: {error}") from None

    definitions = whole.pop("$defs", {})
    problem = (
        f"{form!r} cannot be a form: use a struct, dataclass, TypedDict or pydantic model, or the type of one field"
    )
    schema = _flat(_resolve(whole, definitions), definitions, problem)
    _add_what_msgspec_drops(schema["properties"], form)
    return schema, form


def _why_no_type(form: Any) -> str | None:
    # Return what to pass instead of an object that is not a type.
    if form is None:
        return "None cannot be a form; for a question that is answered with yes or no, pass bool"
    if not isinstance(form, (list, tuple, set, frozenset, Meta)):
        return None
    what = "choices(…)" if isinstance(form, Meta) else repr(form)
    remedy = 'for one of several strings pass Literal["a", "b"] or Annotated[str, choices(["a", "b"])]'
    return f"{what} cannot be a form, which is a type; {remedy}"


def _is_bare(form: Any) -> bool:
    origin = get_origin(form)
    if origin is Annotated:
        return _is_bare(get_args(form)[0])
    return form in (str, int, float, bool) or origin in (Literal, list) or isinstance(form, EnumMeta)


def _flat(root: Mapping[str, Any], definitions: Mapping[str, Any], problem: str) -> Schema:
    if root.get("type") != "object" or not isinstance(root.get("properties"), Mapping):
        raise LocalProtocolError(problem)
    schema = {key: root[key] for key in _ROOT if key in root}
    schema["properties"] = {name: _member(name, node, definitions) for name, node in root["properties"].items()}
    if not schema.get("required"):
        schema.pop("required", None)
    return schema


def _resolve(node: Any, definitions: Mapping[str, Any]) -> Schema:
    if not isinstance(node, Mapping):
        return {}
    reference = node.get("$ref")
    if reference is None:
        return dict(node)
    # That title is the name of a Python class, which is meaningless to users.
    target = {key: value for key, value in definitions[reference.rpartition("/")[2]].items() if key != "title"}
    return {**target, **{key: value for key, value in node.items() if key != "$ref"}}


def _member(name: str, node: Any, definitions: Mapping[str, Any]) -> Schema:
    member = _resolve(node, definitions)
    branches = member.pop("anyOf", None)
    if branches is not None:
        # An optional field is one that is not required.
        real = [branch for branch in branches if branch.get("type") != "null"]
        if len(real) != 1:
            raise LocalProtocolError(f"form field {name!r}: a form field has one type")
        member = {**_resolve(real[0], definitions), **member}

    if member.get("default", ...) is None:
        del member["default"]
    _read_choice(name, member)

    kind = member.get("type")
    if kind not in _KEPT:
        raise LocalProtocolError(f"form field {name!r}: a form can only have strings, numbers, booleans and choices")

    if kind == "array":
        member["items"] = _items(name, _resolve(member.get("items"), definitions))
    if member.get("format") not in _FORMATS:
        member.pop("format", None)
    return {"type": kind} | {key: member[key] for key in _KEPT[kind] if key in member}


def _read_choice(name: str, member: Schema) -> None:
    # Keep one form of a choice: `oneOf` with titles, or `enum`.
    if "oneOf" in member:
        member.pop("enum", None)
        member["type"] = "string"
    elif "enum" in member:
        member["enum"] = [value for value in member["enum"] if value is not None]
        member["type"] = "string"
        if not all(isinstance(value, str) for value in member["enum"]):
            raise LocalProtocolError(f"form field {name!r}: the values of a choice are strings")


def _items(name: str, items: Schema) -> Schema:
    titled = items.get("anyOf") or items.get("oneOf")
    if titled:
        return {"anyOf": list(titled)}
    if "enum" not in items:
        raise LocalProtocolError(f"form field {name!r}: a list in a form is a choice of several strings")
    _read_choice(name, items)
    return {"type": "string", "enum": items["enum"]}


def _add_what_msgspec_drops(members: dict[str, Any], form: type) -> None:
    # Restore the order of choices, which msgspec sorts, and defaults of factories, which it omits.
    try:
        hints = get_type_hints(form, include_extras=True)
    except NameError:
        hints = {}  # msgspec could read it

    for field in getattr(type_info(form), "fields", ()):
        member = members[field.encode_name]
        choice = member["items"] if member["type"] == "array" else member
        if "enum" in choice:
            written = _choices_in_order(hints.get(field.name))
            choice["enum"].sort(key=lambda value: written.index(value) if value in written else len(written))
        if field.default_factory is not NODEFAULT:
            member.setdefault("default", to_builtins(field.default_factory()))


def _choices_in_order(hint: Any) -> list[Any]:
    if isinstance(hint, EnumMeta):
        return [member.value for member in hint]  # type: ignore[var-annotated]
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [value for part in get_args(hint) for value in _choices_in_order(part)]


# ------------------------------------------------------------------------------------ the answer


def read_form(content: Mapping[str, Any], schema: Schema, form: type | None) -> Any:
    """Return the values of an answer, as `form` if there is one. Raises ValidationError naming the field."""
    values = check_values(content, schema)
    if form is None:
        return values
    filled: Any = convert(values, form, dec_hook=dec_hook)
    return filled.value if isinstance(filled, _Single) else filled


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}
_ENDS = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": ("", ""),
    "array": ("minItems", "maxItems"),
}


def check_values(content: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a form's values if they fit its schema. Raises ValidationError naming the field."""
    members: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in content:
            raise ValidationError(f"Expected a value for {name}")
    return {name: _checked(name, value, members[name]) if name in members else value for name, value in content.items()}


def _checked(name: str, value: Any, member: Schema) -> Any:
    kind: str = member["type"]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has only one type of number
    is_of_kind = isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if not is_of_kind:
        raise ValidationError(f"Expected {kind} for {name}")

    allowed = _allowed(member["items"] if kind == "array" else member)
    if allowed is not None and any(item not in allowed for item in (value if kind == "array" else [value])):
        raise ValidationError(f"Expected one of {', '.join(map(str, allowed))} for {name}")

    ends = _ENDS[kind]
    size = len(value) if kind in ("string", "array") else value
    least, most = (member.get(end) for end in ends)
    if (least is not None and size < least) or (most is not None and size > most):
        limits = ", ".join(f"{end} {member[end]}" for end in ends if end in member)
        raise ValidationError(f"Expected {limits} for {name}")

    return value


def _allowed(member: Schema) -> list[Any] | None:
    if "enum" in member:
        return list(member["enum"])
    titled = member.get("oneOf") or member.get("anyOf")
    return [choice.get("const") for choice in titled] if titled else None
