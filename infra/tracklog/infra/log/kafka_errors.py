"""What each error of librdkafka means to us.

For a produce the question is whether the record is surely not in the log. librdkafka tries again by itself, and
Python is not told whether an earlier try may have been stored (`rd_kafka_message_status`). So a code is definite
only if the broker's answer depends on the record and the topic alone, and so was the same for every earlier try,
or says that we may not write at all. Everything else, every code not known yet included, is unknown.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from tracklog.schemas.errors import (
    AppendError,
    AppendRefused,
    AppendUnknown,
    ClientFatal,
    LogError,
    LogUnavailable,
    RecordTooLarge,
    TopicMissing,
)

TOO_LARGE: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
)
REFUSED: Final = frozenset(
    {
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
GONE: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})
"""A broker says that there is no such topic."""
MISSING: Final = GONE | {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
"""The same, or a client that has heard nothing of the topic, which may be the broker's silence."""
FORBIDDEN: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
SILENCE: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})
"""Nobody answered; another error says why."""
OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
NOT_OWNED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
    }
)
"""A commit that came too late: the partitions have, or are about to have, another owner."""
_NO_KIP_848: Final = frozenset(
    {KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE, KafkaError._NOT_IMPLEMENTED}
)


def means_no_kip_848(fatal: KafkaError) -> bool:
    """How a broker without `group.protocol=consumer` answers: a fatal error whose text alone has the cause."""
    return any(fatal.code() == code or KafkaError(code).str() in fatal.str() for code in _NO_KIP_848)


def append_error(error: KafkaError, topic: str, url: str) -> AppendError:
    """The end of an append whose delivery report carries `error`."""
    code = error.code()
    if code in TOO_LARGE:
        return RecordTooLarge(f"{url} refused a record for {topic}: {error.str()}")
    if code in REFUSED:
        return AppendRefused(f"{url} refused a record for {topic}: {error.str()}")
    return AppendUnknown(
        f"an append to {topic} at {url} ended in {error.name()}: {error.str()}",
        hint="the record may be stored: read back, or append the same bytes again",
    )


def request_error(error: KafkaError, what: str, url: str, reason: str = "") -> LogError:
    """The end of a request that reads or administers. `reason` is what else is known of a broker's silence."""
    code = error.code()
    if error.fatal():
        return ClientFatal(f"{what} at {url}: {error.str()}")
    if code in MISSING:
        return TopicMissing(f"{what}: not at {url}", hint="create it: tracklog topics apply")
    if code in FORBIDDEN:
        return LogUnavailable(f"{what}: {url} does not allow it: {error.str()}", hint="check the ACLs")
    said = reason if reason and code in SILENCE else error.str()
    return LogUnavailable(f"{what}: {url} does not answer: {said}", hint="is the broker up and reachable?")
