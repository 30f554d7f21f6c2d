"""What to read of the projection: the filter of a list, and the cursor between its pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from tracklog.processors.indexes import BY_TIME, by_label, by_model, by_status, by_swarm, by_tenant, by_tool
from tracklog.processors.trajectory import STATUSES
from tracklog.schemas.errors import InputError, RangeError


@dataclass(frozen=True, slots=True)
class Filter:
    """A trajectory passes when all that is given holds. Times are of its last append, in milliseconds since 1970:
    `since_ms` inclusive, `until_ms` exclusive. `model` is one asked for or served; `tool` one it called."""

    tenant: str | None = None
    status: str | None = None
    tool: str | None = None
    model: str | None = None
    swarm: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    since_ms: int | None = None
    until_ms: int | None = None

    def index_keys(self) -> list[str]:
        """The index of each condition; the one by time when there is none."""
        keys = [by_label(name, value) for name, value in self.labels.items()]
        if self.tenant is not None:
            keys.append(by_tenant(self.tenant))
        if self.status is not None:
            keys.append(by_status(self.status))
        if self.tool is not None:
            keys.append(by_tool(self.tool))
        if self.model is not None:
            keys.append(by_model(self.model))
        if self.swarm is not None:
            keys.append(by_swarm(self.swarm))
        return keys if keys else [BY_TIME]


def checked_status(status: str | None) -> str | None:
    """The same. Raises InputError for a word that no trajectory ever has: misspelt, it would find nothing."""
    if status is not None and status not in STATUSES:
        raise InputError(f"there is no status {status!r}", hint=f"it is one of {', '.join(STATUSES)}")
    return status


_CURSOR: Final = re.compile(r"(-?[0-9]{1,16}):(.+)", re.DOTALL)


class Cursor(NamedTuple):
    """A place in a list: of trajectories by the time of the last append, of anything else by its score; and by id (or
    member) where these are equal."""

    last_ms: int
    trajectory_id: str

    def token(self) -> str:
        """As text, to be handed around; `of` takes it back."""
        return f"{self.last_ms}:{self.trajectory_id}"

    @classmethod
    def of(cls, token: str) -> Self:
        """Raises RangeError for a text that is no cursor."""
        found = _CURSOR.fullmatch(token)
        if found is None or not found[1].isascii():
            raise RangeError(f"{token!r} is no cursor", hint="use the one that the page before gave")
        return cls(int(found[1]), found[2])
