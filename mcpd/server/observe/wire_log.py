"""The wire log, `mcpd serve --wire-log FILE`: what clients really send, and what they get."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from mcpd.protocol.observer import ObservedFrame, Observer
from mcpd.transports.recorder import Recorder, Recording, TraceFile

MAX_CHARACTERS = 200
"""Each text in a message is cut to this length."""

log = logging.getLogger("mcpd")


class WireLog(Observer):
    """Records each frame of a server in a private file, without secrets and without waiting for the disk.

    Raises ConfigurationError if the file cannot be written, is a link or belongs to somebody else.
    """

    def __init__(self, path: str) -> None:
        file = TraceFile(Path(path), sys.maxsize, option="--wire-log")
        recording = Recording(max_characters=MAX_CHARACTERS)
        self._recorder = Recorder(file, ["mcpd", *sys.argv[1:]], recording, complain=log.error, patience=0)

    def frame_received(self, frame: ObservedFrame) -> None:
        self._recorder.record_message("host", frame.data, connection=frame.connection)

    def frame_sent(self, frame: ObservedFrame) -> None:
        self._recorder.record_message("server", frame.data, connection=frame.connection)

    def close(self) -> None:
        """Write what is pending, and close the file."""
        self._recorder.close()
