"""Alive by progress, ready by what is needed, and the small server that says so."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from tracklog.infra.clock import ManualClock, SystemClock
from tracklog.infra.health import Health
from tracklog.infra.health_server import REQUESTS_MAX, Answer, answering
from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.port import Record
from tracklog.infra.log.ranges import append_and_wait
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.partition_loop_progress import Progress
from tracklog.infra.settings_health import HealthSettings, place_of
from tracklog.infra.settings_sections import LoopSettings
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.errors import LogUnavailable, SettingsError, StoreUnavailable
from tracklog.schemas.topics import TopicSpec

TOPIC = "t.events"
STALL_S = 0.3
QUICK = LoopSettings(batch_wait_s=0.0, poll_timeout_s=0.05, stall_timeout_s=STALL_S)
SETTINGS = HealthSettings(event_loop_stall_s=10, assignment_wait_s=30)


class Owner:
    """Takes records in when it is let; `away` is raised instead."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.may.set()
        self.away: Exception | None = None

    def restore(self, partition: int) -> int:
        return 0

    def fold(self, partition: int, records: Sequence[Record], position: int) -> None:
        if self.away is not None:
            raise self.away
        if records:
            assert self.may.wait(10)

    def forget(self, partition: int) -> None: ...


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    made = MemoryLog(now_ms=lambda: 1_700_000_000_000)
    made.create([TopicSpec(TOPIC, 2, 1, {})])
    yield made
    made.close()


class Working:
    """A loop over the log on a thread of its own, for as long as a block lasts."""

    def __init__(self, log: MemoryLog, owner: Owner) -> None:
        self.loop = PartitionLoop(log, TOPIC, owner, clock=SystemClock(), settings=QUICK)
        self.health = Health(SETTINGS, SystemClock())
        self.health.follow(self.loop)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.loop.run, args=("g", self._stop))

    def __enter__(self) -> Working:
        self._thread.start()
        assert wait_until(lambda: len(self.loop.positions) == 2, 10)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()


def test_a_handler_that_does_not_come_back_is_dead_and_its_partition_is_named(log: MemoryLog) -> None:
    owner = Owner()
    owner.may.clear()
    with Working(log, owner) as working:
        at = append_and_wait(log, TOPIC, b"k", b"v", (), timeout_s=5)
        assert wait_until(lambda: bool(working.health.why_dead()), 10)
        (problem,) = working.health.why_dead()
        assert problem.startswith(f"partition {at.partition}: taking in its records")
        # and when it comes back, it lives again
        owner.may.set()
        assert wait_until(lambda: not working.health.why_dead(), 10)


def test_a_store_that_is_away_leaves_it_alive_and_not_ready_with_the_reason(log: MemoryLog) -> None:
    owner = Owner()
    with Working(log, owner) as working:
        assert working.health.why_not_ready() == []
        owner.away = StoreUnavailable("Redis is away")
        append_and_wait(log, TOPIC, b"k", b"v", (), timeout_s=5)
        assert wait_until(lambda: bool(working.health.why_not_ready()), 10)
        began_s = SystemClock().monotonic_s()
        # for longer than the bound of a partition that hangs
        assert wait_until(lambda: SystemClock().monotonic_s() - began_s > 3 * STALL_S, 10)
        assert working.health.why_not_ready() == ["waiting: Redis is away"]
        assert working.health.why_dead() == []
        owner.away = None
        assert wait_until(lambda: not working.health.why_not_ready(), 10)


def test_what_waits_for_something_outside_is_not_stalled_and_what_hangs_is() -> None:
    clock = ManualClock()
    progress = Progress(clock, stall_timeout_s=10)
    progress.got_on([0, 1])
    with progress.at_work("this"):
        clock.advance(9)
        progress.waits("away")
        clock.advance(9)
        assert progress.problem() is None
        clock.advance(2)
        assert progress.problem() == "this has not ended for 11 s"


def test_a_member_without_partitions_is_ready_when_the_group_said_so_or_its_time_is_over(log: MemoryLog) -> None:
    clock = ManualClock()
    loop = PartitionLoop(log, TOPIC, Owner(), clock=clock, settings=QUICK)
    health = Health(SETTINGS, clock)
    assert health.why_not_ready() == ["it is starting"]
    health.follow(loop)
    assert health.why_not_ready() == [f"no partitions of {TOPIC} yet"]
    clock.advance(31)
    assert health.why_not_ready() != []  # it has not even polled
    loop.progress.polled()
    assert health.why_not_ready() == []
    other = PartitionLoop(log, TOPIC, Owner(), clock=clock, settings=QUICK)
    health.follow(other)
    other.progress.assigned()
    assert health.why_not_ready() == []


async def test_an_event_loop_that_does_not_turn_is_dead_and_says_what_it_was_at() -> None:
    clock = ManualClock()
    health = Health(SETTINGS, clock)
    health.beat(lambda: "; 3 calls are open")
    clock.advance(9.5)
    assert health.why_dead() == []
    clock.advance(1)
    assert health.why_dead() == ["the event loop has not turned for 10 s; 3 calls are open"]
    async with asyncio.timeout(10):
        while health.why_dead():  # noqa: ASYNC110 - the beat is what is waited for
            await asyncio.sleep(0.05)


def test_what_is_needed_is_asked_once_for_a_crowd_and_again_later() -> None:
    clock, asked = ManualClock(), []
    health = Health(SETTINGS, clock)

    def ask() -> str | None:
        asked.append(1)
        raise LogUnavailable("nobody answers")

    health.needs(ask)
    assert health.why_not_ready() == health.why_not_ready() == ["nobody answers"]
    assert len(asked) == 1
    clock.advance(1.5)
    health.why_not_ready()
    assert len(asked) == 2
    assert health.why_dead() == []


def _get(address: str, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_the_server_answers_by_path_and_hangs_up_on_a_crowd() -> None:
    answers = {
        "/healthz": lambda: Answer(200, "text/plain", b"yes"),
        "/readyz": lambda: Answer(503, "text/plain", b"no"),
    }
    with answering("127.0.0.1:0", answers) as address:
        assert _get(address, "/healthz?verbose=1") == (200, b"yes")
        assert _get(address, "/readyz") == (503, b"no")
        assert _get(address, "/else")[0] == 404
        host, _, port = address.rpartition(":")
        idle = [socket.create_connection((host, int(port)), timeout=10) for _ in range(REQUESTS_MAX)]
        with closing(socket.create_connection((host, int(port)), timeout=10)) as one_more:
            assert one_more.recv(1) == b""
        for one in idle:
            one.close()
        assert wait_until(lambda: _answers(address), 20)


def _answers(address: str) -> bool:
    try:
        return _get(address, "/healthz") == (200, b"yes")
    except OSError:
        return False


def test_an_address_that_is_taken_is_named() -> None:
    with answering("127.0.0.1:0", {}) as address, pytest.raises(SettingsError, match=address), answering(address, {}):
        raise AssertionError("two listen at one address")


@pytest.mark.parametrize("listen", ["9464", "host:", ":9464", "host:port", "host:65536"])
def test_an_address_is_host_and_port(listen: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        place_of(listen)
    assert place_of("[::]:65535") == ("::", 65535)
