"""`tracklog projections list|lag|read|verify|rebuild|switch|retry|drop`"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.loaded import Folder, Load, available, the_one
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.waiting import Cursor
from tracklog.consumers.projections import Known, Projections, tried
from tracklog.consumers.read import Answer, Reader
from tracklog.consumers.read_shown import shown_of
from tracklog.consumers.wiring import check_topic, opened_log, opened_redis
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.trimmed import begun_late
from tracklog.processors.comparing import Difference
from tracklog.processors.partial import Partial
from tracklog.schemas.errors import InputError

app = new_app(help="Look at what is folded into Redis, compare it with the log, build it anew.", no_args_is_help=True)

AcceptGap = Annotated[
    bool, typer.Option("--accept-gap", help="Fold what is left of a log whose beginning was trimmed.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A projection: see `tracklog projections list`.")]
SHOWN_CHARS_MAX = 200
BEHIND_MAX = 1000


@command(app, name="list")
def list_(run: Run) -> None:
    """List the projections in Redis: version, how far behind the log, and trajectories that stopped in them.

    Exit code 1 when a trajectory is parked: its processor failed on an event of it, and goes on without it.

    \b
    Examples:
      tracklog projections list
      tracklog projections list --json
    """
    with _opened(run) as projections:
        known = projections.known()
    if any(one.parked for one in known):
        run.faulty()
    if run.as_json:
        run.out.json({"projections": [_as_json(one) for one in known]})
        return
    if not known:
        run.out.text("nothing is folded yet: tracklog process")
        return
    rows = [
        tuple(map(str, (one.name, _version(one), sum(one.positions.values()), one.behind, len(one.parked), partial)))
        for one in known
        for partial in [one.partial.total]
    ]
    run.out.table(("projection", "version", "offsets", "behind", "parked", "partial"), rows, title="projections")
    _tell_parked(run, known)
    for one in known:
        _tell_partial(run, one.name, one.partial)


def _tell_partial(run: Run, name: str, partial: Partial) -> None:
    if not partial.total:
        return
    named, rest = ", ".join(partial.trajectories), partial.total - len(partial.trajectories)
    run.out.warning(
        f"{name}: nothing of {partial.total} trajectories whose beginning was trimmed: {named}"
        f"{f' and {rest} more' if rest else ''}; where cold.url names the cold tier that has it, build it anew:"
        f" tracklog projections rebuild {name}"
    )


def _partial_map(partial: Partial) -> dict[str, object]:
    return {"count": partial.total, "trajectories": list(partial.trajectories)}


def _tell_parked(run: Run, known: Sequence[Known]) -> None:
    for name, trajectory_id, parked in tried(known):
        run.out.text(
            f"{name}: {trajectory_id} stopped at offset {parked.offset} ({parked.event}, seq {parked.seq}, round"
            f" {parked.rounds}): {parked.error[:SHOWN_CHARS_MAX]}"
        )


@command(app)
def lag(
    run: Run,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these; all.")] = None,
    max_s: Annotated[
        float | None, typer.Option("--max-s", min=0.0, help="Exit code 1 when one is more seconds behind.")
    ] = None,
) -> None:
    """Show how far each projection is behind the log, by partition: in records, and the age of the oldest one.

    Exit code 1 with --max-s when one is further behind, or when its age cannot be read.

    \b
    Examples:
      tracklog projections lag
      tracklog projections lag trajectories --max-s 5
    """
    with _opened(run) as projections:
        for name in names or ():
            projections.one(name)
        found = [one for one in projections.lag(SystemClock()) if not names or one.name in names]
    late = [one for one in found if max_s is not None and (one.age_s is None or one.age_s > max_s)]
    if late:
        run.faulty()
    if run.as_json:
        run.out.json({"lag": [one._asdict() for one in found], "late": len(late)})
        return
    rows = [
        (one.name, str(one.version), *map(str, (one.partition, one.position, one.records)), _age(one.age_s))
        for one in found
    ]
    columns = ("projection", "version", "partition", "position", "behind", "oldest")
    run.out.table(columns, rows, right=columns[2:], title="lag")
    for one in late:
        run.out.text(f"{one.name}, partition {one.partition}: {_age(one.age_s)} behind, more than {max_s:g} s")


def _age(age_s: float | None) -> str:
    return "unknown" if age_s is None else f"{age_s:.1f} s"


@command(app)
def read(
    run: Run,
    name: Name,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="A key of it; their names when left out.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Rows of a sorted set or stream.")] = 50,
    cursor: Cursor = None,
    lowest_first: Annotated[
        bool, typer.Option("--lowest-first", help="Of a sorted set: from the lowest score.")
    ] = False,
) -> None:
    """Show what a processor keeps: a key in its shape, summed over partitions, or the names of its keys.

    Hashes of numbers and counters are added up; sorted sets show the highest scores, streams the newest entries, other
    hashes and JSON what each partition has. Naming keys looks at every key in Redis.

    \b
    Examples:
      tracklog projections read spend
      tracklog projections read spend meter:2026-03-01
    """
    with _opened(run) as projections:
        reader = Reader(projections.client, prefix=run.settings.prefix)
        if key is None:
            if cursor is not None or lowest_first:
                raise InputError("names of keys have no pages", hint="say which key")
            _tell_keys(run, name, asyncio.run(reader.keys(name)))
            return
        found = asyncio.run(shown_of(reader, name, key, limit, cursor=cursor, lowest_first=lowest_first))
        partial = projections.one(name).partial
    shown = found.value
    if run.as_json:
        said = {"name": name, "key": key, "shape": shown.shape.value, "value": shown.value, "next": shown.next}
        run.out.json({**said, "as_of": found.as_of.as_map(), "partial": _partial_map(partial)})
        return
    _tell_partial(run, name, partial)
    for row in shown.value if isinstance(shown.value, list) else shown.value.items():
        run.out.text("  ".join(map(str, row)))
    if shown.next is not None:
        run.out.text(f"more: --cursor {shown.next}", style="dim")


def _tell_keys(run: Run, name: str, found: Answer[list[str]]) -> None:
    if run.as_json:
        run.out.json({"name": name, "key": None, "value": found.value, "as_of": found.as_of.as_map()})
        return
    for key in found.value:
        run.out.text(key)


@command(app)
def verify(run: Run, name: Name, load: Load = None, folder: Folder = None, accept_gap: AcceptGap = False) -> None:
    """Fold the log afresh in memory, and compare it with Redis key by key; name the first that differs.

    Exit code 1 when one does, and when a trajectory is parked: what is compared has nothing of it behind the event
    that its processor failed on. Changes nothing; the projection may be folded on meanwhile. Refused where the
    beginning of the log was trimmed and cold.url does not name the tier that has it.

    \b
    Examples:
      tracklog projections verify spend
      tracklog projections verify trajectories
      tracklog projections verify failures --load my_views.failures:Failures
    """
    processor = the_one(available(load, folder), name, run.settings)
    with _opened(run) as projections:
        total = sum(projections.one(name).positions.values())
        with run.out.progress(f"folding {name}", total) as advance:
            compared = projections.verify(processor, advance, accept_gap=accept_gap)
        known = projections.one(name)
        begun = begun_late(projections.log, run.settings.topic_names.events, compared.positions)
    found, kept = compared.difference, "what is kept of the log" if begun else "the log"
    if found is not None or known.parked:
        run.faulty()
    if run.as_json:
        shown = None if found is None else {"partition": found.partition, "key": found.key, **_both(found)}
        said = {"name": name, "keys": compared.keys, "positions": compared.positions, "difference": shown}
        run.out.json({**said, "parked": _as_json(known)["parked"], "partial": _partial_map(compared.partial)})
        return
    _tell_partial(run, name, compared.partial)
    if found is None:
        run.out.text(f"{name}: {compared.keys} keys, as {kept} says")
    else:
        both = _both(found)
        run.out.text(
            f"{name}: {found.key} of partition {found.partition} differs\n  in Redis   {both['stored']}\n  by the log"
            f" {both['folded']}\nbuild it anew: tracklog projections rebuild {name}"
        )
    _tell_parked(run, [known])
    if known.parked:
        run.out.text(f"once the processor is corrected: tracklog projections retry {name}")


@command(app)
def rebuild(run: Run, name: Name, load: Load = None, folder: Folder = None, accept_gap: AcceptGap = False) -> None:
    """Fold a processor from the beginning beside what is live, then turn readers over to it and drop the old one.

    What is live is read and folded on meanwhile. Processes that fold the same version go on with the new one by
    themselves. Of a new version nothing else is touched: the old one stays until it is dropped. Refused, with nothing
    changed, where the beginning of the log was trimmed and cold.url does not name the tier that has it.

    \b
    Examples:
      tracklog projections rebuild spend
    """
    processor = the_one(available(load, folder), name, run.settings)
    with _opened(run) as projections:
        topic = run.settings.topic_names.events
        partitions = range(projections.log.partition_count(topic))
        total = sum(bounds.end - bounds.first for bounds in (projections.log.bounds(topic, p) for p in partitions))
        with run.out.progress(f"folding {name}", total) as advance:
            built = projections.rebuild(processor, advance, accept_gap=accept_gap)
    if run.as_json:
        run.out.json({"name": name, "version": processor.version, **built._asdict()})
        return
    said = {True: "; equal to what was there", False: "; what was there was different", None: ""}[built.equal]
    run.out.text(f"{name}, version {processor.version}: {built.records} records folded into build {built.build}{said}")


@command(app)
def switch(
    run: Run,
    name: Name,
    version: Annotated[int, typer.Option("--version", min=1, help="The version that readers are to follow.")],
    behind_max: Annotated[
        int, typer.Option("--behind-max", min=0, help="How many records it may be behind the log.")
    ] = BEHIND_MAX,
) -> None:
    """Turn readers over to a version that another process has folded already, beside the one they follow.

    Refused while nobody has folded that version, or it is far behind. The version before stays: go back to it in
    the same way, or drop it.

    \b
    Examples:
      tracklog projections switch spend --version 2
    """
    with _opened(run) as projections:
        done = projections.switch(name, version, behind_max=behind_max)
    if run.as_json:
        run.out.json({"name": name, **done._asdict()})
    else:
        run.out.text(f"{name}: readers follow version {done.now}, before that {done.before}; {done.behind} behind")


@command(app)
def retry(
    run: Run,
    name: Name,
    trajectory_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Parked ones; all.")] = None,
) -> None:
    """Have trajectories that stopped in a projection taken up again where they stopped.

    Ask for it after the processor was corrected and is running again. Done within seconds by whoever folds the
    partition: look with `tracklog projections list`.

    \b
    Examples:
      tracklog projections retry failures
      tracklog projections retry failures airline-17-3
    """
    with _opened(run) as projections:
        asked = projections.retry(name, trajectory_ids or [])
    if run.as_json:
        run.out.json({"name": name, "asked": asked})
    else:
        run.out.text(f"asked for another try of {len(asked)} in {name}" if asked else f"nothing is parked in {name}")


@command(app)
def drop(
    run: Run,
    name: Name,
    version: Annotated[int | None, typer.Option("--version", help="Which one; the live one when left out.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Yes, delete it.")] = False,
) -> None:
    """Delete a projection from Redis. The log keeps everything: whoever folds it begins anew.

    \b
    Examples:
      tracklog projections drop spend --version 1 --yes
    """
    if not yes:
        raise InputError(f"this deletes {name} from Redis", hint="say --yes to do it; it can be folded again")
    with _opened(run) as projections:
        count = projections.drop(name, version)
    if run.as_json:
        run.out.json({"name": name, "keys": count})
    else:
        run.out.text(f"{name}: {count} keys deleted")


@contextmanager
def _opened(run: Run) -> Iterator[Projections]:
    with opened_log(run.settings) as log:
        check_topic(log, run.settings)
        with opened_redis(run.settings) as client:
            yield Projections(log, client, run.settings)


def _version(one: Known) -> str:
    return f"{one.version}.{one.build}" if one.build else str(one.version)


def _as_json(one: Known) -> dict[str, object]:
    parked = [{"trajectory_id": name, "partition": p, **what._asdict()} for name, (p, what) in one.parked.items()]
    return {**one._asdict(), "parked": parked, "partial": _partial_map(one.partial)}


def _both(found: Difference) -> dict[str, str]:
    return {side: repr(value)[:SHOWN_CHARS_MAX] for side, value in (("stored", found.stored), ("folded", found.folded))}
