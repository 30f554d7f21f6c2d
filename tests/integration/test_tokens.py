"""A model's text while it comes: given on through Redis, shown as server-sent events, ended by the reply of the log."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.loopback import Reply, in_turn, loopback
from tests.support.openai_server import client_of
from tests.support.serving import Api, serving, token
from tests.support.sessions import TRAJECTORY, ScriptedModel, says
from tests.support.working import Works, agent_of
from tracklog.consumers.api.relay import Telling
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.infra.token_relay import RECORDS_MAX, Heard, append, heard_since
from tracklog.producers.model_openai import OpenAIModel
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken
from tracklog.producers.relay import RelayedModel, TokenRelay
from tracklog.schemas import events as ev

WAIT_S: Final = 20.0
PREFIX: Final = "tracklog"


class Talker:
    """Says parts, and goes on behind each when it is told to; its reply is all of them."""

    name = "talker"

    def __init__(self, *parts: str) -> None:
        self.parts = parts
        self.said = threading.Semaphore(0)
        self.on = threading.Semaphore(0)

    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        assert on_token is not None
        for part in self.parts:
            on_token(part)
            self.said.release()
            while not self.on.acquire(blocking=False):  # noqa: ASYNC110 - told from other threads
                await asyncio.sleep(0.005)
        return ModelAnswer(says("".join(self.parts)).message)


class Listener:
    """A client of the stream, in a thread: `told` are (name, data) in order."""

    def __init__(self, api: Api, path: str = f"/trajectories/{TRAJECTORY}/tokens") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=WAIT_S)
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {token('viewer')}"})
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.told: list[tuple[str, Any]] = []
        self._changed = threading.Condition()
        self.ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        name = ""
        with suppress(OSError, http.client.HTTPException, ValueError):
            for line in self._answer:
                text = line.decode().rstrip("\n")
                if text.startswith("event: "):
                    name = text[7:]
                elif text.startswith("data: "):
                    with self._changed:
                        self.told.append((name, json.loads(text[6:])))
                        self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    async def until(self, ready: Callable[[Listener], bool]) -> None:
        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: ready(self), WAIT_S)

        assert await asyncio.to_thread(wait), self.told

    def texts(self) -> str:
        return "".join(data["text"] for name, data in self.told if name == "text")

    def names(self) -> list[str]:
        """What was told, runs of text as one."""
        names = [name for name, _ in self.told]
        return [name for at, name in enumerate(names) if at == 0 or name != "text" or names[at - 1] != "text"]


@pytest.fixture
def api(redis_db: str, tmp_path: Path) -> Iterator[Api]:
    with serving(redis_db, tmp_path) as served:
        yield served


@pytest.fixture
def client(redis_db: str) -> Iterator[RedisClient]:
    client = connect(redis_db, timeout_s=5.0)
    yield client
    client.close()


async def begun(api: Api) -> None:
    """A trajectory that was begun and has no reply yet."""

    class Away:
        name = "talker"

        async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
            raise asyncio.CancelledError

    away: Any = Away()
    with pytest.raises(asyncio.CancelledError):
        await api.world.run(away, clock=SystemClock())


def speak(api: Api, relay: TokenRelay, model: Any) -> asyncio.Task[Any]:
    heard: Any = relay.of(TRAJECTORY, model)
    return asyncio.create_task(api.world.run(heard, clock=SystemClock()))


async def test_text_is_shown_while_it_comes_and_the_reply_of_the_log_ends_it(api: Api, client: RedisClient) -> None:
    await begun(api)
    early, model = Listener(api), Talker("Hel", "lo, ", "world")
    async with TokenRelay(client, PREFIX, SystemEntropy()) as relay:
        run = speak(api, relay, model)
        await early.until(lambda one: one.texts() == "Hel")
        assert api.world.bodies(ev.ModelReplied) == []
        model.on.release()
        await early.until(lambda one: one.texts() == "Hello, ")
        # when somebody comes late, they are given what there is
        late = Listener(api)
        await late.until(lambda one: one.texts() == "Hello, ")
        model.on.release(2)
        await run
    for one in (early, late):
        await one.until(lambda one: one.ended)
        assert one.names() == ["started", "text", "replied"]
        assert one.texts() in ("Hello, ", "Hello, world")  # the log may be first with the end
        # then the last word is the event, as the log has it
        replied = one.told[-1][1]
        assert (replied["type"], replied["trajectory_id"]) == ("ModelReplied", TRAJECTORY)
    over = Listener(api)
    await over.until(lambda one: one.ended)
    assert over.told == [("ended", {})]


async def test_another_owner_begins_the_call_again_and_it_is_said(api: Api, client: RedisClient) -> None:
    await begun(api)
    listener, first, second = Listener(api), Talker("Good mor", "ning"), Talker("Good evening")
    async with TokenRelay(client, PREFIX, SystemEntropy()) as relay:
        dying = speak(api, relay, first)
        await listener.until(lambda one: one.texts() == "Good mor")
        dying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dying
        run = speak(api, relay, second)
        await listener.until(lambda one: one.texts().endswith("Good evening"))
        second.on.release()
        await run
    await listener.until(lambda one: one.ended)
    assert listener.names() == ["started", "text", "restarted", "text", "replied"]
    at = [name for name, _ in listener.told].index("restarted")
    assert "".join(data["text"] for name, data in listener.told[at:] if name == "text") == "Good evening"


async def test_a_reply_that_a_model_begins_again_is_heard_as_begun_again() -> None:
    def chunks(*texts: str, finish: str | None) -> bytes:
        parts: list[Any] = [{"index": 0, "delta": {"content": text}, "finish_reason": None} for text in texts]
        parts += [{"index": 0, "delta": {}, "finish_reason": finish}] if finish else []
        return b"".join(b"data: " + json.dumps({"choices": [part]}).encode() + b"\n\n" for part in parts)

    replies = [Reply(body=chunks("Fi", finish=None), content_type="text/event-stream")]
    replies.append(Reply(body=chunks("Fi", "ne.", finish="stop"), content_type="text/event-stream"))
    heard: list[Heard] = []
    with loopback(in_turn(*replies)) as server:
        model = OpenAIModel(client_of(server.url), "m", backoff_s=0.0)
        answer = await RelayedModel(model, heard.append, SystemEntropy()).reply(
            ModelRequest(({"role": "user", "content": "well?"},), replies_before=4)
        )
    assert answer.message["content"] == "Fine."
    assert [(one.reply, one.text) for one in heard] == [(4, None), (4, "Fi"), (4, None), (4, "Fi"), (4, "ne.")]
    assert len({one.attempt for one in heard}) == 2


def test_a_zombie_is_not_heard_and_a_reply_that_is_in_the_log_neither() -> None:
    telling = Telling(before=2)
    said = [
        Heard(1, "old"),
        Heard(1, "old", "gone"),
        Heard(2, "zombie"),
        Heard(2, "zombie", "a"),
        Heard(2, "owner"),
        Heard(2, "zombie", "b"),
        Heard(2, "owner", "c"),
    ]
    told = b"".join(frame for one in said for frame in telling.frames(one)).decode()
    events = [part.partition("\n")[0] for part in told.split("\n\n") if part]
    assert events == ["event: started", "event: text", "event: restarted", "event: text"]
    assert "gone" not in told
    assert '"b"' not in told
    # and of one whose beginning was lost the rest is shown
    assert b"".join(Telling(0).frames(Heard(0, "x", "rest"))).startswith(b"event: started")


async def test_without_redis_the_run_goes_on_and_the_text_is_lost(api: Api) -> None:
    gone = connect("redis://127.0.0.1:1", timeout_s=0.2, check=False)
    model = Talker("hello")
    model.on.release()
    async with TokenRelay(gone, PREFIX, SystemEntropy()) as relay:
        await speak(api, relay, model)
        async with asyncio.timeout(WAIT_S):
            while not relay.lost:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert len(api.world.bodies(ev.ModelReplied)) == 1


def test_what_is_kept_is_bounded_and_goes_by_itself(client: RedisClient) -> None:
    for at in range(0, 3 * RECORDS_MAX, 500):
        append(client, PREFIX, [("t", Heard(0, "a", str(at + number))) for number in range(500)])
    (key,) = client.keys("*tokens*")
    assert client.xlen(key) < 2 * RECORDS_MAX
    assert 0 < client.pttl(key) <= 600_000
    ((place, heard),) = heard_since(client, PREFIX, [("t", "")])
    assert len(heard) == 500
    assert heard_since(client, PREFIX, [("t", place)])[0][1][0].text == str(int(heard[-1].text or 0) + 1)


async def test_workers_give_it_on(client: RedisClient) -> None:
    works = Works()

    class Streaming(ScriptedModel):
        async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
            assert on_token is not None
            on_token("hi")
            return await super().reply(request, on_token=on_token)

    async with (
        TokenRelay(client, PREFIX, SystemEntropy()) as relay,
        works.worker(agent_of(Streaming(says("hi"))), relay=relay),
    ):
        await works.client.submit("traveller", "greet", id="trip-1")
        await works.client.result("trip-1", wait_s=WAIT_S)
        async with asyncio.timeout(WAIT_S):
            while not (heard := heard_since(client, PREFIX, [("trip-1", "")])[0][1]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert [one.text for one in heard] == [None, "hi"]
