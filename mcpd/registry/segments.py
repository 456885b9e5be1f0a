"""Texts that are cut at fixed pieces into values: paths of routes, and URIs of templates of other libraries."""

from __future__ import annotations

from collections.abc import Collection, Sequence


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


def values_across(fixed: Sequence[str], path: str, wide: Collection[int]) -> list[str] | None:
    """As `values_between`, where the values at the indexes in `wide` may have a "/" in them.

    Which values get more decides what the others can be, so all places are looked at once, from the end on: where each
    text can stand so that what comes after it fits. Then the earlier values take the farthest of these.
    """
    if not path.startswith(fixed[0]):
        return None

    length = len(path)
    slash = [length] * (length + 1)  # the next "/" from each character on
    for at in range(length - 1, -1, -1):
        slash[at] = at if path[at] == "/" else slash[at + 1]

    ends = path.endswith(fixed[-1])
    farthest = [_up_to({length - len(fixed[-1])} if ends else set(), length)]
    for index in range(len(fixed) - 2, 0, -1):
        places = set()
        at = path.find(fixed[index])
        while at >= 0:
            start = at + len(fixed[index])
            if farthest[-1][length if index in wide else slash[start]] > start:  # no value is empty
                places.add(at)
            at = path.find(fixed[index], at + 1)
        farthest.append(_up_to(places, length))

    values, start = [], len(fixed[0])
    for index, reach in enumerate(reversed(farthest)):
        end = reach[length if index in wide else slash[start]]
        if end <= start:
            return None
        values.append(path[start:end])
        start = end + len(fixed[index + 1])
    return values


def _up_to(places: Collection[int], length: int) -> list[int]:
    """For each character of a path the farthest of these places that is not behind it, -1 if there is none."""
    found, last = [], -1
    for at in range(length + 1):
        if at in places:
            last = at
        found.append(last)
    return found
