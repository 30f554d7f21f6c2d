"""Tools of real MCP servers, over pipes and over HTTP: what is sent, what answers come to, what is recorded."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from socket import create_connection, socket
from typing import Any

import pytest

from tests.support.ledger import ledger
from tests.support.loopback import Asked, Reply, loopback
from tests.support.mcp_server import server_of
from tests.support.sessions import ScriptedModel, asks, built_in, new_world, says
from tracklog.infra.clock import SystemClock
from tracklog.infra.stack.process import wait_until
from tracklog.producers.replay import replay
from tracklog.producers.tool_run import Ran, run_tool
from tracklog.producers.tools import CallContext, Tool, ToolSet
from tracklog.schemas.errors import InputError, InvalidTool
from tracklog.schemas.events import TaskStarted, ToolIntent, ToolResult
from tracklog.schemas.values import Effect, ResultStatus

pytest.importorskip("mcp", reason="the mcp SDK is not installed: pip install 'tracklog[mcp]'")

from tracklog.producers.mcp_tool import (
    Declared,
    McpServer,
    mcp_tools,
    read_listing,
    write_listing,
)

CONTEXT = CallContext("t", "c1", "key-1", epoch=3, attempt=2, deadline_us=2**62)
TOKEN = "a-token-of-the-shop"
WAIT_S = 60.0
EFFECTS: dict[str, str | Declared] = {
    "find": "readonly",
    "shop.book": Declared("idempotent", key_ttl_s=86_400.0, key_argument="request_id"),
    "show": "readonly",
    "change": "local",
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "calls"
    path.touch()
    return path


@pytest.fixture
async def stdio(log: Path) -> AsyncIterator[McpServer]:
    async with shop(log) as server:
        yield server


@pytest.fixture
def http(log: Path) -> Iterator[str]:
    with closing(socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "tests.support.mcp_server", "http", str(log), str(port)])
    try:
        wait_until(lambda: answers(port), WAIT_S)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(WAIT_S)


def answers(port: int) -> bool:
    try:
        create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def shop(log: Path, **more: Any) -> McpServer:
    arguments = ("-m", "tests.support.mcp_server", "stdio", str(log))
    return McpServer.stdio(
        "shop", sys.executable, *arguments, env={"SHOP_TOKEN": TOKEN}, **{"connect_timeout_s": WAIT_S, **more}
    )


async def listed(log: Path) -> list[dict[str, Any]]:
    """What the server lists, without one."""
    tools = await server_of(log).list_tools()
    return [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in tools]


async def made(server: McpServer, **more: Any) -> dict[str, Tool]:
    options: dict[str, Any] = {"effects": EFFECTS, "timeout_s": WAIT_S, **more}
    return {one.name: one for one in mcp_tools(server, await server.tools(), **options)}


async def ran(one: Tool, context: CallContext = CONTEXT, **arguments: Any) -> Ran:
    return await run_tool(one, context, json.dumps(arguments), clock=SystemClock(), output_bytes_max=64 * 1024)


def calls(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


async def test_the_tools_of_a_server_have_the_class_that_is_declared_and_are_else_opaque(log: Path) -> None:
    tools = mcp_tools(shop(log), await listed(log), {"find": "readonly"}, prefix="shop-")

    assert [(one.name, one.effect) for one in tools] == [
        ("shop-find", Effect.READONLY),
        ("shop-shop_book", Effect.OPAQUE),
        ("shop-show", Effect.OPAQUE),
        ("shop-change", Effect.OPAQUE),
    ]
    assert tools[0].description == "Looks for something."
    assert tools[0].problem({"what": 3}) != ""


async def test_a_call_goes_under_its_key_and_the_model_is_not_told_of_that(stdio: McpServer, log: Path) -> None:
    book = (await made(stdio))["shop_book"]

    got = await ran(book, what="it")

    assert (got.status, got.output) == (ResultStatus.OK, "booked it")
    (call,) = calls(log)
    assert (call["arguments"], call["key"]) == ("it", "key-1")
    sent = {name: value for name, value in call["meta"].items() if name.startswith("tracklog/")}
    assert sent == {
        "tracklog/idempotency-key": "key-1",
        "tracklog/epoch": 3,
        "tracklog/attempt": 2,
        "tracklog/deadline-us": 2**62,
    }
    assert list(book.schema["properties"]) == ["what"]


async def test_what_a_server_does_is_a_result(stdio: McpServer, log: Path) -> None:
    tools = await made(stdio)
    cut = (await made(stdio, timeout_s=2.0))["shop_book"]

    shown = await ran(tools["show"], what="it")
    failed = await ran(tools["shop_book"], what="fail")
    late = await ran(tools["shop_book"], CallContext("t", "c", "k", 1, 1, deadline_us=1), what="it")
    ended = await ran(tools["shop_book"], what="end")
    again = await ran(tools["shop_book"], what="again")
    hung = await ran(cut, what="hang")
    busy = await ran(cut, what="later")
    anew = await ran(tools["find"], what="later")

    assert shown.output.startswith("a picture\n[image, image/png, 4 characters of base64, sha256 ")
    assert failed.status is ResultStatus.ERROR
    assert late.status is ResultStatus.EXPIRED
    assert (ended.status, again.status) == (ResultStatus.UNKNOWN, ResultStatus.OK)
    assert hung.status is ResultStatus.TIMEOUT
    assert (busy.status, anew.status) == (ResultStatus.ERROR, ResultStatus.OK), "nothing was sent to one that hangs"
    assert "not ready within 1 s" in busy.output
    assert [call["arguments"] for call in calls(log)] == ["fail", "end", "again", "hang", "later"]


async def test_calls_side_by_side_share_one_connection_and_survive_its_loss(stdio: McpServer, log: Path) -> None:
    find, book = (
        one for one in mcp_tools(stdio, await listed(log), dict.fromkeys(("find", "shop.book"), "readonly"))[:2]
    )
    lost = await ran(book, what="end", request_id="r")

    got = await asyncio.gather(*(ran(find, what=str(number)) for number in range(8)))

    assert lost.status is ResultStatus.ERROR, "a reading has no outcome to be in doubt about"
    assert [one.output for one in got] == [f"found {number}" for number in range(8)]


async def test_a_tool_that_changed_since_it_was_listed_is_not_called(stdio: McpServer, log: Path) -> None:
    tools = await made(stdio)
    changed = await ran(tools["change"])

    got = await ran(tools["find"], what="it")

    assert changed.output == f"changed by {TOKEN}"
    assert (got.status, calls(log)) == (ResultStatus.ERROR, [])
    assert "takes other arguments now" in got.output
    assert (await ran((await made(stdio))["find"], what="it", where="there")).output == "found it there"


@pytest.mark.parametrize("command", ["no-such-program-anywhere", sys.executable])
async def test_a_server_that_does_not_come_up_means_that_nothing_was_called(command: str, log: Path) -> None:
    gone = McpServer.stdio("shop", command, "-c", "pass", env={"SHOP_TOKEN": TOKEN})
    book = next(one for one in mcp_tools(gone, await listed(log)) if one.name == "shop_book")

    got = await ran(book, what="it", request_id="r")

    assert got.status is ResultStatus.ERROR
    assert "MCP server 'shop' cannot be reached" in got.output


async def test_a_server_over_http_is_called_the_same_way(http: str, log: Path) -> None:
    async with McpServer.http("shop", http, connect_timeout_s=WAIT_S) as server:
        tools = await made(server)
        got = await ran(tools["shop_book"], what="it")
        failed = await ran(tools["shop_book"], what="fail")
        ended = await ran(tools["shop_book"], what="end")
        gone = await ran(tools["shop_book"], what="it")

    assert (got.output, failed.status) == ("booked it", ResultStatus.ERROR)
    assert ended.status is ResultStatus.UNKNOWN
    assert gone.status is ResultStatus.ERROR
    assert [call["arguments"] for call in calls(log)] == ["it", "fail", "end"]


async def test_headers_go_with_every_request_and_into_no_message() -> None:
    def refuse(asked: Asked) -> Reply:
        return Reply(401, f"no: {asked.headers['authorization']}".encode(), "text/plain")

    with loopback(refuse) as server:
        shut = McpServer.http("shop", f"{server.url}/mcp?key={TOKEN}", headers={"Authorization": f"Bearer {TOKEN}"})
        (book,) = mcp_tools(shut, [{"name": "book", "inputSchema": {"type": "object"}}])
        got = await ran(book)
        await shut.aclose()

        assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {TOKEN}"}
    assert got.status is ResultStatus.ERROR
    assert TOKEN not in got.output
    assert TOKEN not in repr(shut)


async def test_what_cannot_be_declared_is_refused_with_the_way_out(log: Path, tmp_path: Path) -> None:
    server = shop(log)
    listing = ({"name": "find", "inputSchema": {"type": "object", "properties": {"what": {}}}},)

    with pytest.raises(InvalidTool, match="lists no tool 'fnid'"):
        mcp_tools(server, listing, {"fnid": "readonly"})
    with pytest.raises(InvalidTool, match="declares the effect 'safe'"):
        mcp_tools(server, listing, {"find": "safe"})
    with pytest.raises(InvalidTool, match="does not say for how long"):
        mcp_tools(server, listing, {"find": "idempotent"})
    with pytest.raises(InvalidTool, match="takes no argument 'key'"):
        mcp_tools(server, listing, {"find": Declared(key_argument="key")})
    with pytest.raises(InputError, match="has no list of tools"):
        mcp_tools(server, tmp_path / "nothing.json")
    with pytest.raises(InputError, match="connect_timeout_s"):
        shop(log, connect_timeout_s=0.0)


async def test_a_schema_with_unknown_rules_is_left_to_the_server(log: Path) -> None:
    schema = {"type": "object", "minProperties": 1, "properties": {"what": {"type": "string"}}}
    (one,) = mcp_tools(shop(log), [{"name": "find", "inputSchema": schema}])

    assert one.problem({}) == ""
    assert one.schema == schema


async def test_an_agent_books_once_however_often_it_is_killed_and_its_replay_needs_no_server(
    stdio: McpServer, log: Path, tmp_path: Path
) -> None:
    file = tmp_path / "shop.json"
    write_listing(file, await stdio.tools())
    world_model = ScriptedModel(asks(("c1", "shop_book"), ("c2", "find")), says("done"))
    with ledger() as (_, url):
        world = new_world(url)
        tools = ToolSet.of(*mcp_tools(stdio, file, EFFECTS, timeout_s=WAIT_S, clock=world.clock))
        world.die_at_append, killed = 2, 0
        while await world.crash(world_model, tools=tools):
            killed += 1
        offline = McpServer.stdio("shop", "no-such-program-anywhere")
        setup = world.setup(world_model, tools=ToolSet.of(*mcp_tools(offline, read_listing(file), EFFECTS)))
        report = await replay(world.events(), built_in(setup), setup=setup)

    assert killed > 3
    assert len({call["key"] for call in calls(log) if call["what"] == "book"}) == 1
    assert [(one.call_id, one.output.text) for one in world.bodies(ToolResult)] == [
        ("c1", "booked it"),
        ("c2", "found it"),
    ]
    assert report.clean
    (started,) = world.bodies(TaskStarted)
    shown = json.loads(world.blobs.get(started.tool_schemas.hash.hex()))
    assert [one["function"]["name"] for one in shown] == ["change", "find", "shop_book", "show"]
    assert [one.effect for one in world.bodies(ToolIntent)] == [Effect.IDEMPOTENT, Effect.READONLY]
    assert TOKEN not in str([event.body for event in world.events()])
