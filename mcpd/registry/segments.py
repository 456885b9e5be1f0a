"""Texts that are cut at fixed pieces into values: paths of routes, and URIs of templates of other libraries."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["values_between"]


def values_between(fixed: Sequence[str], path: str) -> list[str] | None:
    """What stands between these texts, two or more: each one character or more, and no "/"; None if that cannot be.

    The earlier values get more where a path can be cut in several ways.

    From the end on, each text where it is found first. A regular expression with several parameters in a segment would
    try a path of n characters in n³ ways, for anybody who asks.
    """
    start, end = len(fixed[0]), len(path) - len(fixed[-1])
    if end <= start or not (path.startswith(fixed[0]) and path.endswith(fixed[-1])):
        return None

    values: list[str] = []
    for text in reversed(fixed[1:-1]):
        at = path.rfind(text, start + 1, end - 1)  # no value is empty
        if at < 0:
            return None
        values.append(path[at + len(text) : end])
        end = at
    values.append(path[start:end])
    return None if any("/" in value for value in values) else values[::-1]
