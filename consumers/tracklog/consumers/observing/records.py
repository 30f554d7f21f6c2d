"""Counts what happens in the log, as the trajectories' projection takes it in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracklog.infra.clock import Clock
from tracklog.infra.log.port import Record
from tracklog.infra.metrics import Metrics
from tracklog.processors.processor import Seen
from tracklog.processors.quarantine import Poison
from tracklog.processors.trajectory import Trajectory
from tracklog.schemas.events import ModelReplied, TaskEnded, TaskStarted, ToolResult
from tracklog.schemas.head import Verdict
from tracklog.schemas.values import ResultStatus

__all__ = ["RecordCounts"]

_MS: Final = 1000
NO_TOOL: Final = "unknown"


class RecordCounts:
    """Called with each record, what the trajectory was before it, and its verdict. Records that are older than
    `age_s_max` are history: a projection that is folded anew is no storm."""

    def __init__(self, metrics: Metrics, clock: Clock, age_s_max: float) -> None:
        self._metrics = metrics
        self._clock = clock
        self._age_ms_max = age_s_max * _MS
        for verdict in Verdict:
            if verdict is not Verdict.ACCEPTED:
                metrics.count("tracklog_refused_records_total", 0, verdict=verdict.value)
        metrics.count("tracklog_quarantined_records_total", 0)

    def quarantined(self, poison: Sequence[Poison]) -> None:
        """Records that are no events of ours."""
        young = sum(not self._is_history(one.record) for one in poison)
        self._metrics.count("tracklog_quarantined_records_total", young)

    def _is_history(self, record: Record) -> bool:
        return self._clock.now_us() / 1000 - record.timestamp_ms > self._age_ms_max

    def __call__(self, before: Trajectory, seen: Seen, verdict: Verdict) -> None:
        if self._is_history(seen.record):
            return
        self._metrics.count("tracklog_records_total", type=seen.event.name, verdict=verdict.value)
        if verdict is not Verdict.ACCEPTED:
            self._metrics.count("tracklog_refused_records_total", verdict=verdict.value)
            return
        match seen.event.body:
            case TaskStarted(driver=driver):
                self._metrics.count("tracklog_trajectories_started_total", driver=driver.value)
            case TaskEnded(ending=ending):
                self._metrics.count("tracklog_trajectories_ended_total", ending=ending.value)
            case ModelReplied() as reply:
                self._replied(reply, seen.event.envelope.tenant, before.model)
            case ToolResult() as result:
                self._called(result, before)

    def _replied(self, reply: ModelReplied, tenant: str, asked: str) -> None:
        count, model = self._metrics.count, reply.model_served or asked
        count("tracklog_model_calls_total", tenant=tenant, model=model)
        for direction, tokens in (("input", reply.usage.input_tokens), ("output", reply.usage.output_tokens)):
            count("tracklog_model_tokens_total", tokens, direction=direction, tenant=tenant, model=model)
        if reply.cost_micro_usd is not None:
            count("tracklog_model_cost_usd_total", reply.cost_micro_usd / 1_000_000, tenant=tenant, model=model)
        if reply.duration_ms is not None:
            self._metrics.observe("tracklog_model_seconds", reply.duration_ms / _MS, model=model)

    def _called(self, result: ToolResult, before: Trajectory) -> None:
        call = before.state.calls.get(result.call_id)
        tool = NO_TOOL if call is None else call.tool
        self._metrics.count("tracklog_tool_calls_total", tool=tool, status=result.status.value)
        if result.duration_ms is not None and result.status is not ResultStatus.UNKNOWN:
            self._metrics.observe("tracklog_tool_seconds", result.duration_ms / _MS, tool=tool)
