"""From what the user named to a channel: a server in this process, a channel, or the command of a child process.

Nothing of the protocol lives here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ..errors import ConfigurationError
from ..transports.process import open_process
from .connection import StartableChannel
from .limits import ClientLimits

__all__ = ["InProcess", "Target", "connect"]

_DEFAULT_LIMITS = ClientLimits()


@runtime_checkable
class InProcess(Protocol):
    """A server in this process, as far as a client goes: `mcpd.Server` is one."""

    def connect_memory(self) -> Any:
        """Serve an in-memory channel, and give the client's end of it."""


Target: TypeAlias = InProcess | StartableChannel | Sequence[str]


async def connect(target: Target, limits: ClientLimits = _DEFAULT_LIMITS) -> StartableChannel:
    """Open a channel to what was named. Raises ConfigurationError, with what to do, if there is none."""
    if isinstance(target, InProcess):
        channel: StartableChannel = target.connect_memory()
        return channel
    if isinstance(target, (list, tuple)):
        return await open_process(
            target, max_frame_bytes=limits.message_bytes, stderr_bytes_per_second=limits.stderr_bytes_per_second
        )

    if hasattr(target, "start") and hasattr(target, "send"):
        return target  # type: ignore[return-value]
    raise ConfigurationError(
        f"{target!r} is nothing to connect to: give a Server, a command as a list of strings, or an open channel"
    )
