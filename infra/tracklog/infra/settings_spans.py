"""The settings of exporting spans (DESIGN §12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, SecretStr

from tracklog.infra.settings_base import Positive, Section
from tracklog.infra.settings_http import Url

__all__ = ["SpanSettings"]


class SpanSettings(Section):
    """`tracklog process spans`: OpenTelemetry spans out of the log (extra `otel`)."""

    endpoint: Url = ""
    """Where they go: an OTLP/HTTP address with its path, as `https://collector:4318/v1/traces`. Default: empty; the
    processor then does not start."""
    headers: Mapping[str, SecretStr] = Field(default_factory=dict)
    """Headers that are sent with them, for collectors that ask who it is. Never shown. Default: none."""
    service_name: Annotated[str, Field(min_length=1)] = "tracklog"
    """What backends call it (`service.name`)."""
    timeout_s: Positive = 10.0
    """Seconds in which the collector has to take a batch, tries included. After it the loop waits and tries again; what
    is folded by the same process waits too, so let it be a process of its own."""
    age_s_max: Positive = 86_400.0
    """Seconds after which a span that ended is history and is not exported, as when the log is read from its
    beginning. Default a day."""
