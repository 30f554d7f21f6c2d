"""What a session is opened with: the agent's parts, where bodies go, and the bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import Clock, Entropy, SystemClock, SystemEntropy
from tracklog.producers.models import Model
from tracklog.producers.policy import AllowAll, Policy
from tracklog.producers.settle import Timing
from tracklog.producers.tools import ToolSet
from tracklog.producers.versions import Drift
from tracklog.schemas import limits
from tracklog.schemas.errors import InputError, InvalidTool
from tracklog.schemas.limits import CHILDREN_MAX, DEPTH_MAX
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.spawn import ChildOf
from tracklog.schemas.values import NO_BUDGETS, Budgets, Driver

__all__ = ["Setup"]


@dataclass(frozen=True, slots=True)
class Setup:
    """What is worked on, by what.

    `task` and `agent` are recorded at the start and must stay the same. So are `model`, `sampling`, `prompt`, `tools`
    and `code_version`; with others of these an unfinished trajectory goes on as `drift` says. None refuses when a
    tool of a call without an outcome is another one now, and crosses over otherwise.
    """

    agent: str
    task: str
    blobs: BlobStore | None = None
    """Where long bodies, prompts and schemas go; None for the store that the settings name."""
    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    driver: Driver = Driver.LIBRARY
    model: Model | None = None
    tools: ToolSet = field(default_factory=ToolSet.of)
    policy: Policy = field(default_factory=AllowAll)
    budgets: Budgets = NO_BUDGETS
    """Of this task alone; they hold beside those of the policy."""
    prompt: str | None = None
    sampling: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    on_behalf_of: str | None = None
    """Who asked for this work: recorded, and may not approve its held calls unless the policy says so."""
    code_version: str = ""
    drift: Drift | None = None
    repeats_max: int | None = None
    """How often in a row the same call with the same arguments may be asked for; None for any number."""
    dispatches: bool = False
    """Whether a dispatcher serves this agent: it then performs the calls of tools that do not say where they run and
    are remote or opaque."""
    swarm: str | None = None
    """The swarm that it belongs to; None for one of its own, named by its id as soon as it spawns."""
    child_of: ChildOf | None = None
    """Whose child it is. Given by the worker that begins it."""
    children_max: int = CHILDREN_MAX
    depth_max: int = DEPTH_MAX
    """How many child runs it may spawn in all, and how deep runs may spawn runs."""
    timing: Timing = field(default_factory=Timing)
    workspace: Path | None = None
    """The trajectory's own directory: kept at checkpoints, brought back when the session is opened again."""
    failures_a_day: float | None = None
    """How often a process is expected to die: sets how often checkpoints are taken. None for what the settings say."""
    redaction: Redaction | None = None
    """What is taken out of all that is said before it is recorded, and before the program and the model see it; None
    for what the settings say. Where they say something, that holds."""
    body_inline_bytes_max: int = limits.BODY_INLINE_BYTES_MAX
    output_bytes_max: int = limits.BODY_INLINE_BYTES_MAX
    """Of a call's result, as the model is given it."""

    def redacted(self, redaction: Redaction | None) -> Setup:
        """As it is recorded and worked with under this policy, or else its own: without secrets in task and prompt, and
        with tools whose results have none. Raises InvalidTool for a tool whose definition holds some."""
        own = redaction if redaction is not None else self.redaction
        if own is None:
            return self
        for one in self.tools:
            if own.forms(told := orjson.dumps(one.definition).decode()) != told:
                raise InvalidTool(f"the definition of tool {one.name!r} holds a secret", hint="models are told of it")
        prompt = None if self.prompt is None else own.text(self.prompt)
        return replace(self, redaction=own, task=own.text(self.task), prompt=prompt, tools=self.tools.cleaned(own.text))

    @property
    def limits(self) -> Budgets:
        """The lower of the task's and the policy's budgets, each."""
        return self.policy.budgets.lower(self.budgets)

    @property
    def sampled(self) -> dict[str, str]:
        """What is recorded as the sampling: the model's own, where it says it, under that of the setup."""
        return {**getattr(self.model, "sampling", {}), **self.sampling}

    @property
    def store(self) -> BlobStore:
        """Raises InputError where nothing has given it one."""
        if self.blobs is None:
            raise InputError(f"the setup of agent {self.agent!r} has no blob store", hint="give it blobs=")
        return self.blobs
