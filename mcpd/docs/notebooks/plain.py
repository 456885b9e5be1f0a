"""A notebook as text, in Markdown: for models, and for people whose host shows no page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

from mcpd.docs.notebooks.cells import (
    BrokenCell,
    Cell,
    CodeCell,
    ErrorOutput,
    HtmlOutput,
    ImageOutput,
    MarkdownCell,
    Notebook,
    OmittedOutput,
    Output,
    TextOutput,
)

MOST_CHARS: Final = 24_000
"""Of one answer."""

_MOST_OUTPUT: Final = 2_000
_CODES: Final = r"\x1b(?:\[[0-9;:?]{0,60}[A-Za-z]|\][^\x07\x1b]{0,4000}(?:\x07|\x1b\\))|[\x00-\x08\x0b-\x1f\x7f]"


def notebook_text(notebook: Notebook, first: int = 1, limit: int = MOST_CHARS) -> tuple[str, int | None]:
    """The cells from the one with that number on, and the number of the one after them; None if that is all.

    At least one cell, which is cut if it alone is longer than `limit` characters.
    """
    parts: list[str] = []
    size = 0
    for number, cell in enumerate(notebook.cells[first - 1 :], first):
        text = _cell(cell, notebook.language)
        size += len(text) + 2
        if parts and size > limit:
            return "\n\n".join(parts), number
        parts.append(
            text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} characters are left out …"
        )
    return "\n\n".join(parts), None


def without_codes(text: str) -> str:
    """Text without what tells a terminal how to show it."""
    return re.sub(_CODES, "", text)


def _cell(cell: Cell, language: str) -> str:
    if isinstance(cell, MarkdownCell):
        return re.sub(r"\(data:[^)]{0,10000000}\)", "(an image)", cell.source)
    if isinstance(cell, CodeCell):
        code = _fenced(cell.source, cell.language or language) if cell.source.strip() else ""
        return "\n\n".join(part for part in (code, *map(_output, cell.outputs)) if part)
    return f"[left out: {cell.reason}]" if isinstance(cell, BrokenCell) else _fenced(cell.source, "")


def _output(output: Output) -> str:
    if isinstance(output, TextOutput):
        text = without_codes(output.text)
        return _fenced(_cut(text.rstrip("\n")), "output" if not output.stream else "stderr") if text.strip() else ""
    if isinstance(output, ErrorOutput):
        return _fenced(_cut(f"{output.name}: {output.value}"), "error")
    if isinstance(output, HtmlOutput):
        return _fenced(_cut(output.text or _words(output.html)), "output")
    if isinstance(output, ImageOutput):
        return f"[{output.type}{f': {output.alt}' if output.alt else ''}]"
    return f"[left out: {output.reason}]" if isinstance(output, OmittedOutput) else output.source


def _fenced(text: str, about: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{about}\n{text}\n{fence}"


def _cut(text: str) -> str:
    if len(text) <= _MOST_OUTPUT:
        return text
    half = _MOST_OUTPUT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters are left out …\n{text[-half:]}"


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._is_code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_code += tag in ("script", "style")
        if tag in ("tr", "p", "br", "li", "div"):
            self.found.append("\n")
        elif tag in ("td", "th"):
            self.found.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._is_code -= bool(self._is_code) and tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._is_code:
            self.found.append(data)


def _words(html: str) -> str:
    """What HTML says, a row of a table on each line."""
    reader = _Words()
    reader.feed(html)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.found).split("\n"))
    return "\n".join(line for line in lines if line)
