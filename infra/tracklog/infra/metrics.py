"""Metrics of one process, as Prometheus reads them (DESIGN §12). The one module that knows the client library.

What happens is counted where it happens; what is, is asked for when somebody looks (`sampled`), and that answer is good
for a while. Names and labels are those of the catalogue, and nothing else can be counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from tracklog.infra.clock import Clock
from tracklog.infra.metrics_catalogue import BOUNDED, CATALOGUE, OTHER, Kind, Metric
from tracklog.schemas.errors import LogUnavailable, TracklogError

__all__ = ["CONTENT_TYPE", "Metrics", "Sample", "Sampler"]

WAIT_S: Final = 5.0
"""Half of the time after which Prometheus gives up by default."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One value of a gauge, or of a counter that somebody else counts."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


Sampler = Callable[[], Iterable[Sample]]


class Metrics:
    """See the module. Its methods may be called from any thread. `sample_s`: for how long samples are good; `wait_s`:
    how long a look waits for what log and store are asked for."""

    def __init__(
        self, clock: Clock, *, sample_s: float, wait_s: float = WAIT_S, catalogue: Sequence[Metric] = CATALOGUE
    ) -> None:
        self._clock = clock
        self._sample_s = sample_s
        self._wait_s = wait_s
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
        """Asked when somebody looks. `kept`: its answer is good for `sample_s`, because it asks a log or a store, on a
        thread of its own. One that raises a TracklogError, or does not answer in time, is counted as a failure of its
        `source`, and shows nothing."""
        kind = _Source(source, sampler) if not kept else _KeptSource(source, sampler, self._sample_s)
        self._sources.append(kind)

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """What is sampled; for the library."""
        values: dict[str, dict[tuple[str, ...], float]] = {}
        sources, until_s = list(self._sources), self._clock.monotonic_s() + self._wait_s
        for source in sources:
            source.begin(self._clock)
        for sample in [one for source in sources for one in self._asked(source, until_s)]:
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

    def _asked(self, source: _Source, until_s: float) -> Sequence[Sample]:
        try:
            return source.samples(max(0.0, until_s - self._clock.monotonic_s()))
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
    """Where samples come from."""

    def __init__(self, name: str, sampler: Sampler) -> None:
        self.name = name
        self._sampler = sampler

    def begin(self, clock: Clock) -> None:
        """Before any source is waited for."""

    def samples(self, wait_s: float) -> Sequence[Sample]:
        """Raises TracklogError."""
        return list(self._sampler())


class _KeptSource(_Source):
    """Asked by one at a time, on a thread that a look does not wait for longer than it may: whoever is asked may hang,
    and what else a process has to say of itself must be read then more than ever."""

    def __init__(self, name: str, sampler: Sampler, kept_s: float) -> None:
        super().__init__(name, sampler)
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._answer: Future[Sequence[Sample]] | None = None
        self._asked_s = 0.0

    def begin(self, clock: Clock) -> None:
        with self._lock:
            now_s, answer = clock.monotonic_s(), self._answer
            if answer is not None and (not answer.done() or now_s - self._asked_s < self._kept_s):
                return
            self._asked_s, self._answer = now_s, Future()
            threading.Thread(target=self._ask, args=(self._answer,), name="tracklog-sample", daemon=True).start()

    def _ask(self, answer: Future[Sequence[Sample]]) -> None:
        try:
            answer.set_result(list(self._sampler()))
        except BaseException as error:  # noqa: BLE001 - raised to whoever looks
            answer.set_exception(error)

    def samples(self, wait_s: float) -> Sequence[Sample]:
        answer = self._answer
        assert answer is not None, "it was not begun"
        try:
            return answer.result(wait_s)
        except FutureTimeoutError:
            raise LogUnavailable(f"no answer of {self.name} within {wait_s:g} s") from None
