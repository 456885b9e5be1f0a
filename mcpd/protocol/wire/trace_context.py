"""W3C Trace Context in `_meta`: reading it from requests, and adding it to requests that this process sends.

Malformed values are ignored, as the specification requires; a request is never refused for them (S26-035, OBS-05).
Spec: 2026-07-28 basic/index, `_meta`; W3C Trace Context, W3C Baggage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import Decoder

from mcpd.protocol.jsonrpc import MALFORMED

_is_traceparent = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
).fullmatch
_MOST_CHARACTERS = 8192


class TraceContext(Struct, frozen=True):
    """A trace and the current span in it."""

    traceparent: str
    tracestate: str = ""
    baggage: str = ""

    @property
    def trace_id(self) -> str:
        """The id of the trace: 32 hexadecimal digits."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """The id of the span: 16 hexadecimal digits."""
        return self.traceparent[36:52]

    def headers(self) -> dict[str, str]:
        """Return the headers for a request to another service, or the keys of `_meta`."""
        fields = {"traceparent": self.traceparent, "tracestate": self.tracestate, "baggage": self.baggage}
        return {name: value for name, value in fields.items() if value}


class _Meta(Struct):
    traceparent: Raw | UnsetType = UNSET
    tracestate: Raw | UnsetType = UNSET
    baggage: Raw | UnsetType = UNSET


class _Params(Struct):
    meta: _Meta | UnsetType = field(name="_meta", default=UNSET)


_read_params = Decoder(_Params).decode
_read_text = Decoder(str).decode


def read(params: Raw | bytes) -> TraceContext | None:
    """Return the trace context in the params of a request; None if there is no valid one."""
    if b"traceparent" not in bytes(params):
        return None
    try:
        meta = _read_params(params).meta
    except MALFORMED:
        return None
    if meta is UNSET:
        return None
    members = {"traceparent": meta.traceparent, "tracestate": meta.tracestate, "baggage": meta.baggage}
    return parse({name: _text(value) for name, value in members.items()})


def parse(fields: Mapping[str, str]) -> TraceContext | None:
    """Parse headers or keys of `_meta`; None without a valid `traceparent`. Other invalid values are left out."""
    parent = fields.get("traceparent", "")
    if len(parent) > _MOST_CHARACTERS or not _is_traceparent(parent) or (parent[:2] == "00" and len(parent) != 55):
        return None
    return TraceContext(parent[:55], _header(fields.get("tracestate", "")), _header(fields.get("baggage", "")))


def _text(raw: Raw | UnsetType) -> str:
    if raw is UNSET:
        return ""
    try:
        return _read_text(raw)
    except MALFORMED:
        return ""


def _header(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS and text.isascii() and text.isprintable() else ""


is_traced = False
"""Whether a tracer is set. A plain variable, because every request reads it."""

_tracer: Tracer | None = None


class Span(Protocol):
    """The span of a request that this process sends."""

    def end(self, error: BaseException | None = None) -> None:
        """End the span, in the task that started it. `error` is what the request raised."""


class Tracer(Protocol):
    """Creates spans for requests that this process sends."""

    def propagated(self) -> dict[str, str]:
        """Return the keys that a request sent now has in its `_meta`; {} if nothing is traced."""

    def start_span(self, method: str, name: str) -> Span:
        """Start the span of a request. `name` is the tool or prompt, or ""."""


def set_tracer(tracer: Tracer | None) -> None:
    """Set the tracer of this process; None to stop tracing."""
    global _tracer, is_traced
    _tracer, is_traced = tracer, tracer is not None


def propagated() -> dict[str, str]:
    """Return the keys that a request sent now has in its `_meta`; {} without a tracer."""
    return {} if _tracer is None else _tracer.propagated()


def start_span(method: str, params: object = None) -> Span | None:
    """Start the span of a request; `propagated` returns its context until it ends. None without a tracer."""
    if _tracer is None:
        return None
    name = params.get("name") if isinstance(params, dict) else getattr(params, "name", None)
    return _tracer.start_span(method, name if isinstance(name, str) else "")
