"""Process 1 of a container ends at SIGTERM from its first line on; another process is left as it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tracklog.consumers.cli.app import TERMINATED, hear_sigterm


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_process_one_ends_at_sigterm() -> None:
    hear_sigterm(1)

    with pytest.raises(SystemExit) as ended:
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == TERMINATED == 143


def test_another_process_keeps_what_the_system_does() -> None:
    before = signal.getsignal(signal.SIGTERM)

    hear_sigterm(os.getpid())

    assert signal.getsignal(signal.SIGTERM) is before
