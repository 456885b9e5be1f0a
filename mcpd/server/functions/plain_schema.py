"""Plain JSON Schema that all clients read: draft-07 validators, model vendors and frameworks.

Every generated schema passes through here; schemas that an author gives as JSON do not. The meaning hardly changes, the
form does. Enums have a type, arrays `items`, records `properties`, tuples their length. Boolean schemas are replaced
except in `additionalProperties`, unknown keywords and formats are dropped, and references are replaced by what they
name. A schema admits at least what the function takes and returns, because values are checked by its types, never by
this schema. docs/schemas.md lists the rules.

References are inlined because many clients drop `$defs`, or read definitions only once and in order. `$defs` keeps
recursive types, and types that would make the schema too large. Their names are plain words, and each follows those
that it needs, if there is such an order.

Regular expressions are rewritten for JavaScript with the flag `u` (JSON Schema, 6.4), since a client that cannot
compile one pattern loads no tool at all. Patterns without an equivalent are left out; values are still checked against
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from mcpd.protocol.schemas import Schema, mapped, subschemas
from .arguments import DATETIME_FORMATS, json_type

# A larger schema keeps references to types that it uses often, or it might double at each level.
MAX_NODES: Final = 2000

_SMALL: Final = 8

_LOCAL: Final = "#/$defs/"


def inlined(root: Schema, definitions: Mapping[str, Any]) -> Schema:
    """Return `root` with each reference into `definitions` replaced by its target, and `$defs` for the rest."""
    return _Inlining(root, definitions).schema()


class _Inlining:
    def __init__(self, root: Schema, definitions: Mapping[str, Any]) -> None:
        self._root = root
        self._definitions = definitions
        # The names that remain, in the order in which they are first complete.
        self._kept: dict[str, None] = {}
        self._find_recursive()
        if self._total() > MAX_NODES:
            self._keep_large()
        self._names = self._plain_names()

    def schema(self) -> Schema:
        whole = self._placed(self._root)
        if self._kept:
            whole["$defs"] = {self._names[name]: self._placed(self._definitions[name]) for name in self._in_order()}
        return whole

    def _find_recursive(self) -> None:
        # Keep the names at which a walk from the root returns to itself, which cuts every circle.
        path: set[str] = set()
        done: dict[str, None] = {}

        def walk(node: Schema) -> None:
            for name in self._named_in(node):
                if name in path:
                    self._kept[name] = None
                elif name not in done:
                    path.add(name)
                    walk(self._definitions[name])
                    path.remove(name)
                    done[name] = None

        walk(self._root)
        self._used = done

    def _named_in(self, node: Schema) -> Iterator[str]:
        reference = node.get("$ref")
        if isinstance(reference, str):
            name = reference.removeprefix(_LOCAL)
            if name != reference and name in self._definitions:
                yield name
        for child in subschemas(node):
            yield from self._named_in(child)

    def _total(self) -> int:
        sizes: dict[str, int] = {}
        return self._size(self._root, sizes) + sum(self._size(self._definitions[name], sizes) for name in self._kept)

    def _size(self, node: Schema, sizes: dict[str, int]) -> int:
        # Return the number of schemas in one after inlining; `sizes` caches definitions.
        size = 1
        reference = node.get("$ref")
        name = reference.removeprefix(_LOCAL) if isinstance(reference, str) else ""
        if name in self._definitions and name not in self._kept:
            if name not in sizes:
                sizes[name] = self._size(self._definitions[name], sizes)
            size += sizes[name]
        return size + sum(self._size(child, sizes) for child in subschemas(node))

    def _keep_large(self) -> None:
        nodes = [self._root, *(self._definitions[name] for name in self._used)]
        uses: dict[str, int] = {}
        for node in nodes:
            for name in self._named_in(node):
                uses[name] = uses.get(name, 0) + 1
        sizes: dict[str, int] = {}
        for name in self._used:
            size = sizes.setdefault(name, self._size(self._definitions[name], sizes))
            if uses.get(name, 0) > 1 and size > _SMALL:
                self._kept.setdefault(name)

    def _plain_names(self) -> dict[str, str]:
        # Return new names for the kept definitions: some clients accept only letters, digits and underscores.
        names: dict[str, str] = {}
        for name in self._kept:
            plain = base = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "Type"
            number = 1
            while plain in names.values():
                number += 1
                plain = f"{base}_{number}"
            names[name] = plain
        return names

    def _in_order(self) -> list[str]:
        ordered: dict[str, None] = {}
        seen: set[str] = set()

        def walk(name: str) -> None:
            seen.add(name)
            for other in self._named_in(self._definitions[name]):
                if other not in seen:
                    walk(other)
            if name in self._kept:
                ordered.setdefault(name)

        for name in self._named_in(self._root):
            if name not in seen:
                walk(name)
        return list(ordered)

    def _placed(self, node: Schema) -> Schema:
        reference = node.get("$ref")
        if isinstance(reference, str) and (name := reference.removeprefix(_LOCAL)) in self._definitions:
            if name in self._kept:
                node = {**node, "$ref": _LOCAL + self._names[name]}
            else:
                # Keywords beside a reference replace keywords of its target.
                beside = {key: value for key, value in node.items() if key != "$ref"}
                return self._placed({**self._definitions[name], **beside})
        return mapped(node, lambda child: self._placed(child) if isinstance(child, dict) else child)


_TOKEN: Final = re.compile(
    r"""(?xs)
    \\ (?: x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} | [1-9][0-9]? | . )  # an escape
    | \(\?P<[A-Za-z_]\w*>                                         # a named group
    | \(\?(?: : | = | ! | <= | <! )?                              # other groups; "(?" alone is one of the rest
    | \{[0-9]+(?:,[0-9]*)?\}                                      # a quantifier
    | .
    """
)
_SAME: Final = frozenset("dDwWsSnrtfv") | frozenset("^$\\.*+?()[]{}|/")
_QUANTIFIERS: Final = ("*", "+", "?")


def portable(pattern: str) -> str | None:
    """Return the pattern as JavaScript reads it, or None if it has no equivalent."""
    written: list[str] = []
    is_class = False
    before = ""

    for token in _TOKEN.findall(pattern):
        piece = _in_class(token, before) if is_class else _outside(token, before)
        if piece is None:
            return None

        if is_class:
            is_class = token != "]"
        elif token == "[":
            is_class = True
        is_quantifier = (token in _QUANTIFIERS and before != "quantifier") or _is_count(token)
        before = "quantifier" if is_quantifier else token
        written.append(piece)

    return "".join(written)


def _is_count(token: str) -> bool:
    return len(token) > 1 and token[0] == "{"


def _outside(token: str, before: str) -> str | None:
    if token.startswith("(?P<"):
        return "("
    if token == "(?" or token in ("{", "}", "]"):
        return None
    if before == "quantifier" and (token in ("*", "+") or _is_count(token)):
        return None  # a possessive quantifier of Python
    if token in (r"\A", r"\Z", r"\z"):
        return "^" if token == r"\A" else "$"
    if token in (r"\b", r"\B") or re.fullmatch(r"\\[1-9][0-9]?", token):
        return token
    return _escape(token)


def _in_class(token: str, before: str) -> str | None:
    if token == "]" and before in ("[", "^"):
        return None  # Python: the first character of the class; JavaScript: its end
    if token == r"\-":
        return token
    return _escape(token)


def _escape(token: str) -> str | None:
    if token == "\\":
        return None
    if token[0] != "\\" or len(token) > 2 or token[1] in _SAME:
        return token
    # Before a letter a backslash has a meaning of Python's own; elsewhere `u` forbids a needless one.
    return None if token[1].isalnum() else token[1]


Direction = Literal["input", "output"]

AWARE_DATE_TIME: Final = "aware date-time"
# Formats, in schemas that are not plain yet, of datetimes and times that always have an offset from UTC.
AWARE_TIME: Final = "aware time"

# The formats that JSON Schema defines and draft-07 validators know. Functions may accept more.
_INPUT_FORMATS: Final = frozenset(
    ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "json-pointer", "regex",
     "relative-json-pointer", "time", "uri", "uri-reference", "uri-template", "uuid")
)  # fmt: skip
# The formats that hold for everything Python writes: a datetime may have no offset, a timedelta fractions.
_OUTPUT_FORMATS: Final = frozenset(("date", "ipv4", "uuid"))

_TEXT: Final = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
_WORDS: Final = ("title", "description", "examples", "deprecated")
_NULL: Final = {"type": "null"}


def plain(schema: Mapping[str, Any], direction: Direction) -> Schema:
    """Return a generated schema, with its `$defs`, as clients see it. The argument is not changed."""
    root = dict(schema)
    definitions = root.pop("$defs", {})
    whole = inlined(
        _rewritten(root, direction), {name: _rewritten(node, direction) for name, node in definitions.items()}
    )
    return _merged(whole)  # type: ignore[no-any-return]


def _rewritten(node: Any, direction: Direction) -> Schema:
    # Apply all rules that need no knowledge of references.
    if not isinstance(node, dict):
        return {"not": {}} if node is False else {}
    node = _with_words_outside(_without_specials(node))
    rewritten = mapped(node, lambda child: _rewritten(child, direction))

    _rewrite_enum(rewritten)
    _rewrite_text(rewritten, direction)
    if rewritten.get("type") == "array":
        _rewrite_items(rewritten)
    elif rewritten.get("type") == "object":
        _rewrite_members(rewritten)

    multiple = rewritten.get("multipleOf")
    if direction == "output" and isinstance(multiple, float) and not multiple.is_integer():
        del rewritten["multipleOf"]  # validators compute differently: 0.3 is not a multiple of 0.1
    return rewritten


def _without_specials(node: Schema) -> Schema:
    # Remove `discriminator`, `const` and other keywords that repeat others or belong to other standards.
    node = dict(node)
    if "discriminator" in node:
        del node["discriminator"]
        if "oneOf" in node and "anyOf" not in node:
            node["anyOf"] = node.pop("oneOf")

    if "const" in node:
        node.setdefault("enum", [node["const"]])
        del node["const"]

    if isinstance(node.get("allOf"), list) and len(node["allOf"]) == 1 and isinstance(node["allOf"][0], dict):
        (part,) = node["allOf"]
        if part.keys().isdisjoint(node.keys() - set(_TEXT)):
            del node["allOf"]
            node = {**part, **node}

    if node.get("items") is False:
        del node["items"]
        node.setdefault("maxItems", len(node.get("prefixItems", ())))
    return node


def _with_words_outside(node: Schema) -> Schema:
    # Move texts from the only branch beside null to the whole, because clients look only there.
    branches = node.get("anyOf")
    if not isinstance(branches, list) or len(branches) != 2 or _NULL not in branches:
        return node
    at = 1 - branches.index(_NULL)
    if not isinstance(branches[at], dict):
        return node
    words = {key: value for key, value in branches[at].items() if key in _WORDS and node.get(key, value) == value}
    if not words:
        return node
    rest = {key: value for key, value in branches[at].items() if key not in words}
    return {**words, **node, "anyOf": [rest, _NULL] if at == 0 else [_NULL, rest]}


def _rewrite_enum(node: Schema) -> None:
    # Give each value of an enum its type. Several types become branches, since a type is never a list.
    values = node.get("enum")
    if not isinstance(values, list) or isinstance(node.get("type"), str):
        return

    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(json_type(value), []).append(value)
    branches = [_NULL if name == "null" else {"type": name, "enum": group} for name, group in groups.items()]

    if len(branches) == 1:
        del node["enum"]
        node.update(branches[0])
    elif branches and "anyOf" not in node:
        node.pop("type", None)
        del node["enum"]
        node["anyOf"] = branches


def _rewrite_text(node: Schema, direction: Direction) -> None:
    # Keep only formats and patterns that validators know and that all our output satisfies.
    if isinstance(node.get("pattern"), str):
        # pydantic's pattern of a Decimal has no exponent, but a Decimal may be written with one.
        is_number = direction == "output" and node["pattern"].startswith("^(?!^[-+.]*$)")
        pattern = None if is_number else portable(node["pattern"])
        if pattern is None:
            del node["pattern"]
        else:
            node["pattern"] = pattern

    if "format" not in node:
        return
    kind = node.pop("format")
    if not isinstance(kind, str) or node.get("type", "string") != "string":
        return

    if kind == "decimal":
        if direction == "input":
            del node["type"]
            node["anyOf"] = [{"type": "number"}, {"type": "string"}]
    elif kind in (AWARE_DATE_TIME, AWARE_TIME):
        node["format"] = kind.removeprefix("aware ")
    else:
        kind = DATETIME_FORMATS.get(kind, kind)
        kind = "uuid" if kind[:4] == "uuid" and kind[4:].isdigit() else kind
        if kind in (_INPUT_FORMATS if direction == "input" else _OUTPUT_FORMATS):
            node["format"] = kind


def _rewrite_items(node: Schema) -> None:
    # Give an array one schema as `items`, because draft-07 ignores `prefixItems`.
    node.pop("uniqueItems", None)  # duplicates are accepted, and vendors refuse the keyword
    prefix = node.pop("prefixItems", None)
    if not isinstance(prefix, list):
        node.setdefault("items", {})
        return

    # Only members of a record have a name and a default, positions do not.
    kinds = [{key: value for key, value in item.items() if key not in ("default", "title")} for item in prefix]
    distinct = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
    is_mixed = len(distinct) > 1
    if node.get("maxItems", len(kinds) + 1) > len(kinds) and (rest := node.get("items", {})) not in distinct:
        distinct.append(rest)

    if {} in distinct or not distinct:
        node["items"] = {}
    else:
        node["items"] = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}

    if is_mixed or any("title" in item for item in prefix):
        order = "Items in this order: " + ", ".join(map(_position, prefix))
        description = node.get("description")
        node["description"] = f"{description}\n\n{order}" if description else order


def _position(item: Mapping[str, Any]) -> str:
    name = item.get("title") or item.get("$ref", "").rpartition("/")[2] or item.get("type")
    branches = item.get("anyOf")
    return " or ".join(map(_position, branches)) if not name and isinstance(branches, list) else str(name or "anything")


def _rewrite_members(node: Schema) -> None:
    # Give a record `properties`, and a map the schema of its values. A map gets no `properties`, since some clients
    # would take it for an empty record.
    if node.get("required") == []:
        del node["required"]

    patterns = node.get("patternProperties")
    if isinstance(patterns, dict) and len(patterns) == 1 and "properties" not in node:
        ((pattern, value),) = patterns.items()
        if node.get("additionalProperties", False) is False:
            del node["patternProperties"]
            node["additionalProperties"] = value
            if written := portable(pattern):
                node.setdefault("propertyNames", {"pattern": written})

    if isinstance(node.get("propertyNames"), dict) and node["propertyNames"].keys().isdisjoint(("type", "$ref")):
        node["propertyNames"] = {"type": "string", **node["propertyNames"]}

    if "properties" in node:
        return
    if node.get("additionalProperties") is False:
        node["properties"] = {}
    elif node.get("additionalProperties", {}) == {}:
        node["additionalProperties"] = True


def _merged(node: Any) -> Any:
    # Flatten choices among choices, and choices of one.
    if not isinstance(node, dict):
        return node
    merged = mapped(node, _merged)
    return _with_flat_choice(merged) if isinstance(merged.get("anyOf"), list) else merged


def _with_flat_choice(node: Schema) -> Schema:
    branches: list[Any] = []
    said: dict[str, Any] = {}
    for branch in node["anyOf"]:
        inner = [branch]
        if isinstance(branch, dict) and "anyOf" in branch and branch.keys() <= {"anyOf", *_TEXT}:
            inner = branch["anyOf"]
            said |= {key: branch[key] for key in ("title", "description") if key in branch}
        branches += [one for one in inner if one not in branches]
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    if len(branches) == 1 and isinstance(branches[0], dict) and branches[0].keys().isdisjoint(rest.keys() - set(_TEXT)):
        return {**said, **branches[0], **rest}
    return {**said, **{key: branches if key == "anyOf" else value for key, value in node.items()}}
