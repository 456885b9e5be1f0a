"""Docstrings: the text that tells a model what a function does, and what each parameter is.

Reads the three common layouts, also mixed: Google ("Args:" with an indented block), NumPy
("Parameters" underlined with dashes) and reST (":param name: text"). What it does not recognise
stays part of the description: no docstring is an error. Never imports or runs anything, and never
looks at signatures; which of the described parameters exist is the caller's to know.
"""

from __future__ import annotations

import re

from msgspec import Struct

_BLANK_LINES = r"\n\s*\n\s*\n+"

_TITLE_LENGTH = 60


class Docstring(Struct, frozen=True):
    """What a docstring says: its text without the parameter sections, and the text of each parameter."""

    description: str
    parameters: dict[str, str]

    @property
    def title(self) -> str | None:
        """The first line without its full stop, if it is short enough to be a heading and ends a paragraph."""
        first, _, rest = self.description.partition("\n")
        if not first or len(first) > _TITLE_LENGTH or (rest and not rest.startswith("\n")):
            return None
        return first.rstrip(".").rstrip()


def parse(text: str | None) -> Docstring:
    """Take a docstring apart, cleaned as `inspect.getdoc` gives it; None is an empty one."""
    lines = text.split("\n") if text else []
    kept: list[str] = []
    parameters: dict[str, str] = {}
    if not any(map(_may_begin, lines)):
        kept = lines
    else:
        from mcpd.registry.docstring_sections import take  # noqa: PLC0415 - many docstrings have none

        at = 0
        while at < len(lines):
            at = take(lines, at, kept, parameters)
    description = "\n".join(kept).strip()
    return Docstring(re.sub(_BLANK_LINES, "\n\n", description) if len(kept) > 2 else description, parameters)


def _may_begin(line: str) -> bool:
    """Whether a line may begin a section or a field, or underline the header of one."""
    return line.startswith((":", "---")) or line.rstrip().endswith(":")
