"""The exceptions of all libraries. Classes of the same name and meaning are one class here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from mcpd.compat.types.features import URL_ELICITATION_REQUIRED, ErrorData
from mcpd.errors import ProtocolError

if TYPE_CHECKING:
    from mcpd.compat.types.client_requests import ElicitRequestURLParams

# -- error responses -------------------------------------------------------------------------


class McpError(Exception):
    """An error response: raised by a handler to send one, and raised here when the client sent one."""

    error: ErrorData
    code = property(attrgetter("error.code"))
    message = property(attrgetter("error.message"))
    data = property(attrgetter("error.data"))

    def __init__(
        self, error: ErrorData | int | None = None, message: str = "", data: Any = None, *, code: int = 0
    ) -> None:
        # Version 1 gives it an ErrorData, version 2 a code, a message and data.
        if not isinstance(error, ErrorData):
            error = ErrorData(code=code if error is None else error, message=message, data=data)
        super().__init__(error.message)
        self.error = error


class UrlElicitationRequiredError(McpError):
    """The user must visit these pages before the request can succeed."""

    def __init__(self, elicitations: Sequence[ElicitRequestURLParams], message: str | None = None) -> None:
        self.elicitations = list(elicitations)
        if message is None:
            message = f"URL elicitation{'s' if len(self.elicitations) > 1 else ''} required"
        pages = [page.model_dump(by_alias=True, exclude_none=True) for page in self.elicitations]
        super().__init__(ErrorData(code=URL_ELICITATION_REQUIRED, message=message, data={"elicitations": pages}))


class WireError(ProtocolError):
    """An error response with any code."""

    code: int  # type: ignore[misc]  # set per instance, unlike in the base class

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message, data)
        # The base class would put its own text in the place of an empty message.
        self.message = message  # an empty message stays empty
        self.code = code


# -- errors of high-level servers ------------------------------------------------------------


class FastMCPError(Exception):
    """The base class of errors whose messages clients may read; `MCPServerError` in version 2 of the SDK."""

    def __init__(self, *args: object, log_level: int = logging.ERROR) -> None:
        super().__init__(*args)
        self.log_level = log_level


class ValidationError(FastMCPError):
    """Arguments or results do not match their schema."""


class ToolError(FastMCPError):
    """A tool failed. The model reads the message."""


class UnexpectedToolError(ToolError):
    """A tool raised an unexpected exception, whose message clients do not receive."""


class ResourceError(FastMCPError):
    """A resource cannot be read."""


class ResourceNotFoundError(ResourceError, ValueError):
    """No resource has this URI."""


class UnexpectedResourceError(ResourceError):
    """A resource raised an unexpected exception, whose message clients do not receive."""


class PromptError(FastMCPError):
    """A prompt cannot be rendered."""


class AuthorizationError(FastMCPError):
    """The caller lacks a permission."""


class InvalidSignature(Exception):
    """A function cannot be served because of its parameters or its return annotation."""


class ClientError(Exception):
    """Raised by the client of `fastmcp`."""


class NotFoundError(Exception):
    """There is no such tool, resource or prompt."""


class DisabledError(Exception):
    """The tool, resource or prompt is disabled."""


class MCPDeprecationWarning(DeprecationWarning):
    """A warning of the official SDK."""


class FastMCPDeprecationWarning(DeprecationWarning):
    """A warning of `fastmcp`."""
