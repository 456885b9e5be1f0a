"""`mcp.server.fastmcp.exceptions`."""

from __future__ import annotations

__all__ = ["FastMCPError", "InvalidSignature", "ResourceError", "ToolError", "ValidationError"]


class FastMCPError(Exception):
    """The root of these."""


class ValidationError(FastMCPError):
    """Arguments or results that do not fit."""


class ResourceError(FastMCPError):
    """A resource cannot be read."""


class ToolError(FastMCPError):
    """A tool failed; its text is for the model."""


class InvalidSignature(Exception):
    """A function that cannot be served as it is written."""
