"""Values that several records share: constrained scalars, bodies, references, and the closed sets of words.

Each class is one Avro type of the same name (`avsc.py` derives it). A closed set is an Avro enum whose
default is its safest word: a reader that meets a newer word then errs towards doing nothing.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tracklog.schemas import limits
from tracklog.schemas.errors import InvalidEvent, InvalidTrajectoryId

HASH_BYTES = 32
ID_BYTES = 16
ZERO_HASH = bytes(HASH_BYTES)

Hash = Annotated[bytes, Field(min_length=HASH_BYTES, max_length=HASH_BYTES)]
"""SHA-256."""
Id16 = Annotated[bytes, Field(min_length=ID_BYTES, max_length=ID_BYTES)]
"""16 bytes: an event id or a nonce."""
Count = Annotated[int, Field(ge=0, lt=2**63)]
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Micros = Annotated[int, Field(ge=0, lt=2**63)]
"""Microseconds since 1970-01-01 UTC."""
Millis = Annotated[int, Field(ge=0, lt=2**63)]
"""A duration in milliseconds."""
Text = Annotated[str, Field(max_length=limits.TEXT_FIELD_CHARS_MAX)]
Name = Annotated[str, Field(min_length=1, max_length=limits.TEXT_FIELD_CHARS_MAX)]


_NOT_PRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Controls, surrogates, and characters that hide or turn others. Written out, because `str.isprintable` knows
more characters with each version of Python, and every reader must take or refuse the same records."""


def check_trajectory_id(value: str) -> str:
    """A trajectory id is a record's key: printable, at most TRAJECTORY_ID_BYTES_MAX bytes of UTF-8, never empty.

    Raises InvalidTrajectoryId (a ValueError, so that models can use it as their check).
    """
    if not value:
        raise InvalidTrajectoryId("the trajectory id is empty", hint="it is the record key: give every run its own")
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > limits.TRAJECTORY_ID_BYTES_MAX:
        raise InvalidTrajectoryId(
            f"the trajectory id {value[:40]!r}... has {size} bytes",
            hint=f"at most {limits.TRAJECTORY_ID_BYTES_MAX} are allowed",
        )
    if _NOT_PRINTABLE.search(value) is not None:
        raise InvalidTrajectoryId(
            f"the trajectory id {value[:40]!r} has characters that do not print", hint="use printable ones"
        )
    return value


TrajectoryId = Annotated[str, AfterValidator(check_trajectory_id)]


class Value(BaseModel):
    """Base of all records: frozen, complete, and without fields that are not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="never")


class Word(StrEnum):
    """Base of the closed sets. `fallback` is the Avro default."""

    @classmethod
    def fallback(cls) -> str:
        return next(iter(cls)).value


class Driver(Word):
    """Who moves a trajectory on (DESIGN §4). Only `worker` ones are taken up by workers."""

    IMPORT = "import"
    INGEST = "ingest"
    LIBRARY = "library"
    WORKER = "worker"


class Effect(Word):
    """What running a tool twice would mean (DESIGN §8)."""

    OPAQUE = "opaque"
    READONLY = "readonly"
    LOCAL = "local"
    IDEMPOTENT = "idempotent"
    PROBE = "probe"


class Place(Word):
    """Where an intended call runs. `recorded` is nobody's to run."""

    RECORDED = "recorded"
    INLINE = "inline"
    DISPATCH = "dispatch"


class Ruling(Word):
    DENY = "deny"
    HOLD = "hold"
    ALLOW = "allow"


class ResultStatus(Word):
    """`unknown` is an outcome too: a recorded run may end between a call and its result."""

    UNKNOWN = "unknown"
    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    DENIED = "denied"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Settled(Word):
    """How a result came to be known."""

    RECORDED = "recorded"
    DIRECT = "direct"
    REISSUED = "reissued"
    PROBED = "probed"
    EXPIRED = "expired"
    PERSON = "person"
    ANSWER = "answer"


class Choice(Word):
    """What a person decided about a held call."""

    DENY = "deny"
    EXPIRE = "expire"
    APPROVE = "approve"
    EDIT = "edit"
    ANSWER = "answer"


class OnExpiry(Word):
    DENY = "deny"
    ESCALATE = "escalate"


class Ending(Word):
    FAILED = "failed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class SnapshotKind(Word):
    FULL = "full"
    DELTA = "delta"


class ObservedKind(Word):
    STEP = "step"
    CLOCK = "clock"
    RANDOM = "random"
    ID = "id"
    LISTING = "listing"
    RETRIEVAL = "retrieval"


class EditOp(Word):
    KEEP = "keep"
    DROP = "drop"
    ADD = "add"


class TargetKind(Word):
    TRAJECTORY = "trajectory"
    TURN = "turn"
    CALL = "call"


class Role(Word):
    USER = "user"
    SYSTEM = "system"
    AGENT = "agent"


class Ref(Value):
    """An event by trajectory and seq: holds on any cluster, unlike an offset."""

    trajectory_id: TrajectoryId
    seq: Count


class InboxId(Value):
    """(source, source sequence): a sender may append twice and is taken once."""

    source: Name
    seq: Count


class BlobRef(Value):
    """Content in the blob store, named by its SHA-256."""

    hash: Hash
    size_bytes: Count
    media_type: Text = ""


class Body(Value):
    """Text that may be long. `text` is what was given on (perhaps cut); hash and size are of the whole.

    `stored` says that the whole is in the blob store under `hash`.
    """

    text: str
    hash: Hash
    size_bytes: Count
    media_type: Text = ""
    stored: bool = False

    @classmethod
    def of(cls, text: str, media_type: str = "") -> Self:
        """The body that holds all of its text."""
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise InvalidEvent(
                f"text with a lone surrogate at character {error.start} has no UTF-8 form",
                hint="replace it, for example text.encode('utf-8', 'replace').decode()",
            ) from error
        return cls(text=text, hash=hashlib.sha256(data).digest(), size_bytes=len(data), media_type=media_type)

    @property
    def whole(self) -> bool:
        """True when `text` is everything."""
        return len(self.text.encode()) == self.size_bytes

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if not self.stored and len(self.text.encode()) != self.size_bytes:
            raise ValueError("a body that is cut must be in the blob store: set stored, or give all of the text")
        return self


class ToolCall(Value):
    """A call as the model proposed it. `arguments` is its text, verbatim: models write broken JSON too."""

    call_id: Name
    tool: Name
    arguments: str


class Usage(Value):
    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0
    reasoning_tokens: Count = 0


class Budgets(Value):
    """Limits, or what is left of them. None: no limit."""

    turns: Count | None = None
    tool_calls: Count | None = None
    tokens: Count | None = None
    cost_micro_usd: Count | None = None
    wall_ms: Millis | None = None

    def lower(self, other: Budgets) -> Budgets:
        """The lower limit of the two, each."""
        both = {name: [getattr(self, name), getattr(other, name)] for name in type(self).model_fields}
        given = {name: [limit for limit in limits if limit is not None] for name, limits in both.items()}
        return Budgets(**{name: min(limits) for name, limits in given.items() if limits})


NO_BUDGETS: Final = Budgets()


class ContextEdit(Value):
    """One step from the previous context to this one, read left to right (DESIGN §4).

    keep and drop take `count` messages of the previous context; add appends `seqs` of `trajectory_id`
    (None: this trajectory). What no edit takes is dropped.
    """

    op: EditOp
    count: Count = 0
    trajectory_id: TrajectoryId | None = None
    seqs: tuple[Count, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.op is EditOp.ADD) != bool(self.seqs) or (self.op is EditOp.ADD) != (self.count == 0):
            raise ValueError("add takes seqs and no count; keep and drop take a count above 0 and no seqs")
        return self
