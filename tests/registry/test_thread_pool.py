"""The threads behind plain functions: how many there are, that each job begins, and that they end with their loop."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import subprocess
import sys
import threading
import weakref
from typing import Any

import anyio
import anyio.from_thread
import pytest
from support.clock import until

from mcpd.registry import thread_pool
from mcpd.registry.thread_pool import ThreadPool
from mcpd.registry.threads import limit_threads, run_in_thread


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mcpd-function"]


def pool_of_loop() -> ThreadPool:
    pool = limit_threads(96, 30).pool  # which goes on with the same threads
    assert pool is not None
    return pool


async def together(count: int) -> None:
    """So many functions that end only if all of them run at once."""
    meeting = threading.Barrier(count, timeout=30)
    await asyncio.gather(*(run_in_thread(meeting.wait) for _ in range(count)))


async def test_short_functions_share_few_threads_and_each_gives_its_own_result() -> None:
    for _ in range(20):
        assert await asyncio.gather(*(run_in_thread(abs, -number) for number in range(50))) == list(range(50))
    assert len(our_threads()) < 20


async def test_functions_that_block_run_all_at_once_however_they_come() -> None:
    for _ in range(20):
        await together(40)
    # Others that come while all threads are taken find one, too.
    begun, go = threading.Semaphore(0), threading.Event()

    def stay() -> bool:
        begun.release()
        return go.wait(30)

    stays = [asyncio.create_task(run_in_thread(stay)) for _ in range(40)]
    for _ in stays:
        assert await asyncio.to_thread(begun.acquire, timeout=30)
    assert await asyncio.gather(*(run_in_thread(abs, -number) for number in range(20))) == list(range(20))
    go.set()
    assert all(await asyncio.gather(*stays))


async def test_what_a_function_raises_comes_back_and_keeps_nothing() -> None:
    def fails() -> None:
        raise KeyError("mine")

    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            await run_in_thread(fails)
    with pytest.raises(RuntimeError, match="StopIteration"):  # as a coroutine may not raise it
        await run_in_thread(next, iter(()))


async def test_threads_that_had_nothing_to_do_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pool, "_IDLE_SECONDS", 0.01)
    await together(10)

    async with asyncio.timeout(20):
        while len(our_threads()) > thread_pool._WARM:
            await run_in_thread(abs, -1)
    await together(10)


async def test_a_thread_that_is_let_go_does_not_count_for_what_comes_next() -> None:
    """It has not read yet that it is to end: a function that comes in the same turn of the loop is not its to run."""
    await together(3)
    pool = pool_of_loop()
    begun, go = threading.Semaphore(0), threading.Event()

    def stay() -> bool:
        begun.release()
        return go.wait(60)

    stays = [asyncio.create_task(run_in_thread(stay)) for _ in range(2)]
    for _ in stays:
        assert await asyncio.to_thread(begun.acquire, timeout=30)
    await until(lambda: pool._idle == 1)
    pool._least_idle = 1
    pool._prune()
    try:
        async with asyncio.timeout(20):
            assert await run_in_thread(abs, -1) == 1
    finally:
        go.set()
        await asyncio.gather(*stays)


def test_the_end_of_a_loop_ends_its_threads_and_closes_its_pipes() -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(3):
        asyncio.run(together(8))
        for thread in our_threads():
            thread.join(20)
        assert our_threads() == []
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before


def test_a_function_that_outlives_its_loop_is_left_alone() -> None:
    begun, go = threading.Event(), threading.Event()

    def stay() -> None:
        begun.set()
        go.wait(30)

    async def call() -> None:
        task = asyncio.create_task(run_in_thread(stay))
        assert await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(call())
    assert len(our_threads()) == 1
    go.set()
    for thread in our_threads():
        thread.join(20)
    assert our_threads() == []


async def test_after_the_end_of_the_loop_s_generators_no_function_begins() -> None:
    await run_in_thread(abs, -1)
    pool = pool_of_loop()
    asyncio.get_running_loop().remove_reader(pool._told_in)
    pool.close()
    with pytest.raises(RuntimeError, match="at its end"):
        await run_in_thread(abs, -1)


async def test_where_the_system_has_no_more_threads_the_call_fails_or_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        with pytest.raises(RuntimeError, match="can't start"):
            await run_in_thread(abs, -1)
    assert await run_in_thread(abs, -1) == 1

    # With one thread all are done in it.
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        assert await asyncio.gather(*(run_in_thread(abs, -number) for number in range(9))) == list(range(9))
    assert len(our_threads()) == 1


def test_a_pool_that_cannot_be_made_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    pipe = os.pipe

    def one_and_no_more() -> tuple[int, int]:
        if made:
            raise OSError(errno.EMFILE, "Too many open files")
        made.extend(pipe())
        return made[0], made[1]

    monkeypatch.setattr(os, "pipe", one_and_no_more)
    with pytest.raises(OSError, match="Too many open files"):
        ThreadPool()
    for descriptor in made:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


async def test_a_pool_that_another_thread_has_closed_starts_no_thread() -> None:
    """Its pipes are closed: by the time that such a thread ended, their numbers might be somebody else's."""
    pool = ThreadPool()
    pool.close()
    others = os.pipe()  # the same numbers, as a rule
    pool._start_thread()
    for thread in our_threads():
        await asyncio.to_thread(thread.join, 30)
    for descriptor in others:
        os.close(descriptor)


async def test_a_pool_that_is_closed_while_a_thread_cannot_be_started_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = ThreadPool()

    def no_more(thread: threading.Thread) -> None:
        pool.close()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    pool._start_thread()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pool._wake_in)


class FailingJob:
    """Whether it was run, or that it cannot be."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[str] = self.loop.create_future()

    def run(self) -> None:
        pass

    def end(self) -> None:
        self.outcome.set_result("was run")

    def fail(self, error: Exception) -> None:
        self.outcome.set_result(str(error))

    def forget(self) -> None:
        pass


async def test_nobody_counts_on_a_thread_that_is_about_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    left, go = threading.Event(), threading.Event()

    class SlowToEnd(ThreadPool):
        def _work(self) -> None:
            super()._work()
            left.set()
            go.wait(30)

    pool = SlowToEnd()
    await pool.open()
    first, second = FailingJob(), FailingJob()
    pool.submit(first)
    assert await first.outcome == "was run"
    pool.leave()
    assert await asyncio.to_thread(left.wait, 30)

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        pool.submit(second)
        async with asyncio.timeout(30):
            assert await second.outcome == "can't start new thread"
    go.set()


async def test_threads_that_are_leaving_are_not_let_go_once_more() -> None:
    meeting = threading.Barrier(4, timeout=30)
    await asyncio.gather(*(run_in_thread(meeting.wait) for _ in range(4)))
    pool = pool_of_loop()
    await until(lambda: pool._idle == 4)
    pool._least_idle = 4
    pool.leave()
    pool._prune()  # its time may come before they have read what they were told
    await until(lambda: not our_threads())
    assert (pool._idle, pool._staying, pool._threads) == (0, 0, 0)
    async with asyncio.timeout(30):
        assert await run_in_thread(abs, -1) == 1


async def test_threads_that_went_to_sleep_while_one_could_not_be_started_are_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = ThreadPool()
    await pool.open()
    first, second = FailingJob(), FailingJob()
    pool.submit(first)
    assert await first.outcome == "was run"
    await until(lambda: pool._idle == 1)

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool._is_waking = True  # one is to be started, as all were busy
    pool.submit(second)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        pool._start_thread()
    async with asyncio.timeout(30):
        assert await second.outcome == "was run"


def test_where_pipes_cannot_be_waited_for_the_loop_is_called() -> None:
    """As on Windows."""

    class NoReaders(asyncio.SelectorEventLoop):
        def add_reader(self, *given: Any) -> None:
            raise NotImplementedError

        def remove_reader(self, fd: Any) -> bool:
            raise NotImplementedError

    async def calls() -> None:
        await together(8)
        assert await asyncio.gather(*(run_in_thread(abs, -number) for number in range(50))) == list(range(50))

    with asyncio.Runner(loop_factory=NoReaders) as runner:
        runner.run(calls())
    for thread in our_threads():
        thread.join(20)
    assert our_threads() == []


async def calls_back() -> str:
    return threading.current_thread().name


def test_anyio_knows_the_threads() -> None:
    """What a function does by `anyio.from_thread` is done on the loop, and what it runs by `anyio.run` where it is."""

    def from_thread() -> tuple[str, str]:
        return anyio.from_thread.run(calls_back), anyio.run(calls_back)

    async def main() -> None:
        assert await run_in_thread(from_thread) == (threading.current_thread().name, "mcpd-function")

    asyncio.run(main())
    anyio.run(main)


PROGRAM = """
import asyncio, os, sys, threading
from mcpd.registry.threads import limit_threads, run_in_thread

loop = asyncio.new_event_loop()
thread = loop.run_until_complete(run_in_thread(threading.get_native_id))
child = os.fork() if "fork" in sys.argv else 0
if child:
    os.waitpid(child, 0)
    assert loop.run_until_complete(run_in_thread(threading.get_native_id)) == thread
    print("the thread is still there")
if "closed" in sys.argv:
    async def pool():
        return limit_threads(96, 30).pool

    kept = loop.run_until_complete(pool())
    loop.run_until_complete(loop.shutdown_asyncgens())
"""


@pytest.mark.parametrize("how", ["", "closed", *(["fork"] if hasattr(os, "fork") else [])])
def test_a_program_that_does_not_shut_its_loop_down_ends(how: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, how]
    said = subprocess.run(command, capture_output=True, timeout=60, text=True, check=True)
    assert (said.stdout, said.stderr) == ("the thread is still there\n" if how == "fork" else "", "")


AFTER_THE_MAIN_THREAD = """
import asyncio, threading

at_end = threading.Event()
threading._register_atexit(at_end.set)  # before that of mcpd, and so called behind it

from mcpd.registry.threads import run_in_thread

async def calls():
    print(await asyncio.gather(run_in_thread(at_end.wait, 30), run_in_thread(begun.set)))
    for _ in range(3):
        print(await asyncio.gather(*(run_in_thread(abs, -number) for number in range(5))))
    meeting = threading.Barrier(9, timeout=30)
    print(sorted(await asyncio.gather(*(run_in_thread(meeting.wait) for _ in range(9)))))

def run():
    asyncio.run(calls())
    loop = asyncio.new_event_loop()  # that nobody shuts down
    print(loop.run_until_complete(run_in_thread(abs, -9)))
    loop.close()

begun = threading.Event()
threading.Thread(target=run).start()
begun.wait(30)
"""


def test_a_loop_that_outlives_the_main_thread_goes_on() -> None:
    """Python waits for its thread; what runs by then is answered, and what comes later, too."""
    command = [sys.executable, "-W", "error", "-c", AFTER_THE_MAIN_THREAD]
    said = subprocess.run(command, capture_output=True, timeout=60, text=True, check=True)
    few = f"{list(range(5))}\n"
    wanted = "[True, None]\n" + 3 * few + f"{list(range(9))}\n9\n"
    if sys.version_info[:2] == (3, 12):  # which starts no thread by then, and says so; one that is there goes on
        assert said.stdout.startswith("[True, None]\n")
        assert wanted.startswith(said.stdout)
        assert said.stderr.endswith("RuntimeError: can't create new thread at interpreter shutdown\n")
        return
    assert (said.stdout, said.stderr) == (wanted, "")


async def test_a_thread_that_sleeps_holds_nothing_of_the_last_call() -> None:
    class Given:
        pass

    given = Given()
    found = weakref.ref(given)
    await run_in_thread(lambda _: None, given)
    del given
    await asyncio.sleep(0)  # this task went on in the turn that took the result
    await until(lambda: pool_of_loop()._idle == 1)
    gc.collect()
    assert found() is None
