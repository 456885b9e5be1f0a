"""`mcpd check`: problems that only show once all is registered, such as schemas that cannot be made."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.json import encode

from mcpd.errors import McpdError
from mcpd.extensions.base import Extension
from mcpd.protocol.wire.headers import mirrors
from mcpd.registry.catalog import Catalog
from mcpd.registry.problems import Problem
from mcpd.registry.tools import FunctionTool
from mcpd.server.advice import advise


def find_problems(catalog: Catalog, extensions: Iterable[Extension]) -> list[Problem]:
    """Every problem, errors first. Builds every schema on the way."""
    found = [problem for problems in catalog.source_problems.values() for problem in problems]
    everything = frozenset(extension.id for extension in extensions)
    for entry in catalog.tools.registered:
        if not isinstance(entry, FunctionTool):
            continue
        try:
            mirrors(entry.tool.input_schema or entry.callee.input_schema)
        except McpdError as error:
            found.append(Problem(f"tool {entry.key}", str(error)))

    for listing in (catalog.tools, catalog.resources, catalog.templates, catalog.prompts):
        for item in listing.registered:
            try:
                encode(item.listed(everything))
            except Exception as error:  # one item that cannot be written fails the list for every client
                found.append(Problem(f"{listing.what} {item.key}", str(error)))

    for name, argument in catalog.completers:
        found += _completion_problems(catalog, name, argument)
    for extension in extensions:
        found += extension.problems()
    found += advise(catalog)
    return sorted(dict.fromkeys(found), key=lambda problem: not problem.is_error)


def _completion_problems(catalog: Catalog, name: str, argument: str) -> list[Problem]:
    where = f"completion of {argument!r}"
    prompt, template = catalog.prompts.find(name), catalog.templates.find(name)
    if prompt is None and template is None:
        return [Problem(where, f"there is no prompt or resource template {name!r}")]
    known = prompt.arguments if prompt is not None else template.arguments if template is not None else ()
    if argument in known:
        return []
    return [Problem(where, f"{name!r} has no such argument, only {', '.join(known) or 'none'}")]
