"""HTML: its text as Markdown, without what stands around it on a site. No script runs, nothing is fetched.

It is read from beginning to end without building a tree, so that no nesting is too deep.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec

from ..names import titled_page
from ..page import Page
from .decoding import decoded
from .markdown import markdown_page

__all__ = ["read_html"]

_HIDDEN = frozenset(
    ("script", "style", "template", "noscript", "svg", "math", "iframe", "object", "nav", "footer", "form", "button",
     "select", "textarea", "canvas", "video", "audio", "dialog", "menu")
)  # fmt: skip
_HIDDEN_CLASSES = frozenset(
    ("headerlink", "sphinxsidebar", "related", "footer", "breadcrumbs", "toctree-wrapper", "sidebar", "inline-search",
     "skip-link", "prev-next-area")
)  # fmt: skip
_BLOCKS = frozenset(
    ("p", "div", "section", "article", "main", "header", "aside", "ul", "ol", "dl", "dd", "table",
     "blockquote", "figure", "figcaption", "details", "summary", "address", "hr", "body")
)  # fmt: skip
_EMPTY = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
_HEADING = re.compile(r"h[1-6]$")
_LANGUAGE = re.compile(r"(?:language|lang|highlight|brush)[-:]([A-Za-z0-9_+#]+)")
_BLANKS = re.compile(r"\n{3,}")
_SPACES = re.compile(r"[ \t\r\n\f]+")
_MARKS = re.compile(
    r"<(?=[A-Za-z/!?])|(?<![^\n])(?=#{1,6}\s|[-+*]\s|\d{1,9}[.)]\s|>|={2,}\s*$|-{2,}\s*$|\[[^\]\n]{1,999}\]:)"
)
_BRACKETS = re.compile(r"(?<!\\)[\[\]]")
_AROUND = "".join(map(chr, range(33)))
_BREAKS = re.compile(r"[\t\r\n]+")
_NO_ADDRESS = re.compile(r"[\x00-\x20()<>\\\x7f]")
_SCRIPTS = re.compile(r"(?:javascript|vbscript|data):", re.IGNORECASE)
_LONGEST_ADDRESS = 2000
_ENCODING = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([A-Za-z0-9_-]{2,30})", re.IGNORECASE)


def read_html(path: str, data: bytes, with_links: bool = True) -> Page:
    """The page of an HTML file. Raises UnreadablePage for what is no text."""
    parser = _Parser()
    parser.feed(_text(data))
    parser.close()
    text = _BLANKS.sub("\n\n", parser.whole()).strip("\n")
    front: dict[str, object] = {"description": parser.description} if parser.description else {}
    # Lists show the title before the whole page is read, so it counts more than headings.
    if title := titled_page(parser.title):
        front["title"] = title
    page = markdown_page(path, text, "html", front, with_links=with_links)
    anchors = parser.anchors
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


class _Parser(HTMLParser):
    """Writes Markdown while it reads."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.description = ""
        self._out: list[str] = []
        self._anchors: list[tuple[int, str]] = []
        self._hidden: list[str] = []  # open elements, the first of which is hidden
        self._in_title = False
        self._pre = 0
        self._pre_text: list[str] = []
        self._language = ""
        self._lists: list[int] = []  # of each open list the number of its next item; -1 without numbers
        self._links: list[str] = []
        self._heading: int | None = None
        self._section_id = ""
        self._main: list[int] = []
        self._main_end = -1
        self._main_tag = ""
        self._main_depth = 0
        self._cells = 0
        self._in_cell = False  # of a table row, which is one line
        self._has_header: list[bool] = []  # of each open table: its first row is written
        self._code = False
        self._is_signature = False

    def whole(self) -> str:
        """What was written; of a page with a main part, that part."""
        self._end_heading()
        return "".join(self._out[slice(*self._range())])

    @property
    def anchors(self) -> list[str]:
        """The ids of the headings in it."""
        start, end = self._range()
        return [anchor for at, anchor in self._anchors if start <= at < end]

    def _range(self) -> tuple[int, int]:
        if not self._main:
            return 0, len(self._out)

        return self._main[0], self._main_end if self._main_end >= 0 else len(self._out)

    # -- what is read --------------------------------------------------------------------------

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        if self._hidden:
            if tag not in _EMPTY and len(self._hidden) < 100_000:
                self._hidden.append(tag)
            return
        said = {name: value or "" for name, value in attrs}
        classes = said.get("class", "").split()
        hides = tag in _HIDDEN or said.get("role") in ("navigation", "search") or "hidden" in said
        if tag not in _EMPTY and (hides or _HIDDEN_CLASSES.intersection(classes)):
            self._hidden.append(tag)
            return
        if tag == self._main_tag:
            self._main_depth += 1
        if not self._main and (tag in ("main", "article") or said.get("role") == "main"):
            self._block()
            self._main, self._main_tag, self._main_depth = [len(self._out)], tag, 1
        self._open(tag, said, classes)

    def handle_endtag(self, tag: str) -> None:
        """An element ends; one that was left open inside ends with it."""
        if self._hidden:
            if tag in self._hidden[-50:]:
                while self._hidden.pop() != tag:
                    pass
            return
        self._close(tag)
        if tag == self._main_tag:
            self._main_depth -= 1
            if not self._main_depth and self._main_end < 0:
                self._block()
                self._main_end = len(self._out)

    def handle_data(self, data: str) -> None:
        """Text."""
        if self._hidden:
            return
        if self._in_title:
            self.title += data[:500]
        elif self._pre:
            self._pre_text.append(data)
        else:
            text = _SPACES.sub(" ", data)
            if self._out and self._out[-1].endswith((" ", "\n", "- `")):
                text = text.lstrip(" ")
            if text:
                starts_line = not self._out or self._out[-1].endswith("\n")
                plain = text if self._code else _escaped(text, starts_line)
                if not self._code and any(self._links):
                    plain = _BRACKETS.sub(r"\\\g<0>", plain)
                elif plain.startswith("(") and self._out and self._out[-1].endswith("]"):
                    plain = "\\" + plain
                self._out.append(plain)

    # -- what is written -----------------------------------------------------------------------

    def _open(self, tag: str, said: dict[str, str], classes: list[str]) -> None:
        if tag == "title":
            self._in_title = not self.title
        elif tag == "meta" and said.get("name", "").lower() == "description":
            self.description = said.get("content", "")[:1000]
        elif _HEADING.match(tag):
            self._end_heading()
            self._block()
            self._anchors.append((len(self._out), said.get("id") or self._section_id))
            self._section_id = ""
            self._out.append("#" * int(tag[1]) + " ")
            self._heading = len(self._out)
        elif tag == "pre":
            self._pre += 1
            found = _LANGUAGE.search(said.get("class", ""))
            self._language = found[1] if found else self._language
        elif tag == "code" and not self._pre and self._heading is None and not self._is_signature:
            self._code = True
            self._out.append("`")
        elif tag == "code" and self._pre and (found := _LANGUAGE.search(said.get("class", ""))):
            self._language = found[1]
        elif tag in ("li", "dt"):
            self._item(tag, classes)
        elif tag in ("td", "th") and len(self._has_header) > 1:  # a table in a cell
            self._block()
        elif tag in ("td", "th"):
            if self._cells:
                self._out.append("| " if self._out[-1].endswith(" ") else " | ")
            self._cells += 1
            self._in_cell = True
        elif tag == "br":
            self._out.append(" " if self._in_cell else "\n")
        elif tag == "tr" and len(self._has_header) < 2:
            self._end_row()
            self._line()
        elif tag == "a":
            is_text = self._pre or self._is_signature or self._heading is not None
            self._links.append("" if is_text else _target(said.get("href", "")))
            if self._links[-1]:
                self._out.append("[")
        elif tag == "img" and said.get("alt"):
            self._out.append(_escaped(" ".join(said["alt"].split()), False))
        elif tag == "dd" and self._out and self._out[-1] in ("`\n", "\n") and not self._lists:
            self._out[-1] = self._out[-1].replace("\n", "")  # what is said of a term stands behind it
            self._out.append(": ")
        elif tag in _BLOCKS:
            self._open_block(tag, said)

    def _open_block(self, tag: str, said: dict[str, str]) -> None:
        self._block()
        if tag in ("ul", "ol"):
            start = said.get("start", "")
            self._lists.append(-1 if tag == "ul" else int(start) if re.fullmatch("[0-9]{1,9}", start) else 1)
        elif tag == "table":
            self._has_header.append(False)
        if said.get("id") and tag in ("section", "div"):
            self._section_id = said["id"]
        if found := _LANGUAGE.search(said.get("class", "")):
            self._language = found[1]

    def _item(self, tag: str, classes: list[str]) -> None:
        self._end_heading()
        if self._in_cell:
            self._block()
            self._code = self._is_signature = False
            return
        self._line()
        depth = max(0, len(self._lists) - 1)
        number = self._lists[-1] if self._lists and tag == "li" else -1
        if number > 0:
            self._lists[-1] += 1
        sign = "- " if number < 0 else f"{number}. "
        self._out.append("  " * min(depth, 20) + sign + ("`" if "sig" in classes else ""))
        self._code = self._is_signature = "sig" in classes

    def _close(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif _HEADING.match(tag):
            self._end_heading()
        elif tag == "pre" and self._pre:
            self._pre -= 1
            if not self._pre:
                self._end_code()
        elif tag == "code" and self._code and not self._pre and not self._is_signature:
            self._code = False
            self._out.append("`")
        elif tag == "dt":
            self._out.append("`\n" if self._is_signature else "\n")
            self._code = self._is_signature = False
        elif tag == "a" and self._links:
            if target := self._links.pop():
                self._out.append(f"]({target})")
        elif tag in ("ul", "ol") and self._lists:
            self._lists.pop()
            self._line()
        elif tag in ("td", "th") and self._in_cell:
            self._block()
        elif tag == "tr":
            self._end_row()
        elif tag == "table" and self._has_header:
            self._end_row()
            self._has_header.pop()
            self._block()
        elif tag in _BLOCKS:
            self._block()

    def _end_heading(self) -> None:
        """A heading is one line, whatever stands in it."""
        if self._heading is None:
            return
        title = " ".join("".join(self._out[self._heading :]).split())
        del self._out[self._heading :]
        self._out += title, "\n\n"
        self._heading = None

    def _end_code(self) -> None:
        code = "".join(self._pre_text).strip("\n")
        self._pre_text.clear()
        if self._in_cell and "\n" not in code and "`" not in code:
            self._out.append(f"`{code}`")
            return
        self._in_cell, self._cells = False, 0  # a table that lays out code beside its line numbers
        fence = "```"
        while fence in code:
            fence += "`"
        self._block()
        language = "" if self._language in ("default", "none", "text", "notranslate") else self._language
        self._out.append(f"{fence}{language}\n{code}\n{fence}\n\n")
        self._language = ""

    def _end_row(self) -> None:
        """Write the line that Markdown wants below the first row of a table."""
        if len(self._has_header) == 1:
            if self._in_cell and self._cells > 1 and not self._has_header[0]:
                self._out.append("\n" + " | ".join(["---"] * self._cells) + "\n")
            self._has_header[0] = self._has_header[0] or self._cells > 0
            self._cells = 0
            self._in_cell = False

    def _line(self) -> None:
        if self._in_cell:
            self._block()
        elif self._heading is None and not self._pre and self._out and not self._out[-1].endswith("\n"):
            self._out.append("\n")

    def _block(self) -> None:
        """An empty line; inside of an item of a list a new one."""
        if self._pre or self._heading is not None:
            return
        if self._in_cell:
            if self._out and not self._out[-1].endswith((" ", "\n")):
                self._out.append(" ")
        elif self._lists:
            if self._out and not self._out[-1].endswith(("\n", "- ", ". ")):
                self._out.append("\n")
        elif self._out and self._out[-1] != ": ":
            self._out.append("\n\n" if not self._out[-1].endswith("\n") else "\n")


def _target(address: str) -> str:
    """An address as Markdown has it, read as browsers do; "" for scripts, for data, and for what is far too long."""
    address = _BREAKS.sub("", address.strip(_AROUND))
    if len(address) > _LONGEST_ADDRESS or _SCRIPTS.match(address):
        return ""

    return _NO_ADDRESS.sub(lambda found: f"%{ord(found[0]):02X}", address)


def _escaped(text: str, starts_line: bool) -> str:
    """A text that Markdown takes as it stands; what looks like a link of Markdown is none."""
    text = text.replace("](", "]\\(").replace("][", "]\\[")
    if starts_line:
        return _MARKS.sub(lambda found: "\\" + found[0], text)

    return text.replace("<", "\\<") if "<" in text else text
