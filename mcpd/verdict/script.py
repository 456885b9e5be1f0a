"""What a script loads by addresses that stand in it: `fetch`, `WebSocket`, `import`, and what it needs of the browser.

A script is read token by token, so that comments, other strings and regular expressions count for nothing. An address
counts if it is a literal, the beginning of a template or of a sum, or a constant that was given one. What is put
together in another way only shows in a browser.
Spec: ECMAScript 2025, section 12.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from mcpd.verdict.css import Reference, css_references
from mcpd.verdict.sources import Kind

MOST_SCRIPT: Final = 8 * 1024 * 1024
"""Longer scripts, in characters, are not read."""

_TOKEN = re.compile(
    r"""
      \s+ | //[^\n]* | /\*.*?(?:\*/|\Z)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<name>[A-Za-z_$\u0080-\uffff][\w$]*)
    | (?P<number>\d[\w.]*)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
# No regular expression of a program is longer; what is none is not searched for its end without bounds.
_REGEX = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.){0,1000}\]){1,1000}/\w*")
_TEMPLATE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*", re.DOTALL)
_ESCAPES = re.compile(r"\\(?:u\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r?\n)|(.))", re.DOTALL)
_BEFORE_REGEX: Final = frozenset(
    (
        "return",
        "typeof",
        "case",
        "in",
        "of",
        "delete",
        "void",
        "throw",
        "new",
        "instanceof",
        "do",
        "else",
        "await",
        "yield",
    )
)
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}

_CALLS: Final[dict[str, Kind]] = {"fetch": "connect", "sendBeacon": "connect", "importScripts": "worker"}
_MADE: Final[dict[str, Kind]] = {
    "WebSocket": "connect",
    "EventSource": "connect",
    "WebTransport": "connect",
    "Worker": "worker",
    "SharedWorker": "worker",
    "Audio": "media",
}
_NEEDS: Final = {
    "eval": "eval",
    "Function": "new Function",
    "WebAssembly": "WebAssembly",
    "localStorage": "localStorage",
    "sessionStorage": "sessionStorage",
    "indexedDB": "indexedDB",
    "alert": "alert, confirm or prompt",
    "confirm": "alert, confirm or prompt",
    "prompt": "alert, confirm or prompt",
}
_OF_WINDOW: Final = frozenset(("window", "self", "globalThis", "top", "parent", "frames"))


class _Token(NamedTuple):
    kind: str  # string, template, name, number, regex, sign
    text: str  # of strings their value, of a template what stands before its first ${
    position: int


class ScriptReport(NamedTuple):
    """What a script loads, and which means of the browser it names that strict hosts do not give."""

    references: list[Reference]
    needs: dict[str, int]
    """Each means, and where it is first named."""


def read_script(text: str) -> ScriptReport:
    """Read one script, or the value of an event attribute."""
    if len(text) > MOST_SCRIPT:
        return ScriptReport([], {})
    tokens = list(_tokens(text))
    constants = _constants(tokens)
    references: list[Reference] = []
    needs: dict[str, int] = {}
    for at, token in enumerate(tokens):
        if token.kind == "name":
            references += _loads(tokens, at, constants)
            if (need := _need(tokens, at)) is not None:
                needs.setdefault(need, token.position)
    return ScriptReport(references, needs)


def _tokens(text: str) -> Iterator[_Token]:
    """The tokens of a script that mean something."""
    position, depth = 0, 0
    templates: list[int] = []  # the depth of braces at which each open template goes on
    before = _Token("sign", "(", 0)
    while position < len(text):
        character = text[position]
        if character == "`" or (character == "}" and templates and templates[-1] == depth):
            is_new = character == "`"
            if not is_new:
                templates.pop()
            begin, position = position, _TEMPLATE.match(text, position + 1).end()  # type: ignore[union-attr]
            piece = text[begin + 1 : position]
            if text.startswith("${", position):
                templates.append(depth)
                position += 2
                ends = "${"
            else:
                position += 1
                ends = "`"
            before = _Token("template" if is_new else "sign", _value(piece) if is_new else ends, begin)
            yield before
            if is_new and ends == "${":
                before = _Token("sign", "${", position)
                yield before
            continue
        is_slash = character == "/" and not text.startswith(("//", "/*"), position)
        if is_slash and _may_be_regex(before) and (found := _REGEX.match(text, position)):
            before = _Token("regex", "", position)
            yield before
            position = found.end()
            continue

        match = _TOKEN.match(text, position)
        assert match is not None  # any character is a sign
        if (kind := match.lastgroup) is not None:
            depth += {"{": 1, "}": -1}.get(character, 0)
            value = _value(match[0][1:-1]) if kind == "string" else match[0]
            before = _Token(kind, value, position)
            yield before
        position = match.end()


def _may_be_regex(before: _Token) -> bool:
    """Whether a slash after this token begins a regular expression; after a value it divides."""
    if before.kind == "name":
        return before.text in _BEFORE_REGEX
    return before.kind == "sign" and before.text not in (")", "]", "}", "`")


def _value(text: str) -> str:
    if "\\" not in text:
        return text

    def plain(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        if code:
            number = int(code, 16)
            return chr(number) if number < 0x110000 else "\ufffd"
        return "" if match[4] else _LETTERS.get(match[5], match[5])

    return _ESCAPES.sub(plain, text)


def _constants(tokens: list[_Token]) -> dict[str, str]:
    """Names that are given an address once, and nothing else: `const API = "https://…"`, minified ones too."""
    found: dict[str, str | None] = {}
    for at in range(len(tokens) - 2):
        name, equals, value = tokens[at : at + 3]
        if name.kind != "name" or equals.text != "=" or tokens[at + 2].text == "=":
            continue
        if at and tokens[at - 1].text in (".", "?", "!", "=", "<", ">"):
            continue
        is_address = value.kind in ("string", "template") and "://" in value.text and name.text not in found
        found[name.text] = value.text if is_address else None
    return {name: value for name, value in found.items() if value}


def _loads(tokens: list[_Token], at: int, constants: dict[str, str]) -> Iterator[Reference]:
    """What the name at this place loads, if it is one of those that load."""
    token, before = tokens[at], tokens[at - 1].text if at else ""
    follows = tokens[at + 1] if at + 1 < len(tokens) else None
    if follows is None:
        return
    kind: Kind | None = None
    argument = at + 2
    if follows.text == "(" and follows.kind == "sign":
        if token.text == "import" and before != ".":
            kind = "script"
        elif before == "new":
            kind = _MADE.get(token.text)
        elif token.text == "open" and before == ".":
            # XMLHttpRequest: the method, then the address. One of window opens a window, which no sandbox lets it.
            kind, argument = ("connect", at + 4) if _is_method(tokens, at + 2) else ("navigation", at + 2)
        elif token.text in ("assign", "replace") and _is_location(tokens, at):
            kind = "navigation"
        else:
            kind = _CALLS.get(token.text)
        if before == "new" and token.text == "FontFace":
            yield from _font(tokens, at)
    elif token.text in ("import", "from") and follows.kind == "string" and before != ".":
        kind, argument = ("script", at + 1) if _is_import(follows.text) else (None, 0)
    elif follows.text == "=" and _is_assignment(tokens, at):
        argument = at + 2
        kind = "resource" if token.text == "src" and before == "." else None
        is_own = before != "." or (at > 1 and tokens[at - 2].text in (*_OF_WINDOW, "document"))
        if (token.text == "location" and is_own) or (token.text == "href" and _is_location(tokens, at)):
            kind = "navigation"
    if kind is not None and (url := _address(tokens, argument, constants)):
        yield Reference(kind, url, token.position)


def _address(tokens: list[_Token], at: int, constants: dict[str, str]) -> str:
    """The address that an argument begins with; "" if it is not known, or is no absolute one."""
    # `new URL("https://…", …)`, and a template that begins with a constant.
    if [token.text for token in tokens[at : at + 3]] == ["new", "URL", "("]:
        at += 3
    if at >= len(tokens):
        return ""
    token = tokens[at]
    if token.kind == "template" and not token.text and [t.text for t in tokens[at + 1 : at + 2]] == ["${"]:
        at += 2
        token = tokens[at] if at < len(tokens) else token
    if token.kind == "name":
        # A member of something else has only its name in common.
        is_member = at + 1 < len(tokens) and tokens[at + 1].text in (".", "[", "(")
        text = "" if is_member else constants.get(token.text, "")
    else:
        text = token.text if token.kind in ("string", "template") else ""
    is_absolute = text.startswith("//") or re.match(r"(?:https?|wss?)://[^/?#]|(?:data|blob):", text) is not None
    return text if is_absolute else ""


def _font(tokens: list[_Token], at: int) -> Iterator[Reference]:
    """`new FontFace(name, "url(…)")`."""
    for token in tokens[at + 2 : at + 6]:
        if token.kind in ("string", "template"):
            for reference in css_references(token.text):
                yield Reference("font", reference.url, token.position)


def _need(tokens: list[_Token], at: int) -> str | None:
    """What strict hosts do not give and this name asks for."""
    token, before = tokens[at], tokens[at - 1].text if at else ""
    need = _NEEDS.get(token.text)
    if need is None:
        return None
    if before == "." and not (at > 1 and tokens[at - 2].text in _OF_WINDOW):
        return None
    follows = tokens[at + 1].text if at + 1 < len(tokens) else ""
    if token.text == "Function":
        return need if before == "new" else None
    if token.text in ("eval", "alert", "confirm", "prompt"):
        return need if follows == "(" and before != "function" else None
    return need if follows in (".", "[") else None


def _is_method(tokens: list[_Token], at: int) -> bool:
    return at + 1 < len(tokens) and tokens[at].text.upper() in ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH")


def _is_location(tokens: list[_Token], at: int) -> bool:
    return at > 1 and tokens[at - 1].text == "." and tokens[at - 2].text == "location"


def _is_assignment(tokens: list[_Token], at: int) -> bool:
    return at + 2 < len(tokens) and tokens[at + 2].text != "=" and tokens[at - 1].text not in ("const", "let", "var")


def _is_import(name: str) -> bool:
    return name.startswith(("http:", "https:", "//", "data:", "blob:"))
