"""Blobs that nothing names are let go of, and none that anything names: not beside a slow writer, not after a crash."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.chains import Made, append_all, run_of
from tests.support.cold import export_to
from tests.support.importing import chat_line, chat_record
from tests.support.s3_server import s3_server
from tests.support.sessions import ScriptedModel, asks, says
from tracklog.consumers.cli.app import app
from tracklog.consumers.collecting import Collection, collected, planned
from tracklog.consumers.importing import import_into
from tracklog.consumers.tasking import opened_client
from tracklog.consumers.wiring import blobs_of, opened_log, producer_of
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.infra.cold.joined import JoinedLog
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.importers.chat import parse_chat_jsonl
from tracklog.producers.opening import opened
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent, run_turns
from tracklog.schemas.catalog import HEADER_TYPE
from tracklog.schemas.chain import event_hash
from tracklog.schemas.codec import HEADER_HASH, SINGLE_OBJECT_MARK
from tracklog.schemas.errors import BlobMissing, OffsetTrimmed, UnknownSchema

LONG = "a long text " * 10_000
OLD_S = -5.0
"""A grace by which everything counts as old."""


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    if request.param == "directory":
        yield open_blobs(str(tmp_path / "blobs"))
        return
    with s3_server() as options:
        yield open_blobs("s3://bucket/blobs", options=options)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Its log names blobs in every way: bodies, prompts, tools, tasks in the inbox, checkpoints with their files."""
    settings = load_settings(flags={"home": str(tmp_path / "home")}, environ={}, cwd=tmp_path)
    record = chat_record(id="imported-1")
    record["messages"] += [{"role": "user", "content": LONG}, {"role": "assistant", "content": "done"}]
    with opened_log(settings, make_topics=True) as log:
        import_into(log, settings, parse_chat_jsonl([chat_line(record)], "runs.jsonl"))
    asyncio.run(worked(settings, tmp_path / "files"))
    return settings


async def worked(settings: Settings, files: Path) -> None:
    @tool(effect="local")
    def write(what: str) -> str:
        files.joinpath(what).write_text(what * 1000)
        return what

    model = ScriptedModel(
        *(asks((f"c{one}", "write"), arguments=f'{{"what":"{one}"}}') for one in ("a", "b", "c")), says("done")
    )
    agent = Agent("writer", model, ToolSet.of(write), prompt="write files")
    with opened_log(settings) as log:
        async with producer_of(settings, log) as producer:
            setup = agent.setup("write", blobs_of(settings), workspace=files, failures_a_day=1e9)
            async with opened(producer, "files-1", log=log, setup=setup, from_checkpoint=True) as session:
                await run_turns(session, agent, "write")
    with opened_client(settings) as client:
        await client.submit("writer", f"waits {LONG}", id="waits-1")


def plan_of(settings: Settings, store: BlobStore | None = None, *, grace_s: float = OLD_S) -> Collection:
    with opened_log(settings) as log:
        store = store if store is not None else blobs_of(settings)
        return planned(log, settings.topic_names, store, grace_s=grace_s)


def hashes(store: BlobStore, *, aside: bool = False) -> set[str]:
    return {one.hash for one in store.stored(aside=aside)}


def tracklog(settings: Settings, *words: str) -> Result:
    return CliRunner(env={"TRACKLOG_HOME": settings.home}).invoke(app, words)


def test_only_what_nothing_names_goes_and_first_it_lies_aside(settings: Settings) -> None:
    store = blobs_of(settings)
    needed = hashes(store)
    garbage = store.put(b"nobody's")
    assert len(needed) > 8, "bodies, prompts, tools, a task, checkpoints, files"

    assert plan_of(settings, grace_s=86_400).lay_aside == [], "it is young"
    plan = plan_of(settings)
    assert {one.hash for one in plan.lay_aside} == {garbage}
    collected(store, plan)
    assert hashes(store) == needed
    assert open_blobs(store.url).get(garbage) == b"nobody's"
    assert open_blobs(store.url).has(garbage)

    again = plan_of(settings)
    assert garbage in {one.hash for one in again.remove}
    collected(store, again)
    assert hashes(store) == needed
    with pytest.raises(BlobMissing):
        open_blobs(store.url).get(garbage)
    assert tracklog(settings, "verify", "--all").exit_code == 0


def test_what_only_the_cold_tier_still_has_keeps_its_blobs(settings: Settings) -> None:
    needed = hashes(blobs_of(settings))
    with opened_log(settings) as log:
        export_to(log, settings)
    trimmed = tracklog(settings, "--json", "retention", "apply", "--keep-days", "0", "--yes")
    assert trimmed.exit_code == 0, trimmed.output
    with opened_log(settings) as log:
        assert isinstance(log, JoinedLog)
        partitions = range(log.partition_count(settings.topic_names.events))
        assert any(log.hot.bounds(settings.topic_names.events, one).first for one in partitions)

    collected(blobs_of(settings), plan_of(settings))
    assert hashes(blobs_of(settings)) == needed

    elsewhere = settings.model_copy(update={"cold": settings.cold.model_copy(update={"url": f"{settings.home}/none"})})
    with pytest.raises(OffsetTrimmed, match="may be kept"):
        plan_of(elsewhere)


def test_a_blob_that_is_named_again_while_it_is_collected_comes_back(settings: Settings, store: BlobStore) -> None:
    """Given an old blob of nobody's, when a writer puts it again and appends its event behind the collector's back."""
    digest = store.put(LONG.encode())
    plan = plan_of(settings, store, grace_s=OLD_S)
    assert digest not in {one.hash for one in plan.lay_aside}, "the imported run names it"
    other = store.put(b"other")
    with_other = Collection(lay_aside=[one for one in store.stored() if one.hash in (other, digest)])

    collected(store, with_other)

    assert hashes(store) == set()
    assert store.get(digest) == LONG.encode(), "whoever asks finds it"
    back = plan_of(settings, store)
    assert [one.hash for one in back.take_back] == [digest]
    collected(store, back)
    assert hashes(store) == {digest}
    assert hashes(store, aside=True) == set(), "and the other was old enough to go"


def test_putting_an_old_blob_makes_it_young(tmp_path: Path, settings: Settings) -> None:
    store = open_blobs(str(tmp_path / "blobs"))
    digest = store.put(b"old")
    path = tmp_path / "blobs" / store.ref(digest)
    week_ago = path.stat().st_mtime - 7 * 86_400
    os.utime(path, (week_ago, week_ago))
    assert [one.hash for one in plan_of(settings, store, grace_s=86_400).lay_aside] == [digest]

    open_blobs(str(tmp_path / "blobs")).put(b"old")

    assert plan_of(settings, store, grace_s=86_400).lay_aside == []


@pytest.mark.parametrize("step", range(5))
def test_a_collector_that_dies_at_any_step_has_lost_nothing(settings: Settings, step: int) -> None:
    store = blobs_of(settings)
    needed = sorted(hashes(store))
    garbage = [store.put(f"garbage {number}".encode()) for number in range(2)]
    lying = {one.hash: one for one in store.stored()}
    collected(store, Collection(lay_aside=[lying[needed[0]], lying[needed[1]], lying[garbage[0]]]))
    plan = plan_of(settings, store)
    assert len(plan.take_back) + len(plan.remove) + len(plan.lay_aside) == 4

    collected(store, first_steps(plan, step))  # as far as it came

    assert all(store.has(one) for one in needed)
    for _ in range(2):
        collected(store, plan_of(settings, store))
    assert sorted(hashes(store)) == needed
    assert hashes(store, aside=True) == set()


def first_steps(plan: Collection, steps: int) -> Collection:
    back = plan.take_back[:steps]
    gone = plan.remove[: max(0, steps - len(plan.take_back))]
    return Collection(
        take_back=back, remove=gone, lay_aside=plan.lay_aside[: max(0, steps - len(plan.take_back) - len(plan.remove))]
    )


def test_the_command_says_what_it_would_do_and_does_it_when_told_to(settings: Settings) -> None:
    store = blobs_of(settings)
    garbage = store.put(b"nobody's")
    path = Path(settings.blobs.url) / store.ref(garbage)
    month_ago = path.stat().st_mtime - 30 * 86_400
    os.utime(path, (month_ago, month_ago))

    said = tracklog(settings, "blobs", "gc")
    assert (said.exit_code, path.exists()) == (0, True)
    assert "would be laid aside" in said.output
    assert "--yes" in said.output
    done = tracklog(settings, "--json", "blobs", "gc", "--yes")
    assert f'"{garbage}"' in done.stdout
    assert not path.exists()
    short = tracklog(settings, "blobs", "gc", "--grace-days", "0.5")
    assert (short.exit_code, "too short" in short.output) == (2, True)
    cold = tracklog(settings, "--log", "cold:", "blobs", "gc")
    assert cold.exit_code == 2


def test_a_record_of_a_type_that_is_not_known_stops_it(settings: Settings) -> None:
    with opened_log(settings) as log:
        (known,) = run_of("other-1").records[-1:]
        digest = event_hash(b"FUTURE!!", known.value[10:])
        headers = ((HEADER_TYPE, b"BrandNew"), (HEADER_HASH, digest))
        unknown = Made(known.key, SINGLE_OBJECT_MARK + b"FUTURE!!" + known.value[10:], headers, digest)
        append_all(log, settings.topic_names.events, [unknown])
    with pytest.raises(UnknownSchema, match="not known here"):
        plan_of(settings)
