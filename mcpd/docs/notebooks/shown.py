"""Cells as the page shows them: as many as one message may hold, Markdown as safe HTML, HTML of others cleaned.

Without the extra `docs` Markdown is sent as it was written; the page makes of it what it can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from typing import Final
from urllib.parse import unquote

from msgspec import Struct, structs
from msgspec.json import encode

from mcpd.docs.notebooks.cells import (
    BrokenCell,
    Cell,
    CodeCell,
    HtmlOutput,
    MarkdownCell,
    MarkdownOutput,
    Notebook,
    OmittedOutput,
    Output,
    TextOutput,
)
from mcpd.docs.notebooks.clean import clean_html
from mcpd.docs.notebooks.maths import mathml

AT_ONCE: Final = 100
MOST_BYTES: Final = 1_500_000
_MOST_SOURCE: Final = 200_000
_MOST_MARKDOWN: Final = 50_000
"""Longer texts go as they were written: the parser may take its time for marks that are never closed."""

_Renderer = Callable[[str, Mapping[str, str]], str]


class Shown(Struct, frozen=True, omit_defaults=True):
    """Some cells of a notebook, and the number of the cell after them, if there is one."""

    path: str
    cells: list[Cell]
    next: int | None = None


def shown_cells(notebook: Notebook, path: str, first: int = 1) -> Shown:
    """The cells from the one with the number `first` on, from 1: at least one, at most 100 or 1.5 MB."""
    found: list[Cell] = []
    size = 0
    for cell in notebook.cells[first - 1 : first - 1 + AT_ONCE]:
        made = _bounded(_shown(cell))
        size += len(encode(made))
        if found and size > MOST_BYTES:
            break
        found.append(made)
    after = first + len(found)
    return Shown(path, found, after if after <= len(notebook.cells) else None)


def _shown(cell: Cell) -> Cell:
    if isinstance(cell, MarkdownCell):
        html = _rendered(cell.source, cell.attachments)
        return MarkdownCell(cell.source[:_MOST_SOURCE] if html is None else "", html=html)
    if isinstance(cell, CodeCell):
        return structs.replace(cell, source=cell.source[:_MOST_SOURCE], outputs=tuple(map(_output, cell.outputs)))
    return cell if isinstance(cell, BrokenCell) else structs.replace(cell, source=cell.source[:_MOST_SOURCE])


def _bounded(cell: Cell) -> Cell:
    """A cell whose outputs fit into one message: of what is too much it is said that it is left out."""
    if not isinstance(cell, CodeCell):
        return cell
    kept: list[Output] = []
    size = 0
    for number, output in enumerate(cell.outputs):
        size += len(encode(output))
        if size > 2 * MOST_BYTES:
            kept.append(OmittedOutput(f"{len(cell.outputs) - number} more outputs of this cell"))
            break
        kept.append(output)
    return structs.replace(cell, outputs=tuple(kept))


def _output(output: Output) -> Output:
    if isinstance(output, HtmlOutput):
        html = clean_html(output.html)
        if html is None:
            return TextOutput(output.text) if output.text else OmittedOutput("HTML: pip install 'mcpd-server[docs]'")
        return structs.replace(output, html=html)
    if isinstance(output, MarkdownOutput):
        html = _rendered(output.source, {})
        return structs.replace(output, source=output.source if html is None else "", html=html)
    return output


def _rendered(source: str, attachments: Mapping[str, str]) -> str | None:
    renderer = _renderer()
    return None if renderer is None or len(source) > _MOST_MARKDOWN else renderer(source, attachments)


@cache
def _renderer() -> _Renderer | None:
    """What makes HTML of Markdown; None without the extra."""
    try:
        from markdown_it import MarkdownIt
        from mdit_py_plugins.amsmath import amsmath_plugin
        from mdit_py_plugins.dollarmath import dollarmath_plugin
    except ImportError:
        return None

    def formula(tex: str, options: Mapping[str, object]) -> str:
        return mathml(tex, is_block=bool(options.get("display_mode")))

    reader = MarkdownIt("commonmark", {"html": True, "maxNesting": 40}).enable(["table", "strikethrough"])
    dollarmath_plugin(reader, renderer=formula, double_inline=True, allow_digits=False)
    amsmath_plugin(reader, renderer=lambda tex: mathml(tex, is_block=True))

    def rendered(source: str, attachments: Mapping[str, str]) -> str:
        for name, data in attachments.items():
            for written in {name, name.replace(" ", "%20"), unquote(name)}:
                source = source.replace(f"(attachment:{written})", f"({data})")
        try:
            made: str = reader.render(source)
        except Exception:  # a text that its parser cannot take is shown as it is
            return f"<pre>{escape(source)}</pre>"
        return clean_html(made) or ""

    return rendered
