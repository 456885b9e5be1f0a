"""HTML of others, written anew by nh3: known elements with known attributes, texts escaped, all that is open closed.

However a browser would have read what was given: what is written here holds no element, attribute or address that is
not named here. The page looks once more, with the browser's own parser.
"""

from __future__ import annotations

from typing import Final

from mcpd.docs.notebooks.maths import MATH_ATTRIBUTES, MATH_TAGS

_TAGS: Final = {
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "dl", "dt", "dd", "blockquote", "pre", "code", "kbd",
    "samp", "var", "em", "strong", "b", "i", "u", "s", "del", "ins", "sub", "sup", "small", "mark", "abbr", "cite",
    "q", "br", "hr", "wbr", "table", "thead", "tbody", "tfoot", "tr", "th", "td", "caption", "figure", "figcaption",
    "details", "summary", "section", "div", "span", "a", "img",
}  # fmt: skip
_GONE: Final = {
    "script", "style", "template", "iframe", "object", "embed", "noscript", "head", "title", "textarea", "select",
    "button", "form", "svg", "audio", "video", "canvas", "noembed", "noframes", "xmp",
}  # fmt: skip
"""Left out with all that is in them."""

_SAYS: Final = {
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
    """The same, as far as it is harmless; None without the extra `docs`."""
    try:
        import nh3
    except ImportError:
        return None
    return nh3.clean(
        html,
        tags=_TAGS | MATH_TAGS,
        clean_content_tags=_GONE,
        attributes=_SAYS,
        attribute_filter=_said,
        url_schemes={"http", "https", "data"},
        link_rel=None,
    )


def _said(tag: str, name: str, value: str) -> str | None:
    """The value of an attribute that is let through by its name, None to leave it out."""
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
