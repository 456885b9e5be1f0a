"""`mcp.shared.exceptions`, and how its errors travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcpd.compat import types
from mcpd.compat.types.errors import URL_ELICITATION_REQUIRED, ErrorData
from mcpd.errors import ProtocolError

__all__ = ["McpError", "UrlElicitationRequiredError", "WireError"]


class McpError(Exception):
    """An error answer: what a handler raises to give one, and what is raised for one of the client's."""

    error: ErrorData

    def __init__(
        self, error: ErrorData | int | None = None, message: str = "", data: Any = None, *, code: int = 0
    ) -> None:
        # Version 1 gives it an ErrorData, version 2 a code, a message and data.
        if not isinstance(error, ErrorData):
            error = ErrorData(code=code if error is None else error, message=message, data=data)
        super().__init__(error.message)
        self.error = error

    @property
    def code(self) -> int:
        """The code."""
        return self.error.code

    @property
    def message(self) -> str:
        """The text."""
        return self.error.message

    @property
    def data(self) -> Any:
        """What else is said of it."""
        return self.error.data


class UrlElicitationRequiredError(McpError):
    """The user has to visit these pages first."""

    def __init__(self, elicitations: Sequence[types.asking.ElicitRequestURLParams], message: str | None = None) -> None:
        self._elicitations = list(elicitations)
        if message is None:
            message = f"URL elicitation{'s' if len(self._elicitations) > 1 else ''} required"
        asked = [one.model_dump(by_alias=True, exclude_none=True) for one in self._elicitations]
        super().__init__(ErrorData(code=URL_ELICITATION_REQUIRED, message=message, data={"elicitations": asked}))

    @property
    def elicitations(self) -> list[types.asking.ElicitRequestURLParams]:
        """What the user is to visit."""
        return self._elicitations

    @classmethod
    def from_error(cls, error: ErrorData) -> UrlElicitationRequiredError:
        """Of an error answer. Raises ValueError for one of another code."""
        if error.code != URL_ELICITATION_REQUIRED:
            raise ValueError(f"Expected error code {URL_ELICITATION_REQUIRED}, got {error.code}")
        asked = (error.data or {}).get("elicitations", [])
        return cls([types.asking.ElicitRequestURLParams.model_validate(one) for one in asked], error.message)


class WireError(ProtocolError):
    """An error answer with a code of the author's."""

    code: int  # type: ignore[misc]  # of each one here, and not of the class

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message, data)
        self.message = message  # an empty text stays one
        self.code = code
