"""What the HTTP API shows of itself. It needs the extra `serve`, so it stands apart from the other roles."""

from __future__ import annotations

from collections.abc import Iterator

from tracklog.consumers.api.services import Services
from tracklog.consumers.observing.projection_age import ProjectionAge
from tracklog.consumers.observing.role import Observed
from tracklog.infra.metrics import Sample
from tracklog.processors.trajectories import NAME

__all__ = ["of_server"]


def of_server(seen: Observed | None, services: Services) -> None:
    """On its event loop, before the application is made."""
    if seen is None:
        return
    metrics = seen.metrics

    def counted(method: str, route: str, status: int, seconds: float) -> None:
        metrics.count("tracklog_api_requests_total", method=method, route=route, status=str(status))
        metrics.observe("tracklog_api_request_seconds", seconds, route=route)

    services.counting = counted
    seen.beat()
    seen.sampled("process", lambda: [Sample("tracklog_api_streams_open", services.streams)])
    seen.sampled("log", lambda: _age(services.age), kept=True)


def _age(age: ProjectionAge) -> Iterator[Sample]:
    yield Sample("tracklog_projection_age_seconds", age.seconds(), {"processor": NAME})
