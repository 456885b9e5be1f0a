"""Multi round-trip requests: a result that asks for input is answered, and the request sent again with it.

Spec: 2026-07-28 basic/patterns/mrtr, client requirements: the state is echoed exactly, and answers belong to the
retry of this one request only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from mcpd.client.callbacks import Callbacks, answer_to
from mcpd.client.faults import Faults
from mcpd.client.limits import ClientLimits
from mcpd.errors import ProtocolError
from mcpd.protocol.jsonrpc import MALFORMED, encode, explain
from mcpd.protocol.versions import table
from mcpd.types.base import Wire

MAX_ROUNDS = 32
"""A server that still asks after so many answers would ask for ever."""

_LONGEST_PAUSE = 2.0
_MAY_ASK = ("tools/call", "prompts/get", "resources/read")
"""Spec: "Servers MUST NOT send InputRequiredResult responses on any other client requests", but on an extension's."""


class _Question(Struct):
    method: str
    params: Raw = Raw(b"{}")


class _Needed(Wire, kw_only=True):
    """What of a result says that it is none yet."""

    result_type: str = "complete"
    input_requests: dict[str, _Question] | None = None
    request_state: str | None = None


_read_needed = Decoder(_Needed).decode
_members = Decoder(dict[str, Raw]).decode


async def run_rounds(
    method: str,
    ask: Callable[[Any], Awaitable[Raw]],
    params: Any,
    result: Raw,
    callbacks: Callbacks,
    limits: ClientLimits,
    faults: Faults,
) -> Raw:
    """The complete result, after as many rounds as it takes. `result` is that of the first, for `params`.

    Raises ProtocolError for a server that asks what was not offered, too much at once, or without end, and for a type
    of result that is unknown.
    """
    for number in range(MAX_ROUNDS):
        asked = needed(result)
        if asked is None:
            return result
        if method not in _MAY_ASK and table.is_known_method(method):
            raise ProtocolError(f"The server asks for input before it answers {method}, which has none")

        retry: dict[str, Any] = dict(_members(b"{}" if params is None else encode(params)))
        if asked.input_requests:
            if len(asked.input_requests) > limits.questions:
                raise ProtocolError(f"The server asked {limits.questions} questions and more (ClientLimits.questions)")
            retry["inputResponses"] = {
                key: await _answer(question, callbacks, faults) for key, question in asked.input_requests.items()
            }
        else:
            # Nothing to answer: the server only wants to be asked again, and not at once for ever.
            await asyncio.sleep(min(0.05 * 2**number, _LONGEST_PAUSE))

        if asked.request_state is not None:
            retry["requestState"] = asked.request_state
        result = await ask(retry)
    raise ProtocolError(f"The server asked for input {MAX_ROUNDS} times over")


def needed(result: Raw) -> _Needed | None:
    """What a result asks for before there is one; None if it is one. Raises ProtocolError for an unknown type."""
    try:
        asked = _read_needed(result)
    except MALFORMED as error:
        raise ProtocolError(f"The server's result cannot be read: {explain(error)}") from None
    if asked.result_type == "complete":
        return None
    if asked.result_type != "input_required":
        # Spec: 2026-07-28 basic/index: a type "unrecognized by the client MUST be considered invalid".
        raise ProtocolError(f"The server's result is of an unknown type: {asked.result_type[:100]!r}")
    return asked


async def _answer(question: _Question, callbacks: Callbacks, faults: Faults) -> Any:
    try:
        return await answer_to(callbacks, question.method, question.params, faults)
    except ProtocolError as error:
        raise ProtocolError(f"The server asked for {question.method[:100]}: {error.message}", error.data) from error
