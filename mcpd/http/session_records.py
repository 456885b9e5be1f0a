"""What another process has to know of a session to take it over, as bytes for a `SessionStore`.

A session that is not known here is made anew from its record (never is a request sent on to where it began): its
version, what its client said of itself, its log level, and the resources it watches. Streams and questions that are
open stay where they are.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.json import Decoder, encode

from ..envelope import ClientIdentity
from ..session import Session
from ..types.lifecycle import ClientCapabilities, Implementation
from ..versions import table
from ..versions.table import Version

__all__ = ["SessionRecord", "read_record", "record_of"]


class SessionRecord(Struct, frozen=True):
    """One session, as it is kept."""

    version: str
    principal: str
    capabilities: ClientCapabilities
    info: Implementation | None
    is_initialized: bool
    log_level: str | None
    watched: list[str] = []

    def open_version(self) -> Version | None:
        """Its version, None if this server has it no more."""
        return table.get(self.version) if self.version in table.LEGACY else None

    def restore(self, session: Session) -> None:
        """Make this the state of a new session, which was opened in its version. Raises InternalError for no memory."""
        client = ClientIdentity(self.capabilities, self.info)
        session.restore(client, is_initialized=self.is_initialized, log_level=self.log_level)
        for uri in self.watched:
            session.watch(uri)


_read = Decoder(SessionRecord).decode


def read_record(data: bytes) -> SessionRecord:
    """The record that `record_of` wrote. Raises msgspec.DecodeError."""
    return _read(data)


def record_of(session: Session) -> bytes:
    """The record of a session that has been initialized."""
    assert session.version is not None
    record = SessionRecord(
        session.version.name,
        session.principal,
        session.client.capabilities,
        session.client.info,
        session.is_initialized,
        session.log_level,
        [] if session.watched is None else sorted(session.watched),
    )
    return encode(record)
