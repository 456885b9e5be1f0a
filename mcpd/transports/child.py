"""Starts, watches and ends child processes. Every process that mcpd starts is one of these.

A child leads a process group, so that it can be ended together with everything that it has started (a launcher's real
server, a browser, a compiler), unless such a process has left the group. Ctrl-C in a terminal therefore reaches only
mcpd, which then ends the child in order. If mcpd itself is killed, the child ends only because its input ends. Linux
could signal it then (PR_SET_PDEATHSIG), but that needs code between fork and exec, which is unsafe beside threads,
fires when the *thread* that started the child ends, and reaches only the child itself.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

from msgspec import Struct

# How long a child may take to end before it gets the next signal.
GRACE_SECONDS = 2.0

# Whether there are process groups. Windows has none, and no SIGKILL either.
HAS_GROUPS = hasattr(os, "killpg")

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)

_POLL_SECONDS = 0.02
_LEFT_BEHIND_SECONDS = 0.2

EndedBy: TypeAlias = Literal["itself", "SIGTERM", "SIGKILL"]


class Ending(Struct, frozen=True):
    """How a child ended."""

    by: EndedBy
    """`itself` if the end of its input was enough."""
    seconds: float
    """How long that took."""
    code: int
    """The exit code, or the negative number of a signal."""
    left_others: bool
    """Whether processes that it had started were still running."""


class ChildProcess:
    """A child process that leads a session of its own or, with `new_session=False`, only a process group.

    `stdin`, `stdout` and `stderr` are what `subprocess.Popen` takes; pipes are the attributes of the same names.
    Raises OSError or ValueError if the command cannot be started; `reason_not_started` says why.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = None,
        stderr: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        pass_fds: Sequence[int] = (),
        new_session: bool = True,
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=new_session and HAS_GROUPS,
            process_group=None if new_session or not HAS_GROUPS else 0,
        )
        self.pid = self._process.pid
        self.stdin, self.stdout, self.stderr = self._process.stdin, self._process.stdout, self._process.stderr
        self._group_has_ended = False

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while the child runs."""
        return self._process.poll()

    async def wait(self) -> int:
        """Wait for the end of the child itself; return its exit code, negative for a signal."""
        if self._process.poll() is None:
            try:
                descriptor = os.pidfd_open(self.pid)
            except (AttributeError, OSError):  # not Linux, or forbidden in this container
                await _wait_in_thread(self._process)
            else:
                await _until_readable(descriptor)
        return self._process.wait()

    def wait_blocking(self) -> int:
        """The same for code without an event loop."""
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        """Signal only the child itself, unless it has ended."""
        # Popen.send_signal takes a lock, which a signal handler may interrupt while it is held.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        if self._group_has_ended:
            return
        # macOS answers PermissionError for a group in which every process has ended.
        with suppress(ProcessLookupError, PermissionError):
            if HAS_GROUPS:
                os.killpg(self.pid, number)
            elif self.returncode is None:
                self._process.send_signal(number)

    def kill(self) -> None:
        self.signal_group(KILL)

    def group_runs(self) -> bool:
        """Whether the child, or a process that it has started, still runs."""
        if not HAS_GROUPS:
            return self.returncode is None
        return not self._group_has_ended and group_lives(self.pid)

    def forget_group(self) -> None:
        """Do not signal the group any more: the system may give its number to another process."""
        self._group_has_ended = True

    async def end(self, grace: float | None = None) -> Ending:
        """End the child, whose input has been closed, and everything that it has started.

        It gets `grace` seconds (default `GRACE_SECONDS`) to end on its own, then after SIGTERM, and then after SIGKILL.
        """
        grace = GRACE_SECONDS if grace is None else grace
        began = time.monotonic()
        by: EndedBy = "itself"
        if not await self._ends_within(grace):
            by = "SIGTERM"
            self.signal_group(signal.SIGTERM)
            if not await self._ends_within(grace):
                by = "SIGKILL"
                self.kill()
                await self._ends_within(grace)

        seconds = time.monotonic() - began

        left_others = not await self._group_ends_within(min(_LEFT_BEHIND_SECONDS, grace))
        if left_others:
            await self.end_group(grace)
        self.forget_group()
        return Ending(by, seconds, -KILL if self.returncode is None else self.returncode, left_others)

    async def end_group(self, grace: float | None = None) -> None:
        """End the processes that the child has left behind: SIGTERM, and SIGKILL after `grace` seconds."""
        self.signal_group(signal.SIGTERM)
        if not await self._group_ends_within(GRACE_SECONDS if grace is None else grace):
            self.kill()

    async def _ends_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()
        return self.returncode is not None

    async def _group_ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.group_runs():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True


async def _until_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _wait_in_thread(process: subprocess.Popen[bytes]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def wait() -> None:
        process.wait()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set)

    # A daemon, because the executor's threads would keep the interpreter alive as long as the child runs.
    threading.Thread(target=wait, name=f"mcpd-wait-{process.pid}", daemon=True).start()
    await ended.wait()


def group_lives(group: int) -> bool:
    """Whether a process of this group still runs. A process that has ended does not count, even before it is reaped."""
    if not HAS_GROUPS:
        return False
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False

    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return True  # not Linux

    for name in numbers:
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, _, its_group = file.read().rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(its_group) == group and state not in (b"Z", b"X"):
            return True
    return False


def run_program(command: Sequence[str], *, seconds: float, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program without input to its end, and return its exit code and its output.

    Raises OSError if it cannot be started, and TimeoutError if it runs longer than `seconds`.
    """
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", errors="replace",
            cwd=cwd, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeoutError from None


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGTERM."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def reason_not_started(command: Sequence[str], cwd: str | None, error: OSError | ValueError) -> str:
    """Return why a command could not be started, and what to do about it."""
    program = command[0]
    if isinstance(error, OSError) and cwd is not None and error.filename == cwd:
        return f"{program} cannot be started in {cwd}: {error.strerror}; look at cwd"
    if isinstance(error, FileNotFoundError):
        if os.path.dirname(program):
            # The kernel reports the same for a script whose interpreter is missing.
            is_script = os.path.exists(program)
            what = "its interpreter, in the first line, is missing" if is_script else "there is no such file"
            return f"{program} cannot be started: {what}"
        package = _PACKAGES.get(os.path.splitext(program)[0].lower())
        todo = f"install {package}, or give its whole path" if package else "install it, or give its whole path"
        return f"{program} cannot be started: there is no such program on PATH; {todo}"

    if isinstance(error, PermissionError):
        return f"{program} cannot be started: it is not a program, or not executable ({error.strerror})"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        text = f"it is not a program ({text}); name what runs it, as python {program}"
    return f"{program} cannot be started: {text}"


# The packages that provide the programs in many hosts' entries.
_PACKAGES = {
    "npx": "Node.js",
    "node": "Node.js",
    "bunx": "Bun",
    "deno": "Deno",
    "uvx": "uv",
    "uv": "uv",
    "docker": "Docker",
}
