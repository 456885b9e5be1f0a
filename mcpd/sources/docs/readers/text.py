"""Plain text and PDF, and the decoding of text files."""

from __future__ import annotations

import codecs
import io
import logging
import re

from mcpd.sources.docs.page import Kind, Page, UnreadablePage, mime_type_of, order_of, section_of, title_of

_CONTROLS = bytes([*range(9), *range(14, 27), *range(28, 32), 127])
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MAX_CONTROLS = 1 / 200  # a fraction of the characters; terminal recordings have some, programs have more


def decoded(data: bytes) -> str:
    """Return a text in UTF-8, UTF-16 or Latin-1 with `\\n` as newline. Raises UnreadablePage if it is binary."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
    elif b"\0" in data:
        raise UnreadablePage("is binary, although its name says that it is text")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("latin-1")

    if len(data.translate(None, _CONTROLS)) < len(data):  # the fastest check
        text, found = _CONTROL.subn(" ", text)
        if found > 3 + len(text) * _MAX_CONTROLS:
            raise UnreadablePage("is binary, although its name says that it is text")

    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


def read_text(path: str, data: bytes) -> Page:
    """Return the page of a text file; its first line may be the title. Raises UnreadablePage if it is binary."""
    text = decoded(data).strip("\n")
    paragraphs = [" ".join(part.split()) for part in text[:4000].split("\n\n", 3)]
    first = text[:1000].lstrip().split("\n", 1)[0].strip(" =-*#\t")
    is_title = 0 < len(first) <= 80 and not first.endswith((".", ",", ";", ":"))
    description = next((part for part in paragraphs if len(part) > 80), paragraphs[0])[:300]
    return _page(path, first if is_title else "", description, text, "text")


def _page(path: str, title: str, description: str, text: str, kind: Kind) -> Page:
    title = title or title_of(path)
    return Page(path, title, section_of(path), description, order_of(path), text, mime_type_of(kind), kind)


_MAX_PAGES = 3000
_MAX_CHARACTERS = 4_000_000


def read_pdf(path: str, data: bytes) -> Page:
    """Return the page of a PDF file. Raises UnreadablePage if it is malformed, needs a password, or has no text."""
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
    except Exception as error:  # the library has no common base class for its errors
        raise UnreadablePage(f"is not a readable PDF file ({type(error).__name__})") from None

    if not text.strip():
        raise UnreadablePage("is a PDF file without text")
    title = " ".join(said.split()) if isinstance(said, str) else ""
    first = text.lstrip().split("\n", 1)[0].strip()
    title = title or (first if len(first) <= 80 else "")
    return _page(path, title[:200], " ".join(text[:600].split())[:300], text, "pdf")


def _text(reader: object) -> str:
    parts: list[str] = []
    size = 0
    for at, page in enumerate(reader.pages):  # type: ignore[attr-defined]
        if at >= _MAX_PAGES or size > _MAX_CHARACTERS:
            break
        try:
            part = page.extract_text() or ""
        except (RecursionError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            continue  # the other pages are still read
        part = "\n".join(line.rstrip() for line in part.replace("\0", "").split("\n")).strip()
        if part:
            parts.append(part)
            size += len(part)
    text = "\n\n".join(parts)[:_MAX_CHARACTERS]
    return text.encode("utf-8", "replace").decode("utf-8")
