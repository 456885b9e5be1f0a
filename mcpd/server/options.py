"""What decorators of `Server` take beside the function, for type checkers; nothing here is used at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..extensions.ui.options import AppToolOptions
from ..registry.options import Described
from ..types.content import Annotations
from ..types.tools import ToolAnnotations

__all__ = ["ResourceOptions", "ToolOptions"]


class ToolOptions(Described, AppToolOptions, total=False):
    """What a tool may say beside its function, to us and to the extensions that every server has."""

    annotations: ToolAnnotations | Mapping[str, Any] | None
    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None
    extensions: Mapping[str, Mapping[str, Any]]


class ResourceOptions(Described, total=False):
    """What a resource may say beside its function."""

    mime_type: str | None
    size: int | None
    annotations: Annotations | Mapping[str, Any] | None
