"""The rights that `tracklog acls` prints, on a broker that asks who somebody is: enough for each role, and no more."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.secured import Secured, secured
from tests.support.standing import ROOT, Installation
from tracklog.consumers.acl_formats import REDIS_ROLES
from tracklog.infra.acls import ROLES
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log, Position
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.errors import AppendError, AppendRefused, LogError
from tracklog.schemas.topics import Topics

PREFIX = "secured"
TOPICS = Topics(PREFIX)
BOUND_S = 60.0
PROCESSES = {
    "owner": ("worker", "tests.support.standing_views:clerk"),
    "dispatcher": ("dispatch", "tests.support.standing_views:mail"),
    "router": ("route",),
    "processor": ("process",),
}
WRITES = {
    "owner": {TOPICS.events, TOPICS.inbox},
    "dispatcher": {TOPICS.attempts, TOPICS.inbox},
    "router": {TOPICS.inbox},
    "processor": {TOPICS.quarantine},
    "exporter": set(),
    "api": {TOPICS.inbox},
    "operator": {TOPICS.inbox, TOPICS.controls},
    "reader": set(),
}
"""What each role may write, as the threat model has it; the admin only makes topics."""


@pytest.fixture(scope="module")
def broker(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured"), kafka_libs) as one:
        one.add_users([*ROLES, "stranger"])
        for role in ROLES:
            one.allow(role, role, TOPICS)
        yield one


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, broker: Secured, redis_url: str) -> Path:
    """With the topics made, by the admin."""
    folder = tmp_path_factory.mktemp("home")
    said = said_by(broker, redis_url, folder, "admin", "topics", "apply")
    assert said.returncode == 0, said.stderr
    return folder


def here(broker: Secured, redis_url: str, folder: Path, user: str) -> Installation:
    settings = {"worker.dispatches": True}
    return Installation(broker.url, redis_url, PREFIX, folder / user, settings, broker.environment(user))


def said_by(broker: Secured, redis_url: str, folder: Path, user: str, *words: str) -> subprocess.CompletedProcess[str]:
    one = here(broker, redis_url, folder, user)
    one.folder.mkdir(parents=True, exist_ok=True)
    return _ran(one.command(*words), one.environment)


def _ran(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=BOUND_S, cwd=ROOT)


def opened(broker: Secured, user: str) -> Log:
    given = broker.environment(user)
    options = {name.removeprefix("TRACKLOG_KAFKA_").lower().replace("_", "."): value for name, value in given.items()}
    return open_log(broker.url, kafka_options={**options, "delivery.timeout.ms": "20000"})


def test_a_run_goes_through_all_roles_each_with_its_own_rights(broker: Secured, redis_url: str, home: Path) -> None:
    # given a worker, a dispatcher, a router and a processor, none of which may do what the others do
    with ExitStack() as stack:
        for user, words in PROCESSES.items():
            stack.enter_context(here(broker, redis_url, home, user).standing(*words))
        # when an operator submits a task that has a call dispatched
        said = said_by(broker, redis_url, home, "operator", "submit", "clerk", "mail it", "--id", "run-1")
        assert said.returncode == 0, said.stderr

        def ended() -> bool:
            return said_by(broker, redis_url, home, "reader", "result", "run-1").returncode == 0

        # then it completes, and whoever may only read sees it
        assert wait_until(ended, BOUND_S)
    shown = said_by(broker, redis_url, home, "reader", "show", "run-1", "--from-log")
    assert "sent" in shown.stdout, shown.stderr


@pytest.mark.parametrize("role", WRITES)
def test_a_role_writes_where_it_must_and_nowhere_else(broker: Secured, home: Path, role: str) -> None:
    # given a client of that role
    log, ends = opened(broker, role), dict[str, Any]()
    try:
        # when it writes to each topic, which only the broker's rules could hinder
        for topic in TOPICS.all:

            def delivered(position: Position | None, error: AppendError | None, topic: str = topic) -> None:
                ends[topic] = position if error is None else error

            log.append(topic, b"probe", b"no event", (), delivered)
        assert log.flush(BOUND_S) == 0
    finally:
        log.close()
    # then the rest is refused: for sure, where the client may write at all
    assert {topic for topic, end in ends.items() if isinstance(end, Position)} == WRITES[role]
    refused = AppendRefused if WRITES[role] else AppendError
    assert all(isinstance(end, Position | refused) for end in ends.values()), ends


def test_who_has_no_rights_is_told_so(broker: Secured, redis_url: str, home: Path) -> None:
    said = said_by(broker, redis_url, home, "stranger", "replay", "events")
    assert said.returncode == 3
    assert "check the ACLs" in said.stderr or "topics apply" in said.stderr
    with pytest.raises(LogError):
        opened(broker, "stranger").bounds(TOPICS.events, 0)


@pytest.mark.parametrize(
    ("but", "lacks"),
    [
        (("", ""), ""),
        ((TOPICS.attempts, "Write"), f"{TOPICS.attempts}: no Write"),
        ((f"{PREFIX}.", "Read"), "Group authorization failed"),
    ],
)
def test_the_doctor_says_which_right_a_role_lacks(
    broker: Secured, redis_url: str, home: Path, but: tuple[str, str], lacks: str
) -> None:
    # given a user with the rights of a dispatcher, without one of them
    user = f"doctored-{but[1]}"
    broker.add_users([user])
    broker.allow(user, "dispatcher", TOPICS, but=but)
    # when it asks
    said = said_by(broker, redis_url, home, user, "doctor", "--role", "dispatcher", "--json")
    # then it is told of that one, and of nothing else
    (acls,) = [one for one in json.loads(said.stdout)["checks"] if one["name"] == "acls"]
    assert acls["ok"] is (not lacks), acls
    assert lacks in acls["found"]
    assert acls["found"].count("no ") == lacks.count("no ")
    assert not lacks or "tracklog acls --role dispatcher" in acls["fix"]


def test_a_wrong_password_is_an_error_that_does_not_tell_it(broker: Secured, redis_url: str, home: Path) -> None:
    one = here(broker, redis_url, home, "reader")
    environment = {**one.environment, "TRACKLOG_KAFKA_SASL_PASSWORD": "hush-hush"}
    words = one.command("replay", "events", log__connect_timeout_s=5)
    said = _ran(words, environment)
    assert said.returncode == 3
    assert "hush-hush" not in said.stdout + said.stderr
    assert "authentic" in said.stderr.lower()


@pytest.mark.parametrize("kind", REDIS_ROLES)
def test_users_of_redis_do_their_part_and_no_more(kind: str, redis_url: str, tmp_path: Path) -> None:
    # given a user with the rights that are printed
    own = Installation(f"sqlite:{tmp_path / 'log.db'}", redis_url, f"acl-{kind}", tmp_path / "home")
    own.folder.mkdir()
    printed = own.run("acls", "--format", "redis")
    (line,) = [line for line in printed.splitlines() if line.startswith(f"user acl-{kind}-{kind} ")]
    _, name, *rights = line.split()
    admin: Any = redis.Redis.from_url(redis_url)
    admin.execute_command("ACL", "SETUSER", name, *[f">pw-{kind}" if one.startswith("#") else one for one in rights])
    try:
        login = {"TRACKLOG_REDIS__USERNAME": name, "TRACKLOG_REDIS__PASSWORD": f"pw-{kind}"}
        theirs = Installation(own.log, redis_url, own.prefix, own.folder, env=login)
        # when it does what it is for
        own.run("selftest", "--no-views")
        (theirs if kind == "writer" else own).run("process", "--once")
        assert "selftest" in theirs.run("list")
        # then nothing else can be done with it
        client: Any = redis.Redis.from_url(redis_url, username=name, password=f"pw-{kind}")
        for words in (("FLUSHALL",), ("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"), ("GET", "another:key")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*words)
        if kind == "reader":
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.set(f"{own.prefix}:x", "1")
    finally:
        admin.execute_command("ACL", "DELUSER", name)
