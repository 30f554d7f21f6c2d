"""What the user of this client may do with topics, by the broker's own word (Kafka 2.3 and newer). Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tracklog.infra.log.kafka_admin import REQUEST_TIMEOUT_S
from tracklog.infra.log.kafka_config import KafkaConfig, KafkaStats
from tracklog.infra.log.kafka_errors import GONE, request_error
from tracklog.schemas.errors import LogUnavailable

__all__ = ["KAFKA", "allowed_on"]

KAFKA: Final = "kafka://"


def allowed_on(url: str, options: Mapping[str, str], topics: Iterable[str]) -> dict[str, frozenset[str] | None]:
    """Operations by Kafka's names (`Read`, `DescribeConfigs`), by topic; None for a topic that is not there.

    Without an authorizer everything is allowed. Raises LogUnavailable, SettingsError.
    """
    config = KafkaConfig(url.removeprefix(KAFKA), options, KafkaStats())
    admin: AdminClient = config.build(AdminClient, config.admin())
    asked = admin.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
    )
    found: dict[str, frozenset[str] | None] = {}
    for topic, future in asked.items():
        what = f"the rights on {topic}"
        try:
            operations = future.result(REQUEST_TIMEOUT_S + 1).authorized_operations or ()
        except FutureTimeoutError:
            raise LogUnavailable(f"{url} did not say {what} within {REQUEST_TIMEOUT_S:g} s") from None
        except KafkaException as error:
            code = error.args[0].code()
            if code != KafkaError.TOPIC_AUTHORIZATION_FAILED and code not in GONE:
                raise request_error(error.args[0], what, url) from error
            found[topic] = None if code in GONE else frozenset()
        else:
            found[topic] = frozenset(one.name.title().replace("_", "") for one in operations)
    return found
