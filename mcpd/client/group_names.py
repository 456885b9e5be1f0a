"""Names and URIs of several servers side by side: each begins with its server's name.

Tools and prompts are called `{server}_{name}`, URIs `{server}+scheme://rest`. Two schemes have to stay what they are
for hosts, so that the name stands behind them: `ui://{server}/rest`. `http` and `https` stay as they are, since whoever
reads them may fetch them himself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from mcpd.errors import ConfigurationError
from mcpd.types.content import BlobResourceContents, EmbeddedResource, ResourceLink, TextResourceContents
from mcpd.types.tools import Tool

T = TypeVar("T")
_KEPT_SCHEMES = ("ui", "skill")
_OWN_SCHEMES = ("http", "https")
_LONGEST = 31


def server_names(names: Iterable[str]) -> dict[str, str]:
    """The name of each server as prefixes have it: a-z, 0-9 and `-`, so that what follows the first `_` is not of it.

    Raises ConfigurationError for two that are one then.
    """
    found: dict[str, str] = {}
    for name in names:
        mended = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LONGEST].strip("-")
        if not mended:
            raise ConfigurationError(f"{name!r} is no name for a server: use letters and digits")
        if not mended[0].isalpha():
            mended = f"s{mended}"[:_LONGEST]
        for other, taken in found.items():
            if taken == mended:
                raise ConfigurationError(
                    f"the servers {other!r} and {name!r} would both be called {mended}: rename one"
                )
        found[name] = mended
    return found


class Prefix:
    """What the names and URIs of one server begin with; nothing, if `is_used` is not."""

    def __init__(self, server: str, *, is_used: bool) -> None:
        self._server = server
        self._is_used = is_used

    def name(self, name: str) -> str:
        """A tool's or prompt's name as the group has it."""
        return f"{self._server}_{name}" if self._is_used else name

    def own_name(self, name: str) -> str | None:
        """The name as the server has it; None if it is none of this server's."""
        return _after(f"{self._server}_", name) if self._is_used else name

    def uri(self, uri: str) -> str:
        """A URI, or a template, as the group has it."""
        scheme, colon, rest = uri.partition(":")
        if not self._is_used or scheme.lower() in _OWN_SCHEMES:
            return uri
        if colon and scheme in _KEPT_SCHEMES and rest.startswith("//"):
            return f"{scheme}://{self._server}/{rest[2:]}"
        return f"{self._server}+{uri}"

    def own_uri(self, uri: str) -> str | None:
        """The URI as the server has it; None if its name is not in it."""
        if not self._is_used:
            return None
        for scheme in _KEPT_SCHEMES:
            if (rest := _after(f"{scheme}://{self._server}/", uri)) is not None:
                return f"{scheme}://{rest}"
        return _after(f"{self._server}+", uri)

    def tool(self, tool: Tool) -> Tool:
        """A tool as the group lists it."""
        return replace(tool, name=self.name(tool.name), meta=self._meta(tool.meta))

    def content(self, block: T) -> T:
        """Content in which each URI is the group's."""
        if isinstance(block, ResourceLink | TextResourceContents | BlobResourceContents):
            return replace(block, uri=self.uri(block.uri))
        if isinstance(block, EmbeddedResource):
            return replace(block, resource=self.content(block.resource))
        if isinstance(block, dict) and isinstance(uri := block.get("uri"), str):
            return {**block, "uri": self.uri(uri)}  # type: ignore[return-value]
        return block

    def _meta(self, meta: dict[str, Any] | None) -> dict[str, Any] | None:
        """The same with the group's URI of the page that shows the tool's results."""
        if not meta or not self._is_used:
            return meta
        found = dict(meta)
        shown, flat = found.get("ui"), found.get("ui/resourceUri")
        if isinstance(shown, Mapping) and isinstance(uri := shown.get("resourceUri"), str):
            found["ui"] = {**shown, "resourceUri": self.uri(uri)}
        if isinstance(flat, str):
            found["ui/resourceUri"] = self.uri(flat)
        return found


def _after(prefix: str, text: str) -> str | None:
    return text[len(prefix) :] if text.startswith(prefix) else None
