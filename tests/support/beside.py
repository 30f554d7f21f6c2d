"""Something that goes on in a thread beside a test, for as long as a block lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["beside"]


@contextmanager
def beside(work: Callable[[threading.Event], object], end_s: float) -> Iterator[None]:
    """Calls `work` with an event that is set when the block ends; waits for its end, `end_s` seconds at most. What it
    raises is raised there."""
    stop, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(end_s)
    assert not thread.is_alive(), f"it did not end within {end_s:g} s"
    if errors:
        raise errors[0]
