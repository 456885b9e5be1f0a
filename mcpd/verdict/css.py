"""What a style sheet loads: `url()`, `src()`, `image-set()` and `@import`, read token by token.

Comments and strings are passed over as a browser does. Spec: CSS Syntax Level 3, CSS Images Level 4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from mcpd.verdict.sources import Kind

_TOKENS = re.compile(
    r"""
      /\*.*?(?:\*/|\Z)                                  # a comment
    | (?P<string>"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)
    | (?P<raw>(?<![\w-])url\(\s*(?!["'\s])(?:[^()"'\\\s]|\\[0-9a-f]{1,6}\s?|\\.)*\s*\)?)   # url(without quotes)
    | (?P<name>@?-?[a-z_][\w-]*\(?)
    | (?P<sign>[{}();,])
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(\n)|(.))", re.DOTALL)


class Reference(NamedTuple):
    """Something that is loaded, and where in the text it stands."""

    kind: Kind
    url: str
    position: int


def css_references(text: str) -> Iterator[Reference]:
    """Everything that a style sheet, or the value of a `style` attribute, loads."""
    at_rule = ""  # the rule whose prelude we are in: @import, @namespace, @font-face
    block: list[str] = []  # the at-rules whose blocks we are in
    functions: list[str] = []
    for match in _TOKENS.finditer(text):
        string, raw, name, sign = match["string"], match["raw"], match["name"], match["sign"]
        if name is not None:
            if name.startswith("@"):
                at_rule = name.lower()
            elif name.endswith("("):
                functions.append(name[:-1].lower())
        elif sign == "{":
            block.append(at_rule)
            at_rule = ""
        elif sign == "}":
            at_rule, functions = "", []
            if block:
                block.pop()
        elif sign == ";":
            at_rule, functions = "", []
        elif sign == "(":
            functions.append("")
        elif sign == ")":
            if functions:
                functions.pop()
        elif (url := _loaded(string, raw, at_rule, functions)) and at_rule != "@namespace":
            kind: Kind = "style" if at_rule == "@import" else "font" if block[-1:] == ["@font-face"] else "image"
            yield Reference(kind, url, match.start())


def _loaded(string: str | None, raw: str | None, at_rule: str, functions: list[str]) -> str:
    """The URL of a token, "" if it is none."""
    if raw is not None:
        return _unescaped(raw[4:].rstrip(")").strip())
    if string is None:
        return ""
    is_import = at_rule == "@import" and not functions
    is_url = functions[-1:] in (["url"], ["src"], ["image-set"], ["-webkit-image-set"])
    return _unescaped(string[1:].removesuffix(string[0])) if is_import or is_url else ""


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code, line, character = match.groups()
        if code:
            number = int(code, 16)
            return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
        return "" if line else character

    return _ESCAPE.sub(plain, text)
