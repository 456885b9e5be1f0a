"""Checks of a View's HTML at registration: size, doctype, character encoding.

Looks at the text only, and never changes it. Spec: MCP Apps 2026-01-26, "Content Requirements" (APP-S-04);
the limits are those of the hosts we know.
"""

from __future__ import annotations

from typing import Final

from mcpd.server.registry.entries import Problem

WARN_HTML_BYTES: Final = 1024 * 1024
MAX_HTML_BYTES: Final = 16 * 1024 * 1024

# HTML: the declaration has to lie within the first 1024 bytes of the document.
_DECLARED_WITHIN: Final = 1024
_LEGACY_STRINGS: Final = ("", 'system "about:legacy-compat"', "system 'about:legacy-compat'")


def html_problems(where: str, html: str) -> list[Problem]:
    """Everything that is wrong with a document, errors first."""
    try:
        data = html.encode()
    except UnicodeEncodeError as error:
        return [Problem(where, f"character {error.start} cannot be written as UTF-8 (it is half of a surrogate pair)")]

    problems = []
    if len(data) > MAX_HTML_BYTES:
        problems.append(Problem(where, f"{len(data)} bytes of HTML; hosts refuse more than {MAX_HTML_BYTES}"))

    start = _skip_comments(html)
    if start == len(html):
        problems.append(Problem(where, "the HTML is empty"))
    elif found := _wrong_doctype(html[start : start + 200].lower()):
        problems.append(Problem(where, f"no complete HTML5 document: {found}; begin it with <!doctype html>"))

    if WARN_HTML_BYTES < len(data) <= MAX_HTML_BYTES:
        text = f"{len(data)} bytes of HTML: apps over {WARN_HTML_BYTES} start slowly"
        problems.append(Problem(where, text, is_error=False))

    declared = _charset(data[:_DECLARED_WITHIN].lower())
    if not declared:
        text = f'no <meta charset="utf-8"> within the first {_DECLARED_WITHIN} bytes: some hosts guess another encoding'
        problems.append(Problem(where, text, is_error=False))
    elif declared not in (b"utf-8", b"utf8"):
        text = f"declares charset {declared.decode('ascii', 'replace')}, but apps are sent as UTF-8; declare utf-8"
        problems.append(Problem(where, text, is_error=False))

    return problems


def _wrong_doctype(begin: str) -> str:
    """What a document begins with instead of the doctype of HTML5; "" if it is right."""
    if not begin.startswith("<!doctype"):
        return "no doctype"
    name, _, rest = begin[len("<!doctype") :].partition(">")[0].strip().partition(" ")
    return "" if name == "html" and " ".join(rest.split()) in _LEGACY_STRINGS else "an older doctype"


def _charset(begin: bytes) -> bytes:
    """The encoding that the first bytes of a document declare, b"" if none."""
    for tag in begin.split(b"<meta")[1:]:
        _, found, value = tag.partition(b">")[0].partition(b"charset")
        if found and value.lstrip()[:1] == b"=":
            words = value.lstrip()[1:].strip(b" \t\r\n\f\"'/").replace(b'"', b" ").replace(b"'", b" ").split()
            return words[0] if words else b""
    return b""


def _skip_comments(html: str) -> int:
    """Where the document begins, after white space and comments; its length if there is nothing else."""
    position = 0
    while True:
        while position < len(html) and (html[position].isspace() or html[position] == "\ufeff"):
            position += 1
        if not html.startswith("<!--", position):
            return position
        end = html.find("-->", position + 4)
        if end < 0:
            return len(html)
        position = end + 3
