"""The trace that a request belongs to, as W3C Trace Context writes it: bare keys of `_meta`, in every version.

What is malformed is ignored, as that specification asks for: a call is never refused for it (S26-035, OBS-05).
Spec: 2026-07-28 basic/index, `_meta`; W3C Trace Context, W3C Baggage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, field
from msgspec.json import Decoder

_is_traceparent = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
).fullmatch
_MOST_CHARACTERS = 8192
_MALFORMED = (DecodeError, UnicodeDecodeError, RecursionError)


class TraceContext(Struct, frozen=True):
    """A trace, and the span in it that what is done now belongs to. `headers()` is for other services."""

    traceparent: str
    tracestate: str = ""
    baggage: str = ""

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits."""
        return self.traceparent[36:52]

    def headers(self) -> dict[str, str]:
        """As headers of a request to another service, or members of `_meta`; those that there are."""
        found = {"traceparent": self.traceparent, "tracestate": self.tracestate, "baggage": self.baggage}
        return {name: value for name, value in found.items() if value}


class _Meta(Struct):
    traceparent: Raw | UnsetType = UNSET
    tracestate: Raw | UnsetType = UNSET
    baggage: Raw | UnsetType = UNSET


class _Params(Struct):
    meta: _Meta | UnsetType = field(name="_meta", default=UNSET)


_read_params = Decoder(_Params).decode
_read_text = Decoder(str).decode


def read(params: Raw | bytes) -> TraceContext | None:
    """That of a request with these params; None if it has none, or no valid one."""
    if b"traceparent" not in bytes(params):
        return None
    try:
        meta = _read_params(params).meta
    except _MALFORMED:
        return None
    if meta is UNSET:
        return None
    members = {"traceparent": meta.traceparent, "tracestate": meta.tracestate, "baggage": meta.baggage}
    return parse({name: _text(value) for name, value in members.items()})


def parse(fields: Mapping[str, str]) -> TraceContext | None:
    """One of these members; None without a valid `traceparent`. Of the other two what is no header is left out."""
    parent = fields.get("traceparent", "")
    if len(parent) > _MOST_CHARACTERS or not _is_traceparent(parent) or (parent[:2] == "00" and len(parent) != 55):
        return None
    return TraceContext(parent[:55], _header(fields.get("tracestate", "")), _header(fields.get("baggage", "")))


def _text(raw: Raw | UnsetType) -> str:
    if raw is UNSET:
        return ""
    try:
        return _read_text(raw)
    except _MALFORMED:
        return ""


def _header(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS and text.isascii() and text.isprintable() else ""


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
