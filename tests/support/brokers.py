"""Brokers of a cluster that die: each in turn, killed and started again, for as long as a block lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tracklog.infra.stack.kafka_server import KafkaServer

WHOLE_S = 20.0
"""Between a broker's return and the death of the next."""
RESTART_S = 300.0
STOP_S = 330.0


@contextmanager
def leaders_killed(cluster: KafkaServer) -> Iterator[list[int]]:
    """The ids of the nodes killed so far. Each leads a part of the partitions, or coordinates a group, when it dies."""
    killed: list[int] = []
    errors: list[BaseException] = []
    stop = threading.Event()

    def kill() -> None:
        try:
            while not stop.wait(WHOLE_S):
                node = cluster.nodes[len(killed) % len(cluster.nodes)]
                node.process.kill()
                killed.append(node.node_id)
                cluster.restart(node, RESTART_S)
        except BaseException as error:
            errors.append(error)
            raise

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join(STOP_S)
    assert not errors, errors
