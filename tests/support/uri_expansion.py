"""RFC 6570 expansion, levels 1 to 3, written from the RFC alone, to test the matching of `UriTemplate` with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

__all__ = ["expand"]

_RESERVED = ":/?#[]@!$&'()*+,;="
# operator -> first, separator, are variables named, what follows the name of an empty one, are reserved characters kept
_OPERATORS = {
    "": ("", ",", False, "", False),
    "+": ("", ",", False, "", True),
    "#": ("#", ",", False, "", True),
    ".": (".", ".", False, "", False),
    "/": ("/", "/", False, "", False),
    ";": (";", ";", True, "", False),
    "?": ("?", "&", True, "=", False),
    "&": ("&", "&", True, "=", False),
}


def expand(template: str, values: Mapping[str, str]) -> str:
    """The URI for these values; a variable that has none is undefined, and left out as the RFC says."""
    parts = re.split(r"\{([^}]*)\}", template)
    parts[::2] = [_encoded(literal, is_reserved_kept=True) for literal in parts[::2]]
    parts[1::2] = [_expression(inner, values) for inner in parts[1::2]]
    return "".join(parts)


def _expression(inner: str, values: Mapping[str, str]) -> str:
    """RFC 6570 appendix A, for string values."""
    operator = inner[:1] if inner[:1] in _OPERATORS else ""
    first, separator, is_named, if_empty, is_reserved_kept = _OPERATORS[operator]
    found = []
    for name in inner[len(operator) :].split(","):
        if name in values:
            value = _encoded(values[name], is_reserved_kept)
            if is_named:
                value = f"{name}={value}" if value else name + if_empty
            found.append(value)
    return first + separator.join(found) if found else ""


def _encoded(text: str, is_reserved_kept: bool) -> str:
    if not is_reserved_kept:
        return quote(text, safe="")
    # Reserved characters and percent-encodings are copied, a "%" that begins none is encoded.
    return re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", quote(text, safe=_RESERVED + "%"))
