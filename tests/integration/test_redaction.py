"""Seeded secrets: planted in every place where somebody says something, and looked for in everything that is kept or
printed. Without a policy each is found, so the test would see it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from tests.support.cold import export_to
from tests.support.importing import chat_line, chat_record
from tests.support.sessions import ScriptedModel, asks, says
from tracklog.consumers.cli.app import app
from tracklog.consumers.ingest.given import Batch, Start
from tracklog.consumers.ingest.ingest import Author, Ingest
from tracklog.consumers.tasking import opened_client
from tracklog.consumers.wiring import everything_of, opened_log, opened_views
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.connection import connected
from tracklog.producers.library import durable
from tracklog.producers.setup import Setup
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent, run_turns

LONG = "long text " * 20_000
PLACES = (
    "task",
    "prompt",
    "reply",
    "result",
    "error",
    "whole-output",
    "step",
    "sent",
    "ended",
    "left",
    "submitted",
    "message",
    "cancel",
    "annotation",
    "import-task",
    "import-result",
    "import-call",
    "ingest-task",
    "ingest-prompt",
    "ingest-reply",
)


def secret(place: str) -> str:
    return f"sk-{place.ljust(24, 'x')}"


def email(place: str) -> str:
    return f"{place}@example.org"


@tool(effect="readonly")
def look(what: str) -> object:
    if what == "badly":
        raise ValueError(f"no {secret('error')}")
    if what == "long":
        return f"{LONG} {secret('whole-output')}"
    return {"said": secret("result"), "email": email("result")}


def agent() -> Agent:
    replies = [asks((f"c{n}", "look"), arguments=json.dumps({"what": what})) for n, what in enumerate(WHATS)]
    model = ScriptedModel(*replies, says(f"it is {secret('reply')}"))
    return Agent("traveller", model, ToolSet.of(look), prompt=f"your key is {secret('prompt')}")


WHATS = ("well", "badly", "long")


async def work(settings: Settings) -> None:
    """A run to its end, one that is left with an error, and one of a client elsewhere."""
    one = agent()
    setup = Setup(one.name, f"{secret('task')} {LONG}", model=one.model, tools=one.tools, prompt=one.prompt)
    async with connected(settings) as here:
        async with durable("trip-1", setup, at=here) as session:
            await session.step("read", lambda: {"key": secret("step"), "email": email("step")})
            await session.send("bob", secret("sent"))
            await run_turns(session, one, setup.task)
        with pytest.raises(ValueError, match="left"):
            async with durable("trip-2", Setup("other", "x"), at=here) as session:
                raise ValueError(f"left with {secret('left')}")
        async with durable("trip-3", Setup("other", "x"), at=here) as session:
            await session.end({"key": secret("ended"), "email": email("ended")})
        ingest = Ingest(
            here.log,
            here.topics,
            here.blobs,
            clock=SystemClock(),
            entropy=SystemEntropy(),
            settings=settings.ingest,
            redaction=settings.redaction.before_append(),
        )
        author = Author("ada/client", lambda _: True)
        start = Start(
            client="client", id="far-1", agent="far", task=secret("ingest-task"), prompt=secret("ingest-prompt")
        )
        await ingest.start(author, start)
        reply = {"role": "assistant", "content": secret("ingest-reply")}
        events = [{"type": "ContextBuilt"}, {"type": "ModelReplied", "reply": reply}]
        await ingest.append(author, "far-1", Batch.model_validate({"client": "client", "first": 1, "events": events}))
        await ingest.close()
    with opened_client(settings) as client:
        await client.submit("traveller", f"{secret('submitted')} {LONG}", id="given-1")
        await client.send("trip-2", secret("message"))
        await client.cancel("given-1", secret("cancel"))


def leaky_file(folder: Path) -> Path:
    record = chat_record(id="imported-1")
    arguments = json.dumps({"email": email("import-call"), "key": secret("import-call")})
    call = {"id": "c9", "type": "function", "function": {"name": "find", "arguments": arguments}}
    record["messages"] += [
        {"role": "user", "content": secret("import-task")},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c9", "content": f"{LONG} {secret('import-result')}"},
        {"role": "assistant", "content": "done"},
    ]
    path = folder / "leaky.jsonl"
    path.write_bytes(chat_line(record))
    return path


def planted(home: Path, policy: Mapping[str, object], log: pytest.LogCaptureFixture) -> tuple[Settings, str]:
    """Runs it all, and gives back everything that is kept or was printed, as one text."""
    home.mkdir()
    settings = load_settings(flags={"home": str(home), **policy}, environ={}, cwd=home)
    flags = [part for name, value in policy.items() for part in ("--set", f"{name}={value}")]
    runner, printed = CliRunner(env={"TRACKLOG_HOME": str(home)}), []

    def command(*words: str) -> None:
        result = runner.invoke(app, [*flags, *words])
        assert result.exit_code == 0, f"{words}: {result.output}\n{result.exception!r}"
        printed.append(result.output)

    with log.at_level(logging.DEBUG):
        asyncio.run(work(settings))
        command("import", str(leaky_file(home)))
        command("annotate", "trip-1", "--name", "comment", "--value", secret("annotation"), "--as", "ada")
        with opened_log(settings) as opened:
            export_to(opened, settings)
        for words in ("show trip-1", "show imported-1", "list", "cold trajectories", "cold training --keep-secrets"):
            command(*words.split())
        command("query", "SELECT body FROM events")
    (home / "leaky.jsonl").unlink()
    kept = [*of_topics(settings), *of_redis(settings), *of_tables(settings), *of_blobs(settings)]
    return settings, "\n".join([*kept, *printed, log.text])


def of_topics(settings: Settings) -> Iterator[str]:
    topics = settings.topic_names
    with opened_log(settings) as log:
        for topic in (topics.events, topics.inbox, topics.attempts, topics.quarantine, topics.controls):
            yield from (repr((one.key, one.value, one.headers)) for one in records_of(log, topic))


def records_of(log: Log, topic: str) -> Iterator[Any]:
    for partition in range(log.partition_count(topic)):
        bounds = log.bounds(topic, partition)
        yield from read_range(log, topic, partition, bounds.first, bounds.end)


def of_redis(settings: Settings) -> Iterator[str]:
    with opened_views(settings, everything_of) as (_, client):
        reads: dict[Any, Callable[[Any], Any]] = {
            b"string": client.get,
            b"hash": client.hgetall,
            b"set": client.smembers,
            b"list": lambda key: client.lrange(key, 0, -1),
            b"zset": lambda key: client.zrange(key, 0, -1),
            b"stream": client.xrange,
        }
        for key in client.scan_iter("*"):
            yield repr((key, reads[client.type(key)](key)))


def of_tables(settings: Settings) -> Iterator[str]:
    for row in DeltaTable(f"{settings.cold.url}/events").to_pyarrow_table().to_pylist():
        yield repr(row)


def of_blobs(settings: Settings) -> Iterator[str]:
    for root in (settings.blobs.url, f"{settings.cold.url}/blobs"):
        yield from (path.read_bytes().decode(errors="replace") for path in Path(root).rglob("*") if path.is_file())


def test_secrets_planted_everywhere_are_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    policy = {"redaction.append": "true", "redaction.fields": "email"}
    settings, kept = planted(tmp_path / "guarded", policy, caplog)
    assert [place for place in PLACES if secret(place) in kept] == []
    assert "@example.org" not in kept
    assert "[API key redacted]" in kept

    flags = ["--set", "redaction.append=true", "verify", "--all"]
    assert CliRunner(env={"TRACKLOG_HOME": settings.home}).invoke(app, flags).exit_code == 0


def test_without_a_policy_each_of_them_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, kept = planted(tmp_path / "open", {}, caplog)
    assert [place for place in PLACES if secret(place) not in kept] == []
    assert "@example.org" in kept
