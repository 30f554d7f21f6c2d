"""Following a topic of several partitions on Kafka, while runs write to each other: order, and causes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from tests.support.chains import Chain, append_all
from tests.support.projecting import REPLICAS
from tracklog.consumers.watch_merge import HOLD_S
from tracklog.consumers.watching import Token, Watched, watch
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.settings_sections import Settings
from tracklog.processors.sample_runs import Made
from tracklog.schemas import events as ev
from tracklog.schemas.values import Body, Ref, Role

PARTITIONS: Final = 6
PAIRS: Final = 30
ROUNDS: Final = 8
BOUND_S: Final = 60.0


def conversations() -> tuple[list[Chain], list[Made]]:
    """Pairs that write to each other in turns: each message follows from the one before it, in another partition
    mostly. The effect is appended before its cause, as a slow broker of another partition would show it. The last
    message of each pair names an event that never comes."""
    pairs = [(Chain(f"ask-{n}"), Chain(f"answer-{n}")) for n in range(PAIRS)]
    made: list[Made] = []
    for pair in pairs:
        made += [one.claim() for one in pair]
    for number in range(ROUNDS):
        for pair in pairs:
            first, second = pair if number % 2 else pair[::-1]
            cause = first.add(_message("go"))
            seq = len(first.records) - 1
            effect = second.add(_message("went"), causes=(Ref(trajectory_id=first.trajectory_id, seq=seq),))
            made += [effect, cause]
    for first, _ in pairs:
        made.append(first.add(_message("lost"), causes=(Ref(trajectory_id="nobody", seq=5),)))
    return [one for pair in pairs for one in pair], made


def _message(text: str) -> ev.MessageReceived:
    return ev.MessageReceived(peer="peer", role=Role.AGENT, message=Body.of(text))


async def test_an_event_comes_behind_those_it_names_and_waits_only_for_one_that_does_not_come(
    log_urls: Callable[[str], str], fresh_prefix: str
) -> None:
    settings = Settings.model_validate({"prefix": fresh_prefix, "topics": {"partitions": PARTITIONS, **REPLICAS}})
    log, topic, clock = open_log(log_urls("kafka")), settings.topic_names.events, SystemClock()
    log.create(settings.topic_specs())
    chains, made = conversations()
    ready = threading.Event()
    writing = threading.Thread(target=_write, args=(log, topic, made, ready))
    writing.start()
    found, came_ms = list[Watched](), list[int]()
    try:
        async with asyncio.timeout(BOUND_S):
            ready.set()
            async for one in watch(log, topic, start="beginning"):
                found.append(one)
                came_ms.append(clock.now_us() // 1000)
                if len(found) == len(made):
                    break
    finally:
        writing.join(BOUND_S)
    _check(chains, found, came_ms)
    # and a stream that was cut anywhere, also while events wait, has the rest, each once
    for cut in (1, len(found) // 3, len(found) // 2, len(found) - PAIRS):
        token, rest = Token.of(str(found[cut - 1].token)), list[Watched]()
        async with asyncio.timeout(BOUND_S):
            async for one in watch(log, topic, start=token):
                rest.append(one)
                if len(rest) == len(made) - cut:
                    break
        assert sorted(map(_place, rest)) == sorted(map(_place, found[cut:]))
    log.close()


def _check(chains: list[Chain], found: list[Watched], came_ms: list[int]) -> None:
    order = {(one.event.envelope.trajectory_id, one.event.envelope.seq): n for n, one in enumerate(found)}
    assert len(order) == len(found)
    for chain in chains:
        at = [order[chain.trajectory_id, seq] for seq in range(len(chain.records))]
        assert at == sorted(at)
    held = 0
    for n, one in enumerate(found):
        causes = [order.get((ref.trajectory_id, ref.seq)) for ref in one.event.envelope.causes]
        assert all(at is None or at < n for at in causes), "an effect before its cause"
        if None in causes:
            held += 1
            assert came_ms[n] - one.record.timestamp_ms >= HOLD_S * 900, "given up before its time"
    assert held == PAIRS, "all came, also those that wait for nobody"


def _place(one: Watched) -> tuple[int, int]:
    return one.record.partition, one.record.offset


def _write(log: Log, topic: str, made: list[Made], ready: threading.Event) -> None:
    ready.wait(BOUND_S)
    for start in range(0, len(made), 40):
        append_all(log, topic, made[start : start + 40])
