"""Spans as traces of OpenTelemetry, sent to a collector in its protocol (OTLP over HTTP) by our own guarded requests.

The extra `otel` is imported here alone, and this module only where a project names a collector.
"""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from instep import __version__
from instep.egress.guard import EgressGuard
from instep.egress.http import post
from instep.errors import InstepError, SetupError
from instep.logs import bound, clean, context
from instep.project.sections.channels import TracesSection
from instep.redaction import error_line
from instep.spans import Fact, listen

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    from opentelemetry.trace import Span, Status, StatusCode
except ImportError as error:
    raise SetupError("traces need the extra `otel`", hint="pip install 'instep[otel]'") from error

_log = logging.getLogger("instep.traces")
LONGEST = 500
"""Characters of an error's text."""
_current: TraceExporter | None = None


class Exporter(SpanExporter):
    """Posts batches. What cannot be delivered is dropped with a line in the logs: no run waits for a collector."""

    def __init__(self, guard: EgressGuard, settings: TracesSection) -> None:
        self._guard, self._settings = guard, settings

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        settings, body = self._settings, gzip.compress(encode_spans(spans).SerializeToString())
        headers = {**settings.headers, "Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        try:
            answer = post(self._guard, settings.url, body, headers, timeout=settings.timeout, ca=settings.ca)
        except InstepError as error:
            return self._dropped(len(spans), error.message)
        if not 200 <= answer.status < 300:
            return self._dropped(len(spans), f"the collector answers {answer.status}")
        return SpanExportResult.SUCCESS

    def _dropped(self, count: int, why: str) -> SpanExportResult:
        _log.warning("%d spans were not delivered: %s", count, why)
        return SpanExportResult.FAILURE


def trace_to(guard: EgressGuard, settings: TracesSection) -> TraceExporter:
    """Return the exporter of this process's spans, with these settings; there is one at a time."""
    global _current
    if _current is None or _current.made_of != (guard, settings):
        end()
        _current = TraceExporter(guard, settings)
    return _current


def end() -> None:
    """Stop listening and send the remaining spans."""
    global _current
    if _current is not None:
        _current.close()
    _current = None


class TraceExporter:
    """Listens to the spans of this process until it is closed, or the process ends."""

    def __init__(self, guard: EgressGuard, settings: TracesSection) -> None:
        self.made_of = guard, settings
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "instep"}
        resource = Resource.create({**named, "service.version": __version__})
        sampler = ParentBased(TraceIdRatioBased(settings.sample))
        self._provider = TracerProvider(sampler, resource, shutdown_on_exit=True)
        self._provider.add_span_processor(BatchSpanProcessor(Exporter(guard, settings)))
        self._tracer = self._provider.get_tracer("instep", __version__)
        listen(self._open, _tell)

    @contextmanager
    def _open(self, name: str, facts: Mapping[str, Fact]) -> Iterator[None]:
        """Open a span with the ids of the work, which the lines of the logs have as well."""
        attributes = _attributes({**context(), **facts})
        with (
            self._tracer.start_as_current_span(
                name, attributes=attributes, record_exception=False, set_status_on_exception=False
            ) as opened,
            bound(trace_id=trace.format_trace_id(opened.get_span_context().trace_id)),
        ):
            try:
                yield
            except BaseException as error:
                _failed(opened, error)
                raise

    def flush(self) -> None:
        """Send what has ended."""
        self._provider.force_flush()

    def close(self) -> None:
        """Send what is left."""
        listen(None)
        self._provider.shutdown()


def _tell(facts: Mapping[str, Fact]) -> None:
    trace.get_current_span().set_attributes(_attributes(facts))


def _failed(opened: Span, error: BaseException) -> None:
    """Record a failure without its stack: frames and causes may hold anything."""
    opened.set_attribute("error.type", type(error).__name__)
    text = str(error) if isinstance(error, InstepError) else error_line(error)
    opened.set_status(Status(StatusCode.ERROR, clean(text)[:LONGEST]))


def _attributes(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Prefix each name with `instep.`, and remove secrets from texts."""
    return {f"instep.{name}": _clean(value) for name, value in facts.items() if name != "trace_id"}


def _clean(value: Fact) -> Fact:
    if isinstance(value, tuple):
        return tuple(clean(part) for part in value)
    return clean(value) if isinstance(value, str) else value
