"""`InputRequired`: raised to end a handler that has to ask the client first, and its difference from a failure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpd.server.context.questions import Question


class InputRequired(BaseException):
    """Ends a handler whose question has no answer yet. Not an Exception: tools that catch those let it pass."""

    def __init__(self, questions: dict[str, Question]) -> None:
        self.questions = questions
        super().__init__("the handler waits for the client")


def questions_of(error: BaseException) -> dict[str, Question] | BaseException:
    """The questions that ended a handler: of one, or of all in a task group; else the error that is none of them."""
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
    """Whether a handler failed that raised this; false if it was cancelled or closed, or has to ask the client first.

    Most failures are Exceptions, but code that runs into a time limit of its own, calls sys.exit() or takes a
    prompt's Ctrl-C raises others, and they too end their call, not the server.
    """
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(InputRequired) is None
    return not isinstance(error, (asyncio.CancelledError, GeneratorExit, InputRequired))
