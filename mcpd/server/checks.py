"""What is wrong with a server that no registration could see: schemas that cannot be made, Apps that do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import McpdError
from ..extensions.ui.gate import UI
from ..registry.catalog import Catalog
from ..registry.problems import Problem
from ..wire.mirrors import mirrors

if TYPE_CHECKING:
    from ..extensions.ui.apps import Apps

__all__ = ["find_problems"]


def find_problems(catalog: Catalog, apps: Apps | None) -> list[Problem]:
    """Every problem, errors first. Builds every schema on the way."""
    found = []
    for entry in catalog.tools:
        try:
            mirrors(entry.tool.input_schema or entry.callee.input_schema)
            entry.listed(frozenset((UI,)))
        except McpdError as error:
            found.append(Problem(f"tool {entry.key}", str(error)))
    if apps is not None:
        from ..extensions.ui.checks import app_problems  # for `mcpd check` only

        found += app_problems(apps)
    return sorted(dict.fromkeys(found), key=lambda problem: not problem.is_error)
