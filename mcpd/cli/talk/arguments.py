"""The arguments of a call, from words: `name=value` read by the tool's schema, `name:=json`, `name=@file`, one JSON.

A mistake is found here if it can be, before anything is called.
"""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.json import decode

from mcpd.cli.talk.kinds import Schema, in_words, limits_in_words
from mcpd.cli.talk.words import WrongUse, nearest
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable

_WORD = re.compile(r"([^\s={}\[\]\"/?]+?)(:?=)(.*)", re.DOTALL)
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_UNREAD = object()
_QUOTES = "JSON has names and texts in double quotes, and all of it stands in single quotes in a shell"


class Given(NamedTuple):
    """One argument as it was written. `name` is "" for a whole object; of JSON the value is read already."""

    name: str
    value: Any
    is_json: bool = False
    file: str = ""
    data: bytes = b""


def read_words(words: Sequence[str]) -> list[Given]:
    """What was written, with the files and stdin that it names. Reads stdin at most once. Raises WrongUse."""
    if sum(word in ("-", "@-") or word.endswith("=@-") for word in words) > 1:
        raise WrongUse("stdin can be read once: only one - or @-")
    given: list[Given] = []
    for word in words:
        if word == "-":
            given.append(Given("", _object(_read_file("-"), "what stands on stdin"), is_json=True))
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
        return Given(name, "", file=path, data=_read_file(path, f"; for the text itself write {name}=@{text}"))
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
    """What is wrong with a text as JSON, and where; "" for what Python takes."""
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
        raise WrongUse(f'{what}: arguments are a JSON object, as {{"name": "value"}}')
    return found


# ------------------------------------------------------------------------------------- by the schema


def arguments_of(given: Sequence[Given], schema: Schema) -> dict[str, Any]:
    """The arguments of a call, later ones over earlier ones. Raises WrongUse, with what is near or expected."""
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
                raise WrongUse(f"{each.name} is given twice, and it is no array")
            place[path[-1]].append(value)
        else:
            place[path[-1]] = [value] if is_item else value
        repeated.add(path)
    return arguments


def missing(arguments: dict[str, Any], schema: Schema) -> list[str]:
    """The names of what has to be given and was not."""
    return [name for name in schema.required if name not in arguments]


def _find(name: str, schema: Schema) -> tuple[tuple[str, ...], Schema | None]:
    """The way to a value, and its schema if that is known. A property may have dots in its name itself."""
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
        there = f"there are {', '.join(known)}" if known else "it takes none"
        raise WrongUse(f"no argument {printable(where)}; {printable(there, 500)}")


def _place(arguments: dict[str, Any], path: tuple[str, ...], name: str) -> dict[str, Any]:
    place = arguments
    for part in path[:-1]:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            raise WrongUse(f"{name}: {part} is given already, and is no object")
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
        raise WrongUse(f"{each.name}: {each.file} is no text, and the tool does not say that it takes base64") from None
    is_text = kind is not None and "string" in kind.types
    return text if is_text else read_text(text if kind is None else text.strip(), kind, each.name)


def _is_array(kind: Schema) -> bool:
    return "array" in kind.types and "string" not in kind.types


def read_text(text: str, kind: Schema | None, name: str) -> Any:
    """A value as it was typed, as what its schema says. Raises WrongUse with what is expected."""
    if kind is None:
        return _anything(text)
    for choice in kind.choices:
        if text == choice.title or text == _plain(choice.value):
            return choice.value
    types = kind.types
    if kind.choices and not (_is_array(kind) and text[:1] == "["):
        choices = [_plain(choice.value) for choice in kind.choices]
        near = nearest(text, choices)
        hint = f"did you mean {near}?" if near else f"one of {', '.join(choices[:20])}"
        raise WrongUse(f"{name}: {printable(text, 60)!r} is none of its values; {printable(hint, 500)}")
    if not types:
        return _anything(text)

    value = _typed(text, types)
    if value is not _UNREAD:
        _check(value, kind, text, name)
        return value
    if _is_array(kind):
        array = next((each for each in kind.alternatives() if "items" in each.node), None)
        return read_text(text, None if array is None else array.items, name)
    raise WrongUse(f"{name}: {printable(text, 60)!r} is no {_expected(kind)}")


def _check(value: Any, kind: Schema, text: str, name: str) -> None:
    """Hold a value against the limits that are said most often; the rest is the server's to judge. Raises WrongUse."""
    if isinstance(value, str):
        size, least, most = float(len(value)), "minLength", "maxLength"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        size, least, most = float(value), "minimum", "maximum"
    else:
        return
    low, high = kind.node.get(least), kind.node.get(most)
    if (isinstance(low, (int, float)) and size < low) or (isinstance(high, (int, float)) and size > high):
        raise WrongUse(f"{name}: {printable(text, 60)!r}: it has to be {limits_in_words(kind)}")


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
        return 'JSON object; write {"name": …}, or its members one by one with dots, as a.b=1'
    if kind.types == ["boolean"]:
        return "true or false"
    return in_words(kind)


def _plain(value: Any) -> str:
    from msgspec.json import encode

    return value if isinstance(value, str) else encode(value).decode()


def texts_of(given: Sequence[Given], names: Sequence[str]) -> dict[str, str]:
    """The arguments of a prompt, which are texts whatever they look like; `names` are those it has. Raises WrongUse."""
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
                there = f"there are {', '.join(names)}" if names else "it takes none"
                hint = f"did you mean {near}?" if near else there
                raise WrongUse(f"no argument {printable(name)}; {printable(hint, 500)}")
            found[name] = _plain(value)
    return found
