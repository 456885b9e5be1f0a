"""Which of a tool's arguments are repeated in HTTP headers: the schema keyword `x-mcp-header`, read and checked.

Spec: 2026-07-28 basic/transports/streamable-http, custom headers from tool parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from mcpd.errors import RegistrationError

ANNOTATION = "x-mcp-header"
"""The schema keyword that names the header which mirrors a property."""

# RFC 9110 5.6.2. No pattern: this is loaded by servers that never see a header, and compiling one takes time.
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")

# Keywords whose values are data, not schemas: a key in there that looks like ours means nothing.
_DATA = frozenset(("const", "default", "enum", "example", "examples", "required", "dependentRequired"))
# Keywords whose values map names to schemas.
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))


class Mirror(Struct, frozen=True):
    """One mirrored argument: the header's name, the same as bytes in lower case, and where the argument stands."""

    header: str
    key: bytes
    path: tuple[str, ...]


def mirrors(schema: Any) -> tuple[Mirror, ...]:
    """The mirrored arguments of a tool, by its input schema.

    Raises RegistrationError for an annotation that the specification does not allow: clients would leave the
    whole tool out (S26-074 to S26-079).
    """
    found: list[Mirror] = []
    if not isinstance(schema, dict):
        return ()  # raw JSON: who writes that knows what it says

    for node, path, is_reachable in _walk(schema, (), True):
        if ANNOTATION not in node:
            continue
        name = node[ANNOTATION]
        where = ".".join(path) or "the schema itself"
        if not is_reachable or not path:
            raise RegistrationError(
                f"{ANNOTATION} at {where}: only a property can be mirrored that is reached from the root "
                "by `properties` alone, not through arrays, combinations, conditions or $ref"
            )
        if not isinstance(name, str) or not name or not _TOKEN.issuperset(name):
            raise RegistrationError(f"{ANNOTATION} at {where}: {name!r} cannot be part of a header's name")
        if node.get("type") not in ("string", "integer", "boolean"):
            raise RegistrationError(f"{ANNOTATION} at {where}: only strings, integers and booleans can be mirrored")
        mirror = Mirror(f"Mcp-Param-{name}", f"mcp-param-{name}".lower().encode(), path)
        if any(other.key == mirror.key for other in found):
            raise RegistrationError(
                f"{ANNOTATION} at {where}: {name!r} is used twice (upper and lower case are the same)"
            )
        found.append(mirror)

    return tuple(found)


def without_mirrors(schema: Any) -> dict[str, Any]:
    """The schema with no annotation in it."""
    plain: dict[str, Any] = _strip(schema, is_schema=True)
    return plain


def _walk(
    node: dict[str, Any], path: tuple[str, ...], is_reachable: bool
) -> Iterator[tuple[dict[str, Any], tuple[str, ...], bool]]:
    """Every schema inside a schema: itself, its path, and whether only `properties` lead there."""
    yield node, path, is_reachable
    for keyword, value in node.items():
        if keyword in _DATA:
            continue
        if isinstance(value, dict):
            if keyword in _NAMED:
                for name, child in value.items():
                    if isinstance(child, dict):
                        yield from _walk(child, (*path, name), is_reachable and keyword == "properties")
            else:
                yield from _walk(value, (*path, f"<{keyword}>"), False)
        elif isinstance(value, list):
            for child in value:
                if isinstance(child, dict):
                    yield from _walk(child, (*path, f"<{keyword}>"), False)


def _strip(value: Any, *, is_schema: bool) -> Any:
    if isinstance(value, list):
        return [_strip(item, is_schema=is_schema) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item if is_schema and key in _DATA else _strip(item, is_schema=not (is_schema and key in _NAMED))
        for key, item in value.items()
        if not (is_schema and key == ANNOTATION)
    }
