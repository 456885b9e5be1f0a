"""`$ref`s put where they point: many clients drop `$defs`, or read definitions in one go and in their order.

What is left in `$defs` is what contains itself, and what would make the schema too large. Their names are plain
words, and each stands after those that it needs, as far as there is such an order. Never fetches, never validates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

MAX_NODES: Final = 2000
"""A schema with more parts than this keeps references to what it uses often, or would double with each level."""

_SMALL: Final = 8

_LOCAL: Final = "#/$defs/"

# Keywords whose value is a schema, a list of them, or names with one each. Whatever else there is is data.
_ONE: Final = frozenset(
    ("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
     "unevaluatedItems", "unevaluatedProperties")
)  # fmt: skip
_MANY: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("$defs", "dependentSchemas", "patternProperties", "properties"))
# Where true and false have always been meant, and everybody reads them.
_FLAGS: Final = frozenset(("additionalProperties", "unevaluatedItems", "unevaluatedProperties"))


def inlined(root: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """`root` with each reference into `definitions` replaced by what it names, and with `$defs` for the rest."""
    return _Inlining(root, definitions).schema()


def mapped(node: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A schema with each schema directly inside it changed."""
    found: dict[str, Any] = {}
    for keyword, value in node.items():
        if keyword in _NAMED and isinstance(value, dict):
            found[keyword] = {name: change(child) for name, child in value.items()}
        elif keyword in _MANY and isinstance(value, list):
            found[keyword] = [change(child) for child in value]
        elif keyword in _ONE and (isinstance(value, dict) or (isinstance(value, bool) and keyword not in _FLAGS)):
            found[keyword] = change(value)
        else:
            found[keyword] = value
    return found


def subschemas(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The schemas directly inside a schema."""
    found: list[dict[str, Any]] = []
    mapped(node, lambda child: found.append(child) if isinstance(child, dict) else None)
    return found


class _Inlining:
    def __init__(self, root: dict[str, Any], definitions: Mapping[str, Any]) -> None:
        self._root = root
        self._definitions = definitions
        # The names that stay, in the order in which they are first complete.
        self._kept: dict[str, None] = {}
        self._find_recursive()
        if self._total() > MAX_NODES:
            self._keep_large()
        self._names = self._plain_names()

    def schema(self) -> dict[str, Any]:
        whole = self._placed(self._root)
        if self._kept:
            whole["$defs"] = {self._names[name]: self._placed(self._definitions[name]) for name in self._in_order()}
        return whole

    def _find_recursive(self) -> None:
        """Keep the names at which walking from the root comes back to where it is: that cuts every circle."""
        path: set[str] = set()
        done: dict[str, None] = {}

        def walk(node: dict[str, Any]) -> None:
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

    def _named_in(self, node: dict[str, Any]) -> Iterator[str]:
        """The definitions that a schema refers to itself, not by way of others, as often as it does."""
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

    def _size(self, node: dict[str, Any], sizes: dict[str, int]) -> int:
        """How many schemas there are in one when it is inlined; `sizes` remembers that of definitions."""
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
        """What the kept ones are called: some clients take letters, digits and underscores only."""
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

    def _placed(self, node: dict[str, Any]) -> dict[str, Any]:
        reference = node.get("$ref")
        if isinstance(reference, str) and (name := reference.removeprefix(_LOCAL)) in self._definitions:
            if name in self._kept:
                node = {**node, "$ref": _LOCAL + self._names[name]}
            else:
                # What stands beside a reference says more than what it refers to.
                beside = {key: value for key, value in node.items() if key != "$ref"}
                return self._placed({**self._definitions[name], **beside})
        return mapped(node, lambda child: self._placed(child) if isinstance(child, dict) else child)
