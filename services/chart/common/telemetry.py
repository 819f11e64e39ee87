"""Logs, traces and metrics of a service.

Logs are JSON lines on stderr: what was done and why, with the trace id. Spans go to an OTLP collector when
``CHART_OTLP_ENDPOINT`` names one, otherwise as JSON lines into <state>/traces/<service>.jsonl. No more than
``CHART_TRACES_PER_S`` traces begin in a second, so that a load is not slowed down by being watched; whether a trace is
recorded is decided where it begins. The trace context travels as W3C ``traceparent`` in gRPC metadata and Kafka
headers. Metrics are Prometheus', named chart_<service>_<noun>_<unit>.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from chart.common.settings import BaseServiceSettings

# A trace file is renamed to .1 at this size, so a service keeps at most twice as much.
TRACE_FILE_LIMIT_BYTES = 20_000_000

_propagator = TraceContextTextMapPropagator()
_service = "chart"
_provider: TracerProvider | None = None
# Made once: to make one costs as much as to begin a span that is not recorded.
_tracer: trace.Tracer | None = None


def service_name() -> str:
    """The name given to `setup`; "chart" before."""
    return _service


def setup(service: str, settings: BaseServiceSettings | None = None) -> None:
    """Set up logs and traces of this process. Call once, first thing in main."""
    global _service, _provider
    settings = settings or BaseServiceSettings()
    _service = service
    _setup_logs(settings.log_level)
    if _provider is None:
        _provider = TracerProvider(
            resource=Resource.create({"service.name": f"chart-{service}"}),
            sampler=ParentBased(SomePerSecond(settings.traces_per_s)),
        )
        _provider.add_span_processor(
            BatchSpanProcessor(_exporter(service, settings), schedule_delay_millis=500, max_queue_size=4096)
        )
        trace.set_tracer_provider(_provider)


def shutdown() -> None:
    """Write out what is still in memory. Safe to call twice, and without `setup`."""
    global _provider
    if _provider is not None:
        _provider.shutdown()
        _provider = None


def _exporter(service: str, settings: BaseServiceSettings) -> SpanExporter:
    if settings.otlp_endpoint:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=settings.otlp_endpoint, insecure=True, timeout=5)
    return JsonLinesExporter(settings.state_dir / "traces" / f"{service}.jsonl")


def _setup_logs(level: str) -> None:
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_service_and_trace,
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = _JsonHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [other for other in root.handlers if not isinstance(other, _JsonHandler)] + [handler]
    root.setLevel(level.upper())
    # Libraries that speak of every request, or of every use of a connection.
    for noisy in (
        "httpx",
        "httpx2",
        "httpcore",
        "httpcore2",
        "uvicorn.access",
        "uvicorn.error",
        "asyncio",
        "urllib3",
        "psycopg.pool",
    ):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


class _JsonHandler(logging.StreamHandler[TextIO]):
    """Writes to what stderr is at the moment of writing, so that a redirection in between holds."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # a property on purpose
        """The current stderr."""
        return sys.stderr


def _add_service_and_trace(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event["service"] = _service
    if identity := current_trace_id():
        event["trace_id"] = identity
    return event


def current_trace_id() -> str:
    """Trace id of the current span, 32 hexadecimal digits; empty without one."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


def recorded() -> bool:
    """Whether the current span is recorded: what is said of every call beside it may be left out otherwise."""
    return trace.get_current_span().is_recording()


def tracer() -> trace.Tracer:
    """The tracer of this process; one that is had before `setup` begins to record with it."""
    global _tracer
    if _tracer is None:
        _tracer = trace.get_tracer("chart")
    return _tracer


def inject(headers: Mapping[str, str] | None = None) -> dict[str, str]:
    """A copy of the headers with ``traceparent`` of the current span; one that is there already stays."""
    carrier = dict(headers or {})
    if "traceparent" not in carrier:
        _propagator.inject(carrier)
    return carrier


def extract(headers: Mapping[str, str]) -> Context:
    """The trace context that headers carry; an empty one without ``traceparent``."""
    return _propagator.extract({"traceparent": headers["traceparent"]} if "traceparent" in headers else {})


@contextlib.contextmanager
def span(name: str, headers: Mapping[str, str] | None = None, **attributes: Any) -> Iterator[trace.Span]:
    """A span that continues the trace in ``headers`` (of a record or a call), or the current one without headers."""
    context = extract(headers) if headers is not None and "traceparent" in headers else None
    with tracer().start_as_current_span(name, context=context, attributes=attributes) as current:
        yield current


class SomePerSecond(Sampler):
    """Records so many new traces a second, after a quiet time twice as many at once."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._at = clock()
        self._left = 2 * per_s
        self._lock = threading.Lock()

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Sample until the limit of spans per second is reached, then drop."""
        with self._lock:
            now = self._clock()
            self._left = min(2 * self._per_s, self._left + (now - self._at) * self._per_s)
            self._at = now
            taken = self._left >= 1
            self._left -= taken
        return SamplingResult(Decision.RECORD_AND_SAMPLE if taken else Decision.DROP, attributes, trace_state)

    def get_description(self) -> str:
        """Name of the sampler with its limit, spans per second."""
        return f"SomePerSecond({self._per_s:g})"


class JsonLinesExporter(SpanExporter):
    """Writes one JSON object per span; for machines without a collector."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append the spans to the file."""
        lines = "".join(json.dumps(_span_fields(span), default=str) + "\n" for span in spans)
        with self._lock:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                if self._path.exists() and self._path.stat().st_size > TRACE_FILE_LIMIT_BYTES:
                    self._path.replace(self._path.with_suffix(".jsonl.1"))
                with self._path.open("a") as file:
                    file.write(lines)
            except OSError as error:
                # A full disk must not stop the service that is being traced.
                print(f"traces: cannot write {self._path}: {error}", file=sys.stderr)
                return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS


def _span_fields(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None
    return {
        "name": span.name,
        "trace_id": f"{context.trace_id:032x}",
        "span_id": f"{context.span_id:016x}",
        "parent_span_id": f"{span.parent.span_id:016x}" if span.parent else None,
        "service": span.resource.attributes.get("service.name"),
        "start_us": (span.start_time or 0) // 1000,
        "end_us": (span.end_time or 0) // 1000,
        "status": span.status.status_code.name,
        "attributes": dict(span.attributes or {}),
        "pid": os.getpid(),
    }
