"""Which options may be given, what every error code means, and that no secret is ever said."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from tracklog.infra.log.kafka import KafkaLog
from tracklog.infra.log.kafka_config import KafkaConfig, KafkaStats, client_logger
from tracklog.infra.log.kafka_errors import append_error
from tracklog.schemas.errors import AppendRefused, AppendUnknown, LogUnavailable, RecordTooLarge, SettingsError

CODES = {name: code for name, code in vars(KafkaError).items() if isinstance(code, int)}
DEFINITE = {
    "MSG_SIZE_TOO_LARGE": RecordTooLarge,
    "RECORD_LIST_TOO_LARGE": RecordTooLarge,
    "INVALID_MSG_SIZE": RecordTooLarge,
    "TOPIC_EXCEPTION": AppendRefused,
    "TOPIC_AUTHORIZATION_FAILED": AppendRefused,
    "CLUSTER_AUTHORIZATION_FAILED": AppendRefused,
    "INVALID_REQUIRED_ACKS": AppendRefused,
    "INVALID_TIMESTAMP": AppendRefused,
    "INVALID_RECORD": AppendRefused,
    "POLICY_VIOLATION": AppendRefused,
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": AppendRefused,
    "UNSUPPORTED_COMPRESSION_TYPE": AppendRefused,
}
"""Everything else is unknown: librdkafka tries again, and an earlier try may have been stored."""


@pytest.mark.parametrize("name", CODES)
def test_every_code_of_a_produce_is_definite_or_unknown(name: str) -> None:
    error = append_error(KafkaError(CODES[name]), "topic", "kafka://h:1")
    assert type(error) is DEFINITE.get(name, AppendUnknown)
    assert error.definite == (name in DEFINITE)
    assert "topic" in str(error)


def test_code_that_is_not_known_yet_is_unknown() -> None:
    assert not append_error(KafkaError(9_999), "topic", "kafka://h:1").definite


@pytest.mark.parametrize(
    "option",
    [
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.idempotence",
        "isolation.level",
        "partitioner",
        "transactional.id",
    ],
)
def test_option_that_would_break_a_guarantee_is_refused_with_the_reason(option: str) -> None:
    with pytest.raises(SettingsError, match=option) as caught:
        KafkaLog("h:9092", options={option: "x"})
    assert caught.value.hint


def test_unusable_option_is_named_and_secrets_are_not() -> None:
    with pytest.raises(SettingsError, match=r"no\.such\.option"):
        KafkaLog("h:9092", options={"no.such.option": "1"})
    options = {"security.protocol": "hunter2", "sasl.password": "hunter2"}
    with pytest.raises(SettingsError, match=r"security\.protocol") as caught:
        KafkaLog("h:9092", options=options)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SettingsError, match=r"group\.protocol"):
        KafkaLog("h:9092", options={"group.protocol": "share"})


@pytest.mark.parametrize("servers", ["", "h", "h:", ":9092", "h:0", "h:99999", "h:9092,", "h:port"])
def test_address_that_is_none_is_refused(servers: str) -> None:
    with pytest.raises(SettingsError):
        KafkaLog(servers, options={})


def test_url_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(SettingsError) as caught:
        KafkaLog("user:hunter2@h:9092", options={})
    assert "hunter2" not in str(caught.value)


def test_guarantees_win_over_options_and_tunables_do_not() -> None:
    options = {"linger.ms": "7", "security.protocol": "SSL", "heartbeat.interval.ms": "500"}
    config = KafkaConfig("h:9092", options, KafkaStats())
    producer = config.producer()
    assert (producer["acks"], producer["enable.idempotence"]) == ("all", True)
    assert producer["partitioner"] == "murmur2_random"
    assert (producer["linger.ms"], producer["security.protocol"]) == ("7", "SSL")
    for consumer in (config.reader(fetch_wait_ms=5), config.member("g", "consumer"), config.member("g", "classic")):
        assert consumer["isolation.level"] == "read_committed"
        assert consumer["auto.offset.reset"] == "error"
        assert consumer["enable.auto.commit"] is False
    assert "heartbeat.interval.ms" not in config.member("g", "consumer")
    assert config.member("g", "classic")["heartbeat.interval.ms"] == "500"


def test_producers_share_what_a_process_may_queue() -> None:
    """Each of them has its part, and at least one record; the option is ours, and no client sees it."""
    config = KafkaConfig("h:9092", {"producer.connections": "3", "queue.buffering.max.messages": "10"}, KafkaStats())
    few = KafkaConfig("h:9092", {"producer.connections": "3", "queue.buffering.max.messages": "1"}, KafkaStats())

    assert config.connections == 3
    assert config.producer()["queue.buffering.max.messages"] == 3
    assert few.producer()["queue.buffering.max.messages"] == 1
    for made in (config.producer(), config.admin(), config.member("g", "consumer")):
        assert "producer.connections" not in made


@pytest.mark.parametrize("given", ["0", "-1", "many", ""])
def test_a_number_of_connections_that_is_none_is_refused_by_name(given: str) -> None:
    with pytest.raises(SettingsError, match=r"producer\.connections must be a whole number"):
        KafkaLog("h:9092", options={"producer.connections": given})


def test_client_error_is_counted_without_its_secrets() -> None:
    stats = KafkaStats()
    config = KafkaConfig("h:9092", {"sasl.password": "hunter2"}, stats)
    config.note_error(KafkaError(KafkaError._AUTHENTICATION, "hunter2 was wrong"))
    assert stats.errors == 1
    assert stats.last_error == "_AUTHENTICATION: *** was wrong"


def test_the_lines_of_the_client_are_seen_only_by_who_asks_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    client_logger.error("FAIL: Connect to 127.0.0.1:1 failed")
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, logger=client_logger.name):
        client_logger.error("FAIL: Connect to 127.0.0.1:1 failed")
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


@pytest.mark.parametrize(
    ("servers", "reason"),
    [("127.0.0.1:1", "Connection refused"), ("no-such-host.invalid:9092", "Failed to resolve")],
)
def test_a_broker_that_does_not_answer_is_an_error_that_says_why(
    servers: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    log = KafkaLog(servers, options={})
    try:
        with pytest.raises(LogUnavailable, match=f"does not answer: .*{reason}"):
            log.ping(1)
    finally:
        log.close()
    assert capfd.readouterr().err == ""


def test_that_all_brokers_are_down_is_no_reason() -> None:
    config = KafkaConfig("h:9092", {}, KafkaStats())
    config.note_error(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error"))
    config.note_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert config.reason == "SASL authentication error"
