"""Who speaks and what they can do: `initialize`, `server/discover`, capabilities, identities.

Spec: 2025-11-25 basic/lifecycle, 2026-07-28 server/discover.
"""

from typing import Any

from msgspec import UNSET, UnsetType, field

from mcpd.types.base import CacheableResult, Icon, RequestMeta, Result, Wire

__all__ = [
    "ClientCapabilities",
    "DiscoverResult",
    "ElicitationCapability",
    "Implementation",
    "InitializeParams",
    "InitializeResult",
    "ListChanged",
    "ResourcesCapability",
    "SamplingCapability",
    "ServerCapabilities",
]


class Implementation(Wire, kw_only=True):
    """The identity of a client or server."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class ListChanged(Wire, kw_only=True):
    """A capability whose only setting is whether changes are announced."""

    list_changed: bool = False


class ResourcesCapability(Wire, kw_only=True):
    """`resources`: whether single resources can be watched, and whether list changes are announced."""

    subscribe: bool = False
    list_changed: bool = False


class ElicitationCapability(Wire, kw_only=True):
    """`elicitation`: `{}` means form only."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class SamplingCapability(Wire, kw_only=True):
    """`sampling`, with tools and with context."""

    tools: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class ClientCapabilities(Wire, kw_only=True):
    """What a client offers. `extensions` maps an extension's id to its settings."""

    roots: ListChanged | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class ServerCapabilities(Wire, kw_only=True):
    """What a server offers; a member that is absent is not offered."""

    logging: dict[str, Any] | None = None
    completions: dict[str, Any] | None = None
    prompts: ListChanged | None = None
    resources: ResourcesCapability | None = None
    tools: ListChanged | None = None
    experimental: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class InitializeParams(Wire, kw_only=True):
    """The legacy handshake. `protocol_version` was an integer once; such a one is simply not served."""

    protocol_version: str | int
    capabilities: ClientCapabilities
    client_info: Implementation
    meta: RequestMeta | None = field(name="_meta", default=None)


class InitializeResult(Result, kw_only=True):
    """The legacy answer."""

    protocol_version: str | UnsetType = UNSET
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, kw_only=True):
    """What the server offers, and in which versions."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
