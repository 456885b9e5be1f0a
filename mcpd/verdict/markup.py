"""What an app's HTML loads: every element and attribute that does, its styles and scripts read too.

The document is parsed as a browser does, by Lexbor (the package selectolax, extra `apps`): what looks like a tag in a
comment, a title or an attribute is none. Spec: HTML, "Fetching resources" of each element; CSP Level 3, section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from mcpd.errors import ConfigurationError
from mcpd.verdict.css import css_references
from mcpd.verdict.script import read_script
from mcpd.verdict.sources import Kind

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode


class Load(NamedTuple):
    """One address that a document loads from, or would."""

    kind: Kind
    url: str
    element: str
    """What does it, shortened: `<script src>`, `fetch in <script>`."""
    line: int
    """From 1; 0 if it is not known."""
    in_script: bool
    """Whether it stands in code that may never run."""


class Markup(NamedTuple):
    """What was found in a document."""

    loads: list[Load]
    needs: dict[str, int]
    """Means of the browser that its scripts name and strict hosts do not give, and the line of each."""
    language: str
    title: str
    has_viewport: bool
    policy: str
    """A policy of its own in a <meta>."""
    event_handlers: int
    outward_links: list[str]
    """Links to other sites: no host follows them."""


_SOURCES: Final[dict[tuple[str, str], Kind]] = {
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
_SVG: Final[dict[str, Kind]] = {"image": "image", "use": "image", "feimage": "image", "script": "script"}
_LINKS: Final[dict[str, Kind]] = {
    "stylesheet": "style",
    "modulepreload": "script",
    "prefetch": "resource",
}
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
_CODE_TYPES: Final = ("", "module", "text/javascript", "application/javascript", "text/ecmascript", "importmap")


def read_markup(html: str) -> Markup:
    """Read a document. Raises ConfigurationError where the parser is not installed."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        text = "reading the HTML of apps needs a library: pip install 'mcpd-server[apps]'"
        raise ConfigurationError(text) from None

    reader = _Reader(html)
    tree = LexborHTMLParser(html)
    for node in _elements(tree.root):
        reader.read(node)
    return reader.made()


class _Reader:
    """Goes through the elements of a document, and keeps what is found."""

    def __init__(self, html: str) -> None:
        self._html = html
        self._lines = _Lines(html)
        self._loads: dict[tuple[Kind, str, str], Load] = {}
        self._needs: dict[str, int] = {}
        self._language = self._title = self._policy = ""
        self._has_viewport = False
        self._handlers = 0
        self._hears_submit = False
        """Whether some script listens for the submit event of a form: it is taken to send nothing away."""
        self._links: dict[str, None] = {}

    def made(self) -> Markup:
        """All of it."""
        loads = [load for load in self._loads.values() if load.kind != "form" or not self._hears_submit]
        return Markup(
            loads,
            self._needs,
            self._language,
            self._title,
            self._has_viewport,
            self._policy,
            self._handlers,
            list(self._links),
        )

    def read(self, node: LexborNode) -> None:
        """One element."""
        tag = (node.tag or "").lower()
        said = {name.lower(): value or "" for name, value in node.attributes.items()}
        if tag == "html":
            self._language = said.get("lang", "")
        elif tag == "title" and not self._title:
            self._title = node.text().strip()
        elif tag == "meta":
            self._meta(said)
        elif tag == "link":
            self._link(said)
        elif tag == "style":
            self._style(node.text(), "<style>")
        elif tag == "a":
            target = said.get("href", "").strip()
            if target.startswith(("http://", "https://", "//")):
                self._links[target] = None
        elif tag == "script" and not said.get("src") and said.get("type", "").lower() in _CODE_TYPES:
            self._script(node.text(), "<script>")

        self._attributes(tag, said)

    def _attributes(self, tag: str, said: dict[str, str]) -> None:
        for name, value in said.items():
            if name == "style":
                self._style(value, f"<{tag} style>")
            elif name in ("srcset", "imagesrcset"):
                for url in _of_srcset(value):
                    self._add("image", url, f"<{tag} {name}>")
            elif name in ("href", "xlink:href") and tag in _SVG:
                if not value.startswith("#"):
                    self._add(_SVG[tag], value, f"<{tag} {name}>")
            elif name.startswith("on") and len(name) > 2:
                self._handlers += 1
                self._hears_submit |= name == "onsubmit"
                self._script(value, f"<{tag} {name}>")
            elif (kind := _SOURCES.get((tag, name))) is not None and self._counts(tag, name, said):
                self._add("image" if tag == "source" and "srcset" in said else kind, value, f"<{tag} {name}>")

    def _counts(self, tag: str, name: str, said: dict[str, str]) -> bool:
        """Whether an attribute loads something: `<iframe srcdoc>` hides its src, an input has a picture only as one."""
        if tag == "iframe":
            return "srcdoc" not in said and said["src"].strip() not in ("", "about:blank")
        if tag == "base":  # a path changes nothing in an app, which has nothing beside it
            return said["href"].strip().startswith(("http://", "https://", "//"))
        if tag == "input" and name == "src":
            return said.get("type", "").lower() == "image"
        if name in ("action", "formaction"):
            return bool(said[name].strip()) and not said[name].strip().startswith("#")
        return bool(said[name].strip())

    def _meta(self, said: dict[str, str]) -> None:
        directive, content = said.get("http-equiv", "").strip().lower(), said.get("content", "")
        if said.get("name", "").lower() == "viewport":
            self._has_viewport = True
        elif directive == "content-security-policy":
            self._policy = content
        elif directive == "refresh":
            _, has_url, url = content.partition("=")
            if has_url and url.strip():
                self._add("navigation", url.strip(" '\""), "<meta http-equiv=refresh>")

    def _link(self, said: dict[str, str]) -> None:
        url = said.get("href", "").strip()
        for relation in said.get("rel", "").lower().split():
            kind = _PRELOADS.get(said.get("as", "").lower()) if relation == "preload" else _LINKS.get(relation)
            if kind is not None and url:
                self._add(kind, url, f"<link rel={relation}>")
                return

    def _style(self, text: str, element: str) -> None:
        for reference in css_references(text):
            if not reference.url.startswith("#"):
                self._add(reference.kind, reference.url, f"url() in {element}")

    def _script(self, text: str, element: str) -> None:
        self._hears_submit |= "submit" in text.lower()
        report = read_script(text)
        for reference in report.references:
            self._add(reference.kind, reference.url, f"code in {element}", in_script=True)
        begin = self._html.find(text) if report.needs and text else -1
        for need, position in report.needs.items():
            self._needs.setdefault(need, self._lines.at(begin + position) if begin >= 0 else 0)

    def _add(self, kind: Kind, url: str, element: str, *, in_script: bool = False) -> None:
        url = url.strip()
        key = (kind, url, element)
        if url and key not in self._loads:
            self._loads[key] = Load(kind, url, element, self._lines.of(url), in_script)


class _Lines:
    """The line of a place in a text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def at(self, position: int) -> int:
        """Of a position."""
        return self._text.count("\n", 0, position) + 1

    def of(self, piece: str) -> int:
        """Of where these words first stand; 0 if they do not, as where they are written with entities."""
        position = self._text.find(piece)
        return self.at(position) if position >= 0 else 0


def _of_srcset(value: str) -> Iterable[str]:
    """The addresses of a `srcset`: a comma ends one only behind white space or a descriptor."""
    for candidate in _candidates(value):
        url = candidate.split()[0] if candidate.split() else ""
        if url.strip(","):
            yield url.strip(",") if not url.startswith("data:") else url


def _candidates(value: str) -> Iterator[str]:
    rest = value.strip(" \t\r\n\f,")
    while rest:
        url, _, behind = rest.partition(" ")
        if url.endswith(","):
            yield url
            rest = behind.strip(" \t\r\n\f,")
            continue
        descriptor, _, following = behind.partition(",")
        yield f"{url} {descriptor}"
        rest = following.strip(" \t\r\n\f,")


def _elements(root: LexborNode | None) -> Iterator[LexborNode]:
    """All elements, in order; not what is in <noscript>, which a browser with scripts takes for text."""
    left = [] if root is None else [root]
    while left:
        node = left.pop()
        if not node.is_element_node:
            continue
        yield node
        if node.tag == "noscript":
            continue
        child = node.last_child
        while child is not None:
            left.append(child)
            child = child.prev
