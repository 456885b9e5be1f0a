"""A page in the pieces that are searched: what stands under one heading, or a part of that."""

from __future__ import annotations

import re

from msgspec import Struct

from mcpd.docs.page import CodeBlock, Page

MOST_CHUNKS = 4096
"""How many pieces a page has at most; what is behind them is in the last one."""

_MOST_CHARACTERS = 12_000
_CJK = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


class Chunk(Struct):
    """One piece of a page."""

    heading: str
    """The heading that it stands under."""
    anchor: str
    headings: str
    """What is searched as its headings: its own, those above it, and in the first piece the description."""
    start: int
    text: str
    code: list[CodeBlock]


def chunks_of(page: Page) -> list[Chunk]:
    """The pieces of a page, in their order; at least one."""
    headings = page.headings
    found: list[Chunk] = []
    if not headings or page.text[: headings[0].start].strip() or page.description:
        end = headings[0].start if headings else len(page.text)
        _add(found, Chunk("", "", page.description, 0, page.text[:end], []))

    above: list[tuple[int, str]] = []
    last = len(headings) - 1
    for at, heading in enumerate(headings):
        while above and above[-1][0] >= heading.level:
            above.pop()
        above.append((heading.level, heading.title))
        end = headings[at + 1].start if at < last else len(page.text)
        names = " / ".join(title for _, title in above[-3:])
        _add(found, Chunk(heading.title, heading.anchor, names, heading.start, page.text[heading.start : end], []))

    if len(found) > MOST_CHUNKS:
        found[MOST_CHUNKS - 1].text = page.text[found[MOST_CHUNKS - 1].start :]
        del found[MOST_CHUNKS:]
    at = 0
    for block in page.code:
        while at + 1 < len(found) and found[at + 1].start <= block.start:
            at += 1
        found[at].code.append(block)
    return found


def _add(found: list[Chunk], chunk: Chunk) -> None:
    """Add a piece, cut at empty lines if it is long."""
    while len(chunk.text) > _MOST_CHARACTERS:
        cut = chunk.text.rfind("\n\n", _MOST_CHARACTERS // 2, _MOST_CHARACTERS)
        if cut < 0:
            cut = chunk.text.rfind("\n", _MOST_CHARACTERS // 2, _MOST_CHARACTERS)
        if cut < 0:
            cut = chunk.text.rfind(" ", _MOST_CHARACTERS // 2, _MOST_CHARACTERS)
        cut = _MOST_CHARACTERS if cut < 0 else cut
        rest = chunk.text[cut:]
        chunk.text = chunk.text[:cut]
        found.append(chunk)
        chunk = Chunk(chunk.heading, chunk.anchor, chunk.headings, chunk.start + cut, rest, [])
    found.append(chunk)


def indexed(text: str) -> str:
    """A text as the index gets it: with spaces where a script is written without them."""
    return text if text.isascii() else _CJK.sub(r" \1 ", text)
