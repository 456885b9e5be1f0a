"""Multi round-trip requests and subscriptions. Spec: 2026-07-28 basic/patterns/{mrtr,subscriptions}."""

from typing import Any

from msgspec import field

from mcpd.types.base import Params, Result, Wire

__all__ = [
    "AcknowledgedParams",
    "InputRequest",
    "InputRequiredResult",
    "ListenParams",
    "ListenResult",
    "SubscriptionFilter",
]


class InputRequest(Wire, kw_only=True):
    """One question inside a result: a request without envelope and id."""

    method: str
    params: Any = None


class InputRequiredResult(Result, kw_only=True):
    """More is needed before the request can be answered. The client asks again with the answers."""

    input_requests: dict[str, InputRequest] | None = None
    request_state: str | None = None


class SubscriptionFilter(Wire, kw_only=True):
    """What a listener wants to hear of."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] | None = None


class ListenParams(Params, kw_only=True):
    """Params of `subscriptions/listen`."""

    notifications: SubscriptionFilter


class ListenResult(Result, kw_only=True):
    """The graceful end of a subscription; `_meta` names it."""


class AcknowledgedParams(Wire, kw_only=True):
    """What of the filter will be honoured."""

    notifications: SubscriptionFilter
    meta: dict[str, Any] | None = field(name="_meta", default=None)
