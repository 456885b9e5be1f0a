"""Writes a tree of docutils as Markdown."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

_MOST_DEPTH = 100
_SPACES = re.compile(r"\s+")
_START = re.compile(r"(?<![^\n])(?=#{1,6}\s|>|[-+*]\s)")


def written(tree: Any) -> str:
    """The Markdown of a document."""
    return _Writer().blocks(tree, 0, 0).strip("\n")


class _Writer:
    """Blocks with their level of headings and their depth; texts in one line."""

    def blocks(self, node: Any, level: int, depth: int) -> str:
        """The blocks inside a node, with empty lines between them."""
        if depth > _MOST_DEPTH:
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
        if isinstance(node, nodes.Admonition) and not isinstance(node, nodes.system_message):
            name = node.tagname.capitalize() if node.tagname != "admonition" else ""
            inner = self.blocks(node, 5, depth)
            return f"**{name}:** {inner}" if name else inner
        if isinstance(node, (nodes.paragraph, nodes.line, nodes.caption, nodes.term, nodes.attribution)):
            return self._text(node)
        if isinstance(node, nodes.TextElement):
            return self._text(node)
        return self.blocks(node, level, depth)

    def _code(self, node: Any) -> str:
        text = node.astext().strip("\n")
        names = [name for name in node.get("classes", ()) if name not in ("code", "literal-block", "highlight")]
        language = str(node.get("language") or (names[0] if names else ""))
        if not language and text.lstrip().startswith(">>>"):
            language = "python"
        fence = "```"
        while fence in text:
            fence += "`"
        return f"{fence}{language}\n{text}\n{fence}"

    def _list(self, node: Any, level: int, depth: int) -> str:
        numbered = isinstance(node, nodes.enumerated_list)
        parts = []
        for at, item in enumerate(node.children, 1):
            sign = f"{at}. " if numbered else "- "
            parts.append(sign + self._indented(self.blocks(item, level, depth + 1), len(sign)))
        return "\n".join(parts)

    def _definition(self, node: Any, level: int, depth: int) -> str:
        terms = [self._line(child) for child in node.children if isinstance(child, nodes.term)]
        bodies = [
            self.blocks(child, level, depth + 1) for child in node.children if isinstance(child, nodes.definition)
        ]
        term = " / ".join(terms)
        shown = term if term.startswith("`") else f"**{term}**"
        return f"- {shown}: " + self._indented("\n\n".join(bodies))

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

    def _text(self, node: Any) -> str:
        return _START.sub(r"\\", _SPACES.sub(" ", self._inline(node)).strip())

    def _inline(self, node: Any) -> str:
        """The text of a node in one line: of code, emphasis and links the marks too."""
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
            else:
                parts.append(self._inline(child))
        return "".join(parts)
