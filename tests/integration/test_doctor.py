"""`tracklog doctor`: each check finds what is wrong with a real service or file, and names the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.s3_server import BUCKET, s3_server
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.topics import apply
from tracklog.consumers.doctor import examine
from tracklog.consumers.doctor_check import Check
from tracklog.infra.clock import Clock, ManualClock, SystemClock, SystemEntropy
from tracklog.infra.settings import Settings
from tracklog.infra.settings_secrets import SECRET_SHOWN

SERVICE_S = 5.0


def settings_of(home: Path, **given: object) -> Settings:
    log = {"url": f"sqlite:{home / 'log.db'}"}
    return Settings.model_validate({"home": str(home), "log": log, "blobs": {"url": str(home / "blobs")}, **given})


def check_of(
    name: str, settings: Settings, redis_url: str, clock: Clock | None = None, secrets: Path | None = None
) -> Check:
    asked = settings.model_copy(update={"redis": settings.redis.model_validate({"url": redis_url})})
    found = examine(asked, clock or SystemClock(), SystemEntropy(), secrets=secrets)
    (one,) = [check for check in found if check.name == name]
    return one


@pytest.mark.parametrize(
    ("mode", "ok", "fix"),
    [(0o700, True, ""), (0o750, True, ""), (0o755, None, "chmod o-rx"), (0o777, False, "chmod o-w")],
)
def test_a_home_that_is_open_to_others_is_told(
    tmp_path: Path, redis_url: str, mode: int, ok: bool | None, fix: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    found = check_of("home", settings_of(home), redis_url)
    assert (found.ok, found.fix.startswith(fix)) == (ok, True), found


@pytest.mark.parametrize(("folder", "file", "ok"), [(0o755, 0o644, False), (0o755, 0o440, True), (0o700, 0o644, True)])
def test_a_secret_that_everybody_can_read_is_named_and_not_shown(
    tmp_path: Path, redis_url: str, folder: int, file: int, ok: bool
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "redis.password").write_text("hush-hush")
    (secrets / "redis.password").chmod(file)
    secrets.chmod(folder)
    found = check_of("secrets", settings_of(tmp_path), redis_url, secrets=secrets)
    assert found.ok is ok, found
    assert ok or ("redis.password" in found.found and "chmod" in found.fix)
    assert "hush-hush" not in str(found)


def test_a_bucket_is_well_when_it_takes_a_file_once_and_lets_go_of_it(tmp_path: Path, redis_url: str) -> None:
    with s3_server() as options:
        cold = {"url": f"s3://{BUCKET}/cold", "options": options}
        found = check_of("cold", settings_of(tmp_path, cold=cold), redis_url)
        away = {"url": "s3://no-such-bucket/cold", "options": options}
        missing = check_of("cold", settings_of(tmp_path, cold=away), redis_url)
    assert found.ok, found
    assert missing.ok is False
    assert "no-such-bucket" in missing.found
    assert "[cold.options]" in missing.fix


def test_a_bucket_that_writes_twice_is_found_before_exporters_lose_rows_in_it(tmp_path: Path, redis_url: str) -> None:
    with s3_server("--unconditional") as options:
        cold = {"url": f"s3://{BUCKET}/cold", "options": options}
        found = check_of("cold", settings_of(tmp_path, cold=cold), redis_url)
    assert found.ok is False
    assert "a second time" in found.found
    assert "If-None-Match" in found.fix


def test_clocks_that_differ_from_those_of_redis_are_told(tmp_path: Path, redis_url: str) -> None:
    assert check_of("redis clock", settings_of(tmp_path), redis_url).ok
    found = check_of("redis clock", settings_of(tmp_path), redis_url, ManualClock())
    assert found.ok is False
    assert "ahead of this one" in found.found
    assert "NTP" in found.fix


def test_a_registry_that_does_not_answer_is_an_answer(tmp_path: Path, redis_url: str) -> None:
    given = {"url": "http://127.0.0.1:1", "timeout_s": SERVICE_S, "password": "hush-hush"}
    found = check_of("registry", settings_of(tmp_path, registry=given), redis_url)
    assert found.ok is False
    assert "127.0.0.1:1 does not answer" in found.found
    assert "hush-hush" not in str(found)
    assert SECRET_SHOWN not in found.found


@pytest.mark.registry
@pytest.mark.timeout(240)
def test_schemas_that_a_registry_lacks_are_registered_by_what_is_told(
    tmp_path: Path, redis_url: str, registry_url: str, fresh_prefix: str
) -> None:
    settings = settings_of(tmp_path, registry={"url": registry_url}, prefix=fresh_prefix)
    lacking = check_of("registry", settings, redis_url)
    assert lacking.ok is False
    assert "no schema of" in lacking.found
    assert "topics apply" in lacking.fix

    flags = {"log": settings.log.url, "prefix": fresh_prefix, "registry.url": registry_url, "home": str(tmp_path)}
    apply(Run(flags, as_json=True, environ={}))

    found = check_of("registry", settings, redis_url)
    assert found.ok, found
    assert "FULL_TRANSITIVE" in found.found
