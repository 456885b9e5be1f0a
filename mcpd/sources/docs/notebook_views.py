"""Notebooks as HTML for the View and as text for models.

HTML in notebooks is sanitized with nh3, and TeX is converted to MathML. Without the extra `docs`, Markdown is sent
unrendered and the View renders what it can.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from html import escape, unescape
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote
from xml.etree import ElementTree

from msgspec import Struct, structs
from msgspec.json import encode

from mcpd.sources.docs.readers.markdown import fenced
from .notebook import (
    BrokenCell,
    Cell,
    CodeCell,
    ErrorOutput,
    HtmlOutput,
    ImageOutput,
    MarkdownCell,
    MarkdownOutput,
    Notebook,
    OmittedOutput,
    Output,
    TextOutput,
    shortened,
)

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MATH_TAGS: Final = frozenset((
    "math", "mrow", "mi", "mo", "mn", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup",
    "munder", "mover", "munderover", "mmultiscripts", "mprescripts", "none", "mtable", "mtr", "mtd", "mstyle",
    "mpadded", "mphantom", "menclose", "merror", "semantics",
))  # fmt: skip
MATH_ATTRIBUTES: Final = frozenset((
    "display", "mathvariant", "stretchy", "fence", "form", "accent", "accentunder", "columnalign", "rowspacing",
    "columnspacing", "displaystyle", "scriptlevel", "linethickness", "lspace", "rspace", "separator",
    "movablelimits", "symmetric", "largeop", "width", "height", "depth",
))  # fmt: skip
_MAX_LENGTH: Final = 4_000
# Macros may expand without end, so formulas that define any are not converted.
_MACRO_DEFINITION: Final = r"\\(?:[gex]?def|let|(?:re)?newcommand|providecommand|newenvironment|DeclareMathOperator)\b"

_IGNORED_COMMANDS: Final = r"\\(?:nonumber|notag|displaylimits|allowbreak)(?![A-Za-z])|\\label\{[^{}]*\}"
_ENVIRONMENTS: Final = (
    ("aligned}", "align*}"),
    ("alignedat}", "align*}"),
    ("gathered}", "gather*}"),
    ("eqnarray", "align"),
)


def mathml(tex: str, *, is_block: bool) -> str:
    """Return a formula as MathML, or as its TeX source if it cannot be converted. Both are safe HTML."""
    is_safe = len(tex) <= _MAX_LENGTH and not re.search(_MACRO_DEFINITION, tex)
    return (is_safe and _converted(tex, is_block)) or f'<code class="tex">{escape(tex.strip())}</code>'


def _converted(tex: str, is_block: bool) -> str | None:
    try:
        from latex2mathml.converter import convert_to_element
    except ImportError:
        return None
    tex = re.sub(_IGNORED_COMMANDS, "", tex)
    for name, instead in _ENVIRONMENTS:
        tex = tex.replace(name, instead)
    try:
        found = convert_to_element(tex, display="block" if is_block else "inline")
        return ElementTree.tostring(_cleaned(found), "unicode")
    except Exception:  # the library raises StopIteration, KeyError, RecursionError and others
        return None


def _cleaned(given: ElementTree.Element) -> ElementTree.Element:
    # Return an element with known tags and attributes only. Raises ValueError for output that was not understood.
    tag = given.tag.rpartition("}")[2]
    text = unescape(given.text or "")
    if tag not in MATH_TAGS or text.startswith("\\"):
        raise ValueError(tag)
    made = ElementTree.Element(tag)
    for name, value in given.attrib.items():
        if name in MATH_ATTRIBUTES and re.fullmatch(r"[\w\s.%+-]{0,60}", value):
            made.set(name, value)
    made.text = text or None
    made.extend(map(_cleaned, given))
    return made


_TAGS: Final = {
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "dl", "dt", "dd", "blockquote", "pre", "code", "kbd",
    "samp", "var", "em", "strong", "b", "i", "u", "s", "del", "ins", "sub", "sup", "small", "mark", "abbr", "cite",
    "q", "br", "hr", "wbr", "table", "thead", "tbody", "tfoot", "tr", "th", "td", "caption", "figure", "figcaption",
    "details", "summary", "section", "div", "span", "a", "img",
}  # fmt: skip
# Removed together with their content.
_REMOVED_TAGS: Final = {
    "script", "style", "template", "iframe", "object", "embed", "noscript", "head", "title", "textarea", "select",
    "button", "form", "svg", "audio", "video", "canvas", "noembed", "noframes", "xmp",
}  # fmt: skip

_ATTRIBUTES: Final = {
    "*": {"id", "title", "lang", "dir", "class", "style"},
    "a": {"href", "name"},
    "img": {"src", "alt"},
    "th": {"colspan", "rowspan", "scope", "align"},
    "td": {"colspan", "rowspan", "align"},
    "tr": {"align"},
    "ol": {"start"},
    "details": {"open"},
    **{tag: set(MATH_ATTRIBUTES) for tag in MATH_TAGS},
}
_IMAGES: Final = ("data:image/png;", "data:image/jpeg;", "data:image/gif;", "data:image/webp;")


def clean_html(html: str) -> str | None:
    """Return HTML with known elements, attributes and addresses only; None without the extra `docs`."""
    try:
        import nh3
    except ImportError:
        return None

    return nh3.clean(
        html,
        tags=_TAGS | MATH_TAGS,
        clean_content_tags=_REMOVED_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=_attribute_value,
        url_schemes={"http", "https", "data"},
        link_rel=None,
    )


def _attribute_value(tag: str, name: str, value: str) -> str | None:
    # Return the value of a permitted attribute, or None to remove it.
    if name in ("id", "title", "lang", "dir"):
        is_harmless = tag not in MATH_TAGS and len(value) < 1000
    elif name == "class":
        is_harmless = value.startswith(("language-", "math ", "tex"))
    elif name == "style":
        said = value.strip().rstrip(";").replace(" ", "")
        is_harmless = said in ("text-align:left", "text-align:right", "text-align:center")
    elif name == "href":
        is_harmless = value.lower().startswith(("https://", "http://", "#"))
    else:
        is_harmless = name != "src" or value.startswith((*_IMAGES, "http://", "https://"))
    return value if is_harmless else None


AT_ONCE: Final = 100
MAX_BYTES: Final = 1_500_000
_MAX_SOURCE: Final = 200_000
_MAX_MARKDOWN: Final = 50_000


class Shown(Struct, frozen=True, omit_defaults=True):
    """A batch of cells, and the number of the next cell if there is one."""

    path: str
    cells: list[Cell]
    next: int | None = None


def shown_cells(notebook: Notebook, path: str, first: int = 1) -> Shown:
    """Return cells from number `first` on: at least one, and at most 100 or 1.5 MB."""
    found: list[Cell] = []
    size = 0
    for cell in notebook.cells[first - 1 : first - 1 + AT_ONCE]:
        made = _bounded(_shown_cell(cell))
        size += len(encode(made))
        if found and size > MAX_BYTES:
            break
        found.append(made)
    after = first + len(found)
    return Shown(path, found, after if after <= len(notebook.cells) else None)


def _shown_cell(cell: Cell) -> Cell:
    if isinstance(cell, MarkdownCell):
        html = _rendered(cell.source, cell.attachments)
        return MarkdownCell(cell.source[:_MAX_SOURCE] if html is None else "", html=html)
    if isinstance(cell, CodeCell):
        return structs.replace(cell, source=cell.source[:_MAX_SOURCE], outputs=tuple(map(_shown_output, cell.outputs)))
    return cell if isinstance(cell, BrokenCell) else structs.replace(cell, source=cell.source[:_MAX_SOURCE])


def _bounded(cell: Cell) -> Cell:
    # Return a cell whose outputs fit into one message. The others are replaced by a note.
    if not isinstance(cell, CodeCell):
        return cell
    kept: list[Output] = []
    size = 0
    for number, output in enumerate(cell.outputs):
        size += len(encode(output))
        if size > 2 * MAX_BYTES:
            kept.append(OmittedOutput(f"{len(cell.outputs) - number} more outputs of this cell"))
            break
        kept.append(output)

    return structs.replace(cell, outputs=tuple(kept))


def _shown_output(output: Output) -> Output:
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
    # None without the extra `docs`, or for a long text, because the parser can be slow for marks that are never closed.
    parser = _parser()
    if parser is None or len(source) > _MAX_MARKDOWN:
        return None
    for name, data in attachments.items():
        for written in {name, name.replace(" ", "%20"), unquote(name)}:
            source = source.replace(f"(attachment:{written})", f"({data})")
    try:
        return clean_html(parser.render(source)) or ""
    except Exception:  # a text that the parser cannot handle is shown as it is
        return f"<pre>{escape(source)}</pre>"


@cache
def _parser() -> MarkdownIt | None:
    try:
        from markdown_it import MarkdownIt
        from mdit_py_plugins.amsmath import amsmath_plugin
        from mdit_py_plugins.dollarmath import dollarmath_plugin
    except ImportError:
        return None

    def formula(tex: str, options: Mapping[str, object]) -> str:
        return mathml(tex, is_block=bool(options.get("display_mode")))

    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": 40}).enable(["table", "strikethrough"])
    dollarmath_plugin(parser, renderer=formula, double_inline=True, allow_digits=False)
    amsmath_plugin(parser, renderer=lambda tex: mathml(tex, is_block=True))
    return parser


MAX_CHARS: Final = 24_000

_MAX_OUTPUT: Final = 2_000
_CODES: Final = r"\x1b(?:\[[0-9;:?]{0,60}[A-Za-z]|\][^\x07\x1b]{0,4000}(?:\x07|\x1b\\))|[\x00-\x08\x0b-\x1f\x7f]"


def notebook_text(notebook: Notebook, first: int = 1, limit: int = MAX_CHARS) -> tuple[str, int | None]:
    """Return the text of cells from number `first` on, at least one, and the number of the next cell or None."""
    parts: list[str] = []
    size = 0
    for number, cell in enumerate(notebook.cells[first - 1 :], first):
        text = _cell_text(cell, notebook.language)
        size += len(text) + 2
        if parts and size > limit:
            return "\n\n".join(parts), number
        left_out = f"\n… {len(text) - limit:,} characters are left out …" if len(text) > limit else ""
        parts.append(text[:limit] + left_out)

    return "\n\n".join(parts), None


def _cell_text(cell: Cell, language: str) -> str:
    if isinstance(cell, MarkdownCell):
        return re.sub(r"\(data:[^)]{0,10000000}\)", "(an image)", cell.source)
    if isinstance(cell, CodeCell):
        code = fenced(cell.source, cell.language or language) if cell.source.strip() else ""
        return "\n\n".join(part for part in (code, *map(_output_text, cell.outputs)) if part)
    return f"[left out: {cell.reason}]" if isinstance(cell, BrokenCell) else fenced(cell.source, "")


def _output_text(output: Output) -> str:
    if isinstance(output, TextOutput):
        text = re.sub(_CODES, "", output.text)
        return _shortened(text.rstrip("\n"), output.stream or "output") if text.strip() else ""
    if isinstance(output, ErrorOutput):
        return _shortened(f"{output.name}: {output.value}", "error")
    if isinstance(output, HtmlOutput):
        return _shortened(output.text or _words(output.html), "output")
    if isinstance(output, ImageOutput):
        return f"[{output.type}{f': {output.alt}' if output.alt else ''}]"
    return f"[left out: {output.reason}]" if isinstance(output, OmittedOutput) else output.source


def _shortened(text: str, info: str) -> str:
    return fenced(shortened(text, _MAX_OUTPUT), info)


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
    # Return the text of HTML, with one table row per line.
    reader = _Words()
    reader.feed(html)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.found).split("\n"))
    return "\n".join(line for line in lines if line)
