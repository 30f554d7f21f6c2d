"""The audits of one partition, a bounded number of them in memory, the rest in a file of this process alone."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, Final

from tracklog.schemas.audit import Audit

AUDITS_IN_MEMORY_MAX: Final = 5_000
"""About 10 kB each: the hashes of the window, and what is open."""


class AuditShelf:
    """Audits by trajectory id. The least recently used go to an unnamed temporary file, which ends with us."""

    def __init__(self, in_memory_max: int = AUDITS_IN_MEMORY_MAX) -> None:
        self._in_memory_max = in_memory_max
        self._near: OrderedDict[str, Audit] = OrderedDict()
        self._far: dict[str, tuple[int, int]] = {}
        self._file: IO[bytes] | None = None

    def __contains__(self, trajectory_id: str) -> bool:
        return trajectory_id in self._near or trajectory_id in self._far

    def __len__(self) -> int:
        return len(self._near) + len(self._far)

    def get(self, trajectory_id: str) -> Audit | None:
        audit = self._near.get(trajectory_id)
        if audit is not None:
            self._near.move_to_end(trajectory_id)
            return audit
        place = self._far.pop(trajectory_id, None)
        if place is None:
            return None
        audit = self._read(*place)
        self.put(trajectory_id, audit)
        return audit

    def put(self, trajectory_id: str, audit: Audit) -> None:
        self._near[trajectory_id] = audit
        if len(self._near) > self._in_memory_max:
            self._send_away(*self._near.popitem(last=False))

    def drain(self) -> Iterator[Audit]:
        """All audits, in order of trajectory id; the shelf is empty and closed afterwards."""
        try:
            for trajectory_id in sorted({*self._near, *self._far}):
                near = self._near.pop(trajectory_id, None)
                yield near if near is not None else self._read(*self._far.pop(trajectory_id))
        finally:
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _send_away(self, trajectory_id: str, audit: Audit) -> None:
        if self._file is None:
            self._file = TemporaryFile()  # noqa: SIM115 - open as long as the shelf
        data = pickle.dumps(audit, protocol=pickle.HIGHEST_PROTOCOL)
        start = self._file.seek(0, 2)
        self._file.write(data)
        self._far[trajectory_id] = (start, len(data))

    def _read(self, start: int, size: int) -> Audit:
        assert self._file is not None
        self._file.seek(start)
        audit = pickle.loads(self._file.read(size))
        assert isinstance(audit, Audit)
        return audit
