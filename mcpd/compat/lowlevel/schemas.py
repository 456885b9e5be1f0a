"""Values against JSON Schemas, in the words of the library that low-level servers come with."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["problem_of"]

log = logging.getLogger("mcpd")

_checkers: dict[int, tuple[dict[str, Any], Any]] = {}
_MOST = 1000
_warned: set[str] = set()


def problem_of(value: Any, schema: dict[str, Any]) -> str | None:
    """What is wrong with a value, None if nothing is. Raises an exception for a schema that is none.

    Without the package jsonschema nothing is checked, which the log says once.
    """
    found = _checkers.get(id(schema))
    if found is None or found[0] is not schema:
        checker = _checker(schema)
        if len(_checkers) >= _MOST:
            _checkers.clear()
        found = _checkers[id(schema)] = schema, checker
    if found[1] is None:
        return None
    problem = found[1](value)
    return None if problem is None else str(problem.message)


def _checker(schema: dict[str, Any]) -> Any:
    try:
        from jsonschema import exceptions, validators
    except ImportError:
        if not _warned:
            _warned.add("jsonschema")
            log.warning("arguments are not held to their schemas: pip install 'mcpd-server[compat]'")
        return None
    kind = validators.validator_for(schema)
    kind.check_schema(schema)
    validator = kind(schema)
    return lambda value: exceptions.best_match(validator.iter_errors(value))
