"""Threads for what blocks, which hold up no end of a process: what they do is read, and may end anywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")


class Workers:
    """At most so many threads, each started when all before it are busy. `name` is what they are called."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._started = 0
        self._idle = 0
        self._is_closed = False
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    def submit(self, function: Callable[[], R]) -> Future[R]:
        """Have it called, as soon as there is a thread for it. Raises RuntimeError after `close`."""
        future: Future[R] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the library is closed")
            self._jobs.put((future, function))
            if self._idle:
                self._idle -= 1
            elif self._started < self._most:
                self._started += 1
                threading.Thread(target=self._work, name=f"{self._name} {self._started}", daemon=True).start()
        return future

    def close(self) -> None:
        """End the threads once all that was submitted is done; waits for none of it. Safe to call twice."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                for _ in range(self._started):
                    self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
            del job, future, function
            with self._lock:
                if self._jobs.empty():
                    self._idle += 1
