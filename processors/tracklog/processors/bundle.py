"""Several projections in one process, each record decoded once, and only where somebody reads it (DESIGN §10).

The order inside a batch is what makes it safe: decode and fold; quarantine what is not ours and wait for the reports;
then each member writes states and position in one guarded step. A member whose step did not happen (crash, conflict)
is behind the others, and is the one from whose position the log is read again; the others pass over what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass

from tracklog.infra.log.port import Record
from tracklog.processors.decoding import step_of, wanted_by
from tracklog.processors.member import Folding, Member
from tracklog.processors.quarantine import Poison, Quarantine


@dataclass(slots=True)
class Counts:
    """What this process has done so far. A batch that was taken up twice counts twice."""

    records: int = 0
    foreign: int = 0
    batches: int = 0


class Bundle:
    """See `Owner`. Without `quarantine`, records that are not ours are only counted: one process of an installation
    puts them away, the others pass them by. `at_once`: where members store their batches beside one another."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        partitions: int,
        quarantine: Quarantine | None = None,
        at_once: Executor | None = None,
    ) -> None:
        self._members = members
        self._partitions = partitions
        self._quarantine = quarantine
        self._at_once = at_once
        self._wanted = wanted_by(member.reads for member in members)
        self.counts = Counts()
        self.on_batch: Callable[[int], object] = lambda _: None
        """Told how many records a stored batch had."""
        self.on_poison: Callable[[Sequence[Poison]], object] = lambda _: None
        """Told what of a stored batch was not ours."""

    def restore(self, partition: int) -> int:
        """The position of the member that is furthest behind."""
        return min(member.restore(partition) for member in self._members)

    def forget(self, partition: int) -> None:
        for member in self._members:
            member.forget(partition)

    def fold(self, partition: int, records: Sequence[Record], position: int) -> None:
        batch = [member.begin(partition, records) for member in self._members]
        poison: list[Poison] = []
        for record in records:  # one at a time: decoded events are large
            step = step_of(record, self._partitions, self._wanted)
            if isinstance(step, Poison):
                poison.append(step)
                continue
            for folding in batch:
                folding.see(step)
        if poison and self._quarantine is not None:
            self._quarantine.put(partition, poison)
        self._commit(batch, position)
        if self._quarantine is not None:
            self._quarantine.moved(partition)
        self.counts.records += len(records)
        self.counts.foreign += len(poison)
        self.counts.batches += 1
        self.on_poison(poison)
        self.on_batch(len(records))

    def _commit(self, batch: Sequence[Folding], position: int) -> None:
        """Each member's step by itself: while the store takes one in, the next is made ready. All are waited for, then
        the first error is raised."""
        if self._at_once is None or len(batch) == 1:
            for folding in batch:
                folding.commit(position)
            return
        done = [self._at_once.submit(folding.commit, position) for folding in batch]
        wait(done)
        for one in done:
            one.result()
