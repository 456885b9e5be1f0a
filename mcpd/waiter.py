"""What a request waits on, or a plain function: its task goes on in the reader's callback, without a turn of the loop.

`asyncio.Future` wakes its task in the next turn: of a call over stdio that is a third of the time. An awaitable of our
own may call the task's step itself, as long as no other task runs just then; asyncio asks no more of it than
`_asyncio_future_blocking`, `get_loop`, `add_done_callback`, `cancel` and `result`. What the program sends next, the
channel then writes together with all else that came of what it has read.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, InvalidStateError, current_task
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any

from msgspec import Raw, Struct

__all__ = ["AnswerWaiter"]

_RAISED = InvalidStateError("the error was raised before")


class AnswerWaiter(Struct, eq=False):
    """The place of one answer, awaited by one task: `AnswerWaiter(loop)`. A `pending.Waiter`.

    A struct because one is made for each call, and these are made in C.
    """

    _loop: AbstractEventLoop
    _asyncio_future_blocking: bool = False
    _callback: Callable[[Any], object] | None = None
    _context: Context | None = None
    _outcome: Raw | BaseException | None = None
    _is_cancelled: bool = False
    _message: Any = None

    def done(self) -> bool:
        """Whether it waits no more."""
        return self._outcome is not None or self._is_cancelled

    @property
    def has_outcome(self) -> bool:
        """Whether there is a result, or an error that was not raised yet."""
        return self._outcome is not None and self._outcome is not _RAISED

    def set_result(self, result: Raw, /) -> None:
        """Here is the result: whoever waits is woken in the next turn of the loop."""
        self._outcome = result
        self._wake()

    def hand_over(self, result: Raw) -> None:
        """Here is the result: whoever waits goes on now, unless another task is running. Nothing if nobody waits."""
        if self._outcome is not None or self._is_cancelled:
            return

        self._outcome = result
        callback, context = self._callback, self._context
        if context is None:  # nobody waits yet
            return
        if current_task(self._loop) is None:
            self._callback = None
            context.run(callback, self)  # type: ignore[arg-type]  # which came with it
        else:
            self._wake()

    def set_exception(self, exception: Exception, /) -> None:
        """There will be none."""
        self._outcome = exception
        self._wake()

    def _wake(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            self._loop.call_soon(callback, self, context=self._context)

    # -- what a task asks of that which it waits for ---------------------------------------------

    def __await__(self) -> Generator[Any, None, Raw]:
        if self._outcome is None and not self._is_cancelled:
            self._asyncio_future_blocking = True
            yield self

        if isinstance(self._outcome, Raw):
            return self._outcome
        return self.result()

    def get_loop(self) -> AbstractEventLoop:
        """The loop that its task has to run on."""
        return self._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context) -> None:
        """Called by the task that waits, once."""
        self._callback, self._context = callback, context
        if self._outcome is not None or self._is_cancelled:
            self._wake()

    def cancel(self, msg: Any = None) -> bool:
        """Called when the task that waits is cancelled: whether it waited still."""
        if self.done():
            return False
        self._is_cancelled, self._message = True, msg
        self._wake()
        return True

    def result(self) -> Raw:
        """The result, or what there is to raise."""
        outcome = self._outcome
        if isinstance(outcome, Raw):
            return outcome
        if outcome is not None:
            self._outcome = _RAISED  # an error that is kept here would keep itself, by its traceback
            try:
                raise outcome
            finally:
                del outcome
        if self._is_cancelled:
            raise CancelledError() if self._message is None else CancelledError(self._message)
        raise InvalidStateError("no answer has come yet")
