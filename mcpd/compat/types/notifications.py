"""Progress, cancellation and log messages."""

from typing import Any, Literal

from mcpd.compat.types.base import (
    BareNotification,
    BaseNotification,
    BaseRequest,
    NotificationParams,
    ProgressToken,
    RequestId,
    RequestParams,
)

__all__ = [
    "CancelledNotification",
    "CancelledNotificationParams",
    "LoggingLevel",
    "LoggingMessageNotification",
    "LoggingMessageNotificationParams",
    "ProgressNotification",
    "ProgressNotificationParams",
    "RootsListChangedNotification",
    "SetLevelRequest",
    "SetLevelRequestParams",
]

LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class ProgressNotificationParams(NotificationParams):
    """How far a request has come."""

    progressToken: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None


class ProgressNotification(BaseNotification):
    """A request has come further."""

    method: Literal["notifications/progress"] = "notifications/progress"
    params: ProgressNotificationParams


class CancelledNotificationParams(NotificationParams):
    """Which request is given up."""

    requestId: RequestId | None = None
    reason: str | None = None


class CancelledNotification(BaseNotification):
    """A request is given up."""

    method: Literal["notifications/cancelled"] = "notifications/cancelled"
    params: CancelledNotificationParams


class SetLevelRequestParams(RequestParams):
    """The least severe level."""

    level: LoggingLevel


class SetLevelRequest(BaseRequest):
    """Says which log messages are wanted."""

    method: Literal["logging/setLevel"] = "logging/setLevel"
    params: SetLevelRequestParams


class LoggingMessageNotificationParams(NotificationParams):
    """A log message."""

    level: LoggingLevel
    logger: str | None = None
    data: Any


class LoggingMessageNotification(BaseNotification):
    """Something to log."""

    method: Literal["notifications/message"] = "notifications/message"
    params: LoggingMessageNotificationParams


class RootsListChangedNotification(BareNotification):
    """The roots are others now."""

    method: Literal["notifications/roots/list_changed"] = "notifications/roots/list_changed"
