"""HTML of others, written anew: known elements with known attributes, every text escaped, all that is open closed.

However a browser would have read what was given: what is written here holds no element, attribute or address that is
not named here. The page looks once more, with the browser's own parser.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from .maths import MATH_ATTRIBUTES, MATH_TAGS

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

__all__ = ["clean_html"]

_TAGS: Final = frozenset(
    (
        *(
            "p",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "ul",
            "ol",
            "li",
            "dl",
            "dt",
            "dd",
            "blockquote",
            "pre",
            "code",
            "kbd",
        ),
        *(
            "samp",
            "var",
            "em",
            "strong",
            "b",
            "i",
            "u",
            "s",
            "del",
            "ins",
            "sub",
            "sup",
            "small",
            "mark",
            "abbr",
            "cite",
        ),
        *("q", "br", "hr", "wbr", "table", "thead", "tbody", "tfoot", "tr", "th", "td", "caption", "figure"),
        *("figcaption", "details", "summary", "section", "div", "span", "a", "img"),
    )
)
_VOID: Final = frozenset(("br", "hr", "wbr", "img"))
_GONE: Final = frozenset(
    (
        *(
            "script",
            "style",
            "template",
            "iframe",
            "object",
            "embed",
            "noscript",
            "head",
            "title",
            "textarea",
            "select",
        ),
        *("button", "form", "svg", "audio", "video", "canvas", "noembed", "noframes", "xmp"),
    )
)
"""Left out with all that is in them."""

_SAYS: Final = {
    "a": ("href", "name"),
    "img": ("src", "alt"),
    "th": ("colspan", "rowspan", "scope", "align"),
    "td": ("colspan", "rowspan", "align"),
    "tr": ("align",),
    "ol": ("start",),
    "details": ("open",),
}
_IMAGES: Final = ("data:image/png;", "data:image/jpeg;", "data:image/gif;", "data:image/webp;")
_MOST_DEEP: Final = 100


def clean_html(html: str) -> str | None:
    """The same, as far as it is harmless; None without the extra `docs`, which brings the parser."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        return None
    body = LexborHTMLParser(html).body
    made: list[str] = []
    # What is to be written: a text as it is, or a node with its depth.
    left: list[str | tuple[LexborNode, int]] = [] if body is None else _below(body, 0)
    while left:
        item = left.pop()
        if isinstance(item, str):
            made.append(item)
            continue
        node, depth = item
        tag = node.tag or ""
        if node.is_text_node:
            made.append(escape(node.text_content or "", quote=False))
        elif not node.is_element_node or tag in _GONE or depth > _MOST_DEEP:
            continue
        elif tag not in _TAGS and tag not in MATH_TAGS:
            left += _below(node, depth)
        else:
            made.append(f"<{tag}{_said(tag, node)}>")
            if tag not in _VOID:
                left += [f"</{tag}>", *_below(node, depth)]
    return "".join(made)


def _below(node: LexborNode, depth: int) -> list[str | tuple[LexborNode, int]]:
    """The children of a node, the first one last."""
    found: list[str | tuple[LexborNode, int]] = []
    child = node.first_child
    while child is not None:
        found.append((child, depth + 1))
        child = child.next
    return found[::-1]


def _said(tag: str, node: LexborNode) -> str:
    said = ((name, value or "") for name, value in node.attributes.items())
    return "".join(f' {name}="{escape(value)}"' for name, value in said if _is_harmless(tag, name, value))


def _is_harmless(tag: str, name: str, value: str) -> bool:
    if tag in MATH_TAGS:
        return name in MATH_ATTRIBUTES
    if name in ("id", "title", "lang", "dir"):
        return len(value) < 1000
    if name == "class":
        return value.startswith(("language-", "math ", "tex"))
    if name == "style":
        return value.strip().rstrip(";").replace(" ", "") in (
            "text-align:left",
            "text-align:right",
            "text-align:center",
        )
    if name not in _SAYS.get(tag, ()):
        return False
    if name == "href":
        return value.lower().startswith(("https://", "http://", "#"))
    return name != "src" or value.startswith((*_IMAGES, "http://", "https://"))
