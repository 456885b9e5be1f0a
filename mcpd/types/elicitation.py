"""Questions to the user, by form or by URL. Spec: 2026-07-28 client/elicitation."""

from typing import Any, Literal

from msgspec import field

from mcpd.types.base import Wire

__all__ = ["ElicitFormParams", "ElicitResult", "ElicitUrlParams", "ElicitationCompleteParams"]


class ElicitFormParams(Wire, kw_only=True):
    """A form: `requested_schema` is a flat object schema of primitives and enums."""

    mode: Literal["form"] | None = None
    message: str
    requested_schema: dict[str, Any]


class ElicitUrlParams(Wire, kw_only=True):
    """A page that the user is to visit; what happens there never passes through the client."""

    mode: Literal["url"] = field(default_factory=lambda: "url")  # a plain default would not be written
    message: str
    url: str
    elicitation_id: str | None = None


class ElicitResult(Wire, kw_only=True):
    """What the user did. `content` holds the form's values if it was accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class ElicitationCompleteParams(Wire, kw_only=True):
    """What was asked by URL has happened; 2025-11-25 only."""

    elicitation_id: str
