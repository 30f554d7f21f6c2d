"""Webhooks: who is told that a call waits for a person, by messages signed as the Standard Webhooks specify."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.loopback import Asked, Reply, in_turn, loopback
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, new_world, says
from tracklog.consumers.cli.standing import run_together
from tracklog.consumers.routing.router import Router
from tracklog.consumers.webhooks.announcer import Announcer, announcer_of
from tracklog.consumers.webhooks.signing import Secrets, signed
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.infra.settings import LogSettings, LoopSettings, Settings
from tracklog.infra.settings_http import WebhookSettings
from tracklog.processors.agenda import Agenda
from tracklog.processors.running import running
from tracklog.producers.answers import Answers
from tracklog.producers.policy_file import PolicyFile
from tracklog.schemas.approvals import Approver
from tracklog.schemas.errors import ApprovalNeeded, SettingsError
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Choice

WAIT_S: Final = 20.0
SECRET: Final = b"a secret of thirty-two bytes yes"
HELD: Final = PolicyFile(
    b'default = "hold"\n[[rules]]\nname = "all"\nthen = "hold"\nmay_approve = ["ann"]\nreason = "costs money"\n',
    "policy.toml",
)
CALL: Final = asks(("call-1", "readonly"))


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets"
    path.write_text(f"whsec_{base64.b64encode(SECRET).decode()}\n")
    return path


@pytest.fixture
def client(redis_db: str) -> Iterator[RedisClient]:
    client = connect(redis_db, timeout_s=5.0)
    yield client
    client.close()


@pytest.fixture
def world() -> World:
    world = new_world("http://127.0.0.1:1")
    world.log_clock = SystemClock()
    return world


@asynccontextmanager
async def telling(world: World, client: RedisClient, file: Path, *urls: str, **others: Any) -> AsyncIterator[Announcer]:
    """A router and its webhooks."""
    log, clock = world.new_log(), SystemClock()
    loop = LoopSettings(batch_wait_s=0.0, poll_timeout_s=0.02)
    webhooks = WebhookSettings(urls=urls, secret_file=str(file), **{"pause_s": 0.05, "timeout_s": 0.5, **others})
    settings = Settings(log=LogSettings(url="memory:"), loop=loop, webhooks=webhooks)
    agenda = running(Agenda(), log, client, settings, clock=clock, entropy=SystemEntropy())
    announcer = announcer_of(webhooks, client, agenda, clock)
    assert announcer is not None
    stop = asyncio.Event()
    router = Router(log, settings.topic_names, client, agenda, clock=clock)
    task = asyncio.create_task(run_together(stop, router.run, announcer.run))
    try:
        yield announcer
    finally:
        stop.set()
        await task


async def until(ready: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not ready():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def untold(client: RedisClient) -> int:
    """Calls that the next router would tell of."""
    return sum(client.zcard(key) for key in client.keys("*:untold"))


async def hold(world: World) -> None:
    with pytest.raises(ApprovalNeeded):
        await world.run(ScriptedModel(CALL, says("done")), policy=HELD, clock=SystemClock())


def check_signature(asked: Asked) -> None:
    """As a receiver does: the secret, the three headers, the body as it came."""
    said = b".".join((asked.headers["webhook-id"].encode(), asked.headers["webhook-timestamp"].encode(), asked.body))
    seal = base64.b64encode(hmac.new(SECRET, said, hashlib.sha256).digest()).decode()
    assert asked.headers["webhook-signature"].split() == [f"v1,{seal}"]
    assert abs(int(asked.headers["webhook-timestamp"]) - SystemClock().now_us() // 1_000_000) < WAIT_S


def test_the_signature_is_that_of_the_specification() -> None:
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', (key,))
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_held_call_is_told_once_to_each_address(world: World, client: RedisClient, secret_file: Path) -> None:
    await hold(world)
    with loopback(lambda _: Reply(204, b"")) as one, loopback(lambda _: Reply()) as other:
        link = "https://tracklog.example"
        async with telling(world, client, secret_file, one.url, other.url, answer_url=link) as announcer:
            await until(lambda: announcer.told == 2 and not announcer.telling)
    # then the next router has nothing to tell
    assert untold(client) == 0
    (asked,) = one.asked
    assert [this.headers["webhook-id"] for this in other.asked] == [asked.headers["webhook-id"]]
    check_signature(asked)
    # then it names the request, whoever may answer, and nothing of the arguments
    said = asked.json
    assert said["type"] == "approval.requested"
    assert (said["data"]["trajectory_id"], said["data"]["call_id"], said["data"]["tool"]) == (
        TRAJECTORY,
        "call-1",
        "readonly",
    )
    assert (said["data"]["may_approve"], said["data"]["reason"]) == (["ann"], "costs money")
    assert "arguments" not in said["data"]
    assert said["data"]["answer_url"] == f"{link}/answers/{TRAJECTORY}/call-1/{said['data']['request_hash']}"


async def test_what_is_not_taken_is_sent_again_under_its_id_and_holds_up_nobody_else(
    world: World, client: RedisClient, secret_file: Path
) -> None:
    await hold(world)
    replies = (Reply(503), Reply(lost=True), Reply(301, headers={"Location": "http://127.0.0.1:9/"}), Reply(200))
    with loopback(in_turn(*replies)) as slow, loopback(lambda _: Reply()) as quick:
        async with telling(world, client, secret_file, slow.url, quick.url) as announcer:
            await until(lambda: announcer.told == 2)
    assert len(slow.asked) == 4
    assert len(quick.asked) == 1
    assert len({(one.headers["webhook-id"], one.body) for one in [*slow.asked, *quick.asked]}) == 1
    for one in slow.asked:
        check_signature(one)


async def test_a_router_that_ends_in_between_leaves_it_to_the_next_one(
    world: World, client: RedisClient, secret_file: Path
) -> None:
    await hold(world)
    up = False

    def answer(_: Asked) -> Reply:
        return Reply(200 if up else 500)

    with loopback(answer) as endpoint:
        async with telling(world, client, secret_file, endpoint.url):
            await asyncio.to_thread(endpoint.wait_for_request)
        up = True
        async with telling(world, client, secret_file, endpoint.url) as announcer:
            await until(lambda: announcer.told == 1)
    assert len({(one.headers["webhook-id"], one.body) for one in endpoint.asked}) == 1
    # and a Redis that lost everything has it told again, as the same message
    await asyncio.to_thread(client.flushdb)
    with loopback(lambda _: Reply()) as again:
        async with telling(world, client, secret_file, again.url) as announcer:
            await until(lambda: announcer.told == 1)
    assert again.asked[0].headers["webhook-id"] == endpoint.asked[0].headers["webhook-id"]


async def test_tries_are_bounded_and_the_log_says_what_was_given_up(
    world: World, client: RedisClient, secret_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await hold(world)
    with caplog.at_level(logging.WARNING), loopback(lambda _: Reply(500)) as endpoint:
        url = f"{endpoint.url}/hook/T0KEN"
        async with telling(world, client, secret_file, url, tries_max=3) as announcer:
            await until(lambda: announcer.given_up == 1 and not announcer.telling)
    assert untold(client) == 0
    assert len(endpoint.asked) == 3
    assert "given up on for message ask_" in caplog.text
    assert "does not take messages: it answered 500" in caplog.text
    assert "T0KEN" not in caplog.text
    assert base64.b64encode(SECRET).decode() not in caplog.text


async def test_what_was_answered_meanwhile_is_told_to_nobody_any_more(
    world: World, client: RedisClient, secret_file: Path
) -> None:
    await hold(world)
    with loopback(lambda _: Reply(500)) as endpoint:
        async with telling(world, client, secret_file, endpoint.url, pause_s=0.3) as announcer:
            await asyncio.to_thread(endpoint.wait_for_request)
            answers = Answers(world.new_log(), Topics(), clock=SystemClock())
            await answers.answer(TRAJECTORY, "call-1", who=Approver("ann"), choice=Choice.APPROVE)
            await world.run(ScriptedModel(CALL, says("done")), policy=HELD, clock=SystemClock())
            await until(lambda: not announcer.telling)
            assert (announcer.told, announcer.given_up) == (0, 0)


@pytest.mark.parametrize(
    "text",
    ["", "whsec_\n", "whsec_c2hvcnQ=", "not base64 at all!", "whsec_" + "QUFB" * 30, "\n".join(["QUFB" * 10] * 5)],
)
def test_a_file_without_secrets_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secrets"
    path.write_text(text)
    with pytest.raises(SettingsError, match="secret") as refused:
        Secrets(path)
    assert not any(part in str(refused.value) for part in ("c2hvcnQ", "base64!", "QUFB"))


def test_a_secret_is_changed_while_it_runs(secret_file: Path) -> None:
    secrets = Secrets(secret_file)
    new = b"another secret of 32 bytes or so"
    secret_file.write_text(f"{base64.b64encode(new).decode()}\n{base64.b64encode(SECRET).decode()}\n")
    assert secrets.keys() == (new, SECRET)
    assert len(signed("id", 1, b"{}", secrets.keys())["webhook-signature"].split()) == 2
    secret_file.unlink()
    assert secrets.keys() == (new, SECRET)
    assert "No such file" in secrets.problem


@pytest.mark.parametrize(
    "wrong",
    [
        {"urls": "https://a.example/hook"},
        {"urls": "http://a.example/hook", "secret_file": "s"},
        {"urls": "https://user:password@a.example/hook", "secret_file": "s"},
        {"urls": "ftp://a.example/hook", "secret_file": "s"},
    ],
)
def test_addresses_that_cannot_be_told_safely_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        WebhookSettings(**wrong)


@pytest.mark.parametrize(
    "url", ["http://localhost:9000/hook", "http://127.0.0.9/hook", "http://[::1]:9000/", "https://a.example/hook"]
)
def test_addresses_of_this_machine_and_secured_ones_are_taken(url: str) -> None:
    assert WebhookSettings(urls=(url,), secret_file="s").urls == (url,)
