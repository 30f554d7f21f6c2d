"""Metrics of one process, as Prometheus reads them (DESIGN §12). The one module that knows the client library.

What happens is counted where it happens; what is, is asked for when somebody looks (`sampled`), and that answer is good
for a while. Names and labels are those of the catalogue, and nothing else can be counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from tracklog.infra.clock import Clock
from tracklog.infra.metrics_catalogue import BOUNDED, CATALOGUE, OTHER, Kind, Metric
from tracklog.schemas.errors import TracklogError

__all__ = ["CONTENT_TYPE", "Metrics", "Sample", "Sampler"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One value of a gauge, or of a counter that somebody else counts."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


Sampler = Callable[[], Iterable[Sample]]


class Metrics:
    """See the module. Its methods may be called from any thread. `sample_s`: for how long samples are good."""

    def __init__(self, clock: Clock, *, sample_s: float, catalogue: Sequence[Metric] = CATALOGUE) -> None:
        self._clock = clock
        self._sample_s = sample_s
        self._catalogue = {one.name: one for one in catalogue}
        self._registry = CollectorRegistry(auto_describe=False)
        self._counted: dict[str, Any] = {}
        self._series: dict[tuple[object, ...], Any] = {}
        self._sources: list[_Source] = []
        self._known: dict[str, set[str]] = {}
        self._lock = threading.Lock()
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        self._one(name, Kind.COUNTER, labels).inc(amount)

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        self._one(name, Kind.HISTOGRAM, labels).observe(seconds)

    def sampled(self, source: str, sampler: Sampler, *, kept: bool = False) -> None:
        """Asked when somebody looks. `kept`: its answer is good for `sample_s`, because it asks a log or a store. One
        that raises a TracklogError is counted as a failure of its `source`, and shows nothing."""
        self._sources.append(_Source(source, sampler, self._sample_s if kept else 0.0))

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """What is sampled; for the library."""
        values: dict[str, dict[tuple[str, ...], float]] = {}
        for sample in [one for source in list(self._sources) for one in self._asked(source)]:
            labels = tuple(self.bounded(name, sample.labels[name]) for name in self._catalogue[sample.name].labels)
            series = values.setdefault(sample.name, {})
            series[labels] = series.get(labels, 0) + sample.value  # others are added up
        for name, series in values.items():
            metric = self._catalogue[name]
            kind = GaugeMetricFamily if metric.kind is Kind.GAUGE else CounterMetricFamily
            family = kind(metric.name, metric.meaning, labels=metric.labels)
            for labels, value in series.items():
                family.add_metric(labels, value)
            yield family

    def bounded(self, label: str, value: str) -> str:
        """The value as it is shown: see BOUNDED."""
        most = BOUNDED.get(label)
        if most is None:
            return value
        with self._lock:
            known = self._known.setdefault(label, set())
            if value not in known and len(known) < most:
                known.add(value)
            return value if value in known else OTHER

    def _asked(self, source: _Source) -> Sequence[Sample]:
        try:
            return source.samples(self._clock)
        except TracklogError:
            self.count("tracklog_sample_failures_total", source=source.name)
            return ()

    def _one(self, name: str, kind: Kind, labels: Mapping[str, str]) -> Any:
        asked = (name, *labels.items())
        known = self._series.get(asked)
        if known is not None:
            return known
        metric = self._catalogue[name]
        assert metric.kind is kind, f"{name} is a {metric.kind}"
        with self._lock:
            counted = self._counted.get(name)
            if counted is None:
                counted = self._counted[name] = self._made(metric)
        shown = [self.bounded(label, labels[label]) for label in metric.labels]
        series = counted.labels(*shown) if shown else counted
        if shown == [labels[label] for label in metric.labels]:  # those are bounded in number
            self._series[asked] = series
        return series

    def _made(self, metric: Metric) -> Counter | Histogram:
        if metric.kind is Kind.COUNTER:
            return Counter(metric.name, metric.meaning, metric.labels, registry=self._registry)
        return Histogram(metric.name, metric.meaning, metric.labels, buckets=metric.bounds, registry=self._registry)


class _Source:
    """Where samples come from; asked by one at a time."""

    def __init__(self, name: str, sampler: Sampler, kept_s: float) -> None:
        self.name = name
        self._sampler = sampler
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._samples: Sequence[Sample] = ()
        self._asked_s: float | None = None
        self._failed: TracklogError | None = None

    def samples(self, clock: Clock) -> Sequence[Sample]:
        with self._lock:
            now_s = clock.monotonic_s()
            if self._asked_s is None or now_s - self._asked_s >= self._kept_s:
                self._asked_s, self._failed, self._samples = now_s, None, ()
                try:
                    self._samples = list(self._sampler())
                except TracklogError as error:
                    self._failed = error
            if self._failed is not None:
                raise self._failed
            return self._samples
