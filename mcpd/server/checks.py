"""What is wrong with a server that no registration could see: schemas that cannot be made, Apps that do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.json import encode

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
        except McpdError as error:
            found.append(Problem(f"tool {entry.key}", str(error)))
    for listing in (catalog.tools, catalog.resources, catalog.templates, catalog.prompts):
        for item in listing:
            try:
                encode(item.listed(frozenset((UI,))))
            except Exception as error:  # one item that cannot be written fails the list for every client
                found.append(Problem(f"{listing.what} {item.key}", str(error)))
    for name, argument in catalog.completers:
        found += _completion_problems(catalog, name, argument)
    if apps is not None:
        from ..extensions.ui.checks import app_problems  # for `mcpd check` only

        found += app_problems(apps)
    return sorted(dict.fromkeys(found), key=lambda problem: not problem.is_error)


def _completion_problems(catalog: Catalog, name: str, argument: str) -> list[Problem]:
    where = f"completion of {argument!r}"
    prompt, template = catalog.prompts.find(name), catalog.templates.find(name)
    if prompt is None and template is None:
        return [Problem(where, f"there is no prompt or resource template {name!r}")]
    known = prompt.callee.parameters if prompt is not None else template.uri_template.variables if template else ()
    if argument in known:
        return []
    return [Problem(where, f"{name!r} has no such argument, only {', '.join(known) or 'none'}")]
