"""Handlers that give an `InputRequiredResult`: its questions are asked in the way of the request's version.

In modern versions that is a round, with the author's state in ours, which is sealed. In a legacy session they are
requests of the server, and the handler is called again with their answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mcpd.compat.lowlevel.questions import question_of
from mcpd.compat.types.rounds import InputRequiredResult, InputResponses, responses
from mcpd.errors import LocalProtocolError
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.input_required import InputRequired
from mcpd.server.context.questions import Question

__all__ = ["Round", "current_round", "in_rounds"]

_KEPT = "compat.state"


@dataclass
class Round:
    """What came with this round: answers by name, and the state."""

    answers: InputResponses | None = None
    state: str | None = None


current_round: ContextVar[Round | None] = ContextVar("round", default=None)


async def in_rounds(exchange: Exchange, params: Any, call: Callable[[], Awaitable[Any]], came: Any) -> Any:
    """What a handler gives that is called by `call`; `came` are the params as they came, a dict."""
    this = Round()
    if came and ("inputResponses" in came or "requestState" in came):
        this = Round(responses(came.get("inputResponses")), exchange.asking.kept.get(_KEPT))
    while True:
        params.input_responses, params.request_state = this.answers, this.state
        token = current_round.set(this)
        try:
            result = await call()
        finally:
            current_round.reset(token)
        if not isinstance(result, InputRequiredResult):
            return result
        questions = {key: _question(one) for key, one in (result.inputRequests or {}).items()}
        exchange.asking.kept[_KEPT] = result.requestState
        try:
            exchange.asking.required(questions)
        except LocalProtocolError:  # a version without rounds
            pass
        else:
            raise InputRequired(questions)
        this = Round(responses(await exchange.asking.ask(questions, None)), result.requestState)


def _question(asked: Any) -> Question:
    from mcpd.compat.types.rounds import request_of

    return question_of(request_of(asked))
