"""Python's cyclic garbage collector, set for a process that lets many small objects live for a moment.

Folding makes a dozen containers an event and keeps none of them; at the default threshold of 700 the collector
walks the states in memory over and over, which took a fifth of the time of a projection. Only a program that owns
its process calls this, never a library.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS_MAX: Final = 100_000
"""Containers made before the youngest are looked at: about 20 MB of them at the most."""
GENERATIONS: Final = (50, 100)
"""Collections of a generation before the next older one is looked at too."""


def collect_rarely() -> None:
    """What is there now is set aside for good; the rest is looked at less often."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, *GENERATIONS)
