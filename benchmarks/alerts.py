"""`python -m benchmarks.alerts`: the condition of every alert made true, until it fires, and undone, until it clears.

On three brokers, Redis, a bucket, every role and a Prometheus that judges the chart's rules, all of which it starts;
only times and thresholds are seconds. Exits 1 when an alert does not fire or does not clear, and prints it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import yaml

from benchmarks import results
from benchmarks.alerting import BOUND_S, Scene, scene
from scripts.alerts import rules
from tests.support.chains import Made, append_all
from tests.support.tampering import flipped
from tracklog.infra.log.ranges import append_and_wait, read_range
from tracklog.infra.stack.process import wait_until

COMMAND: Final = "make alerts"
APPEND_S: Final = 30.0
INBOX_REPLICAS: Final = "min.insync.replicas"
RETENTION: Final = "retention.ms"
HOUR_MS: Final = "3600000"


class Condition(NamedTuple):
    """`make` makes it true, `undo` false again; `what` says how, for people."""

    alerts: Sequence[str]
    what: str
    make: Callable[[Scene], None]
    undo: Callable[[Scene], None]


class Row(NamedTuple):
    """Seconds until it fired, from when it was true, and until it cleared, from when somebody set about that; None: it
    did not."""

    alert: str
    what: str
    fired_s: float | None
    cleared_s: float | None

    def __str__(self) -> str:
        return f"| {self.alert} | {self.what} | {_told(self.fired_s)} | {_told(self.cleared_s)} |"


def _told(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f}"


def _doubted(here: Scene) -> None:
    here.switch("mail", on=True)
    here.submit("sender")
    assert wait_until(here.seen_mailing, BOUND_S), "the call was never begun"
    here.kill("dispatch")
    here.switch("mail", on=False)
    here.start("dispatch")


def _settled(here: Scene) -> None:
    run = f"sender-{here.runs}"
    here.until("tracklog_escalations_open > 0")
    here.say("escalations", "settle", run, "c1", "--happened", "--reason", "it is in the outbox", "--as", "ada")


def _switched(name: str, agent: str) -> Callable[[Scene], None]:
    def make(here: Scene) -> None:
        here.switch(name, on=True)
        here.submit(agent)

    return make


def _off(name: str) -> Callable[[Scene], None]:
    return lambda here: here.switch(name, on=False)


def _asked(here: Scene) -> None:
    here.submit("asker")


def _approved(here: Scene) -> None:
    here.say("approvals", "approve", f"asker-{here.runs}", "c1", "--as", "ada")


def _frozen(here: Scene) -> None:
    here.signal("process", signal.SIGSTOP)
    here.submit("clerk")


def _retried(here: Scene) -> None:
    here.switch("fail", on=False)
    here.say("projections", "retry", "switched")


def _foreign(here: Scene) -> None:
    with here.log() as log:
        append_and_wait(log, here.topics.events, b"nobody", b"no event", (), timeout_s=APPEND_S)


def _overtaken(here: Scene) -> None:
    here.overtake("fought-over")


def _tampered(here: Scene) -> None:
    """While nobody folds: who then does has counted it before it is scraped for the first time."""
    here.submit("clerk")
    here.stop("process")
    topic = here.topics.events
    with here.log() as log:
        bounds = log.bounds(topic, 0)
        last = list(read_range(log, topic, 0, bounds.first, bounds.end))[-1]
        append_all(log, topic, flipped([Made(last.key or b"", last.value or b"", last.headers, b"")], 0))
    here.start("process")


def _bucket_away(here: Scene) -> None:
    here.bucket.send_signal(signal.SIGSTOP)
    here.submit("clerk")


def _bucket_back(here: Scene) -> None:
    here.bucket.send_signal(signal.SIGCONT)


def _events_lost(here: Scene) -> None:
    here.bucket.send_signal(signal.SIGSTOP)
    here.say("result", here.submit("clerk"), "--wait")
    here.stop("export")
    here.trim()
    here.bucket.send_signal(signal.SIGCONT)
    here.start("export", readyz=503)  # it waits at the gap


def _gap_accepted(here: Scene) -> None:
    here.stop("export")
    here.start("export", "--accept-gap")


def _retention(here: Scene) -> None:
    """In this order: nobody submits to a topic that loses records."""
    here.switch("hold", on=True)
    here.submit("clerk")
    here.configure(here.topics.events, RETENTION, HOUR_MS)


def _retention_far(here: Scene) -> None:
    here.configure(here.topics.events, RETENTION, "-1")
    here.switch("hold", on=False)


def _skipped(here: Scene) -> None:
    here.stop("switched")
    here.say("result", here.submit("clerk"), "--wait")
    here.trim()
    here.start("switched")


def _started_again(here: Scene) -> None:
    here.stop("switched")
    here.start("switched")


def _under_min_isr(here: Scene) -> None:
    here.submit("hurrier")
    here.until("tracklog_approvals_open > 0")
    here.configure(here.topics.inbox, INBOX_REPLICAS, "3")
    here.kafka.nodes[2].process.kill()


def _isr_back(here: Scene) -> None:
    here.kafka.restart(here.kafka.nodes[2])


def _paused(here: Scene) -> None:
    here.say("tools", "pause", "mail", "--as", "ada", "--reason", "the post is closed")


def _resumed(here: Scene) -> None:
    here.say("tools", "resume", "mail", "--as", "ada")


def _brokers_away(here: Scene) -> None:
    for node in here.kafka.nodes:
        node.process.kill()


def _brokers_back(here: Scene) -> None:
    here.kafka.start()


def _redis_away(here: Scene) -> None:
    here.redis.process.kill()


def _redis_back(here: Scene) -> None:
    here.redis.start()


CONDITIONS: Final = (
    Condition(("TracklogCallsInDoubt",), "a dispatcher is killed in a call; a person settles it", _doubted, _settled),
    Condition(("TracklogRunsStuck",), "a model hangs; it answers", _switched("think", "thinker"), _off("think")),
    Condition(
        ("TracklogRunsLooping",),
        "a model proposes one call four times; it ends",
        _switched("circle", "circler"),
        _off("circle"),
    ),
    Condition(("TracklogApprovalsOverdue",), "nobody decides; somebody does", _asked, _approved),
    Condition(("TracklogLagTime",), "a processor stands still; it goes on", _switched("hold", "clerk"), _off("hold")),
    Condition(
        ("TracklogProjectionAge",),
        "`tracklog process` is frozen; it is woken",
        _frozen,
        lambda here: here.signal("process", signal.SIGCONT),
    ),
    Condition(
        ("TracklogParked",),
        "a processor raises; it is mended, `projections retry`",
        _switched("fail", "clerk"),
        _retried,
    ),
    Condition(("TracklogQuarantine",), "no event in the events topic; the window ends", _foreign, lambda _: None),
    Condition(("TracklogFencedWriters",), "an overtaken owner writes; the window ends", _overtaken, lambda _: None),
    Condition(
        ("TracklogTampered",),
        "a changed event, folded by a process that just started; the window ends",
        _tampered,
        lambda _: None,
    ),
    Condition(("TracklogExportGap",), "the bucket hangs; it answers", _bucket_away, _bucket_back),
    Condition(
        ("TracklogRetentionNear",),
        "the topic keeps an hour, a processor stands still; it goes on",
        _retention,
        _retention_far,
    ),
    Condition(("TracklogToolPaused",), "`tools pause`; `tools resume`", _paused, _resumed),
    Condition(
        ("TracklogRoleGone",),
        "the only process of a processor ends; it is started again",
        lambda here: here.stop("switched"),
        lambda here: here.start("switched"),
    ),
    Condition(
        ("TracklogUnderMinIsr", "TracklogTimersLate"),
        "the inbox asks for three replicas and a broker dies while a call expires; it is back",
        _under_min_isr,
        _isr_back,
    ),
    Condition(("TracklogOutage",), "Redis is killed; it is started again", _redis_away, _redis_back),
    Condition(
        ("TracklogOutage", "TracklogDispatchBlind"),
        "all brokers are killed; they are started again",
        _brokers_away,
        _brokers_back,
    ),
    Condition(
        ("TracklogRecordsSkipped",),
        "events are deleted that were not read; the reader is started again",
        _skipped,
        _started_again,
    ),
    Condition(
        ("TracklogExportLost",),
        "events are deleted that were not exported; `export --accept-gap`",
        _events_lost,
        _gap_accepted,
    ),
)


def shown(here: Scene, condition: Condition) -> list[Row]:
    """Waits until none of its alerts fires, first. A condition that could not be made or undone is told, and the next
    one has its turn."""
    fired = cleared = dict[str, float | None].fromkeys(condition.alerts)
    try:
        seconds_until(here, condition.alerts, fires=False)
        condition.make(here)
        fired = seconds_until(here, condition.alerts, fires=True)
        begun_s = time.monotonic()
        condition.undo(here)
        cleared = seconds_until(here, condition.alerts, fires=False, begun_s=begun_s)
    except AssertionError as error:
        print(f"{condition.what}: {error}", flush=True)
    return [Row(one, condition.what, fired[one], cleared[one]) for one in condition.alerts]


def seconds_until(
    here: Scene, alerts: Sequence[str], *, fires: bool, begun_s: float | None = None
) -> dict[str, float | None]:
    """Of each, within BOUND_S from now; counted from `begun_s`, else from now too."""
    begun_s = time.monotonic() if begun_s is None else begun_s
    found: dict[str, float | None] = dict.fromkeys(alerts)

    def all_did() -> bool:
        firing = here.prometheus.firing()
        for one in alerts:
            if found[one] is None and (one in firing) is fires:
                found[one] = time.monotonic() - begun_s
        return None not in found.values()

    wait_until(all_did, BOUND_S)
    return found


def page(rows: Sequence[Row]) -> str:
    head = "| alert | made true by; and undone by | fired after (s) | cleared after (s) |\n| --- | --- | --: | --: |"
    return "\n".join([head, *map(str, rows)])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alerts", description=__doc__)
    parser.add_argument("--of", metavar="ALERT", action="append", help="only these (default: all)")
    parser.add_argument("--keep", action="store_true", help="keeps the result in benchmarks/RESULTS.md")
    given = parser.parse_args()
    all_rules = {one["alert"] for one in yaml.safe_load(rules())["groups"][0]["rules"]}
    untried = all_rules - {alert for condition in CONDITIONS for alert in condition.alerts}
    rows: list[Row] = []
    with scene() as here:
        for condition in CONDITIONS:
            if given.of is None or set(given.of) & set(condition.alerts):
                for row in shown(here, condition):
                    print(row, flush=True)
                    rows.append(row)
    wrong = [row for row in rows if row.fired_s is None or row.cleared_s is None]
    print(
        page(rows),
        *[f"WRONG: {row}" for row in wrong],
        *[f"no condition for {one}" for one in sorted(untried)],
        sep="\n",
    )
    if given.keep:
        results.keep(COMMAND, page(rows))
    return 1 if wrong or untried else 0


if __name__ == "__main__":
    sys.exit(main())
