"""Converts reStructuredText to Markdown. No file is included and no raw content is passed through.

Directives and roles that only Sphinx knows keep their text. This module changes tables of docutils, so it is loaded
only in the child process of `reading.py`.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import core, nodes, utils
from docutils.parsers.rst import Directive, directives, roles

from mcpd.sources.docs.page import Page, UnreadablePage
from .markdown import fenced, markdown_page
from .text import decoded

_IGNORED = frozenset(
    ("toctree", "index", "highlight", "currentmodule", "tabularcolumns", "automodule", "autoclass", "autofunction",
     "autosummary", "sectnum", "contents", "include", "raw", "image", "testsetup", "testcleanup", "meta", "acks")
)  # fmt: skip
_CODE = frozenset(("code-block", "sourcecode", "testcode", "doctest", "productionlist", "prompt", "ipython", "console"))

_TEXT_ROLES = frozenset(("ref", "doc", "term", "abbr", "guilabel", "menuselection", "pep", "rfc"))


class _UnknownDirective(Directive):  # type: ignore[misc]  # docutils has no types
    """An unknown directive: its arguments and its content are kept."""

    has_content = True
    optional_arguments = 100
    final_argument_whitespace = True
    option_spec = None

    def run(self) -> list[Any]:
        if self.name in _CODE:
            block = nodes.literal_block(self.block_text, "\n".join(self.content))
            block["classes"] = ["python"] if self.name == "doctest" else self.arguments[:1]
            return [block]
        found: list[Any] = []
        if self.arguments:
            found.append(nodes.paragraph("", "", nodes.literal("", " ".join(self.arguments))))
        inner = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, inner)
        return [*found, *inner.children]


class _IgnoredDirective(_UnknownDirective):
    def run(self) -> list[Any]:
        return []


def accept_all() -> None:
    # docutils keeps these functions in its modules, so that the change concerns the whole process.
    if getattr(directives, "mcpd_accepts_all", False):
        return
    known_directive, known_role = directives.directive, roles.role

    def directive(name: str, language: Any, document: Any) -> tuple[Any, list[Any]]:
        if name.lower() in _IGNORED:
            return _IgnoredDirective, []
        if name.lower() in _CODE:
            return _UnknownDirective, []
        found, _ = known_directive(name, language, document)
        return found or _UnknownDirective, []

    def text_role(name: str, rawtext: str, text: str, *rest: Any, **more: Any) -> tuple[list[Any], list[Any]]:
        shown = text.rsplit("<", 1)[0].strip() if text.endswith(">") else text.lstrip("~!")
        is_code = name.rsplit(":", 1)[-1] not in _TEXT_ROLES
        return [nodes.literal(rawtext, shown) if is_code else nodes.inline(rawtext, shown)], []

    def role(name: str, language: Any, lineno: int, reporter: Any) -> tuple[Any, list[Any]]:
        found, _ = known_role(name, language, lineno, reporter)
        return (None if name == "raw" else found) or text_role, []

    directives.directive, roles.role = directive, role
    directives.mcpd_accepts_all = True


_MAX_DEPTH = 100
_SPACES = re.compile(r"\s+")
_START = re.compile(r"(?<![^\n])(?=#{1,6}\s|>|[-+*]\s)")


class _Writer:
    """Writes blocks with their heading level and depth, and inline text on one line."""

    def blocks(self, node: Any, level: int, depth: int) -> str:
        """Return the blocks inside a node, separated by empty lines."""
        if depth > _MAX_DEPTH:
            raise RecursionError
        parts = [self._block(child, level, depth + 1) for child in node.children]
        return "\n\n".join(part for part in parts if part.strip())

    def _block(self, node: Any, level: int, depth: int) -> str:
        if isinstance(node, nodes.section):
            return self.blocks(node, level + 1, depth)
        if isinstance(node, nodes.title):
            return f"{'#' * max(1, min(level, 6))} {self._line(node)}"
        if isinstance(node, nodes.rubric):
            return f"**{self._line(node)}**"
        if isinstance(node, (nodes.literal_block, nodes.doctest_block)):
            return self._code(node)
        if isinstance(node, (nodes.bullet_list, nodes.enumerated_list)):
            return self._list(node, level, depth)
        if isinstance(node, nodes.definition_list_item):
            return self._definition(node, level, depth)
        if isinstance(node, nodes.field):
            name, body = node.children[0], node.children[-1]
            return f"- **{self._line(name)}**: {self._indented(self.blocks(body, level, depth))}"

        if isinstance(node, nodes.table):
            return self._table(node)
        if isinstance(node, (nodes.Invisible, nodes.system_message, nodes.comment, nodes.raw)):
            return ""
        if isinstance(node, nodes.image):
            return str(node.get("alt", ""))[:500]
        if isinstance(node, nodes.Admonition):
            inner = self.blocks(node, 5, depth)
            return inner if node.tagname == "admonition" else f"**{node.tagname.capitalize()}:** {inner}"

        if isinstance(node, nodes.TextElement):
            return _START.sub(r"\\", self._line(node))
        return self.blocks(node, level, depth)

    def _code(self, node: Any) -> str:
        text = node.astext().strip("\n")
        names = [name for name in node.get("classes", ()) if name not in ("code", "literal-block", "highlight")]
        language = str(node.get("language") or (names[0] if names else ""))
        if not language and text.lstrip().startswith(">>>"):
            language = "python"
        return fenced(text, language)

    def _list(self, node: Any, level: int, depth: int) -> str:
        numbered = isinstance(node, nodes.enumerated_list)
        parts = []
        for at, item in enumerate(node.children, node.get("start", 1)):
            sign = f"{at}. " if numbered else "- "
            parts.append(sign + self._indented(self.blocks(item, level, depth + 1), len(sign)))
        return "\n".join(parts)

    def _definition(self, node: Any, level: int, depth: int) -> str:
        terms = [self._line(child) for child in node.children if isinstance(child, nodes.term)]
        bodies = [self.blocks(body, level, depth + 1) for body in node.children if isinstance(body, nodes.definition)]
        term = " / ".join(terms)
        term = term if term.startswith("`") else f"**{term}**"
        return f"- {term}: " + self._indented("\n\n".join(bodies))

    def _table(self, node: Any) -> str:
        rows = []
        for row in node.findall(nodes.row):
            cells = [self._line(entry).replace("|", "\\|") for entry in row.children]
            rows.append("| " + " | ".join(cells) + " |")
        if len(rows) > 1:
            rows.insert(1, "|" + " --- |" * rows[0].count(" | ") + " --- |")
        return "\n".join(rows)

    @staticmethod
    def _indented(text: str, width: int = 2) -> str:
        return text.replace("\n", "\n" + " " * width).replace("\n" + " " * width + "\n", "\n\n")

    def _line(self, node: Any) -> str:
        return _SPACES.sub(" ", self._inline(node)).strip()

    def _inline(self, node: Any) -> str:
        # Return the inline text of a node with markup for code, emphasis and links.
        parts: list[str] = []
        for child in node.children:
            if isinstance(child, nodes.Text):
                parts.append(str(child).replace("<", "\\<") if "<" in child else str(child))
            elif isinstance(child, (nodes.literal, nodes.math)):
                parts.append(f"`{child.astext()}`")
            elif isinstance(child, nodes.reference) and child.get("refuri"):
                parts.append(f"[{self._inline(child)}]({child['refuri']})")
            elif isinstance(child, nodes.strong):
                parts.append(f"**{self._inline(child)}**")
            elif isinstance(child, nodes.image):
                parts.append(str(child.get("alt", ""))[:500])
            elif isinstance(child, (nodes.comment, nodes.system_message, nodes.raw, nodes.target)):
                continue
            elif isinstance(child, nodes.problematic):
                parts.append(child.astext())
            elif isinstance(child, nodes.Inline):
                parts.append(self._inline(child))
            else:  # one of several blocks, for example paragraphs in the cell of a table
                parts.append(f"{self._inline(child)} ")

        return "".join(parts)


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


def read_rst(path: str, data: bytes) -> Page:
    """Return the page of a reStructuredText file. Raises UnreadablePage if it cannot be read."""
    accept_all()
    try:
        tree = core.publish_doctree(decoded(data), settings_overrides=_SETTINGS)
    except utils.SystemMessage as error:
        raise UnreadablePage(f"cannot be read ({error})") from None
    return markdown_page(path, _Writer().blocks(tree, 0, 0).strip("\n"), "rst", {})
