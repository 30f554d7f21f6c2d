"""Several projections in one process, each record decoded once, and only where somebody reads it (DESIGN §10).

The order inside a batch is what makes it safe: decode and fold; quarantine what is not ours and wait for the reports;
then each member writes states and position in one guarded step. The steps of all members, and of partitions that are
taken in one after another, are sent at once and waited for at the end; each has its own guard, so none depends on
another. A member whose step did not happen (crash, conflict) is behind the others, and is the one from whose position
the log is read again; the others pass over what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tracklog.infra.log.port import Record
from tracklog.processors.decoding import step_of, wanted_by
from tracklog.processors.member import Folding, Member
from tracklog.processors.quarantine import Poison, Quarantine
from tracklog.schemas.errors import StoreError


@dataclass(slots=True)
class Counts:
    """What this process has done so far. A batch that was taken up twice counts twice."""

    records: int = 0
    foreign: int = 0
    batches: int = 0


class Bundle:
    """See `Owner`. Without `quarantine`, records that are not ours are only counted: one process of an installation
    puts them away, the others pass them by."""

    def __init__(self, members: Sequence[Member], *, partitions: int, quarantine: Quarantine | None = None) -> None:
        self._members = members
        self._partitions = partitions
        self._quarantine = quarantine
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

    def fold(self, partition: int, records: Sequence[Record], position: int) -> Callable[[], None]:
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
        sent = _sent(batch, position)

        def stored() -> None:
            _wait_for(sent)
            if self._quarantine is not None:
                self._quarantine.moved(partition)
            self.counts.records += len(records)
            self.counts.foreign += len(poison)
            self.counts.batches += 1
            self.on_poison(poison)
            self.on_batch(len(records))

        return stored


def _sent(batch: Sequence[Folding], position: int) -> list[Callable[[], None]]:
    sent: list[Callable[[], None]] = []
    try:
        sent.extend(folding.commit(position) for folding in batch)
    except BaseException:
        _wait_for(sent)  # each remembers what of it is stored
        raise
    return sent


def _wait_for(sent: Sequence[Callable[[], None]]) -> None:
    """All are waited for, then the first error is raised: a member whose step was stored remembers it."""
    first: StoreError | None = None
    for stored in sent:
        try:
            stored()
        except StoreError as error:
            first = first or error
    if first is not None:
        raise first
