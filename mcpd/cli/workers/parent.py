"""The parent of `--workers`: starts workers, restarts dead ones, ends them, and replaces them on SIGHUP."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from mcpd.errors import ConfigurationError
from mcpd.protocol.budget import BUDGET
from mcpd.protocol.printable import printable
from mcpd.server.backplane.shared_memory import SharedMemory
from mcpd.server.settings import Options
from mcpd.transports.address import bind_beside, bind_shared, bind_unix, close, parse
from mcpd.transports.systemd import notify
from .overview import Overview
from .process import Handover, Worker

_SPREADS = sys.platform == "linux"


class Places:
    """The listening sockets of `--http` and `--ws`. `addresses` has their addresses, by option.

    The parent binds them once, so that an error is reported once and free ports are known. On TCP each worker number
    has sockets of its own (SO_REUSEPORT), among which the kernel spreads connections: with one socket for all, one
    event loop could take a whole burst. Unix sockets, sockets of a service manager, and systems whose kernel does not
    spread connections have one queue for all workers.
    """

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self._paths: list[str] = []
        # By option, the sockets that reserve the address. They do not listen where each worker number has its own.
        self._kept: dict[str, list[socket.socket]] = {}
        self._for_all: dict[str, list[socket.socket]] = {}
        self._own: dict[int, dict[str, list[socket.socket]]] = {}
        self._ours: set[str] = set()

    async def bind(self, options: Options) -> None:
        """Bind the addresses of the options. Raises ConfigurationError."""
        for name in ("http", "ws"):
            text: str | None = getattr(options, name)
            if text is None:
                continue
            if name in options.sockets:  # a service manager listens on them
                self._for_all[name] = list(options.sockets[name])
                self.addresses[name] = text
                continue

            self._ours.add(name)
            address = parse(text)
            if address.path:
                if name == "ws":
                    raise ConfigurationError(f"Cannot listen on {address} here: give a port, for example :8080")
                self._for_all[name] = [bind_unix(address.path, options.socket_mode)]
                self._paths.append(address.path)
                self.addresses[name] = text
                continue

            kept = self._kept[name] = await bind_shared(address)
            port = kept[0].getsockname()[1]
            self.addresses[name] = text.rpartition(":")[0] + f":{port}"
            if not _SPREADS:
                self._for_all[name] = kept

    def sockets_of(self, number: int) -> dict[str, list[socket.socket]]:
        """Return the sockets of one worker number, by option. They stay open here: their queue outlives a worker."""
        if number not in self._own:
            self._own[number] = {
                name: bind_beside(kept) for name, kept in self._kept.items() if name not in self._for_all
            }
        return {**self._own[number], **self._for_all}

    def ends(self, name: str) -> bool:
        """Return whether the sockets of this option were bound here."""
        return name in self._ours

    def release(self, number: int) -> None:
        """Close the sockets of a worker number for a while, so that the kernel gives its connections to the others."""
        for sockets in self._own.pop(number, {}).values():
            close(sockets)

    def close(self) -> None:
        """Close all sockets. Safe to call twice."""
        for number in list(self._own):
            self.release(number)
        for sockets in (*self._kept.values(), *self._for_all.values()):
            close(sockets)
        for path in self._paths:
            with suppress(OSError):  # already removed
                os.unlink(path)
        self._paths.clear()


_MANY = 3
_WITHIN = 10.0
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 10.0


class Restarts:
    """Delays restarts: three deaths within 10 s delay the next start by 1 s, then twice as long, up to 10 s."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=_MANY)
        self._wait = 0.0

    def died(self, now: float) -> float:
        """Note a death at the time `now`, in seconds. Returns for how many seconds to wait before the next start."""
        if self._deaths and now - self._deaths[-1] > _WITHIN + self._wait:
            self._deaths.clear()
            self._wait = 0.0
        self._deaths.append(now)
        if self._wait:
            self._wait = min(2 * self._wait, _LONGEST_WAIT)
        elif len(self._deaths) == _MANY and now - self._deaths[0] <= _WITHIN:
            self._wait = _FIRST_WAIT
        return self._wait


log = logging.getLogger("mcpd")

# A worker that still runs this many seconds after `--grace` is killed.
_ENDING_SECONDS = 5.0
# After this many seconds a warning says that a worker is not ready, because a reload waits for it.
_LONG_START = 30.0
# Variables by which a service manager addresses the parent.
_HIDDEN = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


def run(options: Options, say: Callable[[str], object]) -> int:
    """Serve with `options.workers` processes until stopped, and return the exit code. `say` prints lines for people.

    Raises ConfigurationError for an address that cannot be used.
    """
    return asyncio.run(_Parent(options, say).run())


class _Parent:
    def __init__(self, options: Options, say: Callable[[str], object]) -> None:
        assert options.workers is not None
        self._options = options
        self._count = options.workers
        self._say = say
        self._said: list[str] = []
        self._loop: asyncio.AbstractEventLoop
        self._places = Places()
        self._memory: SharedMemory | None = None
        self._overview: Overview
        # By number: the current worker last; before it, the one that it replaces.
        self._workers: dict[int, list[Worker]] = {}
        self._restarts = {number: Restarts() for number in range(1, self._count + 1)}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._wants_reload = False
        # Whether the first worker has been ready. From then on dead workers are restarted.
        self._has_begun = False
        self._is_at_terminal = os.isatty(2)
        self._environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
        # Workers on other machines share the backplane, and could not open what a key made here has sealed.
        is_shared = options.http is not None and not (options.backplane or "memory:").startswith("memory:")
        self._state_key = "" if is_shared or os.environ.get("MCPD_STATE_KEY") else secrets.token_urlsafe(32)
        # As this process was started, with the options of the interpreter; it may be the user's own program.
        self._command = [sys.executable, *sys.orig_argv[1:]]

    async def run(self) -> int:
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_stop)
        self._loop.add_signal_handler(signal.SIGHUP, self._on_reload)
        self._overview = Overview(self._options, self._count, self._all)
        try:
            await self._places.bind(self._options)
            if self._options.http is not None and self._options.backplane is None:
                self._memory = SharedMemory()
            await self._overview.start()
            code = await self._begin()
            if code is None:
                await self._stopped.wait()
            await self._end()
            return code or 0
        finally:
            self._overview.stop()
            self._places.close()
            if self._memory is not None:
                self._memory.close()

    def _all(self) -> list[Worker]:
        return [worker for each in self._workers.values() for worker in each]

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self) -> int | None:
        first = await self._start(1)
        if not await self._is_ready(first):
            self._print_lines()
            if self._stopped.is_set():
                return None
            code = first.code or 0
            if code < 0:
                self._say(f"mcpd: the first worker was ended by signal {-code} before it was ready")
            return code if code > 0 else 1
        self._has_begun = True

        others = [await self._start(number) for number in range(2, self._count + 1)]
        await asyncio.gather(*map(self._is_ready, others))
        if self._stopped.is_set():
            return None

        self._print_lines()
        self._overview.is_serving = True
        pids = ", ".join(str(worker.pid) for worker in self._all())
        many = f"{self._count} worker{'s' if self._count > 1 else ''}"
        self._say(f"mcpd: {many} (pid {pids}); kill -HUP {os.getpid()} replaces them one after the other")
        notify("READY=1")
        if self._wants_reload:  # a reload was requested during the start
            self._do(self._reload())
        return None

    async def _is_ready(self, worker: Worker) -> bool:
        stopped = asyncio.ensure_future(self._stopped.wait())
        either: list[asyncio.Future[Any]] = [worker.ready, stopped]
        done, _ = await asyncio.wait(either, timeout=_LONG_START, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            log.warning("Worker %d (pid %d) has been loading its target for %g s; to give it up, run kill -9 %d",
                        worker.number, worker.pid, _LONG_START, worker.pid)  # fmt: skip
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        return worker.ready.done() and worker.ready.result()

    def _print_lines(self) -> None:
        for line in self._said:
            self._say(line)
        self._said.clear()

    async def _start(self, number: int) -> Worker:
        is_first = number == 1 and not self._workers
        worker = Worker(number, self._said.append, self._on_request)
        self._workers.setdefault(number, []).append(worker)

        most = self._options.max_memory or BUDGET.most
        handover = Handover(
            number=number,
            count=self._count,
            addresses=self._places.addresses,
            sockets={},
            state_key=self._state_key,
            ends_sockets=self._places.ends("http"),
            says=is_first,
            max_memory=max(1, most // self._count),
        )
        try:
            sockets = self._places.sockets_of(number)
            await worker.start(self._command, self._environment, handover, sockets, self._memory)
        except (OSError, ConfigurationError) as error:
            self._workers[number].remove(worker)
            worker.ended.set()
            raise ConfigurationError(f"no worker can be started: {error}") from None
        if self._stopped.is_set():
            worker.signal(signal.SIGTERM)  # all were stopped while it was being started
        self._do(self._watch(worker))
        return worker

    async def _watch(self, worker: Worker) -> None:
        code = await worker.wait()
        self._overview.gone(worker)
        place = self._workers[worker.number]
        place.remove(worker)
        worker.ended.set()
        is_served = any(each.state != "stopping" for each in place)
        if not is_served and not self._stopped.is_set() and self._has_begun:
            await self._restart(worker, code)

    async def _restart(self, worker: Worker, code: int) -> None:
        number = worker.number
        self._overview.deaths[number] += 1
        wait = self._restarts[number].died(self._loop.time())
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"

        while True:
            if wait:
                others = any(each.state == "ready" for each in self._all())
                log.error("Worker %d (pid %d) ended %s; the next one starts in %g s", number, worker.pid, how, wait)
                if others:
                    self._places.release(number)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._stopped.wait()
                    return
            else:
                log.error("Worker %d (pid %d) ended %s; restarting it", number, worker.pid, how)
            if any(each.state != "stopping" for each in self._workers[number]):
                return  # a reload was faster
            try:
                await self._start(number)
                return
            except ConfigurationError as error:
                wait, how = 10.0, f"and {error}"

    def _on_request(self, worker: Worker, number: int) -> None:
        async def answer() -> None:
            worker.answer(number, await self._overview.whole())

        self._do(answer())

    def _on_reload(self) -> None:
        if self._is_at_terminal and not os.isatty(2):
            self._on_stop()  # the terminal is gone, which is what this signal meant
            return
        self._wants_reload = True
        self._do(self._reload())

    async def _reload(self) -> None:
        # Requests that arrive during a reload cause one further reload.
        async with self._reloading:
            if not self._wants_reload or self._stopped.is_set() or not self._overview.is_serving:
                return
            self._wants_reload = False
            notify("RELOADING=1")
            log.info("Reloading: replacing %d workers, one after the other", self._count)

            done = 0
            for number in range(1, self._count + 1):
                if self._stopped.is_set() or not await self._exchange(number):
                    break
                done += 1

            if not self._stopped.is_set():
                notify("READY=1")
            if done == self._count:
                log.info("Reloaded: all %d workers are new", done)
            elif not self._stopped.is_set():
                log.error("Not reloaded: a new worker ended before it was ready; %d of %d are new", done, self._count)

    async def _exchange(self, number: int) -> bool:
        before = list(self._workers.get(number, ()))
        try:
            new = await self._start(number)
        except ConfigurationError as error:
            log.error("%s", printable(error))
            return False
        if not await self._is_ready(new):
            return False

        for old in before:
            old.stop(is_exchanged=True)
        await self._ended(before)
        return True

    def _on_stop(self) -> None:
        if self._stopped.is_set():
            for worker in self._all():
                worker.signal(signal.SIGTERM)  # the second signal asks to hurry
            return
        self._stopped.set()

    async def _end(self) -> None:
        self._stopped.set()
        self._overview.is_stopping = True
        notify("STOPPING=1")
        self._places.close()

        workers = self._all()
        for worker in workers:
            if worker.ready.done():
                worker.stop()
            else:
                worker.signal(signal.SIGTERM)  # it is still loading its target, and has no connections
        await self._ended(workers)

    async def _ended(self, workers: Sequence[Worker]) -> None:
        ends: asyncio.Future[Any] = asyncio.gather(*[worker.ended.wait() for worker in workers])
        await asyncio.wait([ends], timeout=self._options.grace + _ENDING_SECONDS)
        for worker in workers:
            if not worker.ended.is_set():
                log.error("Worker %d (pid %d) did not end in time and is killed", worker.number, worker.pid)
                worker.signal(signal.SIGKILL)
        await ends
