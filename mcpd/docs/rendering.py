"""`render`: a page as HTML that may be put into a document of ours. No HTML of its author gets there, and no script.

All markup is written here, by a renderer that escapes what it is given; tags in a page are left out. Links lead to
other pages or to sites, images are those that stand in the page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from mcpd.docs.links import is_shown, resolved
from mcpd.docs.page import Page
from mcpd.docs.readers.markdown_lines import slug
from mcpd.errors import ConfigurationError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MOST_CHARACTERS = 400_000
"""How much of a page is shown."""

_IMAGE = re.compile(r"data:image/(?:png|gif|jpeg|webp);base64,[A-Za-z0-9+/=\s]+$")
_TAG = re.compile(r"<!--.*?(?:-->|\Z)|<[/!?]?[A-Za-z][^<>]*>?", re.DOTALL)
_HIDDEN = re.compile(r"<(script|style|template|i?frame|object|svg)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)

Resolve = Callable[[str], tuple[str, str] | None]


def render(page: Page, names: Mapping[str, str] | None = None, image: Callable[[str], str | None] | None = None) -> str:
    """Safe HTML of a page.

    `names` has the pages that links may lead to, as `links.names_of` gives them (`Library.names`). Such a link is
    `<a href="#" data-page="02-guides/units.mdx" data-anchor="filters">`; one to a site has `target="_blank"` and
    `rel="noreferrer noopener"`; of all others the text is left. Headings have their anchors as `id`, with `page-`
    before them. `image` gives the `data:` address of an image that the page names; of one that it knows nothing of, and
    without it, the words are left. Raises ConfigurationError where the extra `docs` is not installed.
    """
    text = page.text[:MOST_CHARACTERS]
    note = "" if len(page.text) <= MOST_CHARACTERS else "<p>The rest of this page is too long to be shown.</p>\n"
    if page.mime_type != "text/markdown":
        return f"<pre>{html.escape(text)}</pre>\n{note}"

    known = names or {}
    parser = _parser(is_mdx=page.kind == "mdx")
    environment: dict[str, Any] = {"resolve": lambda target: resolved(target, page.path, known), "image": image}
    tokens = parser.parse(text, environment)
    _set_anchors(tokens)
    shown: str = parser.renderer.render(tokens, parser.options, environment)
    return shown + note


def _parser(*, is_mdx: bool) -> MarkdownIt:
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        raise ConfigurationError("showing pages needs a library: pip install 'mcpd-server[docs]'") from None

    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": 40}).enable(["table", "strikethrough"])
    if is_mdx:
        parser.disable("code")  # MDX has no code by indentation
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # which links are shown is decided below
    for name, rule in _RULES.items():
        parser.add_render_rule(name, rule)
    return parser


def _set_anchors(tokens: Sequence[Token]) -> None:
    taken: dict[str, int] = {}
    for at, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        inline = tokens[at + 1]
        title = "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))
        own = re.search(r"\s*\{\s*#([\w:.-]+)[^}]*\}\s*$", title)
        anchor = own[1] if own else slug(title)
        number = taken.get(anchor)
        taken[anchor] = 0 if number is None else number + 1
        token.attrSet("id", "page-" + (anchor if number is None else f"{anchor}-{number + 1}"))
        if own and inline.children and inline.children[-1].type == "text":
            last = inline.children[-1]
            last.content = re.sub(r"\s*\{\s*#[\w:.-]+[^}]*\}\s*$", "", last.content)


# -- what each part becomes --------------------------------------------------------------------------


def _link_open(self: Any, tokens: Sequence[Token], at: int, options: Any, env: MutableMapping[str, Any]) -> str:
    target = str(tokens[at].attrGet("href") or "")
    title = str(tokens[at].attrGet("title") or "")
    titled = f' title="{html.escape(title)}"' if title else ""
    tags: list[str] = env.setdefault("open_links", [])
    found: tuple[str, str] | None = env["resolve"](target)
    if found is not None:
        tags.append("</a>")
        page, anchor = found
        return f'<a href="#" data-page="{html.escape(page)}" data-anchor="{html.escape(anchor)}"{titled}>'
    if is_shown(target):
        tags.append("</a>")
        return f'<a href="{html.escape(target)}" target="_blank" rel="noreferrer noopener"{titled}>'
    tags.append("</span>")
    return "<span>"


def _link_close(self: Any, tokens: Sequence[Token], at: int, options: Any, env: MutableMapping[str, Any]) -> str:
    tags: list[str] = env.get("open_links") or ["</span>"]
    return tags.pop()


def _image(self: Any, tokens: Sequence[Token], at: int, options: Any, env: MutableMapping[str, Any]) -> str:
    source = str(tokens[at].attrGet("src") or "")
    name = html.escape(self.renderInlineAsText(tokens[at].children or [], options, env))
    if env["image"] is not None and not source.startswith("data:"):
        source = env["image"](source) or ""
    if _IMAGE.match(source):
        return f'<img src="{html.escape(source)}" alt="{name}">'
    return f'<span class="image">{name}</span>' if name else ""


def _html_inline(self: Any, tokens: Sequence[Token], at: int, options: Any, env: MutableMapping[str, Any]) -> str:
    return "<br>" if _BREAK.fullmatch(tokens[at].content.strip()) else ""


def _html_block(self: Any, tokens: Sequence[Token], at: int, options: Any, env: MutableMapping[str, Any]) -> str:
    text = _TAG.sub("", _HIDDEN.sub("", tokens[at].content))
    text = html.escape(html.unescape(text).strip())
    return f"<p>{text}</p>\n" if text else ""


_RULES = {
    "html_block": _html_block,
    "html_inline": _html_inline,
    "image": _image,
    "link_close": _link_close,
    "link_open": _link_open,
}
