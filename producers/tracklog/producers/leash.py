"""How whoever runs a program can have it stop at its next step, and learn where its trajectory stands then."""

from __future__ import annotations

from tracklog.schemas.lifecycle import Parked
from tracklog.schemas.state import State

__all__ = ["Leash"]


class Leash:
    """Given to `durable`. After `pull`, whatever the program asks for that is not recorded raises the error.

    `state` is the trajectory's when it was let go of, None when that is not known: somebody else may have it.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.state: State | None = None

    def pull(self, error: Exception) -> None:
        """Stops the program where it is; what it has begun comes to its end."""
        self.error = error

    def let_go(self, state: State, parked: Parked) -> None:
        """The trajectory was released; the state is the one before that."""
        head = state.head._replace(owner=None)
        self.state = state._replace(head=head) if state.ended else state._replace(head=head, parked=parked, tries=0)

    def check(self) -> None:
        if self.error is not None:
            raise self.error
