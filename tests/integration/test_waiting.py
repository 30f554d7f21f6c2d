"""Lists of calls that wait for a person: whole, in order, in pages, from Redis as from the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.ledger import ledger
from tests.support.many_held import fill_held
from tests.support.projecting import said
from tests.support.sessions import PAST_GRACE_S, TRAJECTORY, World, asks, new_world, says
from tests.support.sessions import ScriptedModel as Script
from tracklog.consumers.cli.app import app
from tracklog.consumers.read import Reader
from tracklog.consumers.routing.router import Router
from tracklog.consumers.waiting import WaitingPage, waiting_in_log
from tracklog.consumers.wiring import agenda_of, blobs_of, opened_log, producer_of
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.infra.settings import LogSettings, Settings, load_settings
from tracklog.processors.agenda import ASKED, DOUBTED
from tracklog.producers.answers import Answers
from tracklog.producers.opening import opened
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent, run_turns
from tracklog.schemas.errors import ApprovalNeeded, PersonNeeded, RangeError
from tracklog.schemas.topics import Topics

RULES = PolicyFile(
    b"""
default = "hold"

[[rules]]
name = "bookings"
then = "hold"
may_approve = ["role:manager"]
expires_in_s = 86400
then_ask = [{ may_approve = ["eve"] }]
reason = "they cost money"
""",
    "policy.toml",
)
TENANTS = ("acme", "acme", "other", "acme", "other")


@pytest.fixture
def client(redis_db: str) -> Iterator[RedisClient]:
    client = connect(redis_db, timeout_s=5.0)
    yield client
    client.close()


async def hold(world: World, name: str, tenant: str) -> None:
    """Two calls side by side that wait for a decision."""
    model = Script(asks((f"{name}-a", "readonly"), (f"{name}-b", "readonly")), says("done"))
    setup = world.setup(model, policy=RULES)
    agent = Agent(setup.agent, setup.model, setup.tools, prompt=setup.prompt)
    with pytest.raises(ApprovalNeeded):
        async with (
            world.process() as (log, producer),
            opened(producer, name, log=log, setup=setup, tenant=tenant) as session,
        ):
            await run_turns(session, agent, setup.task)


def waiting_of(queue: Reader, *, tenant: str | None, cursor: str | None, limit: int) -> WaitingPage:
    return said(queue.waiting(ASKED, tenant=tenant, cursor=cursor, limit=limit))


def pages(turn: Callable[..., WaitingPage]) -> list[WaitingPage]:
    out = [turn(cursor=None)]
    while out[-1].next is not None:
        out.append(turn(cursor=out[-1].next))
    return out


async def test_pages_have_each_call_once_the_oldest_first_of_one_tenant_or_of_all(client: RedisClient) -> None:
    # given ten requests, of which some were asked in the same millisecond
    world = new_world("http://127.0.0.1:1")
    for number, tenant in enumerate(TENANTS):
        await hold(world, f"run-{number}", tenant)
        world.clock.advance(number % 2)  # two share a millisecond with the next
    log, settings = world.new_log(), Settings(log=LogSettings(url="memory:"))
    agenda_of(settings, log, client).loop.drain()
    queue = Reader(client, prefix=settings.prefix)

    for only, of_tenant in ((None, range(5)), ("acme", (0, 1, 3)), ("other", (2, 4)), ("nobody", ())):
        expected = {f"run-{number}-{letter}" for number in of_tenant for letter in "ab"}
        for limit in (1, 3, 100):
            # when they are read in pages, from Redis and from the log
            found = pages(partial(waiting_of, queue, tenant=only, limit=limit))
            read = pages(partial(waiting_in_log, log, Topics(), ASKED, tenant=only, limit=limit))
            # then each is there once, the oldest first, no page is longer than was asked for, and both say the same
            names = [one.call_id for page in found for one in page.rows]
            assert found == read
            assert (sorted(names), len(names)) == (sorted(expected), len(expected))
            assert [int(name[4]) // 2 for name in names] == sorted(int(name[4]) // 2 for name in names)
            assert {page.total for page in found} == {len(expected)}
            assert max(len(page.rows) for page in found) <= limit
    (first,) = (await queue.waiting(ASKED, limit=1)).value.rows
    assert (first.tool, first.may_approve, first.then) == ("readonly", ("role:manager",), 1)
    assert len(first.argument_hash) == 64


async def test_of_many_that_nobody_takes_each_is_said_to_have_expired_once_and_pages_stay_short(
    client: RedisClient,
) -> None:
    """More in one partition than a look takes up, and none of them is ever answered."""
    # given 1,300 requests in two partitions
    world, count = new_world("http://127.0.0.1:1"), 1_300
    log, settings = world.new_log(), Settings(log=LogSettings(url="memory:"))
    fill_held(log, count, expires_us=world.clock.now_us(), now_us=world.clock.now_us())
    agenda = agenda_of(settings, log, client)
    partitions = agenda.loop.drain()
    queue, read = Reader(client, prefix=settings.prefix), list[int]()

    def counted(found: list[bytes], **_: object) -> list[bytes]:
        read.append(len(found))
        return found

    client.set_response_callback("ZRANGEBYLEX", counted)

    # when they are listed, and a router says that they have expired
    page = (await queue.waiting(ASKED, limit=50)).value
    middle = (await queue.waiting(ASKED, tenant="acme", cursor=page.next, limit=50)).value
    router = Router(log, Topics(), client, agenda, clock=world.clock)
    for _ in range(3):
        await router.look(partitions)

    # then a page reads no more than it may show of each partition, and nothing is left on the agenda
    assert (len(page.rows), page.total, len(middle.rows)) == (50, count, 50)
    assert max(read) <= 51
    assert router.counts.expiries == count
    await router.look(partitions)
    assert router.counts.expiries == count
    assert sum(log.bounds(Topics().inbox, partition).end for partition in range(2)) == count


@pytest.mark.parametrize("cursor", ["", "x", "0000000000000-", "-", f"{'0' * 13}-{'g' * 16}", f"{'٣' * 13}-{'0' * 16}"])
def test_what_is_no_cursor_is_refused(cursor: str, client: RedisClient) -> None:
    settings = Settings(log=LogSettings(url="memory:"))
    agenda_of(settings, new_world("http://127.0.0.1:1").new_log(), client).loop.drain()
    with pytest.raises(RangeError, match="is no cursor"):
        waiting_of(Reader(client, prefix=settings.prefix), tenant=None, cursor=cursor, limit=1)


async def test_a_call_that_may_have_happened_is_listed_with_its_tool_until_a_person_has_settled_it(
    client: RedisClient,
) -> None:
    # given a call of a process that died after the effect
    with ledger() as (_, url):
        world, model = new_world(url), Script(asks(("c1", "opaque")), says("done"))
        world.die_at_point = "after the effect"
        assert await world.crash(model)
        world.die_at_point = None
        world.clock.advance(PAST_GRACE_S)
        with pytest.raises(PersonNeeded):
            await world.run(model)
    log, settings = world.new_log(), Settings(log=LogSettings(url="memory:"))
    loop, queue = agenda_of(settings, log, client).loop, Reader(client, prefix=settings.prefix)

    # when the agenda is folded, and a person has said what became of it
    loop.drain()
    (one,) = (await queue.waiting(DOUBTED, tenant="default", limit=10)).value.rows
    await Answers(log).settle(TRAJECTORY, "c1", person="ada", happened=True, output="it is", reason="in their list")
    await world.run(model)
    loop.drain()

    # then it was listed, and is not any more; and who said so is recorded with why
    assert (one.call_id, one.tool, one.reason) == ("c1", "opaque", "an intent without an outcome")
    assert (await queue.waiting(DOUBTED, limit=10)).value == WaitingPage([], None, 0)
    (result,) = [event for event in world.events() if event.name == "ToolResult"]
    assert (result.envelope.ext["by"], result.envelope.ext["reason"]) == ("ada", "in their list")


Tracklog = Callable[..., Result]


@tool(effect="opaque")
def book(what: str) -> str:
    return f"booked {what}"


@pytest.fixture
def tracklog(tmp_path: Path) -> Tracklog:
    environ = {"TRACKLOG_HOME": str(tmp_path / "data")}
    asyncio.run(recorded(load_settings(flags={}, environ=environ, cwd=tmp_path)))
    runner = CliRunner(env=environ)

    def run(*arguments: object, exit_code: int = 0) -> Result:
        result = runner.invoke(app, [str(one) for one in arguments])
        assert result.exit_code == exit_code, f"{arguments}: {result.output}\n{result.exception!r}"
        return result

    return run


async def recorded(settings: Settings) -> None:
    with opened_log(settings, make_topics=True) as log:
        async with producer_of(settings, log) as producer:
            for name in ("trip-1", "trip-2"):
                agent = Agent("traveller", Script(asks(("c1", "book"))), ToolSet.of(book), RULES)
                setup = agent.setup("a trip", blobs_of(settings), on_behalf_of="ada")
                with pytest.raises(ApprovalNeeded):
                    async with opened(producer, name, log=log, setup=setup) as session:
                        await run_turns(session, agent, setup.task)


def test_held_calls_are_listed_shown_and_decided_about_from_the_command_line(tracklog: Tracklog) -> None:
    told = tracklog("approvals", "list").stdout
    assert ["trip-1" in told, "book" in told, "the role manager" in told, "23 h" in told] == [True] * 4
    page = json.loads(tracklog("approvals", "list", "--limit", 1, "--json").stdout)
    assert (len(page["approvals"]), page["total"], page["lag"]) == (1, 2, 0)
    assert "2 in all; more: --cursor" in tracklog("approvals", "list", "--limit", 1).stdout
    assert page["approvals"][0]["arguments"] == '{"what":"it"}'
    assert "what" in told
    rest = json.loads(tracklog("approvals", "list", "--cursor", page["next"], "--json").stdout)
    assert (len(rest["approvals"]), rest["next"]) == (1, None)

    shown = " ".join(tracklog("approvals", "show", "trip-1", "c1").stdout.split())
    for words in ('book({"what":"it"})', "they cost money", "the role manager, but not ada, who asked", "then eve"):
        assert words in shown
    asked = json.loads(tracklog("approvals", "show", "trip-1", "c1", "--json").stdout)
    assert asked["argument_hash"] == page["approvals"][0]["argument_hash"]

    line = ("approvals", "deny", "trip-1", "c1", "--feedback", "too dear")
    refused = " ".join(tracklog(*line, "--as", "mo", exit_code=2).stderr.split())
    assert "may not decide: that is for the role manager" in refused
    assert "ada asked for this work" in tracklog(*line, "--as", "ada", "--role", "manager", exit_code=2).stderr
    assert "call c1: deny, by mo" in tracklog(*line, "--as", "mo", "--role", "manager").stdout
    assert "waits for no decision" in tracklog("approvals", "show", "trip-1", "c9", exit_code=2).stderr
    assert "no escalations" in tracklog("escalations", "list").stdout


def test_without_redis_the_log_is_read_and_that_is_said(tracklog: Tracklog) -> None:
    away = ("--redis", "redis://127.0.0.1:1")
    result = tracklog("approvals", "list", "--json", *away)
    assert json.loads(result.stdout)["total"] == 2
    assert "the whole log is read" in result.stderr
