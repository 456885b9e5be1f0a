"""The names of several servers that are offered as one: prefixes of tools and prompts, and of URIs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from mcpd.errors import ConfigurationError
from mcpd.protocol.types.features import (
    BlobResourceContents,
    EmbeddedResource,
    ResourceLink,
    TextResourceContents,
    Tool,
)

T = TypeVar("T")
_KEPT_SCHEMES = ("ui", "skill")
_OWN_SCHEMES = ("http", "https")
_LONGEST = 31


def server_names(names: Iterable[str]) -> dict[str, str]:
    """Return the names as prefixes: a-z, 0-9 and `-`, so that the first `_` separates the prefix.

    Raises ConfigurationError for two names with the same prefix.
    """
    found: dict[str, str] = {}
    for name in names:
        # Hosts limit the characters and the length of tool names.
        mended = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LONGEST].strip("-")
        if not mended:
            raise ConfigurationError(f"{name!r} is not a valid name of a server: use letters and digits")
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
    """The prefix of the names and URIs of one server. Names are unchanged if `is_used` is False."""

    def __init__(self, server: str, *, is_used: bool) -> None:
        self._server = server
        self.is_used = is_used

    def name(self, name: str) -> str:
        return f"{self._server}_{name}" if self.is_used else name

    def own_name(self, name: str) -> str | None:
        """Return the name at the server; None if it does not begin with the server's name."""
        return _without_prefix(f"{self._server}_", name)

    def uri(self, uri: str) -> str:
        scheme, colon, rest = uri.partition(":")
        if not self.is_used or scheme.lower() in _OWN_SCHEMES:
            return uri
        if colon and scheme in _KEPT_SCHEMES and rest.startswith("//"):
            return f"{scheme}://{self._server}/{rest[2:]}"
        return f"{self._server}+{uri}"

    def own_uri(self, uri: str) -> str | None:
        """Return the URI at the server; None if it does not contain the server's name."""
        if not self.is_used:
            return None
        for scheme in _KEPT_SCHEMES:
            if (rest := _without_prefix(f"{scheme}://{self._server}/", uri)) is not None:
                return f"{scheme}://{rest}"
        return _without_prefix(f"{self._server}+", uri)

    def tool(self, tool: Tool) -> Tool:
        return replace(tool, name=self.name(tool.name), meta=self.meta(tool.meta))

    def content(self, block: T) -> T:
        if isinstance(block, ResourceLink | TextResourceContents | BlobResourceContents):
            return replace(block, uri=self.uri(block.uri))
        if isinstance(block, EmbeddedResource):
            return replace(block, resource=self.content(block.resource))
        if isinstance(block, dict) and isinstance(uri := block.get("uri"), str):
            return {**block, "uri": self.uri(uri)}  # type: ignore[return-value]
        return block

    def meta(self, meta: Any) -> Any:
        """Return `_meta` with the URI of its MCP App in the group, nested and flat."""
        if not isinstance(meta, dict) or not self.is_used:
            return meta
        found = dict(meta)
        shown, flat = found.get("ui"), found.get("ui/resourceUri")
        if isinstance(shown, Mapping) and isinstance(uri := shown.get("resourceUri"), str):
            found["ui"] = {**shown, "resourceUri": self.uri(uri)}
        if isinstance(flat, str):
            found["ui/resourceUri"] = self.uri(flat)
        return found


def _without_prefix(prefix: str, text: str) -> str | None:
    return text[len(prefix) :] if text.startswith(prefix) else None
