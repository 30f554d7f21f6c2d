"""Where the blobs of the simulation lie (see `Place`)."""

from __future__ import annotations


class Blobs:
    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def read(self, key: str, bytes_max: int) -> bytes | None:
        return self._kept.get(key)

    def write(self, key: str, data: bytes, media_type: str) -> None:
        self._kept[key] = data

    def has(self, key: str) -> bool:
        return key in self._kept
