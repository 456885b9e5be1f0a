"""reStructuredText: its text as Markdown. No file is included, nothing raw is let through, no setting is read.

Directives and roles that only Sphinx knows keep their text. This changes tables of docutils: it runs in a process of
its own (`apart.py`).
"""

from __future__ import annotations

from typing import Any

from ..page import Page, UnreadablePage
from .decoding import decoded
from .markdown import markdown_page

__all__ = ["read_rst"]

_SETTINGS = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "report_level": 5,
    "halt_level": 5,
    "warning_stream": False,
    "input_encoding": "unicode",
    "line_length_limit": 20_000,
    "smart_quotes": False,
    "doctitle_xform": False,
    "sectsubtitle_xform": False,
    "syntax_highlight": "none",
    "expose_internals": None,
    "traceback": False,
}
_DROPPED = frozenset(
    ("toctree", "index", "highlight", "currentmodule", "tabularcolumns", "automodule", "autoclass", "autofunction",
     "autosummary", "sectnum", "contents", "include", "raw", "image", "testsetup", "testcleanup", "meta", "acks")
)  # fmt: skip
_CODE = frozenset(("code-block", "sourcecode", "testcode", "doctest", "productionlist", "prompt", "ipython", "console"))


def read_rst(path: str, data: bytes, with_links: bool = True) -> Page:
    """The page of a reStructuredText file. Raises UnreadablePage for what cannot be read."""
    try:
        from docutils import core, utils

        from .rst_writer import written
    except ImportError:
        raise UnreadablePage("reStructuredText needs a library: pip install 'mcpd-server[docs]'") from None

    _accept_all()
    try:
        tree = core.publish_doctree(decoded(data), settings_overrides=_SETTINGS)
        text = written(tree)
    except RecursionError:
        raise UnreadablePage("is nested too deep") from None
    except utils.SystemMessage as error:
        raise UnreadablePage(f"cannot be read ({error})") from None
    return markdown_page(path, text, "rst", {}, with_links=with_links)


def _accept_all() -> None:
    """Let docutils take every directive and every role for something."""
    from docutils import nodes
    from docutils.parsers.rst import Directive, directives, roles

    if getattr(directives, "mcpd_accepts_all", False):
        return
    known_directive, known_role = directives.directive, roles.role

    class Known(Directive):  # type: ignore[misc]  # docutils has no types
        """A directive of others: its arguments, and what stands in it."""

        has_content = True
        optional_arguments = 100
        final_argument_whitespace = True
        option_spec = None

        def run(self) -> list[Any]:
            """Its nodes."""
            if self.name in _CODE:
                block = nodes.literal_block(self.block_text, "\n".join(self.content))
                block["classes"] = ["code", *(self.arguments[:1] if self.name not in ("doctest",) else ["python"])]
                return [block]
            found: list[Any] = []
            if self.arguments:
                item = nodes.literal("", " ".join(self.arguments))
                found.append(nodes.paragraph("", "", item, classes=["directive", self.name]))
            inner = nodes.container()
            self.state.nested_parse(self.content, self.content_offset, inner)
            return [*found, *inner.children]

    class Dropped(Known):
        """A directive that has nothing to read."""

        def run(self) -> list[Any]:
            """Nothing."""
            return []

    def directive(name: str, language: Any, document: Any) -> tuple[Any, list[Any]]:
        if name.lower() in _DROPPED:
            return Dropped, []
        if name.lower() in _CODE:
            return Known, []
        found, _ = known_directive(name, language, document)
        return found or Known, []

    def text_role(name: str, rawtext: str, text: str, *rest: Any, **more: Any) -> tuple[list[Any], list[Any]]:
        shown = text.rsplit("<", 1)[0].strip() if text.endswith(">") else text.lstrip("~!")
        is_code = name.rsplit(":", 1)[-1] not in (
            "ref",
            "doc",
            "term",
            "abbr",
            "guilabel",
            "menuselection",
            "pep",
            "rfc",
        )
        return [nodes.literal(rawtext, shown) if is_code else nodes.inline(rawtext, shown)], []

    def role(name: str, language: Any, lineno: int, reporter: Any) -> tuple[Any, list[Any]]:
        found, _ = known_role(name, language, lineno, reporter)
        return (None if name == "raw" else found) or text_role, []

    directives.directive, roles.role = directive, role
    directives.mcpd_accepts_all = True
