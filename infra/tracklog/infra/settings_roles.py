"""The settings of the programs that own partitions and act: workers, dispatchers (DESIGN §6, §8)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tracklog.infra.settings_base import HOME_DEFAULT, Count, Positive, Section
from tracklog.schemas import limits

__all__ = ["CheckpointSettings", "DispatchSettings", "ProcessorSettings", "WorkerSettings"]


class WorkerSettings(Section):
    """`tracklog worker`: how much it does at once, and when it stops trying."""

    group: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,60}$")] = "workers"
    """The consumer group, after the prefix. All workers of a group share the trajectories of all agents, so they
    serve the same agents. A fleet with other agents has a group of its own, and `worker.refuse_unknown=false` in
    both."""
    trajectories_max: Count = 32
    """Trajectories that one worker runs at the same time. Those that wait for somebody are not counted: they take no
    task, only about a kilobyte. Raise it for agents that mostly wait for their model."""
    tries_max: Count = 5
    """Owners that may die on a trajectory without its getting on (no context, no reply in between). Then it is
    stopped as `poison` and goes on only after `tracklog retry`. A tool that kills its process is found so, and kills
    no more than this many workers."""
    repeats_max: Count = 10
    """How often in a row an agent may make the same call with the same arguments. Then it is stopped as `stuck`. Set
    it very high for agents that poll."""
    children_max: Annotated[int, Field(ge=0, le=1000)] = limits.CHILDREN_MAX
    """How many child runs one run may spawn in all. The next one is an error in its program, which stops it."""
    depth_max: Annotated[int, Field(ge=0, le=16)] = limits.DEPTH_MAX
    """How deep runs may spawn runs: 1 lets a submitted run spawn, and its children not."""
    refuse_unknown: bool = True
    """What happens to a task for an agent that this worker does not have: it ends as `refused`, so that whoever
    waits for its result hears of it. False leaves it to the workers of another group."""
    dispatches: bool = False
    """Whether dispatchers run beside the workers (`tracklog dispatch`). They then perform the calls of HTTP, MCP and
    opaque tools that do not say themselves where they run."""
    outcome_wait_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 5.0
    """Seconds for which a trajectory stays in memory while a dispatcher has a call of it. Then it is let go of, and
    goes on when the outcome comes."""
    model_wait_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 300.0
    """Seconds for which a model that is not to be reached is asked again, with growing pauses, beyond the tries of
    its client; then the trajectory is stopped as `failed`. 0 asks no further."""
    relay_tokens: bool = False
    """Whether models are asked to stream, and what they say is given on through Redis while it comes, for
    `GET /trajectories/{id}/tokens`. It is never in the log, and may be lost; the replies are."""
    start_within_s: Positive = 30.0
    """Seconds from the intent of a call to its start; one that could not be started by then is not made."""
    grace_s: Positive = 120.0
    """Seconds after its deadline in which the effect of a call may still land. It must exceed the longest pause of a
    process, the time-out of the slowest tool and the difference of clocks together. What may have happened and can
    neither be sent again nor be asked about in time waits for so long after a crash."""
    settle_wait_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """Seconds for which a trajectory stays open while a call in doubt waits for the time at which it can be settled.
    What has to wait longer is let go of, and taken up again at that time: it takes no task meanwhile."""
    move_wait_s: Positive = 20.0
    """Seconds that a worker which is told to stop (SIGTERM) waits for the steps under way: a reply of a model, a
    call. What is not over then is cut off, and settled by the next owner. Keep it below the grace period of whatever
    stops the process (30 s in Kubernetes)."""
    revoke_wait_s: Positive = 5.0
    """The same when the group takes a partition away. The other members wait meanwhile."""


class DispatchSettings(Section):
    """`tracklog dispatch`: the processes that perform calls which agents leave to them."""

    group: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,60}$")] = "dispatch"
    """The consumer group, after the prefix. All dispatchers of a group share the calls, so they have the same tools."""
    grace_s: Positive = 120.0
    """Seconds after an attempt's deadline until its effect has landed or never will: only then it is probed, or a
    person asked. It must exceed the longest time-out of a tool, the longest pause of a process and the difference of
    clocks together."""
    output_bytes_max: Annotated[int, Field(ge=1)] = limits.BODY_INLINE_BYTES_MAX
    """Bytes of a call's result that the model is given; what is longer is stored whole and given cut."""
    move_wait_s: Positive = 20.0
    """Seconds that a dispatcher which is told to stop (SIGTERM) waits for calls under way. What is not over then is in
    doubt, and settled by the next one."""
    revoke_wait_s: Positive = 5.0
    """The same when the group takes a partition away. The other members wait meanwhile."""


class CheckpointSettings(Section):
    """How often sessions keep where they are, and where a worker's trajectories have their files."""

    failures_a_day: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """How often a process that runs sessions is expected to die. With the measured pause of a checkpoint it says how
    often one is taken (`tracklog cadence`): the more failures, the less work is done again, and the more checkpoints
    are paid for. 0 takes none by time; one every 50 turns stays."""
    workspaces: str = f"{HOME_DEFAULT}/workspaces"
    """Directory in which a worker gives each trajectory one of its own, when its agent has a `local` tool. What is in
    it is kept at checkpoints and brought back by whichever worker goes on. Default: under `home`. Empty: agents have
    no workspace."""


class ProcessorSettings(Section):
    """Processors that are plugged in (`tracklog process`)."""

    states_cached_max: Count = 10_000
    """States and trajectories' places, each, that one processor holds in memory; the least recently used leave
    and are read back from Redis."""
    state_bytes_max: Count = 1024 * 1024
    """Bytes of one state as it is stored. Default 1 MiB. A trajectory whose event makes a larger one is parked
    for this processor, and shown."""
    parked_max: Annotated[int, Field(ge=0)] = 1000
    """Parked trajectories of one partition; where one more would be parked the process ends: then it is not the
    events. 0: it ends at the first event that a processor fails on, and passes none."""
