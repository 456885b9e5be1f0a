"""The options of the decorators `tool`, `resource` and `prompt`: each once, with its type.

From here come the keywords that type checkers know (`Unpack`). Their names alone, for which others are refused at run
time, are in `server/metadata.py` too; a test holds them together. An option that is not given is None, or empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias, TypedDict

from ..types.base import Icon
from ..types.content import Annotations
from ..types.tools import ToolAnnotations

__all__ = ["Described", "DescribedResource", "DescribedTool", "Icons"]

Icons: TypeAlias = Iterable[Icon | Mapping[str, Any]]


class Described(TypedDict, total=False):
    """What everything that is listed may say of itself."""

    name: str | None
    """By default the function's."""
    title: str | None
    description: str | None
    """By default from the function's docstring."""
    icons: Icons
    meta: Mapping[str, Any] | None
    """Its `_meta`."""


class DescribedTool(Described, total=False):
    """What a tool may say beside its function."""

    annotations: ToolAnnotations | Mapping[str, Any] | None
    """Hints for clients, like {"readOnlyHint": True}."""
    input_schema: Mapping[str, Any] | None
    """A JSON Schema; the function then takes one dict that fits it."""
    output_schema: Mapping[str, Any] | None
    """A JSON Schema that what the function returns has to fit."""
    extensions: Mapping[str, Mapping[str, Any]]
    """The options of extensions, by the extension's id."""


class DescribedResource(Described, total=False):
    """What a resource may say beside its function."""

    mime_type: str | None
    size: int | None
    """In bytes; for a resource with a fixed URI."""
    annotations: Annotations | Mapping[str, Any] | None
    unsafe_paths: bool | Collection[str]
    """The variables of a template that may hold any text: True for all, or their names. Those of others are no
    absolute paths and have no `..`, backslash, drive letter or NUL, in any encoding."""
