"""A recorded run, whatever form it was recorded in: what happened, in order, and nothing else.

    Prompt    the system prompt, when the run starts with one
    Spoken    somebody said something (a user turn, a later system message, a demonstration)
    Reply     the model replied: its message verbatim, the calls in it
    Outcome   a call's result

A reader (`chat`, `traj`) makes a Run of a record, `plan` makes events of a Run, `rebuild` makes the record
of the events again.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from tracklog.schemas.events import Labels
from tracklog.schemas.values import (
    Count,
    Hash,
    Millis,
    Name,
    ResultStatus,
    Role,
    Text,
    ToolCall,
    TrajectoryId,
    Usage,
    Value,
)

TEXT: Final = "text/plain"
"""The body is the text of the message."""
JSON: Final = "application/json"
"""The body is JSON: of a content that is no plain text (parts, null), of a reply, of a result."""


class Content(Value):
    """What a message says: its text, or the JSON of a content that is not a text."""

    text: str
    media_type: str = TEXT


class Prompt(Value):
    """The system prompt, the first message of the run."""

    content: Content
    seen: Hash
    shape: str = ""


class Spoken(Value):
    """`seen` is the hash of the message as the model reads it (`schemas.context.message_hash`).

    `shape` is how the message as recorded differs from what its event says (`shape.shape_of`).
    """

    peer: Name
    role: Role
    content: Content
    seen: Hash
    shape: str = ""


class Reply(Value):
    """`message` is the JSON of the whole message, verbatim. `calls` have ids unique in the run, in its order."""

    message: str
    calls: tuple[ToolCall, ...]
    seen: Hash
    usage: Usage = Usage()
    cost_micro_usd: Count | None = None


class Outcome(Value):
    """`seen` is None for a result that was recorded but is no message: the run ended before a model read it."""

    call_id: Name
    content: Content
    status: ResultStatus
    seen: Hash | None
    shape: str = ""
    duration_ms: Millis | None = None


Step = Spoken | Reply | Outcome


class Run(Value):
    """One recorded run. `source` is its SHA-256 in hexadecimal: the identity of the import.

    `prompt` is the system prompt, None without one. `tools` are the tool schemas as JSON. `recording` is what the
    record holds beside its messages (`record.recording_of`), so that nothing is lost. `dataset` names the set
    of tools whose effects are known. `failed`, `reason` and `result` are how it ended, as far as it says.
    `file` and `line` say where it was read, for messages; they are no part of what happened.
    """

    trajectory_id: TrajectoryId
    source: Name
    dataset: Name
    agent: Name
    model: Text = ""
    task: str
    prompt: Prompt | None = None
    tools: str | None = None
    labels: Labels = Field(default_factory=dict)
    steps: tuple[Step, ...]
    failed: bool = False
    reason: Text = ""
    result: str | None = None
    recording: str = ""
    file: str = ""
    line: int = Field(default=0, ge=0)


class BadRun(Value):
    """A run that cannot be taken in. `line` counts from 1; 0 means the file as a whole."""

    file: str
    line: int = Field(ge=0)
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" if self.line > 0 else f"{self.file}: {self.reason}"
