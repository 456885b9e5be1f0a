"""`fastmcp.exceptions`."""

from __future__ import annotations

import logging

from mcpd.compat.exceptions import McpError

__all__ = [
    "AuthorizationError",
    "ClientError",
    "DisabledError",
    "FastMCPDeprecationWarning",
    "FastMCPError",
    "InvalidSignature",
    "McpError",
    "NotFoundError",
    "PromptError",
    "ResourceError",
    "ToolError",
    "ValidationError",
]


class FastMCPError(Exception):
    """The root of those whose texts clients are told."""

    def __init__(self, *args: object, log_level: int = logging.ERROR) -> None:
        super().__init__(*args)
        self.log_level = log_level


class ValidationError(FastMCPError):
    """Arguments or results that do not fit."""


class ResourceError(FastMCPError):
    """A resource cannot be read."""


class ToolError(FastMCPError):
    """A tool failed; its text is for the model."""


class PromptError(FastMCPError):
    """A prompt cannot be rendered."""


class AuthorizationError(FastMCPError):
    """The caller may not do this."""


class InvalidSignature(Exception):
    """A function that cannot be served as it is written."""


class ClientError(Exception):
    """What a client of the library raises."""


class NotFoundError(Exception):
    """There is no such tool, resource or prompt."""


class DisabledError(Exception):
    """There is one, which is not offered."""


class FastMCPDeprecationWarning(DeprecationWarning):
    """What the library says of names that will go."""
