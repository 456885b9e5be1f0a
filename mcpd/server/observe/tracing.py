"""Spans of requests by OpenTelemetry. Loaded only if the environment or the program has configured it.

A span surrounds the handler and all middleware. The handler runs in a context of its own, in which the span is the
current one: its first step may run in another task's context (`dispatcher.tasks`), which must not keep the span.
Arguments, results, URIs and texts of errors are not recorded. Names and attributes follow the conventions for MCP.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import Context, copy_context
from functools import partial
from hashlib import sha256
from types import CoroutineType, coroutine
from typing import Any

from msgspec import Struct

from mcpd import __version__
from mcpd.errors import ProtocolError, RemoteError
from mcpd.protocol.methods import METHODS
from mcpd.protocol.printable import printable
from mcpd.protocol.wire import trace_context
from mcpd.protocol.wire.trace_context import TraceContext
from mcpd.server.context.exchange import Exchange, Handler
from mcpd.server.context.peer import InputRequired, TaskHandedOver


def provider_of_program() -> Any:
    """Return the provider that the program has set; None without one, or without OpenTelemetry."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider = api.get_tracer_provider()
    return None if isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)) else provider


def provider_of(environment: Mapping[str, str], name: str) -> Any:
    """Return a provider for the variables of the environment. Raises ImportError, or ValueError for other exporters."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    wanted = environment.get("OTEL_TRACES_EXPORTER", "otlp").lower() or "otlp"
    exporter: Any
    if wanted == "console":
        exporter = ConsoleSpanExporter(out=sys.stderr)  # stdout belongs to the protocol
    elif wanted == "otlp":
        protocol = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
        protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or protocol or "http/protobuf"
        if protocol != "http/protobuf":
            raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}; only http/protobuf is supported")
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter()
    else:
        raise ValueError(f"OTEL_TRACES_EXPORTER is {wanted}; use otlp, console or none")

    attributes = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": name}
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


log = logging.getLogger("mcpd")

_END_SECONDS = 1.0
_NAMED = {method: f"gen_ai.{row.entry}.name" for method, row in METHODS.items() if row.subject == "name"}
_TRANSPORTS = {"stdio": "pipe", "websocket": "tcp", "http": "tcp"}


class Tracing:
    """The spans of one server. The default `provider` is that which the program has set, or one for the environment."""

    def __init__(self, server: Any, provider: Any = None) -> None:
        from opentelemetry import context, trace

        self._api = trace
        self._contexts = context
        # Make a context the current one. It is not restored, because each handler has a context of its own.
        self._attach = context.attach
        self._nothing = context.Context()
        self._server_kind = trace.SpanKind.SERVER
        self._server = server
        provider = provider or provider_of_program()
        if provider is None:
            provider = provider_of(os.environ, server.name)
            trace.set_tracer_provider(provider)  # spans of the tools go the same way

        self._provider = provider
        self._tracer = provider.get_tracer("mcpd", __version__)

    @classmethod
    def begin(cls, server: Any) -> Tracing | None:
        """Trace a server as configured by the environment. Returns None after logging a warning if that fails."""
        try:
            tracing = cls(server)
        except ImportError as error:
            missing = "opentelemetry" if (error.name or "").startswith("opentelemetry") else str(error.name)
            log.warning("No traces, because %s is missing: pip install 'mcpd-server[otel]'", printable(missing))
            return None
        except Exception as error:
            log.warning("No traces: %s", printable(error, 300))
            return None

        tracing.attach()
        return tracing

    def attach(self) -> None:
        """Trace each request from now on, and propagate the trace to requests of the server."""
        self._server.handlers.wrap(self._wrapped, rank=2)
        trace_context.set_tracer(self)

    def stop(self) -> None:
        """Send the remaining spans. Waits at most one second for the collector (OBS-11)."""
        trace_context.set_tracer(None)
        # The provider is not shut down: the program may continue to use it.
        flush = getattr(self._provider, "force_flush", None)
        if flush is not None:
            ending = threading.Thread(target=flush, name="mcpd-traces", daemon=True)
            ending.start()
            ending.join(_END_SECONDS)

    # -- handlers ----------------------------------------------------------------------------

    def _wrapped(self, method: str, handler: Handler) -> Handler:
        named = _NAMED.get(method)
        begin, remote, in_context = self._begin, self._remote, self._api.set_span_in_context

        def traced(exchange: Exchange, params: Any) -> Any:
            call = exchange.call
            parent = trace_context.read(call.raw)
            above = self._nothing if parent is None else remote(parent)
            span = begin(method, named, exchange, params, above)
            # Created on demand: few tools read it.
            call.trace = partial(_trace_of, span, "" if parent is None else parent.baggage)
            context = copy_context()
            context.run(self._attach, in_context(span, above))
            try:
                result = context.run(handler, exchange, params)
            except BaseException as error:
                self._fail(span, error)
                raise

            if result.__class__ is CoroutineType:
                return self._finish(span, context, result)
            self._end(span, result)
            return result

        return traced

    async def _finish(self, span: Any, context: Context, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            result = await _in_context(context, work)
        except BaseException as error:
            self._fail(span, error)
            raise
        self._end(span, result)
        return result

    # -- the span ----------------------------------------------------------------------------

    def _begin(self, method: str, named: str | None, exchange: Exchange, params: Any, above: Any) -> Any:
        # Start a span with the attributes for samplers. The others are added only if the span is recorded.
        attributes: dict[str, Any] = {"mcp.method.name": method}
        title = method
        if named is not None:
            name = attributes[named] = self._known(method, str(getattr(params, "name", "")))
            title = f"{method} {name}"

        span = self._tracer.start_span(title, above, self._server_kind, attributes, None, None, False, False)
        if span.is_recording():
            span.set_attributes(self._more(method, exchange))
            self._link(span, above)

        return span

    def _link(self, span: Any, above: Any) -> None:
        # A span that surrounds this one, such as the span of an ASGI server, is linked. The parent is the client's
        # span.
        around, parent = self._api.get_current_span(), self._api.get_current_span(above)
        surrounding = around.get_span_context()
        if surrounding.is_valid and surrounding.span_id != parent.get_span_context().span_id:
            span.add_link(surrounding)

    def _more(self, method: str, exchange: Exchange) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "mcp.protocol.version": exchange.call.version.name,
            "jsonrpc.request.id": printable(exchange.request_id, 64),
        }
        if method == "tools/call":
            attributes["gen_ai.operation.name"] = "execute_tool"
        transport = exchange.origin.transport
        if transport in _TRANSPORTS:
            attributes["network.transport"] = _TRANSPORTS[transport]
        session = getattr(exchange.peer.channel, "id", None)
        if isinstance(session, str):
            # Not the id itself, which grants access to the session.
            attributes["mcp.session.id"] = sha256(session.encode()).hexdigest()[:16]

        return attributes

    def _known(self, method: str, name: str) -> str:
        # Return the name of a registered tool or prompt, `_other` for any other name.
        catalog = self._server.catalog
        entries = catalog.tools if method == "tools/call" else catalog.prompts
        return name if entries.find_enabled(name) is not None else "_other"

    def _remote(self, parent: TraceContext) -> Any:
        # Return the context of a remote parent.
        api = self._api
        state = api.TraceState.from_header([parent.tracestate]) if parent.tracestate else None
        flags = api.TraceFlags(int(parent.traceparent[53:55], 16))
        remote = api.SpanContext(
            int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags, trace_state=state
        )
        return api.set_span_in_context(api.NonRecordingSpan(remote), self._nothing)

    def _end(self, span: Any, result: Any) -> None:
        if getattr(result, "is_error", None) is True:
            span.set_attribute("error.type", "tool_error")
            span.set_status(self._api.StatusCode.ERROR)
        span.end()

    def _fail(self, span: Any, error: BaseException) -> None:
        # End a span with the class of an exception. Its text may contain secrets, and is not recorded.
        if not isinstance(error, (InputRequired, TaskHandedOver)):
            kind = str(error.code) if isinstance(error, (ProtocolError, RemoteError)) else type(error).__name__
            span.set_attribute("error.type", "cancelled" if isinstance(error, asyncio.CancelledError) else kind)
            span.set_status(self._api.StatusCode.ERROR)
        span.end()

    # -- requests of the server --------------------------------------------------------------

    def propagated(self) -> dict[str, str]:
        current = self._api.get_current_span()
        return _trace_of(current, "").headers() if current.get_span_context().is_valid else {}

    def start_span(self, method: str, name: str) -> trace_context.Span:
        attributes = {"mcp.method.name": method}
        if name and method in _NAMED:
            attributes[_NAMED[method]] = name
        title = f"{method} {name}" if name and method in _NAMED else method
        span = self._tracer.start_span(
            title, kind=self._api.SpanKind.CLIENT, attributes=attributes, record_exception=False,
            set_status_on_exception=False,
        )  # fmt: skip
        before = self._contexts.get_current()
        self._attach(self._api.set_span_in_context(span))
        return _Asked(span, self._fail, lambda: self._attach(before))


class _Asked(Struct, eq=False):
    # A pending request of the server, whose span is the current one.
    _span: Any
    _fail: Callable[[Any, BaseException], None]
    _leave: Callable[[], object]

    def end(self, error: BaseException | None = None) -> None:
        self._leave()
        if error is None:
            self._span.end()
        else:
            self._fail(self._span, error)


def _trace_of(span: Any, baggage: str) -> TraceContext:
    # Return the trace context to propagate for a span.
    context = span.get_span_context()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    return TraceContext(parent, context.trace_state.to_header() if context.trace_state else "", baggage)


@coroutine
def _in_context(context: Context, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    # Await `work`, and run each of its steps in this context.
    try:
        waits_for = context.run(work.send, None)
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                waits_for = context.run(work.throw, error)
            else:
                waits_for = context.run(work.send, value)
    except StopIteration as done:
        return done.value
