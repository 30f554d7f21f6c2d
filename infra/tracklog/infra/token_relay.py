"""Text of a model while it comes, given on through Redis: a short stream for each trajectory, never in the log.

What is in it may be cut, late or missing: the reply that the log has is the truth. A record says of which try it is
(`attempt`): a call that is made again, by the same process or the next one, begins another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.schemas.errors import StoreError

__all__ = ["Heard", "append", "heard_since"]

RECORDS_MAX: Final = 1000
"""Of one trajectory that are kept, about; older ones go."""
KEPT_MS: Final = 600_000
"""How long after the last one they are kept."""
READ_MAX: Final = 500
TEXT_CHARS_MAX: Final = 4096
"""Of one record."""


class Heard(NamedTuple):
    """`reply`: how many replies of the trajectory came before this one. Begins an attempt when `text` is None."""

    reply: int
    attempt: str
    text: str | None = None


def append(client: RedisClient, prefix: str, said: Sequence[tuple[str, Heard]]) -> None:
    """Adds (trajectory id, what was heard) in order. Raises StoreUnavailable, StoreError."""
    commands: list[Sequence[str | bytes | int]] = []
    for trajectory_id, one in said:
        key = _key(prefix, trajectory_id)
        fields = ("r", one.reply, "a", one.attempt, *(() if one.text is None else ("t", _bytes(one.text))))
        commands += [("XADD", key, "MAXLEN", "~", RECORDS_MAX, "*", *fields), ("PEXPIRE", key, KEPT_MS)]
    ask(client, commands)


def heard_since(client: RedisClient, prefix: str, after: Sequence[tuple[str, str]]) -> list[tuple[str, list[Heard]]]:
    """Of each (trajectory id, place): the place behind what is there now, and what is there. "" is the beginning.

    Raises StoreUnavailable, StoreError.
    """
    commands = [("XRANGE", _key(prefix, one), f"({at}" if at else "-", "+", "COUNT", READ_MAX) for one, at in after]
    found: list[tuple[str, list[Heard]]] = []
    for (_, at), entries in zip(after, ask(client, commands), strict=True):
        place = entries[-1][0].decode() if entries else at
        found.append((place, list(_heard(entries))))
    return found


def _heard(entries: Any) -> Iterator[Heard]:
    for _, fields in entries:
        try:
            text = fields.get(b"t")
            shown = None if text is None else text.decode("utf-8", "replace")
            yield Heard(int(fields[b"r"]), fields[b"a"].decode(), shown)
        except (KeyError, ValueError, AttributeError) as error:
            raise StoreError(f"a record of the token relay cannot be read: {error}") from error


def _key(prefix: str, trajectory_id: str) -> str:
    return f"{prefix}:tokens:{{{trajectory_id}}}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
