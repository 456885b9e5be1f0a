"""Checks of the HTML of an app: whether the document is complete, what its elements load, and where its links lead.

Lexbor (the package selectolax, in the extra `apps`) parses the document as a browser does, so a tag in a comment, a
title or an attribute does not count. Scripts and style sheets are not read: a browser reports what they load, which
`policy` collects.

Spec: HTML, "Fetching resources" of each element; CSP Level 3, section 6. Rules APP-S-04, APP-H-05, APP-H-17.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import UNSET

from mcpd.apps.preview.violations import Kind, refusal
from mcpd.errors import ConfigurationError
from mcpd.server.extensions.ui.assets import html_problems
from mcpd.server.extensions.ui.csp_sources import UiCsp
from .policy import details_of
from .report import Check, Finding, checked, note, warning

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_LINKS_SHOWN: Final = 20

_LOADING_ATTRIBUTES: Final[dict[tuple[str, str], Kind]] = {
    ("audio", "src"): "media",
    ("embed", "src"): "object",
    ("form", "action"): "form",
    ("frame", "src"): "frame",
    ("iframe", "src"): "frame",
    ("img", "src"): "image",
    ("input", "src"): "image",
    ("button", "formaction"): "form",
    ("input", "formaction"): "form",
    ("object", "data"): "object",
    ("script", "src"): "script",
    ("source", "src"): "media",
    ("track", "src"): "media",
    ("video", "poster"): "image",
    ("video", "src"): "media",
    ("body", "background"): "image",
    ("base", "href"): "base",
    ("a", "ping"): "connect",
}
_SVG_ELEMENTS: Final[dict[str, Kind]] = {"image": "image", "use": "image", "feimage": "image", "script": "script"}
_LINK_RELATIONS: Final[dict[str, Kind]] = {"stylesheet": "style", "modulepreload": "script", "prefetch": "resource"}
_PRELOADS: Final[dict[str, Kind]] = {
    "script": "script",
    "style": "style",
    "image": "image",
    "font": "font",
    "audio": "media",
    "video": "media",
    "fetch": "connect",
    "track": "media",
    "worker": "worker",
}


class Load(NamedTuple):
    kind: Kind
    url: str
    element: str
    """The element and the attribute: `<script src>`."""
    line: int
    """The line of the HTML, from 1; 0 if it is unknown."""


class Document:
    def __init__(self, html: str) -> None:
        self.language = self.title = self.policy = ""
        """`lang` of the root, the `<title>`, and the content of a Content-Security-Policy in a `<meta>`."""
        self.outward_links: dict[str, None] = {}
        """Links to other sites. No host follows them."""
        self._html = html
        self._loads: dict[tuple[Kind, str, str], Load] = {}
        self._listens_for_submit = False

    @property
    def loads(self) -> list[Load]:
        """The addresses of all elements. If a script mentions the event submit, forms are taken to send nothing."""
        return [load for load in self._loads.values() if load.kind != "form" or not self._listens_for_submit]

    def read(self, node: LexborNode) -> None:
        tag = (node.tag or "").lower()
        attributes = {name.lower(): value or "" for name, value in node.attributes.items()}
        if tag == "html":
            self.language = attributes.get("lang", "")
        elif tag == "title" and not self.title:
            self.title = node.text().strip()
        elif tag == "meta":
            self._read_meta(attributes)
        elif tag == "link":
            self._read_link(attributes)
        elif tag == "script":
            self._listens_for_submit |= "submit" in node.text().lower()
        elif tag == "a":
            target = attributes.get("href", "").strip()
            if target.startswith(("http://", "https://", "//")):
                self.outward_links[target] = None

        for name, value in attributes.items():
            if name in ("srcset", "imagesrcset"):
                for url in _srcset_urls(value):
                    self._add("image", url, f"<{tag} {name}>")
            elif name in ("href", "xlink:href") and tag in _SVG_ELEMENTS:
                if not value.startswith("#"):
                    self._add(_SVG_ELEMENTS[tag], value, f"<{tag} {name}>")
            elif name == "onsubmit":
                self._listens_for_submit = True
            elif (kind := _LOADING_ATTRIBUTES.get((tag, name))) is not None and _loads(tag, name, attributes):
                is_picture = tag == "source" and "srcset" in attributes
                self._add("image" if is_picture else kind, value, f"<{tag} {name}>")

    def _read_meta(self, attributes: dict[str, str]) -> None:
        directive, content = attributes.get("http-equiv", "").strip().lower(), attributes.get("content", "")
        if directive == "content-security-policy":
            self.policy = content
        elif directive == "refresh":
            url = content.partition("=")[2].strip(" '\"")
            self._add("navigation", url, "<meta http-equiv=refresh>")

    def _read_link(self, attributes: dict[str, str]) -> None:
        for relation in attributes.get("rel", "").lower().split():
            is_preload = relation == "preload"
            kind = _PRELOADS.get(attributes.get("as", "").lower()) if is_preload else _LINK_RELATIONS.get(relation)
            if kind is not None:
                self._add(kind, attributes.get("href", ""), f"<link rel={relation}>")
                return

    def _add(self, kind: Kind, url: str, element: str) -> None:
        url = url.strip()
        if not url:
            return
        # An address that is written with entities is not found in the text.
        position = self._html.find(url)
        line = self._html.count("\n", 0, position) + 1 if position >= 0 else 0
        self._loads.setdefault((kind, url, element), Load(kind, url, element, line))


def parse_document(html: str) -> Document:
    """Parse the HTML of an app. Raises ConfigurationError if the parser is not installed."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        text = "reading the HTML of apps needs a library: pip install 'mcpd-server[apps]'"
        raise ConfigurationError(text) from None

    tree = LexborHTMLParser(html)
    # The content of <noscript> is text to a browser.
    for node in tree.css("noscript"):
        node.decompose()
    document = Document(html)
    for node in tree.css("*"):
        document.read(node)
    return document


def document_checks(html: str, granted: UiCsp | None) -> list[Check]:
    """Return the checks of an app's HTML against granted sources. Raises ConfigurationError without the parser."""
    document = parse_document(html)
    size = len(html.encode("utf-8", "replace"))
    size_text = f"{size} bytes" if size < 10_000 else f"{size / 1024:.0f} KiB"
    outward = len(document.outward_links)
    links = f"{outward} lead out: hosts follow none unless the app asks" if outward else "no link leads out"
    return [
        checked("document", "A complete HTML5 document", _completeness(html, document), size_text, ["APP-S-04"]),
        checked("loads", "Elements load nothing undeclared", _undeclared(document, granted), _loaded(document),
                ["APP-H-05", "APP-X-04"]),
        checked("links", "Links are opened by the host", _outward(document), links, ["APP-H-17"]),
    ]  # fmt: skip


def _completeness(html: str, document: Document) -> Iterator[Finding]:
    for problem in html_problems("", html):
        yield Finding(severity="failure" if problem.is_error else "warning", text=problem.text)
    if not document.language:
        advice = 'write <html lang="en">, or the language of the text'
        yield warning("the document has no language for screen readers", advice)

    if not document.title:
        yield note("no <title>", "hosts and screen readers may show it")
    if document.policy:
        text = f"the document has a policy of its own in a <meta>: {document.policy[:200]}"
        advice = "it can only take away from what the host grants; declare what the app needs in _meta.ui.csp"
        yield note(text, advice)


def _undeclared(document: Document, granted: UiCsp | None) -> Iterator[Finding]:
    for load in document.loads:
        refused = refusal(load.kind, load.url, granted)
        if refused is None:
            continue
        place = f"{load.element}{f', line {load.line}' if load.line else ''}"
        yield Finding(
            # The app may have no relative address that the <base> would change.
            severity="warning" if load.kind == "base" else "failure",
            text=f"{refused.text} ({place})",
            advice=refused.advice,
            element=load.element,
            line=load.line or UNSET,
            **details_of(refused, load.url),
        )


def _loaded(document: Document) -> str:
    schemes = ("http:", "https:", "ws:", "wss:", "//")
    outside = sorted({load.url for load in document.loads if load.url.startswith(schemes)})
    if not outside:
        return "nothing from outside"
    return f"{len(outside)} addresses from outside, all declared" if len(outside) > 1 else f"{outside[0]}, declared"


def _outward(document: Document) -> Iterator[Finding]:
    for url in list(document.outward_links)[:_LINKS_SHOWN]:
        text = f"a link to {url[:120]}: hosts do not follow it unless the app asks them to"
        advice = "prevent the default action of the click and send ui/open-link"
        yield note(text, advice, url=url)


def _loads(tag: str, name: str, attributes: dict[str, str]) -> bool:
    # Return whether an attribute that can load something does so in this element.
    value = attributes[name].strip()
    if tag == "iframe":
        return "srcdoc" not in attributes and value not in ("", "about:blank")
    if tag == "base":
        # A path changes nothing: the app is one file.
        return value.startswith(("http://", "https://", "//"))

    if tag == "input" and name == "src":
        return attributes.get("type", "").lower() == "image"
    if name in ("action", "formaction"):
        return bool(value) and not value.startswith("#")
    return bool(value)


def _srcset_urls(value: str) -> Iterator[str]:
    # Yield the addresses of a `srcset`. A comma ends an address only before white space or after a descriptor.
    rest = value.strip(" \t\r\n\f,")
    while rest:
        url, _, following = rest.partition(" ")
        if not url.endswith(","):
            following = following.partition(",")[2]
        if not url.startswith("data:"):
            url = url.strip(",")
        if url:
            yield url
        rest = following.strip(" \t\r\n\f,")
