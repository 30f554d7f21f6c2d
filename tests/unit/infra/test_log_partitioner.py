"""murmur2 as Java has it: the vectors are those of Kafka's own UtilsTest."""

from __future__ import annotations

import pytest

from tracklog.infra.log.partitioner import murmur2, partition_of
from tracklog.schemas.errors import InvalidTrajectoryId, SettingsError

VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "java"), VECTORS.items())
def test_hash_equals_javas(key: bytes, java: int) -> None:
    assert murmur2(key) == java & 0xFFFFFFFF


@pytest.mark.parametrize(("key", "java"), VECTORS.items())
def test_partition_is_the_hash_without_its_sign_modulo_the_count(key: bytes, java: int) -> None:
    assert partition_of(key, 12) == (java & 0x7FFFFFFF) % 12
    assert partition_of(key, 1) == 0


def test_keys_that_clients_disagree_about_are_refused() -> None:
    with pytest.raises(InvalidTrajectoryId):
        partition_of(b"", 12)
    with pytest.raises(SettingsError):
        partition_of(b"k", 0)
