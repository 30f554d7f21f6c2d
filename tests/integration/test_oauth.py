"""Tokens instead of passwords: a broker that checks who has signed them, and clients that outlive many of them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.oauth_broker import own_key, token_broker
from tests.support.secured import Secured
from tests.support.standing import BOUND_S, ROOT, Installation
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.topics import Topics

PREFIX = "tokens"
TOPICS = Topics(PREFIX)
TOKEN_S = 6
USERS = ("owner", "router", "processor", "operator", "admin", "reader")


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vault")
    own_key(folder)
    return folder


@pytest.fixture(scope="module")
def broker(kafka_libs: Path, vault: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with token_broker(tmp_path_factory.mktemp("broker"), kafka_libs, vault / "signing.json") as one:
        for role in USERS:
            one.allow(role, role, TOPICS)
        yield one


class Tokens:
    """An installation whose clients come with tokens out of a vault."""

    def __init__(self, broker: Secured, vault: Path, redis_url: str, folder: Path) -> None:
        self._broker, self._vault, self._redis, self._folder = broker, vault, redis_url, folder

    def of(self, user: str, *, vault: Path | None = None, token_s: int = TOKEN_S) -> Installation:
        given = {
            "TRACKLOG_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "TRACKLOG_KAFKA_SASL_MECHANISM": "OAUTHBEARER",
            "TRACKLOG_KAFKA_SSL_CA_LOCATION": str(self._broker.authority),
            "TRACKLOG_LOG__OAUTH_TOKEN": "tests.support.own_tokens:token",
            "TRACKLOG_LOG__CONNECT_TIMEOUT_S": "8",
            "OWN_TOKENS": str(vault or self._vault),
            "TOKEN_USER": user,
            "TOKEN_S": str(token_s),
        }
        return Installation(self._broker.url, self._redis, PREFIX, self._folder / user, env=given)

    def said(self, user: str, *words: str, **how: object) -> subprocess.CompletedProcess[str]:
        one = self.of(user, **how)  # type: ignore[arg-type]
        one.folder.mkdir(parents=True, exist_ok=True)
        return subprocess.run(
            one.command(*words), env=one.environment, capture_output=True, text=True, timeout=BOUND_S, cwd=ROOT
        )

    def made(self, user: str) -> int:
        """Tokens that processes of this user were given."""
        noted = (self._vault / "made").read_text().split("\n")
        return sum(1 for line in noted if line.startswith(f"{user} "))


@pytest.fixture
def tokens(broker: Secured, vault: Path, redis_db: str, tmp_path: Path) -> Tokens:
    made = Tokens(broker, vault, redis_db, tmp_path)
    said = made.said("admin", "topics", "apply")
    assert said.returncode == 0, said.stderr
    return made


@pytest.mark.timeout(180)
def test_roles_outlive_their_tokens_and_wait_while_none_is_to_be_had(tokens: Tokens, vault: Path) -> None:
    # given a worker, a router and a processor whose tokens are good for six seconds
    processes = {
        "owner": ("worker", "tests.support.worker_agents:echo"),
        "router": ("route",),
        "processor": ("process",),
    }
    with ExitStack() as stack:
        standing = {user: stack.enter_context(tokens.of(user).standing(*words)) for user, words in processes.items()}

        def completes(run: str) -> None:
            submitted = tokens.said("operator", "submit", "echo", run, "--id", run)
            assert submitted.returncode == 0, submitted.stderr
            assert wait_until(lambda: tokens.said("reader", "result", run).returncode == 0, BOUND_S)

        completes("run-1")
        # when each has needed several, then runs still go through
        assert wait_until(lambda: min(tokens.made(user) for user in processes) >= 4, BOUND_S)
        completes("run-2")
        # when none is to be had for longer than one is good
        (vault / "broken").touch()
        threading.Event().wait(TOKEN_S * 2)
        (vault / "broken").unlink()
        # then the same processes go on once there is one again
        completes("run-3")
        assert all(one.process.poll() is None for one in standing.values())


def test_a_source_that_gives_no_token_is_told_with_its_reason(tokens: Tokens, vault: Path) -> None:
    (vault / "broken").touch()
    try:
        said = tokens.said("reader", "replay", "events")
    finally:
        (vault / "broken").unlink()

    assert said.returncode == 3, said.stderr
    assert "the vault is sealed" in said.stderr


def test_a_token_that_somebody_else_has_signed_is_refused(tokens: Tokens, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    own_key(stranger)

    said = tokens.said("reader", "replay", "events", vault=stranger)

    assert said.returncode == 3, said.stderr
    assert "authentic" in said.stderr.lower()


def test_a_token_that_has_ended_is_refused(tokens: Tokens) -> None:
    said = tokens.said("reader", "replay", "events", token_s=-30)

    assert said.returncode == 3, said.stderr
    assert "asks for a token, and its source gave none, or one that has ended" in said.stderr
