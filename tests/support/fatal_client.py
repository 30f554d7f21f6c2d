"""The Kafka client gives up for good under a command: `python -m tests.support.fatal_client OPTION... COMMAND...`

Each producer that the log makes is broken by librdkafka's own test hook, until it makes no other.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from pathlib import Path
from typing import Final

import confluent_kafka
from confluent_kafka import KafkaError

from tracklog.consumers.cli import main as tracklog
from tracklog.infra.log.kafka import KafkaLog

__all__ = ["BROKEN", "inject_fatal_error"]

BROKEN: Final = "the client is broken for good"
LOOK_S: Final = 0.05


def inject_fatal_error(log: KafkaLog) -> None:
    """On the live client: out-of-order sequence cannot be had from a healthy broker."""
    producer = log._producers.of(0)
    client = producer._client  # held until the end: the log may put another in its place meanwhile, and free this one
    handle = ctypes.c_void_p.from_address(id(client) + 16)  # first field behind the object's head
    libraries = Path(confluent_kafka.__file__).parent.with_suffix(".libs")
    (library,) = libraries.glob("librdkafka*")
    inject = ctypes.CDLL(str(library)).rd_kafka_test_fatal_error
    inject(handle, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"injected")
    del client


def break_for_good(go: threading.Event) -> None:
    paused, log = threading.Event(), None
    go.wait()
    while log is None:
        paused.wait(LOOK_S)
        log = next((one for one in gc.get_objects() if isinstance(one, KafkaLog)), None)
    while log._producers.of(0)._dead is None:
        inject_fatal_error(log)
        paused.wait(LOOK_S)
    sys.stderr.write(f"{BROKEN}\n")


def until_told(go: threading.Event) -> None:
    sys.stdin.readline()
    go.set()


if __name__ == "__main__":
    told = threading.Event()
    for work in (break_for_good, until_told):
        threading.Thread(target=work, args=(told,), daemon=True).start()
    tracklog()
