"""The requests of one View: received, given to the program as asks, and answered when it has decided.

A request fails with the first of these that applies: unknown method, capability not offered, id in use, too many open
requests, invalid params, the rules of its function (`requests`).

Spec: MCP Apps 2026-01-26, "Requests (View -> Host)"; 2025-11-25 basic/utilities/{cancellation,progress}.
"""

from __future__ import annotations

import logging
from typing import Any

from mcpd.apps.host.view import messages
from mcpd.apps.host.view.events import Abort, Ask, Forward, ModeChange, ModelContextUpdate, OpenLink
from mcpd.apps.host.view.policy import Denied, TooMuch
from mcpd.apps.host.view.requests import REQUESTS, ViewState, decode_params, find, progress_token
from mcpd.apps.host.view.wire import ViewOutput
from mcpd.errors import InternalError, InvalidRequest, LocalProtocolError, McpdError, ProtocolError, RemoteError
from mcpd.protocol.jsonrpc import Id, Request
from mcpd.protocol.printable import printable
from mcpd.protocol.requests import RequestInFlight, RequestsInFlight
from mcpd.protocol.types.base import CancelledParams, ProgressParams


class ViewRequest(RequestInFlight, eq=False):
    """A request of the View that the program decides on or carries out as `ask`."""

    ask: Ask
    progress_token: Id | None


class Incoming:
    """The unanswered requests of a View, and the context that it last gave for the model."""

    def __init__(self, state: ViewState, output: ViewOutput) -> None:
        self._view_state = state
        self._output = output
        self._in_flight: RequestsInFlight[ViewRequest] = RequestsInFlight()
        """The requests for which the View expects an answer."""
        self._asked: dict[int, ViewRequest] = {}
        """The requests that the program has not finished, by `ask_id`.

        A cancelled request stays here: a View that sends and cancels in a loop causes no more work than one that waits.
        """
        self._last_ask_id = 0
        self._has_new_context = False

    # -------------------------------------------------------------------------------- from the View

    def receive(self, request: Request, *, is_early: bool) -> object | None:
        """Return the answer, or None if it comes later. Raises the error for the View."""
        method, settings = request.method, self._view_state.settings
        definition = find(method)
        definition.check_offered(self._view_state)

        if request.id in self._in_flight:
            raise InvalidRequest(f"The id {request.id!r:.80} is in use")
        if len(self._asked) >= settings.limits.calls_in_flight:
            raise TooMuch(f"A view may have {settings.limits.calls_in_flight} requests open")

        params = decode_params(definition.decode, request.params)
        token = progress_token(params)
        self._last_ask_id += 1
        try:
            outcome = definition.handle(self._view_state, self._last_ask_id, params)
        except Denied as error:
            if not (definition.can_deny_by_result and settings.denials == "result"):
                raise
            self._output.find("denied", error.message, method)
            return messages.DenialResult(is_error=True)

        if is_early:
            self._output.find("early", "a request before ui/notifications/initialized", method, refused=False)
        text, target = "%s: %s %s", printable(_target(outcome))
        self._output.faults.log(logging.INFO, text, self._output.name, printable(method), target)

        if not isinstance(outcome, Ask):
            return outcome

        asked = self._asked[outcome.ask_id] = ViewRequest(request.id, method, outcome, token)
        self._in_flight.add(asked)
        if isinstance(outcome, ModelContextUpdate):
            self._view_state.open_updates += 1
        self._output.events.append(outcome)
        return None

    def cancel(self, given_up: CancelledParams) -> None:
        """Cancel a request for the View. Spec: no answer is sent, and an unknown id is ignored."""
        asked = self._in_flight.cancel(given_up.request_id)
        if asked is not None:
            self._output.events.append(Abort(asked.ask.ask_id, given_up.reason or "cancelled by the view"))

    def abort_all(self, reason: str) -> None:
        """Abort all requests, because the document that sent them is gone."""
        for asked in self._in_flight.cancel_all():
            self._output.events.append(Abort(asked.ask.ask_id, reason))

    # ----------------------------------------------------------------------------- from the program

    def get(self, ask_id: int) -> ViewRequest:
        """Return a request that is to be answered. Raises LocalProtocolError if it was answered or never existed."""
        asked = self._asked.get(ask_id)
        if asked is None:
            raise LocalProtocolError(f"ask {ask_id} does not exist, or was answered before")
        return asked

    def is_open(self, asked: ViewRequest) -> bool:
        """Return whether the View still expects the answer."""
        return self._in_flight.is_open(asked)

    def answer(self, asked: ViewRequest, result: Any) -> None:
        """Report that an ask was carried out. A change of the display mode has taken effect before."""
        if not self._done(asked):
            return

        if isinstance(asked.ask, ModeChange):
            result = messages.DisplayModeResult(self._view_state.feed.mode)
        elif isinstance(asked.ask, ModelContextUpdate):
            self._keep(asked.ask)
            result = messages.NoParams()
        elif result is None:
            result = messages.NoParams()
        elif asked.method == "tools/call" and (rewrite := self._view_state.settings.rewrite) is not None:
            result = rewrite(asked.method, result) or result

        finish = REQUESTS[asked.method].finish
        try:
            self._output.result(asked.id, result if finish is None else finish(result))
        except (TypeError, ValueError, RecursionError) as error:
            text = "%s: the result of %s cannot be sent"
            self._output.faults.log(logging.ERROR, text, self._output.name, asked.method, error=error)
            self._output.error(asked.id, InternalError())

    def deny(self, asked: ViewRequest, reason: str) -> None:
        """Report that an ask was denied."""
        if not self._done(asked):
            return

        text = "%s: %s denied: %s"
        self._output.faults.log(logging.INFO, text, self._output.name, asked.method, printable(reason))

        if isinstance(asked.ask, ModeChange):
            # Spec: the answer is "the resulting mode (whether updated or not)", never an error.
            self._output.result(asked.id, messages.DisplayModeResult(self._view_state.feed.mode))
        elif REQUESTS[asked.method].can_deny_by_result and self._view_state.settings.denials == "result":
            self._output.result(asked.id, messages.DenialResult(is_error=True))
        else:
            self._output.error(asked.id, Denied(reason))

    def fail(self, asked: ViewRequest, error: Exception) -> None:
        """Report that an ask failed. The View receives a JSON-RPC error of the server unchanged."""
        if not self._done(asked):
            return

        if isinstance(error, (RemoteError, ProtocolError)):
            self._output.error(asked.id, error)
        elif isinstance(error, McpdError):
            self._output.error(asked.id, Denied(str(error) or "Failed"))
        else:
            self._output.faults.log(logging.ERROR, "%s: %s failed", self._output.name, asked.method, error=error)
            self._output.error(asked.id, InternalError())

    def progress(self, ask_id: int, progress: float, total: float | None, message: str | None) -> None:
        """Send the progress of an ask with the token of the View, if it gave one and has no answer yet."""
        asked = self._asked.get(ask_id)
        if asked is not None and self.is_open(asked) and asked.progress_token is not None:
            token = asked.progress_token
            params = ProgressParams(progress_token=token, progress=progress, total=total, message=message)
            self._output.notify(messages.PROGRESS, params)

    def take_model_context(self) -> ModelContextUpdate | None:
        """Return the context that the View gave for the model, once."""
        if not self._has_new_context:
            return None
        self._has_new_context = False
        return self._view_state.model_context

    def _done(self, asked: ViewRequest) -> bool:
        """Remove a request that the program has finished. Returns whether the View still expects the answer."""
        del self._asked[asked.ask.ask_id]
        if isinstance(asked.ask, ModelContextUpdate):
            self._view_state.open_updates -= 1
        return self._in_flight.close(asked)

    def _keep(self, update: ModelContextUpdate) -> None:
        """Spec: "Each request overwrites the previous context sent by the View". The order of requests counts, not of
        answers.
        """
        current = self._view_state.model_context
        if current is None or current.ask_id < update.ask_id:
            self._view_state.model_context = update
            self._has_new_context = True


def _target(outcome: object) -> str:
    """Return the subject of a request for the log."""
    if isinstance(outcome, Forward):
        return repr(outcome.target[:200])
    return repr(outcome.url[:200]) if isinstance(outcome, OpenLink) else ""
