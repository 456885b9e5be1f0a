"""What is wrong in a folder: each file is named, what is left out and why, and the rest is served."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from mcpd.protocol.printable import printable
from mcpd.registry.problems import Problem

log = logging.getLogger("mcpd")

MOST_TOLD = 50
"""How many problems of one folder are told one by one."""

_ONCE = {"mcpd_told_once": True}
"""Of them there are few, and each is of another file: the log writes all."""


class Report:
    """The problems of one folder, in the order in which they were found. What names files can be printed."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.problems: list[Problem] = []

    def error(self, path: str, text: str, line: int | None = None) -> None:
        """Something is left out."""
        self._add(path, text, line, is_error=True)

    def warning(self, path: str, text: str, line: int | None = None) -> None:
        """Something is served, but not as its author may have meant it."""
        self._add(path, text, line, is_error=False)

    def tell(self, problems: Iterable[Problem]) -> None:
        """Write these into the log."""
        for problem in problems:
            level = logging.ERROR if problem.is_error else logging.WARNING
            log.log(level, "%s", printable(problem, 2500), extra=_ONCE)

    @property
    def found(self) -> list[Problem]:
        """All, those about what is left out first; of very many the first ones."""
        found = sorted(self.problems, key=lambda problem: not problem.is_error)
        if len(found) <= MOST_TOLD:
            return found
        return [*found[:MOST_TOLD], Problem(printable(self.root), f"and {len(found) - MOST_TOLD} more problems")]

    def _add(self, path: str, text: str, line: int | None, *, is_error: bool) -> None:
        where = printable(os.path.relpath(path, self.root) if os.path.isabs(path) else path, 300)
        if line is not None:
            where = f"{where}, line {line}"
        self.problems.append(Problem(where, printable(text, 2000), is_error))
