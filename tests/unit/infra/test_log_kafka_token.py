"""Tokens for SASL/OAUTHBEARER: made by IAM of Amazon or by people's own function, and given to each Kafka client."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tracklog.infra.log.kafka_config import KafkaConfig, KafkaStats
from tracklog.infra.log.kafka_token import token_source
from tracklog.infra.settings import load_settings
from tracklog.infra.wiring import kafka_options
from tracklog.schemas.errors import InputError, SettingsError


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def token():\n    return 'abc', 1234\n\ndef broken():\n    raise OSError('no vault')\n\nnothing = 1\n"
    (tmp_path / "own_tokens.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_token_of_msk_is_a_signed_request_of_its_region_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")

    token, ends_s = token_source("msk:eu-central-1")("")

    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert url.hostname == "kafka.eu-central-1.amazonaws.com"
    assert parse_qs(url.query)["Action"] == ["kafka-cluster:Connect"]
    assert "hush" not in url.query
    assert 0 < ends_s - time.time() <= 900


def test_a_function_of_ones_own_gives_tokens(own_module: None) -> None:
    assert token_source("own_tokens:token")("") == ("abc", 1234.0)


def test_a_function_that_fails_is_named(own_module: None) -> None:
    with pytest.raises(InputError, match="own_tokens:broken fails: OSError: no vault"):
        token_source("own_tokens:broken")("")


@pytest.mark.parametrize("spec", ["msk", "msk:", "own_tokens:nothing", ":x", "own tokens:token"])
def test_what_names_no_source_is_refused(own_module: None, spec: str) -> None:
    with pytest.raises(SettingsError, match=r"log\.oauth_token"):
        token_source(spec)


def test_every_client_is_given_the_source_and_none_the_setting(own_module: None, tmp_path: Path) -> None:
    environ = {"TRACKLOG_LOG": "kafka://h:9092", "TRACKLOG_LOG__OAUTH_TOKEN": "own_tokens:token"}
    settings = load_settings(environ=environ, cwd=tmp_path)

    config = KafkaConfig("h:9092", kafka_options(settings), KafkaStats())

    for made in (config.admin(), config.producer(), config.reader(fetch_wait_ms=1), config.member("g", "classic")):
        assert made["oauth_cb"]("") == ("abc", 1234.0)
        assert "oauth.token" not in made
