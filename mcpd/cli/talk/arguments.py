"""Reads the arguments of a call by the JSON Schema of the tool, and describes schemas in short texts.

An argument is `name=value`, `name:=json`, `name=@file`, or one JSON object. Mistakes are reported before anything is
called, as far as the schema allows. Schemas come from servers: they may contain values of the wrong type and endless
references.
"""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.json import decode, encode

from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable
from mcpd.protocol.schemas import is_local, target_of
from .words import WrongUse, did_you_mean, nearest, no_such

_MOST_CHOICES = 5
_DEEPEST = 8
_FORMATS = {
    "email": "an e-mail address",
    "uri": "a URL",
    "date": "such as 2026-01-31",
    "date-time": "such as 2026-01-31T12:00:00Z",
}


class Choice(NamedTuple):
    """One of the allowed values, with its title."""

    value: Any
    title: str


class Schema:
    """A schema, and the document in which its references are looked up."""

    def __init__(self, node: Any, root: Mapping[str, Any]) -> None:
        self.root = root
        self.node: Mapping[str, Any] = _resolved(node, root)

    @property
    def properties(self) -> dict[str, Schema]:
        """The schemas of an object's named members."""
        found: dict[str, Schema] = {}
        for node in self._all_of():
            members = node.get("properties")
            if isinstance(members, dict):
                found |= {name: Schema(member, self.root) for name, member in members.items()}
        return found

    @property
    def required(self) -> list[str]:
        """The names of an object's required members."""
        found: dict[str, None] = {}
        for node in self._all_of():
            names = node.get("required")
            if isinstance(names, list):
                found |= {name: None for name in names if isinstance(name, str)}
        return list(found)

    @property
    def is_closed(self) -> bool:
        """Whether an object must not have other members."""
        return any(node.get("additionalProperties") is False for node in self._all_of())

    @property
    def items(self) -> Schema:
        """The schema of an array's items."""
        return Schema(self.node.get("items"), self.root)

    @property
    def default(self) -> Any:
        """The default; None without a default."""
        return self.node.get("default")

    @property
    def description(self) -> str:
        """The first line of the description, otherwise the title."""
        for name in ("description", "title"):
            text = self.node.get(name)
            if isinstance(text, str) and text.strip():
                return text.strip().splitlines()[0]
        return ""

    @property
    def types(self) -> list[str]:
        """The JSON types that the schema names; [] for any type."""
        found: dict[str, None] = {}
        for schema in self.alternatives():
            said = schema.node.get("type")
            names = said if isinstance(said, list) else [said]
            found |= {name: None for name in names if isinstance(name, str)}
            if said is None and isinstance(schema.node.get("properties"), dict):
                found["object"] = None
        return list(found)

    @property
    def choices(self) -> list[Choice]:
        """The allowed values if the schema lists them; otherwise []."""
        found: list[Choice] = []
        for schema in self.alternatives():
            node = schema.node
            values = node.get("enum")
            if "const" in node:
                title = node.get("title")
                found.append(Choice(node["const"], title if isinstance(title, str) else plain(node["const"])))
            elif isinstance(values, list):
                names = node.get("enumNames")
                titles = names if isinstance(names, list) and len(names) == len(values) else map(plain, values)
                found += [Choice(value, str(title)) for value, title in zip(values, titles, strict=True)]
            elif node.get("type") != "null":
                return []  # one alternative allows any value

        return found

    def alternatives(self, depth: int = 0) -> Iterator[Schema]:
        """The schemas in `anyOf` or `oneOf`; otherwise the schema itself."""
        for name in ("anyOf", "oneOf"):
            nodes = self.node.get(name)
            if isinstance(nodes, list) and nodes and depth < _DEEPEST:
                for node in nodes:
                    yield from Schema(node, self.root).alternatives(depth + 1)
                return
        yield self

    def _all_of(self) -> Iterator[Mapping[str, Any]]:
        yield self.node
        nodes = self.node.get("allOf")
        for node in nodes if isinstance(nodes, list) else ():
            yield _resolved(node, self.root)


def read_schema(raw: Any) -> Schema:
    """Read a schema from raw JSON or an object; anything else allows any value."""
    if isinstance(raw, Raw):
        try:
            raw = decode(raw)
        except MALFORMED:
            raw = {}
    root = raw if isinstance(raw, dict) else {}
    return Schema(root, root)


def _resolved(node: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(_DEEPEST):
        if not isinstance(node, dict):
            return {}
        reference = node.get("$ref")
        if not is_local(reference):
            return node
        found = target_of(reference, root)
        beside = {name: value for name, value in node.items() if name != "$ref"}
        node = {**found, **beside} if isinstance(found, dict) else beside
    return node if isinstance(node, dict) else {}


def type_text(schema: Schema, depth: int = 0) -> str:
    """The type as a short text: `integer`, `spring|autumn`, `string[]`, `string|null`."""
    choices = schema.choices
    if choices:
        shown = [plain(choice.value) for choice in choices[:_MOST_CHOICES]]
        return "|".join([*shown, "…"] if len(choices) > _MOST_CHOICES else shown)
    said: dict[str, None] = {}
    for each in schema.alternatives():
        for name in each.types:
            if name == "array" and depth < _DEEPEST:
                item = type_text(each.items, depth + 1)
                name = f"({item})[]" if "|" in item else f"{item}[]"
            said[name] = None
    return "|".join(said) or "any"


def limits_text(schema: Schema) -> str:
    """The other limits of a value, such as `1 to 12` or `an e-mail address`; "" without limits."""
    node, said = schema.node, []
    low, high = (node.get(name) for name in ("minimum", "maximum"))
    if _is_number(low) and _is_number(high):
        said.append(f"{low} to {high}")
    elif _is_number(low):
        said.append(f"{low} or more")
    elif _is_number(high):
        said.append(f"{high} or less")

    for name, words in (("minLength", "at least {} characters"), ("maxLength", "at most {} characters")):
        if _is_number(node.get(name)):
            said.append(words.format(node[name]))
    form = node.get("format")
    if isinstance(form, str):
        said.append(_FORMATS.get(form, f"in the format {form}"))
    return ", ".join(said)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain(value: Any) -> str:
    """A text as it is, any other value as JSON."""
    return value if isinstance(value, str) else encode(value).decode()


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
        if word != "-" and word[:1] not in ("@", "{"):
            given.append(_read_named(word))
            continue
        path = word.removeprefix("@")
        is_object = word.startswith("{")
        # Words of a command line need not be UTF-8; they are passed on as they are, for the decoder to judge.
        data = word.encode(errors="surrogateescape") if is_object else _read_file(path)
        what = "the argument" if is_object else "stdin" if path == "-" else path
        found = _json(data, f"{what}: ", _QUOTES)
        if not isinstance(found, dict):
            raise WrongUse(f'{what}: write the arguments as a JSON object, for example {{"name": "value"}}')
        given.append(Given("", found, is_json=True))

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
    # Python's decoder reports the place of the mistake.
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
    except RecursionError:
        return "nested too deeply"
    return ""


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


def _find(name: str, schema: Schema) -> tuple[tuple[str, ...], Schema | None]:
    # The name of a property may itself contain dots.
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
    # An open schema allows any name, but one that is nearly the name of a property is more likely a mistake.
    if name not in known and (schema.is_closed or nearest(name, known)):
        raise no_such("argument", name, known, inside)


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
        raise WrongUse(f"{each.name}: {each.file} is not a text file, and the schema does not allow base64") from None
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
        hint = did_you_mean(text, choices) or f"write one of {', '.join(choices[:20])}"
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
    expected = type_text(kind)
    if "object" in types:
        expected = 'object; write {"name": …} as JSON, or members one by one with dots, such as a.b=1'
    elif types == ["boolean"]:
        expected = "boolean; write true or false"
    raise WrongUse(f"{name}: {printable(text, 60)!r} is not of type {expected}")


def _check(value: Any, kind: Schema, text: str, name: str) -> None:
    # Only the most common limits: the server checks all others.
    if isinstance(value, str):
        size, least, most = float(len(value)), "minLength", "maxLength"
    elif _is_number(value):
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
        if "number" in types:
            return number
        if number.is_integer():
            return int(number)

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


def texts_of(given: Sequence[Given], names: Sequence[str]) -> dict[str, str]:
    """The arguments of a prompt, which are always texts; `names` are its arguments. Raises WrongUse."""
    found: dict[str, str] = {}
    for each in given:
        text = each.data.decode(errors="replace") if each.file else each.value
        members = {each.name: text} if each.name else each.value
        for name, value in members.items():
            if name not in names:
                raise no_such("argument", name, names)
            found[name] = plain(value)
    return found
