"""Notifications about a request: progress, cancellation, log messages.

Spec: 2026-07-28 basic/patterns/{progress,cancellation}, server/utilities/logging.
"""

from typing import Any, Literal

from msgspec import UNSET, UnsetType, field

from mcpd.types.base import Params, Wire

__all__ = [
    "LOG_LEVELS",
    "CancelledParams",
    "LogLevel",
    "LogMessageParams",
    "NotificationParams",
    "ProgressParams",
    "SetLevelParams",
]

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""RFC 5424 levels, least severe first."""


class NotificationParams(Wire, kw_only=True):
    """What the params of every notification may hold."""

    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ProgressParams(Wire, kw_only=True, gc=False):
    """How far a request has come. `progress` rises with each; `total` is absent if unknown."""

    progress_token: int | str
    progress: float
    total: float | None = None
    message: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class CancelledParams(Wire, kw_only=True):
    """The request that is given up. 2025-11-25 lets the id be absent (tasks)."""

    request_id: int | str | None = None
    reason: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class LogMessageParams(Wire, kw_only=True):
    """A log message: `data` is any JSON value."""

    level: LogLevel
    data: Any | UnsetType = UNSET
    logger: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class SetLevelParams(Params, kw_only=True):
    """The least severe level that a legacy client wants to see."""

    level: str
