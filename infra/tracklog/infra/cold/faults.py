"""What deltalake, the object stores and the disk say, as errors of ours with a way out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tracklog.schemas.errors import BlobError, ColdConflict, ColdError, ColdMissing, ColdRefused, ColdUnavailable

__all__ = ["explained", "speaking_of"]

MESSAGE_CHARS_MAX: Final = 400
_COLOURS = re.compile(r"\x1b\[[0-9;]*m|↳")
_NO_BUCKET = re.compile(
    r"NoSuchBucket|Error performing (?:list request|PUT ).*404 Not Found", re.IGNORECASE | re.DOTALL
)  # what is listed or written need not be there before: what was not found is the bucket
_PLAIN_HTTP = re.compile(r"URL scheme is not allowed", re.IGNORECASE)
_DENIED = re.compile(
    r"\b401\b|\b403\b|AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId|Unauthenticated|PermissionDenied"
    r"|Permission denied|Read-only file system|Operation not permitted",
    re.IGNORECASE,
)
_FULL = re.compile(r"No space left|quota exceeded|File too large", re.IGNORECASE)
_IN_THE_WAY = re.compile(r"File exists|Not a directory", re.IGNORECASE)
_GONE = re.compile(r"File not found|No such file|404 Not Found", re.IGNORECASE)
_RACED = re.compile(r"Concurrent transaction|concurrent transaction|Failed to commit transaction: \d+|already exists")


@contextmanager
def speaking_of(what: str) -> Iterator[None]:
    """Raises in place of what deltalake and pyarrow raise inside a ColdError that begins with `what`."""
    try:
        yield
    except ColdError:
        raise
    except (DeltaError, BlobError, pa.ArrowException, OSError, ValueError) as error:
        raise explained(error, what) from error


def explained(error: Exception, what: str) -> ColdError:
    """The error of ours for one of theirs. Their texts have pages of colour and no secret, but are cut anyway."""
    said = _COLOURS.sub(" ", error.message if isinstance(error, BlobError) else str(error))
    text = f"{what}: {' '.join(said.split())[:MESSAGE_CHARS_MAX]}"
    if isinstance(error, CommitFailedError) and _RACED.search(said):
        return ColdConflict(text, hint="somebody else has written: nothing was lost, try again")
    if _FULL.search(said):
        return ColdRefused(text, hint="the disk is full: free some space, nothing was lost")
    if _IN_THE_WAY.search(said):
        return ColdRefused(text, hint="a file stands where a directory is needed: name another address")
    if _DENIED.search(said):
        return ColdRefused(text, hint="not allowed: check [cold.options], the credentials and the rights")
    if _PLAIN_HTTP.search(said):
        return ColdRefused(
            text, hint="the endpoint is plain http: allow it by cold.options.allow_http=true, or use https"
        )
    if _NO_BUCKET.search(said):
        return ColdMissing(text, hint="there is no such bucket: make it, or check the address and [cold.options]")
    if isinstance(error, TableNotFoundError):
        return ColdMissing(text, hint="no table is there: check the address, or run `tracklog export`")
    if _GONE.search(said):
        return ColdMissing(
            text, hint="a file of the table is gone: was the table removed, or set back to an older copy?"
        )
    if isinstance(error, BlobError) and error.hint and "[cold.options]" not in error.hint:
        return ColdRefused(text, hint=error.hint)
    return ColdUnavailable(text, hint="is the store well? Nothing was lost: the same is tried again")
