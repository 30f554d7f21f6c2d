"""The pytest plugin: `pytest --tracklog-runs runs/ --tracklog-agent my_agents:airline` makes each recorded run a test.

Loaded wherever Tracklog is installed beside pytest, so nothing else is imported before the option is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tracklog.consumers.recorded_runs import RecordedRun
    from tracklog.consumers.suite import Outcome
    from tracklog.infra.settings import Settings

MARK = "tracklog_run"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Registers the options."""
    group = parser.getgroup("tracklog", "Tracklog: recorded runs as tests")
    group.addoption(
        "--tracklog-runs",
        metavar="DIR",
        help="replay recorded runs: a folder of pulled logs, one of them, or a list of ids",
    )
    group.addoption(
        "--tracklog-agent",
        metavar="MODULE:AGENT",
        action="append",
        default=[],
        help="an agent to replay them with; repeatable (else what each record says of its own)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark by which recorded runs are chosen."""
    if config.getoption("--tracklog-runs"):
        config.addinivalue_line("markers", f"{MARK}: a recorded run that is replayed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Adds the runs to what was collected; -k and -m then choose among all."""
    given = config.getoption("--tracklog-runs")
    if not given:
        return
    from tracklog.schemas.errors import TracklogError

    try:
        items.extend(_items(session, config.invocation_params.dir, Path(given), config.getoption("--tracklog-agent")))
    except TracklogError as error:
        raise pytest.UsageError(f"--tracklog-runs: {error}") from error


def _items(session: pytest.Session, here: Path, given: Path, agents: list[str]) -> Iterator[pytest.Item]:
    import os
    from itertools import groupby

    from tracklog.consumers.recorded_runs import runs_of
    from tracklog.consumers.trajectory_replay import agents_by_name
    from tracklog.infra.settings import load_settings

    settings = load_settings(environ=os.environ, cwd=here)
    path = here / given
    loaded = agents_by_name(agents)
    for file, runs in groupby(runs_of(path, settings), key=lambda run: run.file or path):
        some = list(runs)
        parent = Runs.from_parent(session, path=file, runs=some, settings=some[0].settings, agents=loaded)
        yield from parent.collect()


class Runs(pytest.File):
    """Those of one file; their events are read at the first test of it."""

    def __init__(self, *, runs: list[RecordedRun], settings: Settings, agents: Any, **parts: Any) -> None:
        super().__init__(**parts)
        self._runs = runs
        self._settings = settings
        self._agents = agents
        self._events: dict[str, list[Any]] | None = None

    def collect(self) -> Iterator[pytest.Item]:
        """A test for each run."""
        for run in self._runs:
            item = RunItem.from_parent(self, name=run.trajectory_id, run=run)
            item.add_marker(MARK)
            yield item

    def outcome(self, run: RecordedRun) -> Outcome:
        """Replays a run."""
        from tracklog.consumers.suite import Job
        from tracklog.consumers.suite_process import replayed
        from tracklog.consumers.wiring import blobs_of, check_topic, opened_log
        from tracklog.producers.history import read_histories

        with opened_log(self._settings) as log:
            if self._events is None:
                check_topic(log, self._settings)
                topic, ids = self._settings.topic_names.events, [one.trajectory_id for one in self._runs]
                histories = read_histories(log, topic, ids)
                self._events = {key: [event for event, _ in accepted] for key, (_, accepted) in histories.items()}
            events = self._events.pop(run.trajectory_id, [])
            return replayed(log, run, events, Job(), self._agents, blobs_of(self._settings))


class RunItem(pytest.Item):
    """One recorded run; it passes when it replays clean."""

    def __init__(self, *, run: RecordedRun, **parts: Any) -> None:
        super().__init__(**parts)
        self._run = run

    def runtest(self) -> None:
        """Raises NotClean."""
        from tracklog.consumers.suite import Came
        from tracklog.consumers.trajectory_replay import divergence_lines

        assert isinstance(self.parent, Runs)
        outcome = self.parent.outcome(self._run)
        if outcome.came is not Came.CLEAN:
            report = outcome.report
            raise NotClean(outcome.problem if report is None else "\n".join(divergence_lines(report)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What was found, and no stack of this plugin's."""
        if isinstance(excinfo.value, NotClean):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the run is, and which."""
        return self.path, None, f"replay of {self.name}"


class NotClean(Exception):
    """A run that diverges, or cannot be replayed."""
