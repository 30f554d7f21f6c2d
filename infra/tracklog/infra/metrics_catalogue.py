"""Every metric there is: its name, kind, labels and meaning. docs/metrics.md is written from it (DESIGN §12)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = ["BOUNDED", "CATALOGUE", "OTHER", "Kind", "Metric"]


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """`roles`: who shows it. `bounds`: upper bounds of a histogram's classes, in seconds."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    roles: str
    meaning: str
    bounds: tuple[float, ...] = ()


OTHER: Final = "other"
BOUNDED: Final[Mapping[str, int]] = {"tenant": 50, "model": 30, "tool": 100, "type": 60, "processor": 30}
"""Labels whose values come from what people do, and how many different ones a process shows of each; the rest are added
up as `other`."""

_AT = ("topic", "partition", "processor")
_QUICK: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_EVERY = "all"
_LOOPS = "process, worker, dispatch, route, export"

CATALOGUE: Final[tuple[Metric, ...]] = (
    Metric("tracklog_info", Kind.GAUGE, ("role", "version"), _EVERY, "1; who this is."),
    Metric(
        "tracklog_sample_failures_total",
        Kind.COUNTER,
        ("source",),
        _EVERY,
        "How often what log or Redis has to be asked for could not be had; those series are then missing.",
    ),
    # -- whoever owns partitions
    Metric("tracklog_partitions_owned", Kind.GAUGE, ("topic", "processor"), _LOOPS, "Partitions that it owns now."),
    Metric("tracklog_outage", Kind.GAUGE, ("processor",), _LOOPS, "1 while it waits for a log or a store, else 0."),
    Metric("tracklog_poll_age_seconds", Kind.GAUGE, ("processor",), _LOOPS, "Seconds since its loop last went round."),
    Metric("tracklog_lag_records", Kind.GAUGE, _AT, _LOOPS, "Offsets between its position and the end of the log."),
    Metric("tracklog_lag_seconds", Kind.GAUGE, _AT, _LOOPS, "Age of the oldest record that it has not taken in."),
    Metric(
        "tracklog_retention_left_seconds",
        Kind.GAUGE,
        _AT,
        _LOOPS,
        "Seconds until that record is deleted, where the topic keeps records for some time only.",
    ),
    Metric(
        "tracklog_skipped_offsets_total",
        Kind.COUNTER,
        _AT,
        _LOOPS,
        "Offsets that were deleted from the log before it had read them.",
    ),
    # -- tracklog process
    Metric(
        "tracklog_projection_age_seconds",
        Kind.GAUGE,
        ("processor",),
        "process, serve",
        "By how much what Redis shows is behind the log, of the partition that is worst off.",
    ),
    Metric(
        "tracklog_records_total",
        Kind.COUNTER,
        ("type", "verdict"),
        "process",
        "Records of the events topic by event type and by what the log says of them: accepted, duplicate, fenced,"
        " stale, lost claim, gap, fork, tampered.",
    ),
    Metric(
        "tracklog_refused_records_total",
        Kind.COUNTER,
        ("verdict",),
        "process",
        "The same without those accepted and without types; there from the beginning, so that the first one is seen.",
    ),
    Metric("tracklog_quarantined_records_total", Kind.COUNTER, (), "process", "Records that are no events of ours."),
    Metric(
        "tracklog_parked_trajectories", Kind.GAUGE, ("processor",), "process", "Those a processor could not take in."
    ),
    Metric("tracklog_trajectories", Kind.GAUGE, ("status",), "process", "Trajectories by their status now."),
    Metric("tracklog_trajectories_started_total", Kind.COUNTER, ("driver",), "process", "Trajectories that began."),
    Metric(
        "tracklog_trajectories_ended_total", Kind.COUNTER, ("ending",), "process", "Trajectories that ended, and how."
    ),
    Metric("tracklog_calls_in_doubt", Kind.GAUGE, (), "process", "Calls that may have happened and are not settled."),
    Metric(
        "tracklog_calls_in_doubt_oldest_seconds", Kind.GAUGE, (), "process", "Age of the oldest of them; 0 without."
    ),
    Metric(
        "tracklog_runs_stuck",
        Kind.GAUGE,
        (),
        "process",
        "Runs that somebody owns, without an event for health.stuck_s.",
    ),
    Metric("tracklog_runs_looping", Kind.GAUGE, (), "process", "Runs that propose the same calls again and again."),
    Metric("tracklog_model_calls_total", Kind.COUNTER, ("tenant", "model"), "process", "Replies of models."),
    Metric(
        "tracklog_model_tokens_total",
        Kind.COUNTER,
        ("tenant", "model", "direction"),
        "process",
        "Tokens by direction: input, output.",
    ),
    Metric("tracklog_model_cost_usd_total", Kind.COUNTER, ("tenant", "model"), "process", "US dollars, where known."),
    Metric("tracklog_model_seconds", Kind.HISTOGRAM, ("model",), "process", "How long replies took.", _LONG),
    Metric("tracklog_tool_calls_total", Kind.COUNTER, ("tool", "status"), "process", "Calls that have their result."),
    Metric("tracklog_tool_seconds", Kind.HISTOGRAM, ("tool",), "process", "How long calls took.", _LONG),
    # -- tracklog worker
    Metric(
        "tracklog_worker_runnable",
        Kind.GAUGE,
        (),
        "worker",
        "Trajectories that could go on now and are not worked on; none that waits for somebody or for time.",
    ),
    Metric("tracklog_worker_running", Kind.GAUGE, (), "worker", "Trajectories that are worked on now."),
    Metric(
        "tracklog_worker_running_max",
        Kind.GAUGE,
        (),
        "worker",
        "How many it works on at once: worker.trajectories_max.",
    ),
    Metric(
        "tracklog_worker_known", Kind.GAUGE, (), "worker", "Trajectories in its partitions, waiting and ended ones too."
    ),
    Metric("tracklog_barrier_seconds", Kind.HISTOGRAM, (), "worker", "How long writers waited for a barrier.", _QUICK),
    # -- tracklog dispatch
    Metric("tracklog_dispatch_calls_open", Kind.GAUGE, (), "dispatch", "Intents without a result in its partitions."),
    Metric("tracklog_dispatch_slots", Kind.GAUGE, (), "dispatch", "Slots of the attempt ledger that those have taken."),
    Metric("tracklog_dispatch_tools_paused", Kind.GAUGE, (), "dispatch", "Its tools that are paused."),
    Metric(
        "tracklog_dispatch_pauses_known",
        Kind.GAUGE,
        (),
        "dispatch",
        "1 while it knows which are, else 0: it begins none.",
    ),
    # -- tracklog route
    Metric("tracklog_approvals_open", Kind.GAUGE, (), "route", "Held calls that wait for a person."),
    Metric(
        "tracklog_approvals_oldest_seconds", Kind.GAUGE, (), "route", "How long the oldest of them waits; 0 without."
    ),
    Metric(
        "tracklog_approvals_overdue",
        Kind.GAUGE,
        (),
        "route",
        "Those that wait for longer than health.approval_overdue_s.",
    ),
    Metric("tracklog_escalations_open", Kind.GAUGE, (), "route", "Calls in doubt that a person is asked about."),
    Metric("tracklog_timers_open", Kind.GAUGE, (), "route", "Timers and expiries that are set."),
    Metric(
        "tracklog_timers_late_seconds",
        Kind.GAUGE,
        (),
        "route",
        "By how much the first that is due is late; 0 if none is.",
    ),
    Metric("tracklog_outbox_open", Kind.GAUGE, (), "route", "Messages to trajectories that are not posted yet."),
    Metric("tracklog_routed_total", Kind.COUNTER, ("kind",), "route", "What it has posted into inboxes."),
    Metric("tracklog_webhooks_total", Kind.COUNTER, ("result",), "route", "Webhook messages: taken, given up."),
    Metric("tracklog_webhooks_telling", Kind.GAUGE, (), "route", "Calls that webhooks are being told of now."),
    # -- tracklog export
    Metric(
        "tracklog_exported_total", Kind.COUNTER, ("kind",), "export", "Rows committed: events, undecodable records."
    ),
    Metric("tracklog_export_commits_total", Kind.COUNTER, (), "export", "Commits to the cold table."),
    Metric(
        "tracklog_export_conflicts_total", Kind.COUNTER, (), "export", "Commits that somebody else was quicker than."
    ),
    Metric("tracklog_export_rows_waiting", Kind.GAUGE, (), "export", "Rows that were read and are in no commit yet."),
    Metric(
        "tracklog_export_durable_seconds",
        Kind.GAUGE,
        (),
        "export",
        "From the append of the oldest event of the last commit until it was durable, by the clocks of both.",
    ),
    Metric(
        "tracklog_export_gap_offsets",
        Kind.GAUGE,
        ("partition",),
        "export",
        "Offsets that the log has let go of before they were exported: alert above 0, those events are lost.",
    ),
    Metric("tracklog_export_blobs_lost_total", Kind.COUNTER, (), "export", "Blobs that events name and nobody has."),
    # -- tracklog serve
    Metric(
        "tracklog_api_requests_total",
        Kind.COUNTER,
        ("method", "route", "status"),
        "serve",
        "Requests by route as it is written in the description, and by status of the answer.",
    ),
    Metric("tracklog_api_request_seconds", Kind.HISTOGRAM, ("route",), "serve", "Until an answer began.", _QUICK),
    Metric("tracklog_api_streams_open", Kind.GAUGE, (), "serve", "Streams of server-sent events that are open."),
)
