"""Who owns which partition of a group, on the embedded logs. Pure: the clock's reading is an argument.

Members take turns. In its turn a member shows that it is alive, removes members whose heartbeat is older
than the session, hands back what the range assignment no longer gives it, and takes what is free. A partition
has one owner at a time, and moves only after its former owner handed it back or was removed. `generation`
grows with every change of membership; an owner's entry carries the generation it was made in, so a commit
of a member that was removed and came back is told from a valid one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple


class Owner(NamedTuple):
    member: str
    generation: int


@dataclass(slots=True)
class GroupTable:
    """State of one group over one topic. Heartbeats are seconds on the machine-wide monotonic clock."""

    generation: int = 0
    heartbeats: dict[str, float] = field(default_factory=dict)
    owners: dict[int, Owner] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)

    def copy(self) -> GroupTable:
        return GroupTable(self.generation, dict(self.heartbeats), dict(self.owners), dict(self.committed))


class Turn(NamedTuple):
    """What a turn found: `lost` is gone already, `revoked` must be handed back, `gained` is owned now."""

    lost: tuple[int, ...]
    revoked: tuple[int, ...]
    gained: Mapping[int, Owner]


def range_assignment(members: Iterable[str], partitions: int) -> dict[str, range]:
    """Contiguous shares over the sorted members; the first ones get one more when it does not divide."""
    ordered = sorted(members)
    if not ordered:
        return {}
    share, extra = divmod(partitions, len(ordered))
    shares: dict[str, range] = {}
    start = 0
    for index, member in enumerate(ordered):
        end = start + share + (1 if index < extra else 0)
        shares[member] = range(start, end)
        start = end
    return shares


def take_turn(
    table: GroupTable,
    member: str,
    held: Mapping[int, Owner],
    *,
    now_s: float,
    session_s: float,
    partitions: int,
) -> Turn:
    """Changes `table` for one turn of `member`, which believes it owns `held`."""
    _expire(table, now_s, session_s, keep=member)
    if member not in table.heartbeats:
        table.generation += 1
        table.heartbeats[member] = now_s
    lost = tuple(sorted(p for p, owner in held.items() if table.owners.get(p) != owner))
    kept = held.keys() - set(lost)
    _forget_unheld(table, member, kept)
    wanted = range_assignment(table.heartbeats, partitions)[member]
    revoked = tuple(sorted(p for p in kept if p not in wanted))
    gained = {p: Owner(member, table.generation) for p in wanted if p not in table.owners}
    table.owners.update(gained)
    return Turn(lost, revoked, gained)


def hand_back(table: GroupTable, owned: Mapping[int, Owner]) -> None:
    for partition, owner in owned.items():
        if table.owners.get(partition) == owner:
            del table.owners[partition]


def leave(table: GroupTable, member: str) -> None:
    if table.heartbeats.pop(member, None) is not None:
        table.generation += 1
    table.owners = {p: owner for p, owner in table.owners.items() if owner.member != member}


def commit(table: GroupTable, positions: Mapping[int, int], owned: Mapping[int, Owner]) -> None:
    """Takes the positions of partitions that `owned` still describes truly; leaves the others out."""
    for partition, offset in positions.items():
        owner = owned.get(partition)
        if owner is not None and table.owners.get(partition) == owner:
            table.committed[partition] = offset


def _forget_unheld(table: GroupTable, member: str, kept: AbstractSet[int]) -> None:
    """A turn may have been written and its answer lost: then the member owns what it does not know of."""
    table.owners = {p: owner for p, owner in table.owners.items() if owner.member != member or p in kept}


def _expire(table: GroupTable, now_s: float, session_s: float, *, keep: str) -> None:
    """A heartbeat from the future was written before a reboot reset the clock: as dead as an old one."""
    dead = [m for m, beat in table.heartbeats.items() if m != keep and not -1.0 <= now_s - beat <= session_s]
    for member in dead:
        leave(table, member)
