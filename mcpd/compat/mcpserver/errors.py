"""`mcp.server.mcpserver.exceptions`."""

from __future__ import annotations

from mcpd.compat.fastmcp1.errors import InvalidSignature

__all__ = [
    "InvalidSignature",
    "MCPServerError",
    "ResourceError",
    "ResourceNotFoundError",
    "ToolError",
    "UnexpectedResourceError",
    "UnexpectedToolError",
]


class MCPServerError(Exception):
    """The root of these."""


class ResourceError(MCPServerError):
    """A resource cannot be read; its text is for the client."""


class ResourceNotFoundError(ResourceError):
    """There is no such resource."""


class UnexpectedResourceError(ResourceError):
    """A resource's function failed; what it said stays here."""


class ToolError(MCPServerError):
    """A tool failed; its text is for the model."""


class UnexpectedToolError(ToolError):
    """A tool's function failed; what it said stays here."""
