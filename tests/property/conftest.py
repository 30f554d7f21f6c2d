"""Property tests draw fewer examples than Hypothesis does by itself, and no slow machine fails them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "tracklog", deadline=None, max_examples=50, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tracklog")
