"""The requests of one View: taken in, given to the program as asks, answered when it has decided.

Order in which a request can fail: unknown method, capability not offered, id in use, too many open, bad
params, then what its own function says (`requests`).

Spec: MCP Apps 2026-01-26, "Requests (View -> Host)"; 2025-11-25 basic/utilities/{cancellation,progress}.
"""

from __future__ import annotations

from typing import Any

from ..errors import InternalError, InvalidRequest, LocalProtocolError, McpdError, ProtocolError, RemoteError
from ..jsonrpc import Request
from ..types.notifications import CancelledParams, ProgressParams
from .events import Abort, Ask, Forward, ModeChange, ModelContextUpdate, OpenLink
from .messages import PROGRESS, DenialResult, DisplayModeResult, NoParams
from .outlet import Outlet, log
from .pending import Asked, Inbox
from .refusals import Denied, TooMuch
from .requests import REQUESTS, Facts, decode_params, find, progress_token

__all__ = ["Incoming"]


class Incoming:
    """What a View has asked for and not been told yet, and what it last said for the model."""

    __slots__ = ("_context_is_news", "_facts", "_inbox", "_outlet")

    def __init__(self, facts: Facts, outlet: Outlet) -> None:
        self._facts = facts
        self._outlet = outlet
        self._inbox = Inbox()
        self._context_is_news = False

    # -------------------------------------------------------------------------------- from the View

    def receive(self, request: Request, *, is_early: bool) -> object | None:
        """The answer, or None if it comes later. Raises the error that the View is answered with."""
        method, settings = request.method, self._facts.settings
        row = find(method)
        row.check_offered(self._facts)
        if self._inbox.is_used(request.id):
            raise InvalidRequest(f"The id {request.id!r:.80} is in use")
        if len(self._inbox) >= settings.limits.calls_in_flight:
            raise TooMuch(f"A view may have {settings.limits.calls_in_flight} requests open")
        params = decode_params(row.decode, request.params)
        token = progress_token(params)
        try:
            outcome = row.handle(self._facts, self._inbox.next_id(), params)
        except Denied as error:
            if not (row.can_deny_by_result and settings.denials == "result"):
                raise
            self._outlet.find("denied", error.message, method)
            return DenialResult(is_error=True)
        if is_early:
            self._outlet.find("early", "a request before ui/notifications/initialized", method, refused=False)
        log.info("%s: %s %s", self._outlet.name, method, _target(outcome))
        if not isinstance(outcome, Ask):
            return outcome
        self._inbox.add(Asked(outcome, method, request.id, token))
        if isinstance(outcome, ModelContextUpdate):
            self._facts.open_updates += 1
        self._outlet.events.append(outcome)
        return None

    def cancel(self, given_up: CancelledParams) -> None:
        """The View does not want an answer any more. Spec: none is sent, and an unknown id is ignored."""
        asked = self._inbox.abort(given_up.request_id) if given_up.request_id is not None else None
        if asked is not None:
            self._outlet.events.append(Abort(asked.ask.ask_id, given_up.reason or "cancelled by the view"))

    def abort_all(self, reason: str) -> None:
        """The document that asked is no more."""
        for asked in self._inbox.abort_all():
            self._outlet.events.append(Abort(asked.ask.ask_id, reason))

    # ----------------------------------------------------------------------------- from the program

    def get(self, ask_id: int) -> Asked:
        """A request that is to be answered now; the answer may have lost its reader."""
        asked = self._inbox.get(ask_id)
        if asked is None:
            raise LocalProtocolError(f"there is no ask {ask_id}, or it was answered before")
        return asked

    def answer(self, asked: Asked, result: Any) -> None:
        """The ask was carried out; a change of mode has taken place already."""
        if not self._done(asked):
            return
        if isinstance(asked.ask, ModeChange):
            result = DisplayModeResult(self._facts.feed.mode)
        elif isinstance(asked.ask, ModelContextUpdate):
            self._keep(asked.ask)
            result = NoParams()
        elif result is None:
            result = NoParams()
        finish = REQUESTS[asked.method].finish
        try:
            self._outlet.result(asked.request_id, result if finish is None else finish(result))
        except (TypeError, ValueError, RecursionError):  # no JSON; UnicodeEncodeError is a ValueError
            log.exception("%s: the result of %s cannot be sent", self._outlet.name, asked.method)
            self._outlet.error(asked.request_id, InternalError())

    def deny(self, asked: Asked, reason: str) -> None:
        """The answer is no."""
        if not self._done(asked):
            return
        log.info("%s: %s denied: %s", self._outlet.name, asked.method, reason)
        if isinstance(asked.ask, ModeChange):
            # Spec: the answer is "the resulting mode (whether updated or not)", never an error.
            self._outlet.result(asked.request_id, DisplayModeResult(self._facts.feed.mode))
        elif REQUESTS[asked.method].can_deny_by_result and self._facts.settings.denials == "result":
            self._outlet.result(asked.request_id, DenialResult(is_error=True))
        else:
            self._outlet.error(asked.request_id, Denied(reason))

    def fail(self, asked: Asked, error: Exception) -> None:
        """The ask could not be carried out. A JSON-RPC error of the server goes on to the View as it is."""
        if not self._done(asked):
            return
        if isinstance(error, (RemoteError, ProtocolError)):
            self._outlet.error(asked.request_id, error)
        elif isinstance(error, McpdError):
            self._outlet.error(asked.request_id, Denied(str(error) or "Failed"))
        else:
            log.error("%s: %s failed", self._outlet.name, asked.method, exc_info=error)
            self._outlet.error(asked.request_id, InternalError())

    def progress(self, ask_id: int, progress: float, total: float | None, message: str | None) -> None:
        """How far an ask is, under the View's own token; nothing if it gave none or has its answer."""
        asked = self._inbox.get(ask_id)
        if asked is not None and not asked.aborted and asked.progress_token is not None:
            token = asked.progress_token
            params = ProgressParams(progress_token=token, progress=progress, total=total, message=message)
            self._outlet.notify(PROGRESS, params)

    def take_model_context(self) -> ModelContextUpdate | None:
        """What the View said for the model, once."""
        if not self._context_is_news:
            return None
        self._context_is_news = False
        return self._facts.model_context

    def _done(self, asked: Asked) -> bool:
        """Free its place; whether somebody still wants the answer."""
        self._inbox.take(asked.ask.ask_id)
        if isinstance(asked.ask, ModelContextUpdate):
            self._facts.open_updates -= 1
        return not asked.aborted

    def _keep(self, update: ModelContextUpdate) -> None:
        """Spec: "Each request overwrites the previous context sent by the View": the last sent, whenever answered."""
        current = self._facts.model_context
        if current is None or current.ask_id < update.ask_id:
            self._facts.model_context = update
            self._context_is_news = True


def _target(outcome: object) -> str:
    """What a request is about, for the log."""
    if isinstance(outcome, Forward):
        return repr(outcome.target[:200])
    return repr(outcome.url[:200]) if isinstance(outcome, OpenLink) else ""
