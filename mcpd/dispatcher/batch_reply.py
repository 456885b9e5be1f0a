"""The answers of one batch, until all are there. Spec: 2025-03-26 basic/index, batching."""

from __future__ import annotations

from collections.abc import Callable

from mcpd.errors import ResultTooLarge
from mcpd.protocol.session import Session


class BatchReply:
    """Gathers the answers of one batch and hands them on as one array, as many as one message may hold."""

    def __init__(self, done: Callable[[bytes | None], object], size: int, session: Session) -> None:
        self._done = done
        self._left = size
        self._session = session
        self._answers: list[bytes] = []
        self._bytes = 2

    def add(self, answer: bytes | None) -> None:
        if answer is not None:
            self._bytes += len(answer) + 1
            if self._bytes > self._session.max_frame_bytes:
                # An error in the place of the one that is too much: the others still arrive.
                size, self._bytes = self._bytes, self._bytes - len(answer)
                answer = self._session.replace(answer, ResultTooLarge(size, self._session.max_frame_bytes))
                self._bytes += len(answer)
            self._answers.append(answer)

        self._left -= 1
        if self._left == 0:
            self._done(b"[" + b",".join(self._answers) + b"]" if self._answers else None)
