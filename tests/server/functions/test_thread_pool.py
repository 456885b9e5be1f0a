"""The threads behind plain functions: how many there are, that each job begins, and that they end with their loop."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest
from support.clock import until

from mcpd.server.functions.threads import run_in_thread


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("mcpd-function")]


async def together(count: int) -> None:
    """So many functions that end only if all of them run at once."""
    meeting = threading.Barrier(count, timeout=30)
    await asyncio.gather(*(run_in_thread(meeting.wait) for _ in range(count)))


async def test_each_function_gives_its_own_result() -> None:
    for _ in range(20):
        assert await asyncio.gather(*(run_in_thread(abs, -number) for number in range(50))) == list(range(50))
    assert len(our_threads()) <= 50


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


def test_the_end_of_a_loop_ends_its_threads() -> None:
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


def test_after_the_end_of_the_loop_s_generators_no_function_begins() -> None:
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(run_in_thread(abs, -1)) == 1
    loop.run_until_complete(loop.shutdown_asyncgens())
    with pytest.raises(RuntimeError, match="after shutdown"):
        loop.run_until_complete(run_in_thread(abs, -1))
    loop.close()


async def test_where_the_system_has_no_more_threads_the_call_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ran: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        with pytest.raises(RuntimeError, match="can't start"):
            await run_in_thread(ran.append, 1)
    assert await run_in_thread(abs, -1) == 1
    assert ran == []


PROGRAM = """
import asyncio, os, sys
from mcpd.server.functions.threads import limit_threads, run_in_thread

loop = asyncio.new_event_loop()
assert loop.run_until_complete(run_in_thread(abs, -1)) == 1
child = os.fork() if "fork" in sys.argv else None
if child == 0:
    assert asyncio.run(run_in_thread(abs, -2)) == 2
    os._exit(0)  # or the loop that it inherited is collected, which takes the parent's pipe out of the parent's epoll
elif child is not None:
    assert os.waitpid(child, 0)[1] == 0
    assert loop.run_until_complete(run_in_thread(abs, -3)) == 3
    print("both go on")
if "closed" in sys.argv:
    async def pool():
        return limit_threads(96, 30).pool

    kept = loop.run_until_complete(pool())
    loop.run_until_complete(loop.shutdown_asyncgens())
"""


@pytest.mark.medium
@pytest.mark.parametrize("how", ["", "closed", *(["fork"] if hasattr(os, "fork") else [])])
def test_a_program_that_does_not_shut_its_loop_down_ends(how: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, how]
    said = subprocess.run(command, capture_output=True, timeout=60, text=True, check=True)
    assert (said.stdout, said.stderr) == ("both go on\n" if how == "fork" else "", "")


AFTER_THE_MAIN_THREAD = """
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor

from mcpd.server.functions.threads import run_in_thread

async def calls():
    begun.set()
    print(await run_in_thread(abs, -1))
    try:
        while True:  # till Python waits for its last threads
            with ThreadPoolExecutor(1) as pool:
                await asyncio.wrap_future(pool.submit(abs, -1))
    except RuntimeError:
        pass
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


@pytest.mark.medium
def test_a_loop_that_outlives_the_main_thread_goes_on() -> None:
    """Python waits for its thread; what runs by then is answered, and what comes later, too."""
    command = [sys.executable, "-W", "error", "-c", AFTER_THE_MAIN_THREAD]
    said = subprocess.run(command, capture_output=True, timeout=60, text=True, check=True)
    few = f"{list(range(5))}\n"
    wanted = "1\n" + 3 * few + f"{list(range(9))}\n9\n"
    if sys.version_info[:2] == (3, 12):  # which starts no thread by then, and says so; one that is there goes on
        assert said.stdout.startswith("1\n")
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
    await until(lambda: gc.collect() >= 0 and found() is None)
