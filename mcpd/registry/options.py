"""What everything that is listed may say of itself, for type checkers; nothing here is used at run time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypedDict

from ..types.base import Icon

__all__ = ["Described", "Icons"]

Icons: TypeAlias = Iterable[Icon | Mapping[str, Any]]


class Described(TypedDict, total=False):
    """What everything that is listed may say of itself. By default `name` and `description` are the function's."""

    name: str | None
    title: str | None
    description: str | None
    icons: Icons
    meta: Mapping[str, Any] | None
