"""What requests say, as the OpenAPI page shows it. Nobody says in a body who they are: the token does."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tracklog.schemas import limits
from tracklog.schemas.values import Choice, TargetKind

__all__ = ["Annotate", "Cancel", "Decide", "Outcome", "Said", "Settle", "Submit"]

Text = Annotated[str, Field(max_length=limits.TEXT_FIELD_CHARS_MAX)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.:@/+-]+$")]
ClientId = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.:@-]+$")]
"""Of whoever sends it: said twice, it is taken once."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Submit(_Body):
    agent: Name
    task: Annotated[str, Field(min_length=1)]
    tenant: Name = "default"
    labels: dict[Name, Text] = Field(default_factory=dict, max_length=limits.LABELS_MAX)


class Said(_Body):
    text: Annotated[str, Field(min_length=1)]
    client_id: ClientId | None = None


class Cancel(_Body):
    reason: Text = ""


class Decide(_Body):
    choice: Literal[Choice.APPROVE, Choice.DENY, Choice.EDIT, Choice.ANSWER]
    reason: Text = ""
    answer: Text | None = None
    arguments: dict[str, Any] | None = None
    request_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Of the request that is answered, as `GET /approvals` has it; without it the one that is open."""


class Settle(_Body):
    """`retry`: it is to be made again, whether it happened or not; there is no output then."""

    found: Literal["happened", "did_not_happen", "retry"]
    output: Text = ""
    reason: Text = ""


class Annotate(_Body):
    client_id: ClientId
    target: TargetKind = TargetKind.TRAJECTORY
    turn: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    call_id: Name | None = None
    name: Name
    value: Text


class Outcome(_Body):
    """What a tool that said `pending` has come to."""

    call_id: Name
    status: Literal["ok", "error"]
    output: str = ""
