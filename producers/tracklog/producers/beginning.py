"""How a session begins: with the start of its trajectory, or where a checkpoint says that a turn was finished."""

from __future__ import annotations

from collections.abc import Mapping

from tracklog.producers.checkpoints import Checkpoints
from tracklog.producers.cursor import describe
from tracklog.producers.divergence import Divergence
from tracklog.producers.fork_start import Fork
from tracklog.producers.in_force import InForce
from tracklog.producers.record import JSON, TEXT, Record
from tracklog.producers.sameness import same_start
from tracklog.producers.setup import Setup
from tracklog.schemas import events as ev

__all__ = ["begin", "begin_fork", "go_on", "start_of"]


async def start_of(setup: Setup, record: Record) -> ev.TaskStarted:
    """What is to be done, by which versions of what."""
    prompt = None if setup.prompt is None else await record.blob(setup.prompt, TEXT)
    tools = await record.blob(setup.tools.schemas_json(), JSON) if len(setup.tools) else None
    return ev.TaskStarted(
        driver=setup.driver,
        task=await record.body(setup.task, TEXT),
        agent=setup.agent,
        model=setup.model.name if setup.model is not None else "",
        sampling=setup.sampled,
        prompt_template=prompt,
        tool_schemas=tools,
        budgets=setup.limits,
        labels=setup.labels,
        swarm=setup.swarm,
        parent=None if setup.child_of is None else setup.child_of.parent,
        on_behalf_of=setup.on_behalf_of,
        code_version=setup.code_version,
    )


async def begin(
    record: Record, body: ev.TaskStarted, points: Checkpoints | None, ext: Mapping[str, str] | None = None
) -> int:
    """The seq of the start, recorded or written now, with the files that there are then."""
    with record.strand.ordered("the start"):
        first = points is not None and record.cursor.done
        if points is not None and first:
            body = body.model_copy(update={"workspace": await points.start()})
        seq = await record.ordered(body, "the start of a task", check=same_start, ext=ext)
        if points is not None and first:
            points.started(seq)
    return seq


async def begin_fork(record: Record, body: ev.TaskStarted, fork: Fork, in_force: InForce) -> None:
    """The start of its own that a fork has beside the one that it inherits."""
    if record.cursor.versions[-1][0].seq >= 0:
        return
    record.check_live("the start of a fork")
    await fork.put(record)
    await in_force.put()
    body = body.model_copy(update={"origin": fork.origin, "inherited_turn": fork.turn})
    place = await record.pen.append(body, turn=0, cause=-1, ext=fork.ext)
    record.cursor.begin(place, body)


def go_on(record: Record, body: ev.TaskStarted) -> int:
    """The seq of the recorded start, which is not asked for again. Raises Diverged for another task or agent."""
    start = record.cursor.start
    assert start is not None
    changed = same_start(start.body, body)
    if changed:
        asked = f"the start of a task (another {changed})"
        raise record.cursor.broken(Divergence(start.turn, start.seq, describe(start.body), asked))
    return start.seq
