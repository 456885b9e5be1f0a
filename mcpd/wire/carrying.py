"""What our own requests say of the trace that they belong to. Loaded by every client, so that nothing else is here."""

from __future__ import annotations

from typing import Protocol

is_carried = False
"""Whether they say anything; a name of the module, for each request asks it."""

_carrier: Carrier | None = None


class Span(Protocol):
    """A request of ours, from here to its answer. Both are called in the task that asks."""

    def end(self, error: BaseException | None = None) -> None:
        """It has its answer, or this was raised in its place."""


class Carrier(Protocol):
    """Who traces."""

    def carried(self) -> dict[str, str]:
        """What a request that is made now has in its `_meta`; {} if nothing is traced here."""

    def ask(self, method: str, name: str) -> Span:
        """A request of ours begins; `name` is that of the tool or prompt, or empty."""


def carry_by(carrier: Carrier | None) -> None:
    """Let our own requests belong to the trace that this one knows of; None for no trace."""
    global _carrier, is_carried
    _carrier, is_carried = carrier, carrier is not None


def carried() -> dict[str, str]:
    """What a request that is made now has in its `_meta`; {} where nobody traces."""
    return {} if _carrier is None else _carrier.carried()


def ask(method: str, params: object = None) -> Span | None:
    """A request of ours begins, which `carried` tells of until its end; None where nobody traces."""
    if _carrier is None:
        return None
    name = params.get("name") if isinstance(params, dict) else getattr(params, "name", None)
    return _carrier.ask(method, name if isinstance(name, str) else "")
