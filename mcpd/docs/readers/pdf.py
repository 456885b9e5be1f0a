"""PDF: the text of its pages. Scripts, attachments and links in it are not touched."""

from __future__ import annotations

import io
import logging

from mcpd.docs.names import order_of, section_of, title_of
from mcpd.docs.page import Page, UnreadablePage

_MOST_PAGES = 3000
_MOST_CHARACTERS = 4_000_000


def read_pdf(path: str, data: bytes, with_links: bool = True) -> Page:
    """The page of a PDF file. Raises UnreadablePage for what is none, is locked, or has no text."""
    try:
        import pypdf
    except ImportError:
        raise UnreadablePage("PDF needs a library: pip install 'mcpd-server[docs]'") from None

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadablePage("is a PDF file with a password")
        text = _text(reader)
        said = reader.metadata.title if reader.metadata is not None else None
    except UnreadablePage:
        raise
    except Exception as error:  # the library has no common one
        raise UnreadablePage(f"is no readable PDF file ({type(error).__name__})") from None

    if not text.strip():
        raise UnreadablePage("is a PDF file without text")
    title = " ".join(said.split()) if isinstance(said, str) else ""
    first = text.lstrip().split("\n", 1)[0].strip()
    title = title or (first if len(first) <= 80 else "") or title_of(path)
    description = " ".join(text[:600].split())[:300]
    return Page(path, title[:200], section_of(path), description, order_of(path), text, "text/plain", "pdf")


def _text(reader: object) -> str:
    parts: list[str] = []
    size = 0
    for at, page in enumerate(reader.pages):  # type: ignore[attr-defined]
        if at >= _MOST_PAGES or size > _MOST_CHARACTERS:
            break
        try:
            part = page.extract_text() or ""
        except (RecursionError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            continue  # of a page that is broken, the others are read
        part = "\n".join(line.rstrip() for line in part.replace("\0", "").split("\n")).strip()
        if part:
            parts.append(part)
            size += len(part)
    text = "\n\n".join(parts)[:_MOST_CHARACTERS]
    return text.encode("utf-8", "replace").decode("utf-8")
