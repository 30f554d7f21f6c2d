"""Every error of the library, in one tree.

    TracklogError
    +-- InputError                what was given is wrong; fix it and call again       exit 2
    |   +-- InvalidEvent
    |   |   +-- NotApprover       somebody who may not decide about a held call
    |   +-- InvalidTrajectoryId
    |   +-- SettingsError
    |   +-- ImportSourceError     a recorded run that cannot be read (file and line)
    |   +-- RangeError            an offset range that makes no sense
    |   +-- InvalidTool           a tool declared so that it cannot be kept to
    |   +-- ToolOutsideSession    a tool was called directly: nothing would be recorded first
    |   +-- BlobTooLarge          more bytes than one blob may have
    |   +-- InvalidProcessor      a processor that cannot be run, or what it gives cannot be stored
    +-- LogError                  the log or a topic on it                             exit 3
    |   +-- LogUnavailable        nobody answered within the bound
    |   +-- LogFormatError        the file is newer than this program, or not a log
    |   +-- TopicMissing
    |   +-- TopicMismatch         a topic whose settings break a guarantee
    |   +-- OffsetTrimmed         the position asked for is no longer (or not yet) kept
    |   +-- TrajectoryTrimmed     the beginning of a trajectory is no longer kept, and rests on it
    |   +-- ClientFatal           the client library gave up; the process must end     exit 70
    |   +-- AppendError           one append did not end well; see `definite`
    |       +-- RecordTooLarge    definite
    |       +-- LogQueueFull      definite: back-pressure, try again
    |       +-- AppendRefused     definite: the log said no (read-only, disk full, not authorised)
    |       +-- AppendUnknown     NOT definite: the record may be in the log              exit 4
    +-- WriterError               writing one trajectory                               exit 5
    |   +-- Fenced                another owner has claimed the trajectory
    |   +-- ClaimLost             somebody else's claim was accepted first
    |   +-- LeaseHeld             another client records this trajectory, and its lease has not run out
    |   +-- TrajectoryEnded       nothing may follow TaskEnded
    |   +-- TrajectoryFaulty      the accepted history holds a fault; it is parked
    |   +-- Undecided             the bound ran out before the log decided; NOT definite  exit 4
    |   +-- BarrierTooWeak        more durability was asked for than the topic gives
    +-- SessionError              a durable session cannot go on                       exit 5
    |   +-- Diverged              the program asks for something else than is recorded
    |   +-- PersonNeeded          a call may have happened, and only a person can say
    |   +-- StillInDoubt          a call may have happened, and it is too early to know exit 4
    |   +-- SessionWaits          nothing is wrong: somebody else must speak first
    |   |   +-- ApprovalNeeded    a held call waits for a decision
    |   |   +-- NothingReceived   a message is waited for
    |   |   +-- TimerAwaited      a timer has not run out
    |   |   +-- OutcomeAwaited    a dispatcher has not said yet what became of a call
    |   +-- Cancelled             somebody cancelled the trajectory
    |   +-- Moved                 its worker leaves; another one goes on with it
    |   +-- Stuck                 the same call with the same arguments, again and again
    |   +-- DriftRefused          model, prompt, tools or code are others, and that was not to be crossed
    |   +-- SessionMisused        calls in an order that no record could be read back in
    +-- TaskError                 what became of a task that was submitted             exit 1
    |   +-- TaskFailed            it has ended, and not as completed
    |   +-- NotDone               it has not ended yet                                 exit 4
    +-- ToolError                 raised by a tool, to say more than that it failed
    |   +-- ToolExpired           the deadline had passed before anything was sent
    |   +-- ToolOutcomeUnknown    NOT definite: the effect may have happened             exit 4
    |       +-- ToolPending       it was begun, and answers later by itself
    +-- ModelError                a model gave no reply                                exit 3
    |   +-- ModelUnavailable      nobody answered, or only with 429 and 5xx, within the bounds
    |   +-- ModelRefused          the endpoint said no: the key, the model's name, the request
    |   +-- ModelMalformed        an answer that is none: not JSON, no message, too large
    |   +-- RecordingEnded        a recorded run has no answer for this request
    +-- RecordError               bytes read from a topic
    |   +-- ForeignRecord         not ours: quarantined
    |   +-- UnknownSchema         ours, but of a type or version not known here: kept
    |   +-- TamperedRecord        does not decode to what its hash says
    +-- BlobError                 the blob store                                       exit 3
    |   +-- BlobMissing
    |   +-- BlobAltered           the bytes do not have the hash they are named by
    +-- ColdError                 the cold tier                                        exit 3
    |   +-- ColdUnavailable     its store does not answer, or only with failures: to be tried again
    |   +-- ColdMissing         no table is there, or no bucket
    |   +-- ColdRefused         credentials, rights, a full disk, a store that cannot hold a table
    |   +-- ColdMismatch        a table of another log, or of a shape that this program does not know
    |   +-- ColdDamaged         a file of the table that is not what was written
    |   +-- ColdConflict        somebody else has written in between: nothing was written; read again
    +-- WorkspaceError            a workspace that cannot be read, written or restored     exit 3
    +-- StoreError                the projection store (Redis)                         exit 3
    |   +-- StoreUnavailable
    |   +-- StoreUnsafe           evicts keys, or another setting that loses data
    |   +-- StoreConflict         the stored position moved under the writer
    |   +-- NotFolded             nobody has folded this projection yet
    |   +-- ReadBehind            a position that was to be seen was not folded within the bound
    +-- RegistryError             the schema registry                                  exit 3
    |   +-- SchemaIncompatible    a schema that its subject's other versions do not allow
    +-- OutputError               a file or stream that takes no more                exit 3
    +-- StackError                the local stack could not be started                 exit 3

`definite` answers one question about a write: did it surely not happen? True means it did not; False
means nobody knows yet, so it must be looked up or appended again with the same bytes, never with new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

_NOTHING: Final[Mapping[str, object]] = {}


class TracklogError(Exception):
    """Base of all. `hint` is the way out, in words a person can act on; `details` are for programs."""

    exit_code: ClassVar[int] = 1
    definite: ClassVar[bool] = True

    def __init__(self, message: str, *, hint: str = "", details: Mapping[str, object] = _NOTHING) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InputError(TracklogError, ValueError):
    exit_code = 2


class InvalidEvent(InputError): ...


class NotApprover(InvalidEvent): ...


class InvalidTrajectoryId(InputError): ...


class SettingsError(InputError): ...


class ImportSourceError(InputError): ...


class RangeError(InputError): ...


class InvalidTool(InputError): ...


class ToolOutsideSession(InputError): ...


class BlobTooLarge(InputError): ...


class InvalidProcessor(InputError): ...


class LogError(TracklogError):
    exit_code = 3


class LogUnavailable(LogError): ...


class LogFormatError(LogError): ...


class TopicMissing(LogError): ...


class TopicMismatch(LogError): ...


class OffsetTrimmed(LogError): ...


class TrajectoryTrimmed(LogError): ...


class ClientFatal(LogError):
    exit_code = 70


class AppendError(LogError): ...


class RecordTooLarge(AppendError): ...


class LogQueueFull(AppendError): ...


class AppendRefused(AppendError): ...


class AppendUnknown(AppendError):
    definite = False
    exit_code = 4


class WriterError(TracklogError):
    exit_code = 5


class Fenced(WriterError): ...


class ClaimLost(WriterError): ...


class LeaseHeld(WriterError): ...


class TrajectoryEnded(WriterError): ...


class TrajectoryFaulty(WriterError): ...


class Undecided(WriterError):
    definite = False
    exit_code = 4


class BarrierTooWeak(WriterError): ...


class SessionError(TracklogError):
    exit_code = 5


class PersonNeeded(SessionError): ...


class StillInDoubt(SessionError):
    definite = False
    exit_code = 4


class SessionWaits(SessionError):
    waits_for: str = ""
    """The trajectory that is waited for, where it is one."""


class ApprovalNeeded(SessionWaits): ...


class NothingReceived(SessionWaits): ...


class TimerAwaited(SessionWaits): ...


class OutcomeAwaited(SessionWaits): ...


class ChildAwaited(SessionWaits): ...


class Cancelled(SessionError): ...


class Moved(SessionError): ...


class Stuck(SessionError): ...


class DriftRefused(SessionError): ...


class SessionMisused(SessionError): ...


class TaskError(TracklogError): ...


class TaskFailed(TaskError): ...


class NotDone(TaskError):
    exit_code = 4


class ToolError(TracklogError): ...


class ToolExpired(ToolError): ...


class ToolOutcomeUnknown(ToolError):
    definite = False
    exit_code = 4


class ToolPending(ToolOutcomeUnknown):
    """`within_s`: seconds until when the tool will have answered; only then anybody looks into the call."""

    def __init__(self, message: str, *, within_s: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.within_s = within_s


class ModelError(TracklogError):
    exit_code = 3


class ModelUnavailable(ModelError): ...


class ModelRefused(ModelError): ...


class ModelMalformed(ModelError): ...


class RecordingEnded(ModelError): ...


class RecordError(TracklogError): ...


class ForeignRecord(RecordError): ...


class UnknownSchema(RecordError): ...


class TamperedRecord(RecordError): ...


class BlobError(TracklogError):
    exit_code = 3


class BlobMissing(BlobError): ...


class BlobAltered(BlobError): ...


class ColdError(TracklogError):
    exit_code = 3


class ColdUnavailable(ColdError): ...


class ColdMissing(ColdError): ...


class ColdRefused(ColdError): ...


class ColdMismatch(ColdError): ...


class ColdDamaged(ColdError): ...


class ColdConflict(ColdError): ...


class WorkspaceError(TracklogError):
    exit_code = 3


class StoreError(TracklogError):
    exit_code = 3


class StoreUnavailable(StoreError): ...


class StoreUnsafe(StoreError): ...


class StoreConflict(StoreError): ...


class NotFolded(StoreError): ...


class ReadBehind(StoreError): ...


class RegistryError(TracklogError):
    exit_code = 3


class SchemaIncompatible(RegistryError): ...


class OutputError(TracklogError):
    exit_code = 3


class StackError(TracklogError):
    exit_code = 3
