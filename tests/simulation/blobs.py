"""Where the blobs of the simulation lie (see `Place`)."""

from __future__ import annotations

from collections.abc import Iterator


class Blobs:
    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def read(self, key: str, bytes_max: int) -> bytes | None:
        return self._kept.get(key)

    def write(self, key: str, data: bytes, media_type: str) -> None:
        self._kept[key] = data

    def has(self, key: str) -> bool:
        return key in self._kept

    def listed(self, folder: str) -> Iterator[tuple[str, int, int]]:
        return ((key, len(data), 0) for key, data in self._kept.items() if key.startswith(f"{folder}/"))

    def move(self, key: str, to: str) -> None:
        if key in self._kept:
            self._kept[to] = self._kept.pop(key)

    def remove(self, key: str) -> None:
        self._kept.pop(key, None)
