"""The events of a log in a cold table, by the exporter itself."""

from __future__ import annotations

from tracklog.consumers.export.running import export_of
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.port import Log
from tracklog.infra.settings import Settings


def export_to(log: Log, settings: Settings, *, rows_max: int = 100) -> None:
    """Brings what is not in the table of `cold.url` yet, in commits of so many rows."""
    cold = settings.cold.model_copy(update={"rows_max": rows_max})
    small = settings.model_copy(update={"cold": cold})
    export_of(log, small, clock=SystemClock(), entropy=SystemEntropy()).loop.drain()
