"""What decorators of `Server` take beside the function, for type checkers; nothing here is used at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypedDict

from ..extensions.ui.meta import Csp, Permissions
from ..extensions.ui.tools import Visibility
from ..types.base import Icon
from ..types.content import Annotations
from ..types.tools import ToolAnnotations

__all__ = ["AppOptions", "Described", "Icons", "ResourceOptions", "ToolOptions"]

Icons: TypeAlias = Iterable[Icon | Mapping[str, Any]]


class Described(TypedDict, total=False):
    """What everything that is listed may say of itself. By default `name` and `description` are the function's."""

    name: str | None
    title: str | None
    description: str | None
    icons: Icons
    meta: Mapping[str, Any] | None


class ToolOptions(Described, total=False):
    """What a tool may say beside its function."""

    annotations: ToolAnnotations | Mapping[str, Any] | None
    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None
    ui: str | None
    ui_when: Callable[..., Any] | None
    visibility: Visibility | None


class ResourceOptions(Described, total=False):
    """What a resource may say beside its function."""

    mime_type: str | None
    size: int | None
    annotations: Annotations | Mapping[str, Any] | None


class AppOptions(Described, total=False):
    """What a View may say beside its HTML."""

    csp: Csp | None
    permissions: Permissions | None
    domain: str | None
    prefers_border: bool | None
    replace: bool
