"""What a client says and hears, recorded as a host's trace is: a channel round another one.

`Client(record_channel(await connect(target), recorder))`: the client is the host of that trace.
"""

from __future__ import annotations

from mcpd.client.channels import ChannelWatcher, StartableChannel, watched
from mcpd.errors import McpdError, ProtocolError
from mcpd.protocol.jsonrpc import Id
from mcpd.trace.recorder import Recorder


def record_channel(channel: StartableChannel, recorder: Recorder) -> StartableChannel:
    """A channel that writes down each frame and passes it on. The recorder is the caller's to close."""
    return watched(channel, _Scribe(recorder))


class _Scribe(ChannelWatcher):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def sent(self, frame: bytes) -> None:
        self._recorder.record("host", frame + b"\n")

    def received(self, frame: bytes) -> None:
        self._recorder.record("server", frame + b"\n")

    def unreadable(self, error: ProtocolError) -> None:
        self._recorder.event("unreadable", error=error.message)

    def ended(self, error: McpdError | None) -> None:
        self._recorder.event("end", **{"from": "server"})

    def failed(self, request_id: Id | None, error: McpdError) -> None:
        self._recorder.event("failed", error=str(error), **({} if request_id is None else {"id": request_id}))
