"""Renders pages as safe HTML, and resolves their links and images.

All markup is written by our renderer, which escapes its input; tags in a page are removed. Links lead to other pages or
to web sites, and images are embedded.
"""

from __future__ import annotations

import html
import posixpath
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mcpd.errors import ConfigurationError
from mcpd.sources.docs.readers.markdown import slug
from .files import is_hidden, read_beginning
from .page import DocsSettings, Page, UnknownPage, UnreadablePage, site_path

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_SHOWN = re.compile(r"https?://[^\s/]", re.IGNORECASE)
_MAX_LENGTH = 2000


def names_of(paths: Iterable[str]) -> dict[str, str]:
    """Return the names of pages in links, mapped to their paths: paths, and addresses on a site."""
    found: dict[str, str] = {}
    for path in paths:
        found.setdefault(_site_name(path), path)
    return found | {path: path for path in paths}


def _site_name(path: str) -> str:
    return site_path(path).lower() + "/"


def resolved(target: str, path: str, names: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the page and anchor that a link leads to, or None. A link that begins with `/` starts at the folder."""
    if len(target) > _MAX_LENGTH or _ABSOLUTE.match(target):
        return None
    address, _, anchor = target.partition("#")
    address = unquote(address.partition("?")[0])
    if not address:
        return path, anchor
    for base in (posixpath.dirname(path), path):
        joined = _joined(base, address)
        for name in (joined, _site_name(joined), _site_name(joined + ".md")):
            if (found := names.get(name)) is not None:
                return found, anchor

    return None


def _joined(base: str, address: str) -> str:
    # Return the path of an address on a page of the folder `base`; `/` at its beginning is the folder of all pages.
    base = "" if address.startswith("/") else base
    return posixpath.normpath(posixpath.join(base, address.lstrip("/")))


MAX_CHARACTERS = 400_000

_IMAGE = re.compile(r"data:image/(?:png|gif|jpeg|webp);base64,[A-Za-z0-9+/=\s]+$")
_TAG = re.compile(r"<!--.*?(?:-->|\Z)|<[/!?]?[A-Za-z][^<>]*>?", re.DOTALL)
_HIDDEN = re.compile(r"<(script|style|template|i?frame|object|svg)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)

Resolve = Callable[[str], tuple[str, str] | None]


def render(page: Page, names: Mapping[str, str] | None = None, image: Callable[[str], str | None] | None = None) -> str:
    """Return safe HTML of a page.

    `names` has the pages that links may lead to (see `names_of`). A link to a page becomes `<a href="#"
    data-page="02-guides/units.mdx" data-anchor="filters">`; a link to a site gets `target="_blank"` and
    `rel="noreferrer noopener"`; other links become text. Headings have their anchors with the prefix `page-` as `id`.
    `image` returns the `data:` URL of an image; images without one are replaced by their alternative text. Raises
    ConfigurationError without the extra `docs`.
    """
    text = page.text[:MAX_CHARACTERS]
    note = "" if len(page.text) <= MAX_CHARACTERS else "<p>The rest of this page is too long to show.</p>\n"
    if page.mime_type != "text/markdown":
        return f"<pre>{html.escape(text)}</pre>\n{note}"

    known = names or {}
    parser = _parser(is_mdx=page.kind == "mdx")
    environment: dict[str, Any] = {"resolve": lambda target: resolved(target, page.path, known), "image": image}
    tokens = parser.parse(text, environment)
    _set_anchors(tokens)
    return str(parser.renderer.render(tokens, parser.options, environment)) + note


def _parser(*, is_mdx: bool) -> MarkdownIt:
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        raise ConfigurationError("showing pages requires a library: pip install 'mcpd-server[docs]'") from None

    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": 40}).enable(["table", "strikethrough"])
    if is_mdx:
        parser.disable("code")  # MDX has no indented code
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

    if len(target) <= _MAX_LENGTH and _SHOWN.match(target) and target.isprintable():
        tags.append("</a>")
        return f'<a href="{html.escape(target)}" target="_blank" rel="noreferrer noopener"{titled}>'
    tags.append("</span>")
    return "<span>"


def _link_close(self: Any, tokens: Sequence[Token], at: int, options: Any, env: MutableMapping[str, Any]) -> str:
    return str(env["open_links"].pop())


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

MAX_BYTES = 4 * 1024 * 1024

# Bytes of the images of one page. Further images are replaced by their alternative text.
MAX_SHOWN_BYTES = 1024 * 1024


def read_image(folder: str, path: str, settings: DocsSettings, limit: int = MAX_BYTES) -> tuple[bytes, str]:
    # PNG, JPEG, GIF and WebP only, because these cannot contain scripts.
    if is_hidden(path, settings):
        raise UnknownPage(path, [])
    try:
        data = read_beginning(folder, path, limit + 1)
    except (OSError, ValueError):
        raise UnknownPage(path, []) from None

    kind = _kind(data)
    if kind is None:
        raise UnknownPage(path, [])
    if len(data) > limit:
        raise UnreadablePage(f"is larger than {limit} bytes")
    return data, kind


class PageImages:
    def __init__(self, folder: str, page: str, settings: DocsSettings) -> None:
        self._folder = folder
        self._page = page
        self._settings = settings
        self._left = MAX_SHOWN_BYTES

    def __call__(self, source: str) -> str | None:
        """Return the `data:` URL of an image that the page refers to, or None. Blocks while reading it."""
        if len(source) > _MAX_LENGTH or _ABSOLUTE.match(source):
            return None

        address = unquote(source.partition("#")[0].partition("?")[0])
        path = _joined(posixpath.dirname(self._page), address)
        try:
            data, kind = read_image(self._folder, path, self._settings, self._left)
        except (UnknownPage, UnreadablePage):
            return None
        self._left -= len(data)
        return f"data:{kind};base64,{b64encode(data).decode('ascii')}"


def _kind(data: bytes) -> str | None:
    # Return the MIME type according to the content.
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
