"""From the file of a notebook to its cells: nbformat 4, and 2 and 3, which have worksheets.

What one cell breaks costs that cell only. Files are written by many programs, so every member is looked at before it
is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import DecodeError
from msgspec.json import decode

from mcpd.docs.notebooks.cells import (
    BrokenCell,
    Cell,
    CodeCell,
    MarkdownCell,
    Notebook,
    Output,
    RawCell,
    UnreadableNotebook,
)
from mcpd.docs.notebooks.outputs import IMAGES, output_of, text_of

_MOST_CELLS: Final = 20_000
_MOST_OUTPUTS: Final = 1_000
_HEADING: Final = r"^ {0,3}#{1,6} ([^\n]{1,300})"


def read_notebook(data: bytes) -> Notebook:
    """The notebook that a file holds. Raises UnreadableNotebook."""
    whole = _decoded(data)
    version = whole.get("nbformat")
    if not isinstance(version, int) or isinstance(version, bool):
        raise UnreadableNotebook("it has no nbformat, which every notebook says")
    if not 2 <= version <= 4:
        raise UnreadableNotebook(
            f"it is of nbformat {version}; 2, 3 and 4 can be shown: save it with a Jupyter of today"
        )

    language = _language(whole.get("metadata"))
    cells = tuple(_cells(whole, version))
    if not language:
        language = next((cell.language for cell in cells if isinstance(cell, CodeCell) and cell.language), "")
    return Notebook(_title(whole.get("metadata"), cells), language, cells)


def _decoded(data: bytes) -> Mapping[str, object]:
    try:
        whole = decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (DecodeError, UnicodeDecodeError) as error:
        raise UnreadableNotebook(f"it is no JSON ({error})") from None
    except RecursionError:
        raise UnreadableNotebook("its JSON is nested too deeply") from None
    if not isinstance(whole, dict):
        raise UnreadableNotebook("it is JSON, but no object")
    return whole


def _cells(whole: Mapping[str, object], version: int) -> Iterator[Cell]:
    if version == 4:
        given = [whole.get("cells")]
    else:
        sheets = whole.get("worksheets")
        given = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)] if isinstance(sheets, list) else [0]
    found = 0
    for cells in given:
        if not isinstance(cells, list):
            raise UnreadableNotebook("its cells are no list")
        for cell in cells:
            found += 1
            if found > _MOST_CELLS:
                yield BrokenCell(f"cells after the first {_MOST_CELLS:,}")
                return
            yield _cell(cell)


def _cell(cell: object) -> Cell:
    if not isinstance(cell, dict):
        return BrokenCell("a cell that is no object")
    kind = cell.get("cell_type")
    source = text_of(cell.get("input", cell.get("source")) if kind == "code" else cell.get("source"))
    if source is None:
        return BrokenCell("a cell whose source is no text")

    if kind == "code":
        count = cell.get("execution_count", cell.get("prompt_number"))
        language = cell.get("language")
        return CodeCell(
            source,
            language=language.lower()[:40] if isinstance(language, str) else "",
            count=count if isinstance(count, int) and not isinstance(count, bool) else None,
            outputs=_outputs(cell.get("outputs")),
        )
    if kind == "heading":
        level = cell.get("level")
        return MarkdownCell(f"{'#' * (level if isinstance(level, int) and 1 <= level <= 6 else 1)} {source}")
    if kind in ("markdown", "html"):
        return MarkdownCell(source, attachments=_attachments(cell.get("attachments")))
    return RawCell(source) if kind in ("raw", "plaintext") else BrokenCell(f"a cell of the unknown type {kind!r:.60}")


def _outputs(given: object) -> tuple[Output, ...]:
    if given is None:
        return ()
    return tuple(map(output_of, given[:_MOST_OUTPUTS])) if isinstance(given, list) else (output_of(given),)


def _attachments(given: object) -> dict[str, str]:
    """Images that a cell brings with it."""
    found: dict[str, str] = {}
    for name, bundle in given.items() if isinstance(given, dict) else ():
        for kind, data in bundle.items() if isinstance(bundle, dict) else ():
            encoded = text_of(data)
            if kind in IMAGES and kind != "image/svg+xml" and encoded:
                found[str(name)] = f"data:{kind};base64,{''.join(encoded.split())}"
    return found


def _language(metadata: object) -> str:
    """What the code is written in, as the notebook says somewhere."""
    if not isinstance(metadata, dict):
        return ""
    for member, key in (("language_info", "name"), ("kernelspec", "language")):
        said = metadata.get(member)
        name = said.get(key) if isinstance(said, dict) else None
        if isinstance(name, str) and name:
            return name.lower()[:40]
    name = metadata.get("language")
    return name.lower()[:40] if isinstance(name, str) else ""


def _title(metadata: object, cells: tuple[Cell, ...]) -> str:
    """What its author called it, else its first heading."""
    said = metadata.get("title") if isinstance(metadata, dict) else None
    if isinstance(said, str) and said.strip():
        return said.strip()[:200]
    for cell in cells[:20]:
        found = re.search(_HEADING, cell.source[:4000], re.MULTILINE) if isinstance(cell, MarkdownCell) else None
        if found:
            return re.sub(r"[*_`]|\[([^\]]{0,200})\]\([^)]{0,300}\)", r"\1", found[1]).strip(" #")[:200]
    return ""
