"""Reads the arguments of a call: `name=value` by the tool's schema, `name:=json`, `name=@file`, or one JSON object.

Mistakes are reported before anything is called, as far as the schema allows.
"""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.json import decode

from mcpd.cli.talk.schemas import Schema, limits_text, plain, type_text
from mcpd.cli.talk.words import WrongUse, nearest
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable

_WORD = re.compile(r"([^\s={}\[\]\"/?]+?)(:?=)(.*)", re.DOTALL)
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_UNREAD = object()
_QUOTES = "write names and texts in double quotes, and in a shell put single quotes around the whole value"


class Given(NamedTuple):
    """An argument of the command line. `name` is "" for a whole object. A JSON value is already decoded."""

    name: str
    value: Any
    is_json: bool = False
    file: str = ""
    data: bytes = b""


def read_words(words: Sequence[str]) -> list[Given]:
    """Split the words, and read the files and stdin that they name. Raises WrongUse."""
    if sum(word in ("-", "@-") or word.endswith("=@-") for word in words) > 1:
        raise WrongUse("stdin can be read only once: write one - or @-")
    given: list[Given] = []
    for word in words:
        if word == "-":
            given.append(Given("", _object(_read_file("-"), "stdin"), is_json=True))
        elif word.startswith("@"):
            given.append(Given("", _object(_read_file(word[1:]), word[1:]), is_json=True))
        elif word.startswith("{"):
            given.append(Given("", _object(word.encode(errors="surrogateescape"), "the argument"), is_json=True))
        else:
            given.append(_read_named(word))
    return given


def _read_named(word: str) -> Given:
    found = _WORD.fullmatch(word)
    if found is None:
        raise WrongUse(
            f"{printable(word)!r}: write name=value, name:=JSON, name=@FILE, one JSON object, or - for stdin"
        )
    name, sign, text = found.groups()
    path = text[1:] if text.startswith("@") and not text.startswith("@@") else ""
    if sign == ":=":
        data = _read_file(path) if path else text.encode(errors="surrogateescape")
        advice = f"for a text write {name}=TEXT" if data[:1] not in (b"{", b"[") else _QUOTES
        return Given(name, _json(data, f"{path}: " if path else f"{name}:=", advice), is_json=True, file=path)
    if path:
        return Given(name, "", file=path, data=_read_file(path, f"; to pass the text itself, write {name}=@{text}"))
    return Given(name, text.removeprefix("@") if text.startswith("@@") else text)


def _read_file(path: str, otherwise: str = "") -> bytes:
    try:
        if path == "-":
            return sys.stdin.buffer.read() if sys.stdin is not None else b""
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise WrongUse(f"{path}: {error.strerror}{otherwise}") from None


def _json(data: bytes, what: str, advice: str) -> Any:
    try:
        return decode(data)
    except MALFORMED as error:
        raise WrongUse(f"{what}{printable(data, 60)} is not JSON: {_mistake(data) or error}; {advice}") from None


def _mistake(data: bytes) -> str:
    """The first mistake in a JSON text, and its place; "" if Python's decoder accepts the text."""
    import json

    try:
        json.loads(data)
    except json.JSONDecodeError as error:
        rest = error.doc[error.pos :].strip()
        where = f"before {printable(rest, 20)!r}" if rest else "at the end"
        line = f" in line {error.lineno}" if "\n" in error.doc.strip() else ""
        return f"{error.msg[:1].lower()}{error.msg[1:]} {where}{line}"
    except UnicodeDecodeError:
        return "it is not UTF-8"
    return ""


def _object(data: bytes, what: str) -> dict[str, Any]:
    found = _json(data, f"{what}: ", _QUOTES)
    if not isinstance(found, dict):
        raise WrongUse(f'{what}: write the arguments as a JSON object, for example {{"name": "value"}}')
    return found


# ------------------------------------------------------------------------------------- by the schema


def arguments_of(given: Sequence[Given], schema: Schema) -> dict[str, Any]:
    """The arguments of a call; later ones replace earlier ones. Raises WrongUse with the expected values."""
    arguments: dict[str, Any] = {}
    repeated: set[tuple[str, ...]] = set()
    for each in given:
        if not each.name:
            for name in each.value:
                _check_name(name, "", schema)
            arguments |= each.value
            continue

        path, kind = _find(each.name, schema)
        place = _place(arguments, path, each.name)
        value = _value(each, kind)
        is_item = not each.is_json and kind is not None and _is_array(kind) and not isinstance(value, list)
        if path in repeated:
            if not is_item or not isinstance(place[path[-1]], list):
                raise WrongUse(f"{each.name} is given twice, but it is not an array")
            place[path[-1]].append(value)
        else:
            place[path[-1]] = [value] if is_item else value
        repeated.add(path)
    return arguments


def missing(arguments: dict[str, Any], schema: Schema) -> list[str]:
    """The names of required arguments that were not given."""
    return [name for name in schema.required if name not in arguments]


def _find(name: str, schema: Schema) -> tuple[tuple[str, ...], Schema | None]:
    """The path to a value, and its schema if it is known. The name of a property may contain dots itself."""
    path: list[str] = []
    kind: Schema | None = schema
    rest = name
    while rest:
        known = {} if kind is None else kind.properties
        first = rest if rest in known or kind is None else rest.partition(".")[0]
        if kind is not None:
            _check_name(first, ".".join(path), kind)
        if first not in known and not known:
            first = rest.partition(".")[0]
        path.append(first)
        kind = known.get(first)
        rest = rest[len(first) + 1 :]
    return tuple(path), kind


def _check_name(name: str, inside: str, schema: Schema) -> None:
    known = schema.properties
    if name in known or not (schema.is_closed or known):
        return
    near = nearest(name, known)
    where = f"{inside}.{name}" if inside else name
    if near:
        raise WrongUse(f"no argument {where}; did you mean {near}?")
    if schema.is_closed:
        names = f"the arguments are {', '.join(known)}" if known else "it has no arguments"
        raise WrongUse(f"no argument {printable(where)}; {printable(names, 500)}")


def _place(arguments: dict[str, Any], path: tuple[str, ...], name: str) -> dict[str, Any]:
    place = arguments
    for part in path[:-1]:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            raise WrongUse(f"{name}: {part} was given before, and is not an object")
        place = inner
    return place


def _value(each: Given, kind: Schema | None) -> Any:
    if each.is_json:
        return each.value
    if not each.file:
        return read_text(each.value, kind, each.name)
    if kind is not None and ("contentEncoding" in kind.node or kind.node.get("format") in ("byte", "binary")):
        return b64encode(each.data).decode()
    try:
        text = each.data.decode()
    except UnicodeDecodeError:
        text = f"{each.name}: {each.file} is not a text file, and the schema does not allow base64"
        raise WrongUse(text) from None
    is_text = kind is not None and "string" in kind.types
    return text if is_text else read_text(text if kind is None else text.strip(), kind, each.name)


def _is_array(kind: Schema) -> bool:
    return "array" in kind.types and "string" not in kind.types


def read_text(text: str, kind: Schema | None, name: str) -> Any:
    """Convert a typed value by its schema. Raises WrongUse with the expected type or values."""
    if kind is None:
        return _anything(text)
    for choice in kind.choices:
        if text == choice.title or text == plain(choice.value):
            return choice.value
    types = kind.types
    if kind.choices and not (_is_array(kind) and text[:1] == "["):
        choices = [plain(choice.value) for choice in kind.choices]
        near = nearest(text, choices)
        hint = f"did you mean {near}?" if near else f"write one of {', '.join(choices[:20])}"
        raise WrongUse(f"{name}: {printable(text, 60)!r} is not allowed; {printable(hint, 500)}")
    if not types:
        return _anything(text)

    value = _typed(text, types)
    if value is not _UNREAD:
        _check(value, kind, text, name)
        return value
    if _is_array(kind):
        array = next((each for each in kind.alternatives() if "items" in each.node), None)
        return read_text(text, None if array is None else array.items, name)
    raise WrongUse(f"{name}: {printable(text, 60)!r} is not of type {_expected(kind)}")


def _check(value: Any, kind: Schema, text: str, name: str) -> None:
    """Check the most common limits; the server checks all others. Raises WrongUse."""
    if isinstance(value, str):
        size, least, most = float(len(value)), "minLength", "maxLength"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        size, least, most = float(value), "minimum", "maximum"
    else:
        return
    low, high = kind.node.get(least), kind.node.get(most)
    if (isinstance(low, (int, float)) and size < low) or (isinstance(high, (int, float)) and size > high):
        raise WrongUse(f"{name}: {printable(text, 60)!r} must be {limits_text(kind)}")


def _typed(text: str, types: list[str]) -> Any:
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if ("integer" in types or "number" in types) and _NUMBER.fullmatch(text):
        if text.lstrip("-").isdigit():
            return int(text)
        number = float(text)
        if "number" in types or number.is_integer():
            return int(number) if "number" not in types else number
    wanted = {"{": "object", "[": "array"}.get(text[:1])
    if wanted in types:
        try:
            return decode(text.encode())
        except MALFORMED:
            if "string" not in types:
                return _UNREAD
    if "string" in types:
        return text
    return None if "null" in types and text == "null" else _UNREAD


def _anything(text: str) -> Any:
    try:
        return decode(text.encode(errors="surrogateescape"))
    except MALFORMED:
        return text


def _expected(kind: Schema) -> str:
    if "object" in kind.types:
        return 'object; write {"name": …} as JSON, or members one by one with dots, such as a.b=1'
    if kind.types == ["boolean"]:
        return "boolean; write true or false"
    return type_text(kind)


def texts_of(given: Sequence[Given], names: Sequence[str]) -> dict[str, str]:
    """The arguments of a prompt, which are always texts; `names` are its arguments. Raises WrongUse."""
    found: dict[str, str] = {}
    for each in given:
        members = (
            each.value
            if not each.name
            else {each.name: each.data.decode(errors="replace") if each.file else each.value}
        )
        for name, value in members.items():
            if name not in names:
                near = nearest(name, names)
                others = f"the arguments are {', '.join(names)}" if names else "it has no arguments"
                hint = f"did you mean {near}?" if near else others
                raise WrongUse(f"no argument {printable(name)}; {printable(hint, 500)}")
            found[name] = plain(value)
    return found
