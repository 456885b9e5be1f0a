"""Where spans go: a provider of OpenTelemetry's SDK as its variables in the environment say, or the program's own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


def provider_of_program() -> Any:
    """The provider that the program has set; None if it has set none, or has not loaded OpenTelemetry."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider = api.get_tracer_provider()
    return None if isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)) else provider


def provider_of(environment: Mapping[str, str], name: str) -> Any:
    """A provider as the environment says. Raises ImportError, or ValueError for what is not had here."""
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
            raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}; there is http/protobuf")
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter()
    else:
        raise ValueError(f"OTEL_TRACES_EXPORTER is {wanted}; there are otlp, console and none")

    attributes = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": name}
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
