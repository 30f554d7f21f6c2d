"""Exports spans over OTLP/HTTP while they are folded. The one module that knows OpenTelemetry (extra `otel`).

Once at least, under ids that never change: the position is stored after a batch was taken by the collector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from tracklog.infra.clock import Clock
from tracklog.infra.settings_spans import SpanSettings
from tracklog.processors.outlet import Outlet
from tracklog.processors.processor import Seen
from tracklog.processors.spans import Run, Span, Spans
from tracklog.processors.writes import Write
from tracklog.schemas.errors import StoreUnavailable

__all__ = ["ExportedSpans"]

BATCH_SPANS: Final = 500
_NS_PER_S: Final = 1_000_000_000
_NS_PER_US: Final = 1000
_SCOPE: Final = InstrumentationScope("tracklog")


class ExportedSpans(Spans, Outlet):
    """See `Spans` and `Outlet`."""

    def __init__(self, settings: SpanSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._collected: dict[str, Span] = {}
        self._resource = Resource({"service.name": settings.service_name})
        headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
        self._exporter = OTLPSpanExporter(settings.endpoint, headers=headers, timeout=settings.timeout_s)
        self.exported = 0

    def opened(self) -> None:
        self._collected.clear()

    def emit(self, key: str, after: Run, seen: Seen) -> Iterable[Write]:
        self._collected.update((span.span, span) for span in after.closed)
        return ()

    def deliver(self) -> None:
        oldest_ns = self._clock.now_us() * _NS_PER_US - round(self._settings.age_s_max * _NS_PER_S)
        spans = [span for span in self._collected.values() if span.end_ns >= oldest_ns]
        for start in range(0, len(spans), BATCH_SPANS):
            self._send(spans[start : start + BATCH_SPANS])

    def _send(self, spans: Sequence[Span]) -> None:
        taken = self._exporter.export([_readable(span, self._resource) for span in spans])
        if taken is not SpanExportResult.SUCCESS:
            raise StoreUnavailable(
                f"the collector at {self._settings.endpoint} did not take {len(spans)} spans",
                hint="is spans.endpoint right, with its path (/v1/traces), and does it let us in (spans.headers)?",
            )
        self.exported += len(spans)


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace, span.span, is_remote=False),
        parent=_context(span.trace, span.parent, is_remote=True) if span.parent else None,
        resource=resource,
        attributes={**span.attributes, **({"error.type": span.error} if span.error else {})},
        kind=SpanKind.CLIENT if span.calls_out else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=_SCOPE,
    )


def _context(trace: str, span: str, *, is_remote: bool) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote, TraceFlags(TraceFlags.SAMPLED))
