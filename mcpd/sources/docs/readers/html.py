"""Converts HTML to Markdown, without the navigation of the site. No script runs and nothing is fetched.

selectolax parses the page like a browser, elements that are not content are removed, and html-to-markdown writes the
rest. Both libraries are in the extra `docs`.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

import msgspec

from mcpd.sources.docs.page import Page, UnreadablePage, titled_page
from .markdown import markdown_page
from .text import decoded

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_HIDDEN = (
    "script, style, template, noscript, svg, math, iframe, object, nav, footer, form, button, select, textarea, "
    "canvas, video, audio, dialog, menu, [hidden], [role=navigation], [role=search], .headerlink, .sphinxsidebar, "
    ".related, .footer, .breadcrumbs, .toctree-wrapper, .sidebar, .inline-search, .skip-link, .prev-next-area"
)
_HEADINGS = "h1, h2, h3, h4, h5, h6"
_LAYOUT = ["tbody", "thead", "tr", "td", "th"]
_MAX_DEEP = 200
_LANGUAGE = re.compile(r"(?:language|lang|highlight|brush)[-:]([A-Za-z0-9_+#]+)")
_UNNAMED_LANGUAGES = ("default", "none", "text", "notranslate")
_SPACES = re.compile(r"[ \t\r\n\f]+")
# Noncharacters that replace Markdown's backslashes and the backslashes of the text during the conversion.
_MARK, _SLASH = "\ufdd0", "\ufdd1"
_LINKS = re.compile(r"(?<=\])[(\[:]|<(?=[A-Za-z/!?])")
_ESCAPES = re.compile(rf"{_SLASH}(?=[!-/:-@\[-`{{-~\s{_MARK}{_SLASH}]|\Z)")
_AROUND = "".join(map(chr, range(33)))
_BREAKS = re.compile(r"[\t\r\n]+")
_UNSAFE_IN_ADDRESS = re.compile(r"[\x00-\x20()<>\\\x7f]")
_SCRIPTS = re.compile(r"(?:javascript|vbscript|data):", re.IGNORECASE)
_LONGEST_ADDRESS = 2000
_ENCODING = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([A-Za-z0-9_-]{2,30})", re.IGNORECASE)


def read_html(path: str, data: bytes) -> Page:
    """Return the page of an HTML file. Raises UnreadablePage if it is not text."""
    try:
        from html_to_markdown import ConversionOptions, convert
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        raise UnreadablePage("HTML needs libraries: pip install 'mcpd-server[docs]'") from None

    tree = LexborHTMLParser(_text(data))
    front: dict[str, object] = {}
    described = tree.css_first("meta[name=description i]")
    if described is not None and (description := described.attributes.get("content")):
        front["description"] = description[:1000]
    # Lists use the title before the whole page is read, so it takes precedence over headings.
    named = tree.css_first("title")
    if named is not None and (title := titled_page(named.text()[:500])):
        front["title"] = title

    shown = _shown(tree)
    anchors = _anchors(shown)
    options = ConversionOptions(
        bullets="-", autolinks=False, compact_tables=True, expand_abbreviations=False, extract_metadata=False
    )  # fmt: skip
    text = _ESCAPES.sub(r"\\\\", convert(shown.html or "", options).content or "")
    text = text.replace(_SLASH, "\\").replace(_MARK, "\\")
    page = markdown_page(path, text.strip("\n"), "html", front)
    if len(anchors) == len(page.headings):
        headings = tuple(
            msgspec.structs.replace(heading, anchor=anchor or heading.anchor)
            for heading, anchor in zip(page.headings, anchors, strict=True)
        )
        page = msgspec.structs.replace(page, headings=headings)

    return page


def _text(data: bytes) -> str:
    named = _ENCODING.search(data, 0, 2048)
    if named and named[1].lower() not in (b"utf-8", b"utf8"):
        try:
            return decoded(data.decode(named[1].decode("ascii"), "replace").encode())
        except LookupError:
            pass

    return decoded(data)


def _shown(tree: LexborHTMLParser) -> LexborNode:
    # Return the main part of a page, prepared for conversion.
    for node in tree.css(_HIDDEN):
        node.decompose()
    main = tree.css_first("main, article, [role=main]") or tree.body or tree.root
    assert main is not None  # an empty text has an empty body
    _cut(main)
    for node in main.css("img"):
        node.replace_with(node.attributes.get("alt") or "")
    for node in main.css(_HEADINGS):
        node.unwrap_tags(["a"])
    for node in reversed(main.css("dl")):
        node.inner_html = f"<ul>{''.join(map(_list_item, node.iter()))}</ul>"
    for node in main.css("blockquote"):
        if node.css_first("pre") is not None:  # Sphinx uses it for indentation
            node.unwrap()

    for node in main.css("pre"):
        node.inner_html = f'<code class="language-{_language(node)}">{escape(node.text().strip(chr(10)))}</code>'
    for node in main.css("table"):
        _unwrap_layout_table(node)
    for node in main.css("a"):
        address = _target(node.attributes.get("href") or "")
        if address:
            node.attrs["href"] = address
            node.attrs["title"] = ""
        else:
            node.unwrap()

    _escape(main)
    return main


def _cut(main: LexborNode) -> None:
    # Remove deeply nested elements, so that no page takes long.
    left = [(main, 0)]
    while left:
        node, depth = left.pop()
        if depth > _MAX_DEEP:
            node.decompose()
        else:
            left += [(below, depth + 1) for below in node.iter()]


def _list_item(node: LexborNode) -> str:
    # Return a definition list entry as a list item; signatures become code.
    if node.tag != "dt":
        return f"<div>{node.inner_html}</div>"
    if "sig" in (node.attributes.get("class") or "").split():
        return f"<li><code>{escape(' '.join(node.text().split()))}</code>"
    return f"<li><strong>{node.inner_html}</strong>"


def _language(pre: LexborNode) -> str:
    # Return the language of a code block from its classes or those of elements around or in it.
    inner = pre.css_first("code")
    around = [node for node in (inner, pre, pre.parent, pre.parent and pre.parent.parent) if node is not None]
    for node in around:
        found = _LANGUAGE.search(node.attributes.get("class") or "")
        if found is not None:
            return "" if found[1] in _UNNAMED_LANGUAGES else found[1]
    return ""


def _unwrap_layout_table(table: LexborNode) -> None:
    # Replace a table that is used for layout, for example for code beside line numbers, by its cells.
    cells = table.css("td, th")
    rows = [row.css("td, th") for row in table.css("tr")]
    if max(map(len, rows), default=0) < 2 or any("\n" in code.text() for code in table.css("pre")):
        table.inner_html = "".join(f"<div>{cell.inner_html}</div>" for cell in cells)
        table.unwrap()


def _anchors(main: LexborNode) -> list[str]:
    # Return the id of each heading, or of the section that it begins.
    found: list[str] = []
    section = ""
    for node in main.css(f"section, div, {_HEADINGS}"):
        said = node.attributes.get("id") or ""
        if node.tag in ("section", "div"):
            section = said or section
        else:
            found.append(said or section)
            section = ""
    return found


def _target(address: str) -> str:
    # Return an address for Markdown, normalized like in browsers; "" for scripts, data and very long addresses.
    address = _BREAKS.sub("", address.strip(_AROUND))
    if len(address) > _LONGEST_ADDRESS or _SCRIPTS.match(address):
        return ""

    return _UNSAFE_IN_ADDRESS.sub(lambda found: f"%{ord(found[0]):02X}", address)


def _escape(main: LexborNode) -> None:
    # Escape text, outside code, that Markdown would take for a link or an element.
    texts: list[LexborNode] = []
    left = [main]
    while left:
        node = left.pop()
        if node.is_text_node:
            texts.append(node)
        elif node.tag not in ("pre", "code"):
            below = list(node.iter(include_text=True))
            left += reversed(below)

    before = ""
    for node in texts:
        text = node.text_content or ""
        plain = _SPACES.sub(" ", text.replace(_MARK, "").replace("\\", _SLASH))
        marked = _LINKS.sub(_MARK + r"\g<0>", before + plain)[len(before) :]
        if marked != text:
            node.replace_with(marked)
        before = plain[-1:] or before
