"""Directives and roles that only Sphinx knows, for docutils: each leaves its text."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive, directives, roles

_DROPPED = frozenset(
    ("toctree", "index", "highlight", "currentmodule", "tabularcolumns", "automodule", "autoclass", "autofunction",
     "autosummary", "sectnum", "contents", "include", "raw", "image", "testsetup", "testcleanup", "meta", "acks")
)  # fmt: skip
_CODE = frozenset(("code-block", "sourcecode", "testcode", "doctest", "productionlist", "prompt", "ipython", "console"))


class _Known(Directive):  # type: ignore[misc]  # docutils has no types
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


class _Dropped(_Known):
    """A directive that has nothing to read."""

    def run(self) -> list[Any]:
        """Nothing."""
        return []


def accept_all() -> None:
    """Let docutils take every directive and every role for something. For this process, and for good."""
    if getattr(directives, "mcpd_accepts_all", False):
        return
    known_directive, known_role = directives.directive, roles.role

    def directive(name: str, language: Any, document: Any) -> tuple[Any, list[Any]]:
        if name.lower() in _DROPPED:
            return _Dropped, []
        if name.lower() in _CODE:
            return _Known, []
        found, _ = known_directive(name, language, document)
        return found or _Known, []

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
