"""The settings of what a process says of itself: probes, metrics, lines (DESIGN §12)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator

from tracklog.infra.settings_base import Positive, Section

__all__ = ["HealthSettings", "LoggingSettings", "place_of"]

_PORT_MAX: Final = 65535


def place_of(listen: str) -> tuple[str, int]:
    """Host and port from HOST:PORT, an IPv6 address in brackets. Raises ValueError."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise ValueError("an address to listen at is HOST:PORT, as in 0.0.0.0:9464")
    return host, int(port)


def _checked(listen: str) -> str:
    if listen:
        place_of(listen)
    return listen


class LoggingSettings(Section):
    """What commands say about their run, on standard error."""

    format: Literal["text", "json"] = "text"
    """`json`: one object a line, with time, level, role and message, and the trajectory, call, topic, partition and
    offset that it is about, where they are known. For pods. Default: text for people."""


class HealthSettings(Section):
    """What every standing role (worker, dispatch, route, process, serve) says of itself over HTTP: `/healthz`,
    `/readyz` and `/metrics`."""

    listen: Annotated[str, AfterValidator(_checked)] = ""
    """Where it listens: HOST:PORT, port 0 for any free one. What is said there holds no secret and no content, but it
    needs no token either: let only probes and Prometheus reach it. Default: empty, off."""
    event_loop_stall_s: Positive = 120.0
    """Seconds for which the event loop of a process may not turn before it reports itself as not alive: an agent or a
    tool that blocks it holds up everything else. Partitions have `loop.stall_timeout_s`."""
    assignment_wait_s: Positive = 30.0
    """Seconds after its start for which a member without partitions is not ready, where the group has not said that
    there are none for it."""
    ping_timeout_s: Positive = 2.0
    """Seconds in which log and Redis have to answer `/readyz`."""
    projection_age_s_max: Positive = 60.0
    """Seconds by which the projection that `tracklog serve` reads may be behind the log; above it the server is not
    ready. Set it very high to serve whatever there is."""
    sample_s: Positive = 10.0
    """Seconds for which `/metrics` gives the same answer to what log and Redis have to be asked for. Scraping more
    often costs them nothing."""
    sample_wait_s: Positive = 5.0
    """Seconds for which `/metrics` waits for log and Redis; then it shows the rest without what they were asked for.
    Keep it below Prometheus' `scrape_timeout`: who is not read at all cannot say that it waits for them. Default: half
    of Prometheus' own."""
    counted_age_s_max: Positive = 3600.0
    """Seconds after which a record is history: counters of what happens (events, calls, tokens) leave it out, so that a
    projection that is folded anew does not look like a storm."""
    approval_overdue_s: Positive = 3600.0
    """Seconds for which a held call may wait for a person before it counts as overdue in the metrics."""
    stuck_s: Positive = 900.0
    """Seconds without an event after which a run that somebody owns counts as stuck in the metrics."""
