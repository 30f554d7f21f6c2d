"""Settings: the later source wins, a typo never passes, a secret is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tracklog.infra.settings import Settings, load_settings
from tracklog.infra.settings_sections import KAFKA_OPTIONS_FIXED
from tracklog.infra.settings_sources import env_name, from_environ, known_names
from tracklog.schemas import limits
from tracklog.schemas.errors import SettingsError


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def refused(
    tmp_path: Path, *, environ: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags=flags, environ=environ or {}, cwd=tmp_path)
    return caught.value


def test_without_any_source_everything_is_local_under_dot_tracklog(tmp_path: Path) -> None:
    settings = load_settings(environ={}, cwd=tmp_path)

    assert settings.log.url == f"sqlite:{tmp_path}/.tracklog/log.db"
    assert settings.blobs.url == f"{tmp_path}/.tracklog/blobs"
    assert settings.redis.url.get_secret_value() == "embedded"
    assert settings.home == f"{tmp_path}/.tracklog"
    assert settings.topics.partitions == limits.PARTITIONS_DEFAULT
    assert settings.blobs.body_inline_bytes_max == limits.BODY_INLINE_BYTES_MAX
    assert not (tmp_path / ".tracklog").exists(), "reading settings creates nothing"


def test_each_source_overrides_the_one_before(tmp_path: Path) -> None:
    write(
        tmp_path / "tracklog.toml",
        'tenant = "file"\nprefix = "file"\n[writer]\nreconcile_timeout_s = 1\nqueue_records_max = 1\n',
    )
    environ = {"TRACKLOG_PREFIX": "env", "TRACKLOG_WRITER__QUEUE_RECORDS_MAX": "2"}

    settings = load_settings(flags={"writer.queue_records_max": 3, "log": None}, environ=environ, cwd=tmp_path)

    assert (settings.tenant, settings.prefix) == ("file", "env")
    assert settings.writer.reconcile_timeout_s == 1.0
    assert settings.writer.queue_records_max == 3
    assert settings.writer.delivery_timeout_s == Settings().writer.delivery_timeout_s


def test_a_section_with_an_address_is_also_set_by_its_own_name(tmp_path: Path) -> None:
    write(tmp_path / "tracklog.toml", 'log = "kafka://file:9092"\nredis = "redis://file:6379"\n')

    settings = load_settings(flags={"blobs": "s3://bucket/x"}, environ={"TRACKLOG_LOG": "memory:"}, cwd=tmp_path)

    assert settings.log.url == "memory:"
    assert settings.redis.address == "redis://file:6379"
    assert settings.blobs.url == "s3://bucket/x"


def test_home_moves_everything_local(tmp_path: Path) -> None:
    settings = load_settings(environ={"TRACKLOG_HOME": "elsewhere"}, cwd=tmp_path)

    assert settings.log.url == f"sqlite:{tmp_path}/elsewhere/log.db"
    assert settings.blobs.url == f"{tmp_path}/elsewhere/blobs"


def test_local_paths_are_seen_from_the_directory_given(tmp_path: Path) -> None:
    environ = {"TRACKLOG_LOG": "sqlite:a.db", "TRACKLOG_BLOBS": "b", "TRACKLOG_HOME": "/h"}
    settings = load_settings(environ=environ, cwd=tmp_path)

    assert settings.log.url == f"sqlite:{tmp_path}/a.db"
    assert settings.blobs.url == f"{tmp_path}/b"
    assert settings.home == "/h"


@pytest.mark.parametrize(("log", "replicas"), [("kafka://h:1", (3, 2)), ("memory:", (1, 1)), ("sqlite:x", (1, 1))])
def test_replication_follows_the_kind_of_log(tmp_path: Path, log: str, replicas: tuple[int, int]) -> None:
    topics = load_settings(environ={"TRACKLOG_LOG": log}, cwd=tmp_path).topics

    assert (topics.replication_factor, topics.min_insync_replicas) == replicas


def test_replication_that_was_given_is_kept(tmp_path: Path) -> None:
    environ = {"TRACKLOG_TOPICS__REPLICATION_FACTOR": "2", "TRACKLOG_TOPICS__MIN_INSYNC_REPLICAS": "1"}
    settings = load_settings(environ={"TRACKLOG_LOG": "kafka://h:1", **environ}, cwd=tmp_path)

    assert {spec.replication_factor for spec in settings.topic_specs()} == {2}
    assert all(spec.config["flush.messages"] == "1" for spec in settings.topic_specs())


@pytest.mark.parametrize("file", ["[kafka]\nsecurity.protocol = 'SSL'\n", "[kafka]\n'security.protocol' = 'SSL'\n"])
def test_kafka_options_pass_through_from_a_file(tmp_path: Path, file: str) -> None:
    write(tmp_path / "tracklog.toml", file)
    environ = {"TRACKLOG_KAFKA_SASL_PASSWORD": "geheim", "TRACKLOG_KAFKA_LINGER_MS": "5"}

    options = load_settings(flags={"kafka.log_level": 6}, environ=environ, cwd=tmp_path).kafka.client_options()

    assert options == {
        "security.protocol": "SSL",
        "sasl.password": "geheim",
        "linger.ms": "5",
        "log_level": "6",
    }


def test_a_boolean_option_is_spelled_as_the_client_spells_it(tmp_path: Path) -> None:
    write(
        tmp_path / "tracklog.toml",
        "[kafka]\nsocket.keepalive.enable = true\n[blobs.options]\nallow_http = false\n",
    )

    settings = load_settings(environ={}, cwd=tmp_path)

    assert settings.kafka.client_options() == {"socket.keepalive.enable": "true"}
    assert settings.blobs.store_options() == {"allow_http": "false"}


@pytest.mark.parametrize("option", sorted(KAFKA_OPTIONS_FIXED))
def test_an_option_that_would_undo_a_guarantee_is_refused_with_the_reason(tmp_path: Path, option: str) -> None:
    name = "TRACKLOG_KAFKA_" + option.replace(".", "_").upper()

    error = refused(tmp_path, environ={name: "0"})

    assert name in str(error)
    assert option in str(error)
    assert KAFKA_OPTIONS_FIXED[option] in str(error)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("TRACKLOG_LOGG", "TRACKLOG_LOG"),
        ("TRACKLOG_WRITER__BARIER", "TRACKLOG_WRITER__BARRIER"),
        ("TRACKLOG_WRITER_BARRIER", "TRACKLOG_WRITER__BARRIER"),
        ("TRACKLOG_TOPICS__PARTITION", "TRACKLOG_TOPICS__PARTITIONS"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(tmp_path: Path, name: str, nearest: str) -> None:
    error = refused(tmp_path, environ={name: "x"})

    assert f"{name}: unknown setting" in error.message
    assert error.hint == f"did you mean {nearest}?"


def test_an_unknown_key_in_a_file_is_refused_with_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "my.toml", "[writer]\ndelivery_timeout = 3\n")

    error = refused(tmp_path, environ={"TRACKLOG_CONFIG": "my.toml"})

    assert str(file) in error.message
    assert "writer.delivery_timeout" in error.message
    assert error.hint == "did you mean writer.delivery_timeout_s?"


def test_a_flag_that_is_no_setting_is_refused(tmp_path: Path) -> None:
    assert "--set writer.nope" in refused(tmp_path, flags={"writer.nope": 1}).message


def test_a_name_like_nothing_known_points_at_the_list(tmp_path: Path) -> None:
    assert refused(tmp_path, environ={"TRACKLOG_ZZZZQQQQ": "1"}).hint == "all settings are in docs/settings.md"


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"TRACKLOG_TOPICS__PARTITIONS": "0"}, "greater than or equal to 1"),
        ({"TRACKLOG_TOPICS__PARTITIONS": "many"}, "valid integer"),
        ({"TRACKLOG_TOPICS__PARTITIONS": str(limits.PARTITIONS_MAX + 1)}, "less than or equal to"),
        ({"TRACKLOG_WRITER__DELIVERY_TIMEOUT_S": "inf"}, "finite"),
        ({"TRACKLOG_WRITER__BARRIER": "none"}, "'strongest', 'replicated' or 'fsync'"),
        ({"TRACKLOG_LOG": "kafak://h:1"}, "is no log address"),
        ({"TRACKLOG_LOG": "kafka://u:p@h:1"}, "carries no user or password"),
        ({"TRACKLOG_REDIS": "http://h"}, "redis://"),
        ({"TRACKLOG_BLOBS": "ftp://h"}, "is no blob store"),
        ({"TRACKLOG_BLOBS": ""}, "is no blob store"),
        ({"TRACKLOG_REGISTRY": "h:8081"}, "is no registry"),
        ({"TRACKLOG_REGISTRY__FRAMING": "confluent"}, "needs registry.url"),
        ({"TRACKLOG_PREFIX": "UPPER"}, "lower-case"),
        ({"TRACKLOG_TOPICS__MIN_INSYNC_REPLICAS": "4"}, "can never be met"),
    ],
)
def test_a_value_that_cannot_be_is_refused_naming_who_gave_it(
    tmp_path: Path, environ: dict[str, str], says: str
) -> None:
    error = refused(tmp_path, environ=environ)

    assert next(iter(environ)) in str(error)
    assert says in str(error)


@pytest.mark.parametrize("edge", [1, limits.PARTITIONS_MAX])
def test_both_edges_of_a_bound_are_allowed(tmp_path: Path, edge: int) -> None:
    assert load_settings(flags={"topics.partitions": edge}, environ={}, cwd=tmp_path).topics.partitions == edge


def test_a_named_file_must_exist_and_a_default_one_need_not(tmp_path: Path) -> None:
    assert str(tmp_path / "gone.toml") in refused(tmp_path, environ={"TRACKLOG_CONFIG": "gone.toml"}).message
    assert str(tmp_path / "gone.toml") in refused(tmp_path, flags={"config": "gone.toml"}).message
    assert load_settings(environ={}, cwd=tmp_path).tenant == "default"


def test_the_config_flag_wins_over_the_variable(tmp_path: Path) -> None:
    write(tmp_path / "a.toml", 'tenant = "a"\n')
    write(tmp_path / "b.toml", 'tenant = "b"\n')

    settings = load_settings(flags={"config": "a.toml"}, environ={"TRACKLOG_CONFIG": "b.toml"}, cwd=tmp_path)

    assert settings.tenant == "a"


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"[log\n", "not valid TOML"), (b"x = '\xff'\n", "not UTF-8"), (b"log = 3\n", "log.url")],
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "tracklog.toml").write_bytes(content)

    error = refused(tmp_path)

    assert "tracklog.toml" in error.message
    assert says in error.message


def test_variables_of_others_are_left_alone() -> None:
    environ = {
        "PATH": "/bin",
        "TRACKLOGX": "1",
        "TRACKLOG_TEST_KAFKA": "h:1",
        "TRACKLOG_PORT": "tcp://10.0.0.1:80",
        "TRACKLOG_REDIS_SERVICE_HOST": "10.0.0.2",
        "TRACKLOG_REDIS_SERVICE_PORT_CLIENT": "6379",
        "TRACKLOG_KAFKA_PORT": "tcp://10.0.0.3:9092",
        "TRACKLOG_KAFKA_PORT_9092_TCP_ADDR": "10.0.0.3",
    }

    assert from_environ(environ) == []


TABLES = (".options", ".roles", ".headers", ".patterns")


def test_a_policy_for_secrets_is_checked_when_it_is_read(tmp_path: Path) -> None:
    given = {"TRACKLOG_REDACTION__FIELDS": "email, customer.phone", "TRACKLOG_REDACTION__PATTERNS__BADGE": r"B-\d{4}"}
    policy = load_settings(environ={**given, "TRACKLOG_REDACTION__APPEND": "true"}, cwd=tmp_path).redaction
    made = policy.before_append()
    assert made is not None
    assert made.text('{"email": 1, "b": "B-1234"}') == '{"email": "[field email redacted]", "b": "[badge redacted]"}'
    assert policy.before_export() is None
    for name, value in (("PATTERNS__BADGE", "("), ("FIELDS", "a..b"), ("EXPORT", "some")):
        with pytest.raises(SettingsError, match="redaction"):
            load_settings(environ={f"TRACKLOG_REDACTION__{name}": value}, cwd=tmp_path)


@pytest.mark.parametrize("name", [one for one in known_names() if not one.endswith(TABLES)])
def test_every_setting_is_reached_by_its_variable(name: str) -> None:
    if name == "kafka":
        return
    (given,) = from_environ({env_name(name): "x"})

    assert ".".join(given.path) in (name, f"{name}.url")
    assert given.source == env_name(name)


def test_no_secret_is_ever_shown(tmp_path: Path) -> None:
    environ = {
        "TRACKLOG_REDIS": "rediss://user:geheim@host:6379/2",
        "TRACKLOG_KAFKA_SASL_PASSWORD": "geheim",
        "TRACKLOG_KAFKA_SASL_MECHANISM": "PLAIN",
        "TRACKLOG_KAFKA_SSL_KEY_PEM": "geheim",
        "TRACKLOG_BLOBS__OPTIONS__SECRET_ACCESS_KEY": "geheim",
        "TRACKLOG_BLOBS__OPTIONS__REGION": "eu-north-1",
        "TRACKLOG_SPANS__HEADERS__AUTHORIZATION": "geheim",
        "TRACKLOG_REGISTRY__PASSWORD": "geheim",
    }
    settings = load_settings(environ=environ, cwd=tmp_path)
    shown = settings.public()

    assert "geheim" not in f"{settings!r} {settings} {shown} {settings.model_dump_json()}"
    assert shown["redis"]["url"] == "rediss://***@host:6379/2"
    assert shown["kafka"]["options"] == {
        "sasl.password": "***",
        "sasl.mechanism": "PLAIN",
        "ssl.key.pem": "***",
    }
    assert shown["blobs"]["options"]["region"] == "eu-north-1"
    assert shown["registry"]["password"] == "***"
    assert settings.redis.url.get_secret_value() == environ["TRACKLOG_REDIS"]


@pytest.mark.parametrize(
    "environ",
    [
        {"TRACKLOG_REDIS": "http://u:geheim@h"},
        {"TRACKLOG_REGISTRY": "ftp://u:geheim@h"},
        {"TRACKLOG_LOG": "kafka://u:geheim@h"},
        {"TRACKLOG_BLOBS": "s3://u:geheim@h"},
    ],
)
def test_an_error_does_not_show_the_password_either(tmp_path: Path, environ: dict[str, str]) -> None:
    assert "geheim" not in str(refused(tmp_path, environ=environ))


def test_settings_do_not_change(tmp_path: Path) -> None:
    settings = load_settings(environ={}, cwd=tmp_path)

    with pytest.raises(ValidationError, match="frozen"):
        settings.writer.barrier = "fsync"


@pytest.mark.parametrize(
    ("environ", "framing"),
    [
        ({}, "single-object"),
        ({"TRACKLOG_REGISTRY": "http://h:1"}, "confluent"),
        ({"TRACKLOG_REGISTRY": "http://h:1", "TRACKLOG_REGISTRY__FRAMING": "single-object"}, "single-object"),
    ],
)
def test_framing_follows_the_registry_unless_said(tmp_path: Path, environ: dict[str, str], framing: str) -> None:
    assert load_settings(environ=environ, cwd=tmp_path).registry.framing_used == framing


def secrets_of(tmp_path: Path, files: dict[str, str]) -> dict[str, str]:
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name, text in files.items():
        write(folder / name, text)
    return {"TRACKLOG_SECRETS": str(folder)}


def test_a_folder_of_secrets_holds_one_setting_a_file(tmp_path: Path) -> None:
    environ = secrets_of(tmp_path, {"kafka.sasl.password": "geheim \n", "registry.password": "auch", "..data": "x"})

    settings = load_settings(environ=environ, cwd=tmp_path)

    assert settings.kafka.client_options() == {"sasl.password": "geheim "}
    assert settings.registry.password.get_secret_value() == "auch"


def test_secrets_count_more_than_the_file_and_less_than_the_environment(tmp_path: Path) -> None:
    write(tmp_path / "tracklog.toml", '[redis]\nurl = "redis://h:1"\nusername = "file"\npassword = "file"\n')
    environ = {**secrets_of(tmp_path, {"redis.username": "secret", "redis.password": "secret"})}

    redis = load_settings(environ={**environ, "TRACKLOG_REDIS__USERNAME": "env"}, cwd=tmp_path).redis

    assert redis.url_in_full == "redis://env:secret@h:1"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"kafka.sasl.pasword": "x", "redis.pasword": "hush"}, "unknown setting redis.pasword"),
        ({"redis": "redis://h:1" + "x" * 70_000}, "larger than"),
    ],
)
def test_a_secret_that_cannot_be_used_is_named_and_not_shown(tmp_path: Path, files: dict[str, str], says: str) -> None:
    error = refused(tmp_path, environ=secrets_of(tmp_path, files))

    assert says in error.message
    assert "hush" not in str(error)


def test_a_folder_of_secrets_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "nowhere" in refused(tmp_path, environ={"TRACKLOG_SECRETS": "nowhere"}).message


def test_a_password_of_redis_goes_into_the_address_and_is_never_shown(tmp_path: Path) -> None:
    environ = {"TRACKLOG_REDIS": "rediss+cluster://h:6379/0?ssl_ca_certs=/ca.crt", "TRACKLOG_REDIS__PASSWORD": "p@/s"}

    settings = load_settings(environ=environ, cwd=tmp_path)

    assert settings.redis.url_in_full == "rediss+cluster://:p%40%2Fs@h:6379/0?ssl_ca_certs=/ca.crt"
    assert "p@/s" not in str(settings.public())
    assert "p%40" not in str(settings.public())


def test_a_password_of_redis_in_two_places_is_refused(tmp_path: Path) -> None:
    environ = {"TRACKLOG_REDIS": "redis://:a@h:1", "TRACKLOG_REDIS__PASSWORD": "b"}

    assert "in one place" in refused(tmp_path, environ=environ).message


def test_variables_of_the_test_suite_are_no_settings(tmp_path: Path) -> None:
    environ = {"TRACKLOG_TEST_KAFKA": "h:1", "TRACKLOG_K8S_BIN": "/opt/kubernetes", "TRACKLOG_TENANT": "t"}

    assert load_settings(environ=environ, cwd=tmp_path).tenant == "t"
