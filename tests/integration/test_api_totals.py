"""What processors make of the events, over HTTP: the numbers of the read client, by tenant where they have one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.chains import append_all, run_of
from tests.support.serving import EVERYWHERE, Api, serving

RUNS = 5


@pytest.fixture
def api(redis_db: str, tmp_path: Path) -> Iterator[Api]:
    """With runs of two tenants, folded."""
    with serving(redis_db, tmp_path) as served:
        log = served.world.new_log()
        for number in range(RUNS):
            run = run_of(f"run-{number}", turns=2, tenant="default" if number % 2 else "acme")
            append_all(log, served.services.topics.events, run.records)
        served.fold()
        yield served


def get(api: Api, path: str, who: str = EVERYWHERE) -> Any:
    status, said = api.ask("GET", path, who=who)
    assert status == 200, (path, said)
    return said


async def test_money_and_tokens_are_told_by_tenant_and_of_ones_own_only(api: Api) -> None:
    day = datetime.now(UTC).date().isoformat()
    mine, all_of_them = get(api, f"/spend?day={day}", "viewer"), get(api, f"/spend?day={day}")

    asked = (await api.services.reader.spend(day)).value
    assert {f"{one['tenant']}|{one['model']}": one["calls"] for one in all_of_them["spend"]} == {
        whose: meter.calls for whose, meter in asked.items()
    }
    assert {one["tenant"] for one in all_of_them["spend"]} == {"default", "acme"}
    assert mine["spend"] == [one for one in all_of_them["spend"] if one["tenant"] == "default"]
    assert mine["as_of"] == get(api, "/trajectories", "viewer")["as_of"]
    assert api.ask("GET", f"/spend?day={day}&tenant=acme", who="viewer")[0] == 403
    for wrong in ("yesterday", "2026-13-41", "2026-02-30"):
        status, said = api.ask("GET", f"/spend?day={wrong}", who="viewer")
        assert (status, "day" in said["error"]) == (422, True), said
        assert "YYYY" in said["hint"] or "[0-9]" in said["hint"] or "2026-03-01" in said["hint"], said
    assert get(api, "/spend?day=1999-12-31")["spend"] == []


async def test_tools_and_minutes_are_for_who_sees_all_tenants(api: Api) -> None:
    asked = (await api.services.reader.tool_stats("pay")).value
    told = get(api, "/tool-stats?tool=pay")
    assert (told["calls"], told["statuses"], told["total_ms"]) == (asked.calls, asked.statuses, asked.total_ms)
    assert sum(told["latencies"].values()) == sum(asked.latencies.values())
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    assert set(get(api, f"/activity?at={now}")) == {"at", "events", "as_of"}
    for path in ("/tool-stats?tool=pay", "/activity?at=2026-03-01", "/totals/pace?key=moving"):
        status, said = api.ask("GET", path, who="viewer")
        assert (status, "a token for all of them" in said["error"]) == (403, True), path


async def test_any_projection_is_read_by_key_in_its_shape_and_in_pages(api: Api) -> None:
    day = f"meter:{datetime.now(UTC).date().isoformat()}"
    assert get(api, "/totals/spend")["keys"] == [day], "what a runner keeps is no key of the processor's"
    assert get(api, "/totals/trajectories")["keys"] == []
    summed = get(api, f"/totals/spend?key={day}")
    assert (summed["shape"], summed["value"]) == ("hash", (await api.services.reader.totals("spend", day)).value)
    log, topic = api.world.new_log(), api.services.topics.events
    for number in range(RUNS):  # runs that go on
        append_all(log, topic, run_of(f"open-{number}", turns=1, tenant="acme").records[:3])
    api.fold()
    found, path = [], "/totals/pace?key=moving&limit=2&lowest_first=true"
    page = get(api, path)
    while True:
        found += page["value"]
        if page["next"] is None:
            break
        page = get(api, f"{path}&cursor={page['next']}")
    still = (await api.services.reader.still()).value
    assert [member for _, member in found] == [one.trajectory_id for one in still]
    assert len(found) == RUNS


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/totals/nobody?key=x", "nobody has folded a projection 'nobody'"),
        ("/totals/pace?key=nothing", "has no key 'nothing'"),
        ("/totals/pace?cursor=1:x", "names of keys have no pages"),
        ("/totals/pace?key=moving&cursor=x", "is no cursor"),
        ("/totals/spend?key=meter:2026-03-01&lowest_first=true", "it is given whole"),
        ("/activity?at=soon", "is no time"),
    ],
)
def test_what_is_not_there_is_named(api: Api, path: str, said: str) -> None:
    status, answer = api.ask("GET", path, who=EVERYWHERE)
    assert (status, said in answer["error"]) == (422, True), answer
    assert answer["hint"]


def test_numbers_that_nobody_folds_name_who_would(redis_db: str, tmp_path: Path) -> None:
    with serving(redis_db, tmp_path) as served:
        status, said = served.ask("GET", "/spend?day=2026-03-01", who="viewer")
    assert (status, "'spend'" in said["error"], "tracklog process" in said["hint"]) == (503, True, True)
