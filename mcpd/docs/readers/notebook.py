"""Notebooks: their texts, their code, and what the code wrote when it was run. Nothing of it is run here."""

from __future__ import annotations

import re

import msgspec

from mcpd.docs.page import Page, UnreadablePage
from mcpd.docs.readers.decoding import decoded
from mcpd.docs.readers.markdown import markdown_page

_MOST_CELLS = 5000
_MOST_OUTPUT = 4000
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TAGS = re.compile(r"<[^<>]{1,500}>")


def read_notebook(path: str, data: bytes, with_links: bool = True) -> Page:
    """The page of a notebook. Raises UnreadablePage for what is none."""
    try:
        book = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadablePage(f"is no notebook ({error})") from None
    if not isinstance(book, dict):
        raise UnreadablePage("is no notebook")
    cells = book.get("cells")
    if cells is None and isinstance(sheets := book.get("worksheets"), list) and sheets:  # before version 4
        cells = sheets[0].get("cells") if isinstance(sheets[0], dict) else None
    if not isinstance(cells, list):
        raise UnreadablePage("is a notebook without cells")

    language = _language(book.get("metadata"))
    parts = [_cell(cell, language) for cell in cells[:_MOST_CELLS] if isinstance(cell, dict)]
    text = "\n\n".join(part for part in parts if part)
    return markdown_page(path, decoded(text.encode("utf-8", "replace")), "notebook", {}, with_links=with_links)


def _language(metadata: object) -> str:
    for name in ("language_info", "kernelspec"):
        table = metadata.get(name) if isinstance(metadata, dict) else None
        if isinstance(table, dict):
            found = table.get("name" if name == "language_info" else "language")
            if isinstance(found, str) and re.fullmatch(r"[\w+#.-]{1,40}", found):
                return found.lower()
    return "python"


def _cell(cell: dict[str, object], language: str) -> str:
    kind = cell.get("cell_type")
    source = _joined(cell.get("source", cell.get("input")))
    if kind == "markdown":
        return source.strip("\n")
    if kind == "heading":
        level = cell.get("level")
        return f"{'#' * (level if isinstance(level, int) and 1 <= level <= 6 else 1)} {source.strip()}"
    if kind != "code":
        return _fenced(source, "") if source.strip() else ""

    parts = [_fenced(source, language)] if source.strip() else []
    outputs = cell.get("outputs")
    for output in outputs[:50] if isinstance(outputs, list) else ():
        text = _output(output) if isinstance(output, dict) else ""
        if text.strip():
            parts.append(_fenced(text[:_MOST_OUTPUT], "text"))
    return "\n\n".join(parts)


def _output(output: dict[str, object]) -> str:
    if output.get("output_type") == "error" or output.get("output_type") == "pyerr":
        return f"{_joined(output.get('ename'))}: {_joined(output.get('evalue'))}"
    data = output.get("data", output)
    if not isinstance(data, dict):
        return ""
    for name in ("text/markdown", "text/plain", "text", "text/latex"):
        if text := _joined(data.get(name)):
            return _ESCAPES.sub("", text)
    return _TAGS.sub("", _joined(data.get("text/html")))


def _joined(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return ""


def _fenced(text: str, language: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"
