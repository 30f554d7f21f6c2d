"""A processor whose batches also go somewhere else than the store."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["Outlet"]


class Outlet(ABC):
    """Beside `Processor`, in the process that folds. What a batch has for the outside is delivered before its position
    is stored: after a crash, or when the store was away, it is delivered again. So it has identities of its own."""

    @abstractmethod
    def opened(self) -> None:
        """A batch begins, or begins again: what was collected of it is dropped."""

    @abstractmethod
    def deliver(self) -> None:
        """The batch was taken in. Raises StoreUnavailable when it could not be delivered: it then comes again."""
