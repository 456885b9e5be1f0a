"""Mathematics as browsers show it: TeX to MathML, by latex2mathml (the extra `docs`); else TeX as it was written.

What the library makes is an element tree. It is cleaned here before it becomes text: only elements of MathML, only
attributes that say how they look, and every text escaped.
"""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Final
from xml.etree import ElementTree

MATH_TAGS: Final = frozenset(
    (
        *(
            "math",
            "mrow",
            "mi",
            "mo",
            "mn",
            "ms",
            "mtext",
            "mspace",
            "mfrac",
            "msqrt",
            "mroot",
            "msub",
            "msup",
            "msubsup",
        ),
        *("munder", "mover", "munderover", "mmultiscripts", "mprescripts", "none", "mtable", "mtr", "mtd", "mstyle"),
        *("mpadded", "mphantom", "menclose", "merror", "semantics"),
    )
)
MATH_ATTRIBUTES: Final = frozenset(
    (
        *("display", "mathvariant", "stretchy", "fence", "form", "accent", "accentunder", "columnalign", "rowspacing"),
        *("columnspacing", "displaystyle", "scriptlevel", "linethickness", "lspace", "rspace", "separator"),
        *("movablelimits", "symmetric", "largeop", "width", "height", "depth"),
    )
)
_MOST: Final = 4_000
_DEFINES: Final = r"\\(?:[gex]?def|let|(?:re)?newcommand|providecommand|newenvironment|DeclareMathOperator)\b"
"""Names of one's own may stand for each other without end."""

_SAYS_NOTHING: Final = r"\\(?:nonumber|notag|displaylimits|allowbreak)(?![A-Za-z])|\\label\{[^{}]*\}"
_SAME_AS: Final = (("aligned}", "align*}"), ("alignedat}", "align*}"), ("gathered}", "gather*}"), ("eqnarray", "align"))


def mathml(tex: str, *, is_block: bool) -> str:
    """A formula as MathML, or as a span with its source where that cannot be made. Safe HTML either way."""
    made = None if len(tex) > _MOST or re.search(_DEFINES, tex) else _made(tex, is_block)
    if made is not None:
        return made
    return f'<code class="tex">{escape(tex.strip())}</code>'


def _made(tex: str, is_block: bool) -> str | None:
    try:
        from latex2mathml.converter import convert_to_element
    except ImportError:
        return None
    tex = re.sub(_SAYS_NOTHING, "", tex)
    for name, instead in _SAME_AS:
        tex = tex.replace(name, instead)
    try:
        found = convert_to_element(tex, display="block" if is_block else "inline")
        return ElementTree.tostring(_cleaned(found), "unicode")
    except Exception:  # it raises what its parser stumbles over: StopIteration, KeyError, RecursionError
        return None


def _cleaned(given: ElementTree.Element) -> ElementTree.Element:
    """The element as it may be sent. Raises ValueError for what the library did not understand."""
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
