"""HTTP headers that mirror values of a message: `Mcp-Name` and `Mcp-Param-*`.

Plain ASCII is written as it is, everything else as `=?base64?…?=`. The schema keyword `x-mcp-header` names the
arguments of a tool that are mirrored. Client and server share this module.
Spec: 2026-07-28 basic/transports/streamable-http, value encoding.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from mcpd.errors import RegistrationError
from mcpd.protocol.schemas import Schema, children, mapped

_PREFIX, _SUFFIX = b"=?base64?", b"?="
_SAFE_INTEGER = 2**53 - 1
_is_visible = re.compile(rb"[\t\x20-\x7e]*").fullmatch
_is_plain = re.compile(rb"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?").fullmatch
_is_number = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?").fullmatch


def decode_value(raw: bytes) -> str:
    """Decode a header value. Raises ValueError, with a message for the peer, if it is malformed.

    Decoding is strict (S26-064, S26-065), because an attacker could exploit two readers that decode differently.
    """
    value = raw.strip(b" \t")
    if not _is_visible(value):
        raise ValueError("contains invalid characters")
    if not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value.decode("ascii")
    if len(value) < len(_PREFIX) + len(_SUFFIX):
        raise ValueError("is not valid Base64")  # the two markers overlap

    inner = value[len(_PREFIX) : -len(_SUFFIX)]
    try:
        data = a2b_base64(inner, strict_mode=True)
        text = data.decode()
    except Error:
        raise ValueError("is not valid Base64") from None
    except UnicodeDecodeError:
        raise ValueError("is not Base64 of UTF-8") from None

    if b2a_base64(data, newline=False) != inner:
        # Bits beyond the last byte are another spelling of the same value, which other readers may refuse.
        raise ValueError("is not valid Base64")

    return text


def encode_value(value: str) -> bytes:
    data = value.encode()
    if _is_plain(data) and not (data.startswith(_PREFIX) and data.endswith(_SUFFIX)):
        return data
    return _PREFIX + b2a_base64(data, newline=False) + _SUFFIX


def is_same(text: str, value: Any) -> bool:
    """Return whether a decoded header equals an argument. Numbers are compared as numbers (`42.0` is 42)."""
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        # S26-078: beyond the safe range, readers may decode the same digits to different numbers.
        if not -_SAFE_INTEGER <= value <= _SAFE_INTEGER or not _is_number(text):
            return False
        whole, _, rest = text.partition(".")
        return float(text) == value if rest.strip("0") else int(whole) == value
    return False


# The schema keyword that names the header which mirrors a property.
ANNOTATION = "x-mcp-header"

# RFC 9110 5.6.2. A set rather than a pattern, which is slow to compile.
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class Mirror(Struct, frozen=True):
    """A mirrored argument: the header, its name as lower-case bytes, and the path of the argument in the schema."""

    header: str
    key: bytes
    path: tuple[str, ...]


def mirrors(schema: Any) -> tuple[Mirror, ...]:
    """Return the mirrored arguments in the input schema of a tool.

    Raises RegistrationError for an annotation that the specification forbids, because clients then drop the whole tool
    (S26-074 to S26-079).
    """
    mirrored: list[Mirror] = []
    if not isinstance(schema, dict):
        return ()  # raw JSON is not checked

    for node, path, is_reachable in _walk(schema, (), True):
        if ANNOTATION not in node:
            continue
        name = node[ANNOTATION]
        where = ".".join(path) or "the schema itself"
        if not is_reachable or not path:
            raise RegistrationError(
                f"{ANNOTATION} at {where}: only properties reached from the root by `properties` can be mirrored, "
                "not through arrays, combinations, conditions or $ref"
            )
        if not isinstance(name, str) or not name or not _TOKEN.issuperset(name):
            raise RegistrationError(f"{ANNOTATION} at {where}: {name!r} cannot be part of a header name")
        if node.get("type") not in ("string", "integer", "boolean"):
            raise RegistrationError(f"{ANNOTATION} at {where}: only strings, integers and booleans can be mirrored")
        mirror = Mirror(f"Mcp-Param-{name}", f"mcp-param-{name}".lower().encode(), path)
        if any(other.key == mirror.key for other in mirrored):
            raise RegistrationError(f"{ANNOTATION} at {where}: {name!r} is used twice (header names ignore case)")
        mirrored.append(mirror)

    return tuple(mirrored)


def without_mirrors(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return mapped({key: value for key, value in schema.items() if key != ANNOTATION}, without_mirrors)


def _walk(
    node: Schema, path: tuple[str, ...], is_reachable: bool
) -> Iterator[tuple[dict[str, Any], tuple[str, ...], bool]]:
    # Yield every schema inside a schema, its path, and whether only `properties` lead to it.
    yield node, path, is_reachable
    for keyword, name, child in children(node):
        yield from _walk(child, (*path, name or f"<{keyword}>"), is_reachable and keyword == "properties")
