"""Markdown, as it is written."""

from __future__ import annotations

import re
from itertools import islice

from mcpd.docs.front_matter import number_in, split_page, text_in
from mcpd.docs.names import NO_ORDER, order_of, section_of, title_of
from mcpd.docs.page import CodeBlock, Heading, Kind, Link, Page
from mcpd.docs.readers.decoding import decoded
from mcpd.docs.readers.markdown_lines import Fence, Lines, plain_text, scan_lines, titled

MOST_DESCRIPTION = 300
_MOST_LINKS = 5000

_LINK = re.compile(
    r"(?<!!)\[([^\[\]\n]{1,300})\]\(\s{0,3}<?([^\s<>()]{1,1000}(?:\([^\s()]{0,200}\))?)>?[^()\n]{0,300}\)"
)
_NO_PROSE = ("#", "|", "<", "```", "~~~", "![", "import ", "export ", "{", "---", "***", "===", ":::", "[![")
_LANGUAGE = re.compile(r"\{?\.?([A-Za-z0-9_+#.-]+)")


def read_markdown(path: str, data: bytes, with_links: bool = True) -> Page:
    """The page of a Markdown file. Raises UnreadablePage for what is no text."""
    front, text = split_page(decoded(data))
    return markdown_page(path, text, "markdown", front, with_links=with_links)


def markdown_page(
    path: str, text: str, kind: Kind, front: dict[str, object], title: str = "", *, with_links: bool = True
) -> Page:
    """The page that a text in Markdown is; `title` is taken where the head and the headings have none."""
    lines = scan_lines(text, is_mdx=kind == "mdx")
    if lines.comments:
        text = _cut(text, lines.comments)
        lines = scan_lines(text, is_mdx=kind == "mdx")
    text = text.strip("\n") if not lines.titles and not lines.fences else text.rstrip()
    headings = _headings(lines, len(text))
    first = next((one.title for one in headings if one.level == 1 and one.title), "")
    order = number_in(front, "order", "sidebar_position", "nav_order", "weight", "position")
    sidebar = front.get("sidebar")
    if order is None and isinstance(sidebar, dict):
        order = number_in(sidebar, "order", "position")
    return Page(
        path,
        text_in(front, "title") or first or title or title_of(path),
        section_of(path),
        (text_in(front, "description", "summary", "excerpt") or _introduction(text))[:MOST_DESCRIPTION],
        min(order_of(path), NO_ORDER) if order is None else order,
        text,
        "text/markdown",
        kind,
        headings,
        _code(text, lines.fences, headings),
        _links(text) if with_links else (),
        front,
    )


def _cut(text: str, ranges: list[tuple[int, int]]) -> str:
    kept: list[str] = []
    at = 0
    for start, end in ranges:
        kept.append(text[at:start])
        at = end
    return "".join([*kept, text[at:]])


def _headings(lines: Lines, length: int) -> tuple[Heading, ...]:
    """Each reaches to the next one that is as high or higher."""
    found: list[Heading] = []
    titles = list(titled(lines.titles))
    open_at: list[int] = []
    ends = [length] * len(titles)
    for at, title in enumerate(titles):
        while open_at and titles[open_at[-1]].level >= title.level:
            ends[open_at.pop()] = title.start
        open_at.append(at)
    for title, end in zip(titles, ends, strict=True):
        found.append(Heading(title.level, title.text, title.anchor, title.start, min(end, length)))
    return tuple(found)


def _code(text: str, fences: list[Fence], headings: tuple[Heading, ...]) -> tuple[CodeBlock, ...]:
    found: list[CodeBlock] = []
    above = 0
    heading = ""
    for fence in fences:
        while above < len(headings) and headings[above].start <= fence.start:
            heading = headings[above].title
            above += 1
        language = _LANGUAGE.match(fence.info)
        inner = text[fence.inner_start : fence.inner_end]
        if fence.indent:
            inner = _dedented(inner, fence.indent)
        name = language[1].lower() if language else ""
        found.append(CodeBlock(name, inner, heading, _line_before(text, fence.start), fence.start))
    return tuple(found)


def _dedented(text: str, indent: int) -> str:
    pad = " " * indent
    return "\n".join(line[indent:] if line.startswith(pad) else line.lstrip(" \t") for line in text.split("\n"))


def _line_before(text: str, at: int) -> str:
    """The line of text above a place."""
    lines = text[max(0, at - 600) : at].rstrip().rsplit("\n", 1)
    line = lines[-1].strip()
    if not line or line[0] == "#" or line.startswith(("```", "~~~")):
        return ""
    return plain_text(line.lstrip("-*> "))[-300:]


def _links(text: str) -> tuple[Link, ...]:
    if "](" not in text:
        return ()
    return tuple(Link(plain_text(found[1]), found[2]) for found in islice(_LINK.finditer(text), _MOST_LINKS))


def _introduction(text: str) -> str:
    """The first paragraph."""
    for paragraph in text[:4000].split("\n\n", 12)[:12]:
        line = paragraph.strip()
        if line and not line.startswith(_NO_PROSE):
            return plain_text(" ".join(line.split()))
    return ""
