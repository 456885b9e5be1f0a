"""A program that serves beside other things keeps its signal handlers, while it does and after it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from mcpd import Server
from mcpd.server.serving import Settings, serve


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_program_hears_of_its_signals_while_it_serves_and_afterwards(number: signal.Signals) -> None:
    loop = asyncio.get_running_loop()
    heard = asyncio.Semaphore(0)
    loop.add_signal_handler(number, heard.release)
    try:
        told: asyncio.Future[str] = loop.create_future()
        serving = asyncio.create_task(serve(Server("beside"), Settings(http=":0", announce=told.set_result)))
        async with asyncio.timeout(60):
            await told
            os.kill(os.getpid(), number)
            await heard.acquire()
            assert not serving.done()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            os.kill(os.getpid(), number)
            await heard.acquire()
    finally:
        loop.remove_signal_handler(number)


@pytest.mark.usefixtures("default_sigterm")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_what_it_does_not_handle_ends_serving_and_is_as_before(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(Server("alone"), Settings(http=":0", announce=told.set_result)))
    async with asyncio.timeout(60):
        await told
        os.kill(os.getpid(), number)
        await serving
    assert signal.getsignal(number) == before
