"""Profiles: how the documents of a known server are offered, as data, for `tools = "NAME"` in `[docs]`."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.extensions.ui.assets import bundled_folder
from mcpd.sources.docs_table import DocsTable, ToolTable


class Profile(Struct, kw_only=True, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """What a file of assets/docs_profiles/ says. What mcpd.toml says goes before it."""

    title: str | None = None
    uri: str | None = None
    base_url: str | None = None
    exclude: tuple[str, ...] = ()
    page_uri: str = "{path}"
    """A page's URI behind `uri`: `{path}`, or with `{url}` the URL that it is published under, as one segment."""
    section_uri: str = "{section}/"
    tools: dict[str, Any] = {}


def profile_of(table: DocsTable) -> Profile | None:
    """The profile that `tools` names; None if it names none. Raises ConfigurationError if it cannot be read."""
    if not isinstance(table.tools, str):
        return None
    import tomllib

    path = os.path.join(bundled_folder(), "docs_profiles", f"{table.tools}.toml")
    try:
        with open(path, "rb") as file:
            return msgspec.convert(tomllib.load(file), Profile)
    except OSError as error:
        raise ConfigurationError(f"the profile {path} cannot be read: {error.strerror}") from None


def tables_of(table: DocsTable, profile: Profile | None) -> dict[str, ToolTable]:
    """The tables of all tools that mcpd.toml or the profile has."""
    tables = profile.tools if profile is not None else table.tools
    assert isinstance(tables, dict)
    return {name: msgspec.convert(one, ToolTable) for name, one in tables.items()}
