"""Commands that give tasks to workers or reach the trajectories they run: a client, and many at a time by a filter."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tracklog.consumers.listing import SAMPLE, listed
from tracklog.consumers.read import Filter, Reader
from tracklog.consumers.where import Where
from tracklog.consumers.wiring import blobs_of, check_writable, opened_log, opened_views
from tracklog.infra.log.port import Position
from tracklog.infra.settings import Settings
from tracklog.producers.client import Client
from tracklog.producers.whereabouts import Whereabouts
from tracklog.schemas.errors import InputError, TracklogError
from tracklog.schemas.lifecycle import ENDED, STOPPED, TrajectoryStatus
from tracklog.schemas.values import Driver

__all__ = [
    "Applies",
    "Ask",
    "Asked",
    "Check",
    "Chosen",
    "ask_all",
    "chosen",
    "of_workers",
    "opened_client",
    "stopped",
    "stopped_or_failed",
    "text_of",
]


_FAILED, _CANCELLED = TrajectoryStatus.FAILED.value, TrajectoryStatus.CANCELLED.value
Applies = Callable[[Mapping[str, Any]], bool]
Ask = Callable[[Client, str, Whereabouts], Awaitable[str | Position]]
"""Gives the id of the trajectory that goes on in its place, or where it was asked."""
Check = Callable[[Whereabouts], object]


class Chosen(NamedTuple):
    """`more`: not all that match are among the ids."""

    ids: list[str]
    more: bool


class Asked(NamedTuple):
    """What came of asking something of many: those asked, and those that could not be, with the reason.

    `became`: by which trajectory one of those asked is gone on with, where it is another one.
    """

    asked: list[str]
    failed: dict[str, str]
    became: dict[str, str]


@contextmanager
def opened_client(settings: Settings) -> Iterator[Client]:
    """A client over the log. Raises TopicMissing, TopicMismatch, LogUnavailable."""
    with opened_log(settings, make_topics=True) as log:
        check_writable(log, settings)
        yield Client(
            log,
            settings.topic_names,
            blobs=blobs_of(settings),
            by=user_name(),
            tenant=settings.tenant,
            redaction=settings.redaction.before_append(),
        )


def user_name() -> str:
    """Who calls the command; it is recorded with what is asked for."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "command line"


def text_of(given: str, what: str) -> str:
    """The text itself, or what is in the file after an @. Raises InputError for one that cannot be read."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{what} cannot be read from {given[1:]}: {error}") from error


def _is_workers(row: Mapping[str, Any]) -> bool:
    """Who drives a run is recorded with its task; only workers stop one that has not come so far."""
    return row["driver"] == Driver.WORKER or (not row["driver"] and row["parked"] in STOPPED)


def of_workers(row: Mapping[str, Any]) -> bool:
    """Unfinished, and a worker's: what `cancel` is for."""
    return _is_workers(row) and (bool(row["parked"]) or row["status"] not in ENDED)


def stopped_or_failed(row: Mapping[str, Any]) -> bool:
    """What `retry --turn` is for."""
    return _is_workers(row) and (row["parked"] in STOPPED or row["status"] in (_FAILED, _CANCELLED))


def stopped(row: Mapping[str, Any]) -> bool:
    """What `retry` is for."""
    return _is_workers(row) and row["parked"] in STOPPED


def chosen(settings: Settings, ids: Sequence[str], where: str | None, most: int, applies: Applies) -> Chosen:
    """The ids given, or those of trajectories that match a condition and can be asked, at most so many.

    Raises InputError when neither or both are given.
    """
    if bool(ids) == (where is not None):
        raise InputError("nothing says which trajectories", hint="give ids, or --where with a condition, not both")
    if where is None:
        return Chosen(list(ids), False)
    condition = Where(where, SAMPLE, applies)
    with opened_views(settings) as (_, client):
        reader = Reader(client, prefix=settings.prefix)
        page = asyncio.run(listed(reader, Filter(), condition, cursor=None, limit=most)).value
    return Chosen([row["trajectory_id"] for row in page.rows], page.next is not None)


async def ask_all(client: Client, ids: Sequence[str], ask: Ask, *, check: Check | None = None) -> Asked:
    """Asks one after the other, or only checks each; what fails for one does not keep the others."""
    asked, failed, became = list[str](), dict[str, str](), dict[str, str]()
    found = await client.look_up(ids)
    for trajectory_id in ids:
        try:
            if check is not None:
                check(found[trajectory_id])
            else:
                new = await ask(client, trajectory_id, found[trajectory_id])
                if isinstance(new, str):
                    became[trajectory_id] = new
        except TracklogError as error:
            failed[trajectory_id] = str(error)
        else:
            asked.append(trajectory_id)
    return Asked(asked, failed, became)
