"""How a running request reaches its client, and `InputRequired`, which ends a handler that must ask the client first.

The dispatcher implements `Peer`, and tools with a time limit implement `CallClock`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw

if TYPE_CHECKING:
    from mcpd.protocol.channel import Channel
    from mcpd.protocol.session import Call
    from mcpd.protocol.types.interaction import ListenResult, SubscriptionFilter
    from .questions import Question
    from .request_state import RequestStateCodec


class Peer(Protocol):
    """The connection as a request sees it."""

    loop: asyncio.AbstractEventLoop
    channel: Channel

    def notify_nowait(
        self, method: str, params: Any, related_request: Call | None = None
    ) -> Coroutine[Any, Any, None] | None:
        """Send a notification for `related_request`; dropped if the request was answered, or the version lacks the
        method.

        Returns a coroutine to await before the next notification, or None if there is nothing to wait for.
        """

    async def notify(self, method: str, params: Any, related_request: Call | None = None) -> None:
        """Send a notification, and wait while the client does not read."""

    def on_closed(self, callback: Callable[[Any], object]) -> None:
        """Call `callback` when the client sends nothing more."""

    def as_json(self, data: Any) -> Any:
        """Return any object as JSON values, or its `repr` without a better form. Never raises."""

    async def request(self, method: str, params: Any, related_request: Call, timeout: float | None) -> Raw:
        """Send a request and return its raw result. Raises RemoteError, RequestTimeout or ConnectionLost."""

    def listen(self, call: Call, wanted: SubscriptionFilter) -> Coroutine[Any, Any, ListenResult]:
        """Keep a subscription open; returns its result when the server ends it."""

    @property
    def state_codec(self) -> RequestStateCodec:
        """The codec for the states of multi round-trip requests."""


class CallClock(Protocol):
    """The clock of a call with a time limit."""

    def stop(self) -> None:
        """Stop, because the client is asked a question."""

    def resume(self) -> None:
        """Continue after a question."""


class TaskHandedOver(BaseException):
    """Ends the function of a task that somebody else finishes, within `keep` seconds."""

    def __init__(self, keep: float | None) -> None:
        self.keep = keep
        super().__init__("the task is finished elsewhere")


class InputRequired(BaseException):
    """Ends a handler whose question has no answer yet. Not an Exception, so that tools do not catch it."""

    def __init__(self, questions: dict[str, Question]) -> None:
        self.questions = questions
        super().__init__("the handler waits for the client")


def questions_of(error: BaseException) -> dict[str, Question] | BaseException:
    """Return the questions that ended a handler, also of a task group; otherwise the other error."""
    if isinstance(error, InputRequired):
        return error.questions
    if not isinstance(error, BaseExceptionGroup):
        return error
    questions: dict[str, Question] = {}
    for one in error.exceptions:
        needed = questions_of(one)
        if isinstance(needed, BaseException):
            return needed
        questions.update(needed)
    return questions


def is_failure(error: BaseException) -> bool:
    """Return whether an exception means that a handler failed; not if it was cancelled or must ask the client.

    Most failures are Exceptions. But code that reaches its own time limit, calls sys.exit() or receives Ctrl-C raises
    others, and these too end the call, not the server.
    """
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(InputRequired) is None
    return not isinstance(error, (asyncio.CancelledError, GeneratorExit, InputRequired, TaskHandedOver))
