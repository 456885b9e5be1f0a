"""The errors that a host answers a View's requests with, each with the word that a `Finding` has for it.

    -32700 parse    -32600 shape, size, state    -32601 method, capability    -32602 params, visibility
    -32603 internal    -32000 denied, limit (MCP Apps: "Implementation-defined error")

The core's own errors (`mcpd.errors`) are used where they say enough; these add a distinction.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mcpd.errors import FrameTooLarge, InvalidParams, InvalidRequest, MethodNotFound, ParseError, ProtocolError


class WrongState(InvalidRequest):
    """A message that is legal at another time."""


class NotOffered(MethodNotFound):
    """A method whose capability this host did not announce."""


class NotVisible(InvalidParams):
    """A tool that is not there, or not for Views."""


class Denied(ProtocolError):
    """The host or its user says no, or it could not be done."""

    code: ClassVar[int] = -32000
    default_message: ClassVar[str] = "Denied by the host"


class TooMuch(Denied):
    """A limit is reached; later it may go through."""


_RULES: Final[tuple[tuple[type[ProtocolError], str], ...]] = (
    (ParseError, "parse"),
    (FrameTooLarge, "size"),
    (WrongState, "state"),
    (InvalidRequest, "shape"),
    (NotOffered, "capability"),
    (MethodNotFound, "method"),
    (NotVisible, "visibility"),
    (InvalidParams, "params"),
    (TooMuch, "limit"),
    (Denied, "denied"),
)


def rule_of(error: ProtocolError) -> str:
    """The word for what was broken."""
    return next((rule for kind, rule in _RULES if isinstance(error, kind)), "internal")
