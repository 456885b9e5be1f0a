"""Converts MDX, Markdown with components, to Markdown. No code runs.

Imports, exports and comments are removed. A component is replaced by its content and its readable properties: title,
label, description, link, version and code.
"""

from __future__ import annotations

import re

from mcpd.sources.docs.page import Page
from mcpd.sources.docs.readers.markdown import markdown_page, scan_lines
from mcpd.sources.docs.readers.text import decoded
from mcpd.sources.front_matter import split_page

_MAX_TAG = 20_000
_MAX_TAGS = 20_000
_MAX_SIGNS = 100_000
_MAX_CODE = 2000
_SIGN = re.compile(r"[{}>\"'`]")
_MODULE = re.compile(r"(?m)^(?:import|export)\b(?=[ \t]*[\w{*'\"(])")
_COMMENT = re.compile(r"\{\s*/\*.*?(?:\*/\s*\}|\Z)", re.DOTALL)
_MDX_MARK = re.compile(r"(`+)|(?<!\\)<(?=[A-Z/>])|(?<!\\)\{")
_NAME = re.compile(r"<(/?)\s*([A-Za-z][\w.:-]*)?")
_PROP = re.compile(
    r"""(?<![\w:-])([A-Za-z_][\w:-]*+)\s*+=\s*+(?:"([^"]*)"|'([^']*)'|\{\s*`([^`]*)`\s*\}|\{\s*"([^"]*)"\s*\}|\{\s*'([^']*)'\s*\}|\{([^{}]*)\})"""
)
_BLANKS = re.compile(r"\n[ \t]*(?:\n[ \t]*){2,}")
_TITLES = ("title", "label", "heading", "name", "summary", "alt")


def read_mdx(path: str, data: bytes) -> Page:
    """Return the page of an MDX file. Raises UnreadablePage if it is not text."""
    front, text = split_page(decoded(data))
    return markdown_page(path, readable(text), "mdx", front)


def readable(text: str) -> str:
    """Return an MDX text as Markdown."""
    if not any(sign in text for sign in ("<", "{", "import ", "export ")):
        return text
    kept: list[str] = []
    brackets = _Brackets()
    at = 0
    for fence in scan_lines(text, is_mdx=True).fences:
        kept.append(_prose(text[at : fence.start], brackets))
        kept.append(text[fence.start : fence.end])
        at = fence.end
    kept.append(_prose(text[at:], brackets))
    return _BLANKS.sub("\n\n", "".join(kept)).lstrip("\n")


def _prose(text: str, brackets: _Brackets) -> str:
    """Convert the text between two fences."""
    text = _COMMENT.sub("", text)
    if "import" in text or "export" in text:
        text = _without_modules(text, brackets)
    kept: list[str] = []
    at = tags = 0
    while (mark := _MDX_MARK.search(text, at)) is not None and tags < _MAX_TAGS:
        tags += 1
        start = mark.start()
        if mark[1]:  # a code span
            end = text.find(mark[1], mark.end(), mark.end() + _MAX_CODE)
            end = mark.end() if end < 0 or "\n\n" in text[mark.end() : end] else end + len(mark[1])
            kept.append(text[at:end])
        elif mark[0] == "{":
            end = brackets.closed(text, start)
            kept += text[at:start], _expression(text[start + 1 : end - 1])
        else:
            end = brackets.tag_end(text, start)
            kept += text[at:start], _component(text[start:end])
        at = end
    kept.append(text[at:])
    return "".join(kept)


def _without_modules(text: str, brackets: _Brackets) -> str:
    """Remove import and export statements. A statement ends with the line on which its brackets are closed."""
    kept: list[str] = []
    at = 0
    while (found := _MODULE.search(text, at)) is not None:
        kept.append(text[at : found.start()])
        at = found.end()
        while True:
            line = text.find("\n", at)
            brace = text.find("{", at, line if line >= 0 else len(text))
            if brace >= 0:
                at = brackets.closed(text, brace)
                continue
            at = len(text) if line < 0 else line + 1
            break
    kept.append(text[at:])
    return "".join(kept)


class _Brackets:
    """Finds the ends of brackets and tags, with a limit on the total work for a text."""

    def __init__(self) -> None:
        self._left = _MAX_SIGNS

    def closed(self, text: str, start: int) -> int:
        """Return the position after the bracket that closes the one at `start`, or after `start` without one
        nearby.
        """
        depth = 0
        at, limit = start, min(len(text), start + _MAX_TAG)
        while self._left > 0 and (found := _SIGN.search(text, at, limit)) is not None:
            self._left -= 1
            sign, at = found[0], found.end()
            if sign == "{":
                depth += 1
            elif sign == "}":
                depth -= 1
                if not depth:
                    return at
            elif sign != ">" and (sign == "`" or text[found.start() - 1] in " ={([,:\n"):
                at = self._quoted(text, found.start(), limit)
        return start + 1

    def tag_end(self, text: str, start: int) -> int:
        """Return the position after the `>` of a tag, which may contain expressions."""
        at, limit = start + 1, min(len(text), start + _MAX_TAG)
        while self._left > 0 and (found := _SIGN.search(text, at, limit)) is not None:
            self._left -= 1
            sign, at = found[0], found.end()
            if sign == ">":
                return at
            if sign == "{":
                at = self.closed(text, found.start())
            elif sign in "\"'":
                at = self._quoted(text, found.start(), limit)
        return start + 1

    @staticmethod
    def _quoted(text: str, start: int, limit: int) -> int:
        """Return the position after the closing quote, or after `start` without one."""
        at = start
        while (at := text.find(text[start], at + 1, limit)) >= 0:
            if text[at - 1] != "\\":
                return at + 1
        return start + 1


def _expression(text: str) -> str:
    """Return an expression as text: a string's value, otherwise its source as code."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`":
        return text[1:-1]
    if not text or text.startswith("...") or len(text) > 200 or "\n" in text or "=>" in text or "<" in text:
        return ""
    return f"`{text}`"


def _component(tag: str) -> str:
    """Return the readable properties of a tag."""
    named = _NAME.match(tag)
    name = (named[2] or "") if named else ""
    if not named or named[1] or not name:
        return ""
    props = {
        found[1]: next((part for part in found.groups()[1:] if part is not None), "") for found in _PROP.finditer(tag)
    }
    if "code" in props and "{" not in props["code"][:1]:
        title = f"**{props['title']}**\n\n" if props.get("title") else ""
        return f"\n\n{title}```{props.get('lang', '')}\n{props['code'].strip()}\n```\n\n"

    title = next((props[one] for one in _TITLES if props.get(one)), "")
    target = props.get("href", "")
    if title and target:
        description = props.get("description", "")
        return f"- [{title}]({target}){': ' + description if description else ''}"
    if version := props.get("version", ""):
        return f"*{name} {version}* "
    kind = props.get("type", "")
    said = ": ".join(part for part in (kind[:1].upper() + kind[1:] if kind.isalpha() else "", title) if part)
    parts = [f"**{said}**" if said else "", props.get("description", "")]
    return "\n".join(part for part in parts if part)
