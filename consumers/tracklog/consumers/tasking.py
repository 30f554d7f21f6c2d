"""Commands that give tasks to workers or reach the trajectories they run: a client, and many at a time by a filter."""

from __future__ import annotations

import getpass
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tracklog.consumers.listing import SAMPLE, Listed, listed
from tracklog.consumers.read import Reader
from tracklog.consumers.read_filter import Filter
from tracklog.consumers.where import Where
from tracklog.consumers.wiring import blobs_of, check_writable, opened_log, opened_views
from tracklog.infra.settings import Settings
from tracklog.producers.client import Client
from tracklog.schemas.errors import InputError, TracklogError

__all__ = ["Asked", "ask_all", "chosen", "matching", "opened_client"]


class Asked(NamedTuple):
    """What came of asking something of many: those asked, and those that could not be, with the reason."""

    asked: list[str]
    failed: dict[str, str]


@contextmanager
def opened_client(settings: Settings) -> Iterator[Client]:
    """A client over the log. Raises TopicMissing, TopicMismatch, LogUnavailable."""
    with opened_log(settings, make_topics=True) as log:
        check_writable(log, settings)
        yield Client(log, settings.topic_names, blobs=blobs_of(settings), by=user_name(), tenant=settings.tenant)


def user_name() -> str:
    """Who calls the command; it is recorded with what is asked for."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "command line"


def chosen(settings: Settings, ids: list[str], where: str | None, most: int) -> list[str]:
    """The ids given, or those of workers' unfinished trajectories that match a condition, at most so many.

    Raises InputError when neither or both are given.
    """
    if bool(ids) == (where is not None):
        raise InputError("nothing says which trajectories", hint="give ids, or --where with a condition, not both")
    if where is None:
        return ids
    return [row["trajectory_id"] for row in matching(settings, where, most).rows if row["driver"] == "worker"]


def matching(settings: Settings, where: str, most: int) -> Listed:
    """At most so many trajectories that match a condition; `next` is None when there are no more."""
    condition = Where(where, SAMPLE)
    with opened_views(settings) as (_, client):
        return listed(Reader(client, prefix=settings.prefix), Filter(), condition, cursor=None, limit=most)


async def ask_all(ids: list[str], ask: Callable[[str], Awaitable[None]]) -> Asked:
    """Asks one after the other; what fails for one does not keep the others."""
    asked, failed = list[str](), dict[str, str]()
    for trajectory_id in ids:
        try:
            await ask(trajectory_id)
        except TracklogError as error:
            failed[trajectory_id] = str(error)
        else:
            asked.append(trajectory_id)
    return Asked(asked, failed)
