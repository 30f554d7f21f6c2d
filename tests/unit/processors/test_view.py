"""What a view does with a processor that fails, in memory: one trajectory stops, is shown, and is tried again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.testing import Chain, Driver, Nonconforming, check_conformance, run_of
from tracklog.processors.view import ViewBounds
from tracklog.processors.writes import Add, Push, PutJson, Rank, Write
from tracklog.schemas.errors import InvalidProcessor


class Counting(Processor[int]):
    """Counts events; fails as its fields say."""

    name = "counting"
    version = 1
    layout: ClassVar = {"counts": Shape.SORTED_SET, "sums": Shape.COUNTERS, "last": Shape.JSON, "all": Shape.STREAM}
    raise_on: frozenset[str] = frozenset()
    wrong_write: Write | None = None
    answer: object = None

    def start(self, key: str) -> int:
        return 0

    def apply(self, state: int, seen: Seen) -> Any:
        if seen.event.name in self.raise_on:
            raise KeyError(f"no way to take {seen.event.name}")
        return state + 1 if self.answer is None else self.answer

    def writes(self, key: str, before: int | None, after: int) -> Iterator[Write]:
        yield Rank(["counts"], key, after)
        yield PutJson(f"last:{key}", {"events": after})
        if self.wrong_write is not None and key == "bad":
            yield self.wrong_write

    def emit(self, key: str, after: int, seen: Seen) -> Iterator[Write]:
        yield Add("sums", {seen.event.name: 1})
        yield Push("all", seen.record.offset, {"event": seen.event.name})


def test_a_processor_that_does_as_it_should_stands_every_check() -> None:
    assert check_conformance(Counting) == 8


@pytest.mark.parametrize("batch_records", [1, 3, 100])
def test_an_event_that_raises_stops_its_trajectory_and_no_other(batch_records: int) -> None:
    processor = Counting()
    processor.raise_on = frozenset({"TaskEnded"})
    driver = Driver(processor, batch_records=batch_records)
    ended, running = run_of("ended", turns=1), run_of("running", turns=1, ending=None)
    driver.feed(ended, running)

    [(name, parked)] = driver.parked().items()
    assert (name, parked.event, parked.offset, parked.rounds) == ("ended", "TaskEnded", len(ended.records) - 1, 1)
    assert parked.error == "KeyError: 'no way to take TaskEnded'"
    assert driver.state("ended") == len(ended.records) - 1
    assert driver.state("running") == len(running.records)


def test_a_parked_trajectory_is_taken_up_where_it_stopped_when_the_processor_was_corrected() -> None:
    processor = Counting()
    driver = Driver(processor)
    processor.raise_on = frozenset({"ToolIntent"})
    first, other = run_of("first", turns=2, ending=None), run_of("other", turns=1)
    driver.feed(first, other)
    driver.restart()
    assert set(driver.parked()) == {"first", "other"}
    driver.retry("first")
    assert driver.parked()["first"].rounds == 2

    processor.raise_on = frozenset()
    driver.feed(first.claim("again"))
    driver.retry("first")

    assert set(driver.parked()) == {"other"}
    assert driver.state("first") == len(first.records)
    assert driver.get("counts")[b"first"] == len(first.records)
    driver.retry("other")
    fresh = Driver(Counting())
    fresh.feed(*(run_of("first", turns=2, ending=None), other))
    fresh.feed(first.records[-1])
    assert {**driver.content(), "all": None} == {**fresh.content(), "all": None}
    assert len(driver.get("all")) == len(fresh.get("all"))


WRONG: Mapping[str, Write] = {
    "no name of the layout": Rank(["elsewhere"], "x", 1),
    "another shape": Add("counts", {"x": 1}),
    "not exact": Rank(["counts"], "x", 2**53 + 1),
    "no whole number": Add("sums", {"x": 1.5}),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_write_that_does_not_fit_is_the_events_that_led_to_it(wrong: Write) -> None:
    processor = Counting()
    processor.wrong_write = wrong
    driver = Driver(processor)
    good, bad = run_of("good", turns=1), run_of("bad", turns=1)
    driver.feed(good, bad)

    assert driver.parked()["bad"].event == "OwnershipClaimed"
    assert driver.state("good") == len(good.records)
    assert driver.state("bad") is None


def test_a_state_of_another_type_or_too_large_is_not_stored() -> None:
    processor = Counting()
    processor.answer = "many"
    driver = Driver(processor)
    driver.feed(run_of("a", turns=1))
    assert "gave a str where the state was a int" in driver.parked()["a"].error

    large = Driver(Large())
    large.feed(run_of("a", turns=1))
    assert "1048576" in large.parked()["a"].error


class Large(Processor[str]):
    name = "large"
    version = 1

    def start(self, key: str) -> str:
        return ""

    def apply(self, state: str, seen: Seen) -> str:
        return state + "x" * 500_000


def test_a_processor_that_fails_on_everything_ends_instead_of_parking_the_whole_log() -> None:
    processor = Counting()
    processor.raise_on = frozenset({"OwnershipClaimed"})
    driver = Driver(processor, batch_records=5000)
    chains = [Chain(f"t{n}") for n in range(ViewBounds().parked_max + 1)]
    with pytest.raises(InvalidProcessor, match="after 1000 that are parked"):
        driver.feed(*(chain.claim() for chain in chains))


class Mutating(Processor[list[str]]):
    name = "mutating"
    version = 1

    def start(self, key: str) -> list[str]:
        return []

    def apply(self, state: list[str], seen: Seen) -> list[str]:
        state.append(seen.event.name)
        return state


class Remembering(Counting):
    """Keeps something between calls."""

    seen_by_me = 0

    def apply(self, state: int, seen: Seen) -> int:
        self.seen_by_me += 1
        return state + self.seen_by_me


class Adding(Counting):
    """Writes what depends on how the log is cut into batches."""

    def writes(self, key: str, before: int | None, after: int) -> Iterator[Write]:
        yield Add("sums", {"batches": 1})


@pytest.mark.parametrize(
    ("kind", "what"),
    [(Mutating, "changes the state it is given"), (Remembering, "not pure"), (Adding, "when it is folded in one go")],
)
def test_the_checks_find_what_a_runner_cannot_rely_on(kind: type[Processor[Any]], what: str) -> None:
    with pytest.raises(Nonconforming, match=what):
        check_conformance(kind)
