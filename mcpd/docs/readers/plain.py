"""Plain text: its first line may be its title."""

from __future__ import annotations

from mcpd.docs.names import order_of, section_of, title_of
from mcpd.docs.page import Page
from mcpd.docs.readers.decoding import decoded


def read_text(path: str, data: bytes, with_links: bool = True) -> Page:
    """The page of a text file. Raises UnreadablePage for what is binary."""
    text = decoded(data).strip("\n")
    paragraphs = [" ".join(part.split()) for part in text[:4000].split("\n\n", 3)]
    first = text[:1000].lstrip().split("\n", 1)[0].strip(" =-*#\t")
    is_title = 0 < len(first) <= 80 and not first.endswith((".", ",", ";", ":"))
    description = next((part for part in paragraphs if len(part) > 80), paragraphs[0])[:300]
    return Page(
        path,
        first if is_title else title_of(path),
        section_of(path),
        description,
        order_of(path),
        text,
        "text/plain",
        "text",
    )
