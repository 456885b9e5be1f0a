"""Servers that are mounted on another one, under a namespace: `weather_forecast`, `data://weather/today`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["Mount"]

_URI = re.compile(r"^([^:]+://)(.*)$")


class Mount:
    """One of them, and how its names are changed."""

    def __init__(self, server: Any, namespace: str | None, tool_names: Mapping[str, str] | None = None) -> None:
        self.server = server
        self.namespace = namespace or ""
        self._tool_names = {**(tool_names or {})}
        self._first_names = {new: old for old, new in self._tool_names.items()}

    def tool_name(self, name: str) -> str:
        """The name of one of its tools here."""
        return self._tool_names.get(name) or self.name(name)

    def name(self, name: str) -> str:
        """The name of one of its prompts here."""
        return f"{self.namespace}_{name}" if self.namespace else name

    def uri(self, uri: str) -> str:
        """The URI of one of its resources here."""
        found = _URI.match(uri) if self.namespace else None
        return uri if found is None else f"{found[1]}{self.namespace}/{found[2]}"

    def own_tool_name(self, name: str) -> str | None:
        """The tool's name there; None if it cannot be one of its."""
        return self._first_names.get(name) or self.own_name(name)

    def own_name(self, name: str) -> str | None:
        """The name there."""
        if not self.namespace:
            return name
        prefix = f"{self.namespace}_"
        return name.removeprefix(prefix) if name.startswith(prefix) else None

    def own_uri(self, uri: str) -> str | None:
        """The URI there."""
        if not self.namespace:
            return uri
        found = _URI.match(uri)
        prefix = f"{self.namespace}/"
        return f"{found[1]}{found[2].removeprefix(prefix)}" if found and found[2].startswith(prefix) else None
