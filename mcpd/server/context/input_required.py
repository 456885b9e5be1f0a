"""`InputRequired`, which ends a handler that must ask the client first, and how it differs from a failure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpd.server.context.questions import Question


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
    return not isinstance(error, (asyncio.CancelledError, GeneratorExit, InputRequired))
